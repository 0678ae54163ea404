"""Mistakes in when the operator takes a node out of service."""

from __future__ import annotations

from typing import Final

from kit.planted_mistakes.mistake import Mistake

_OPERATOR: Final = "operator/quorate_operator"
_OBSTACLES: Final = f"{_OPERATOR}/planning/restart_obstacles.py"
_ROLLS: Final = ("unit/operator/planning/test_rollout.py",)
_LISTENERS: Final = f"{_OPERATOR}/planning/listeners.py"
_MOVES: Final = ("unit/operator/planning/test_listeners.py",)
_PODS: Final = ("unit/operator/planning/test_shared_pods.py",)
_CERTIFICATES: Final = ("unit/operator/resources/test_cluster_authority.py",)

MISTAKES: Final = (
    Mistake(
        name="a start is given up after a minute",
        file=_OBSTACLES,
        edits=(
            (
                "    if not _is_starting(desired, observed, seen, now_ms):\n        return None\n",
                "    return None\n",
            ),
        ),
        harm="a broker that recovers its logs is killed by any change, and recovers them again",
        tests=_ROLLS,
    ),
    Mistake(
        name="controllers roll beside a broker that is coming back",
        file=_OBSTACLES,
        edits=(
            (
                "None if forced else _broker_on_its_way(desired, observed, now_ms, except_for=seen.pod_mate)",
                "None",
            ),
        ),
        harm="two nodes are out of service at once",
        tests=_ROLLS,
    ),
    Mistake(
        name="partitions without a leader are fragile",
        file=f"{_OPERATOR}/gateway/facts.py",
        edits=(("            if not partition.has_leader:\n", "            if partition.leader < -1:\n"),),
        harm="the only broker that could lead a partition again is never restarted",
        tests=("unit/operator/gateway/test_facts.py",),
    ),
    Mistake(
        name="a forced restart takes the majority of a quorum",
        file=_OBSTACLES,
        edits=(
            (
                "    forbidden = view.forbids_stop(node.node_id)\n",
                "    forbidden = None if forced else view.forbids_stop(node.node_id)\n",
            ),
        ),
        harm="an impatient user stops the quorum",
        tests=_ROLLS,
    ),
    Mistake(
        name="a pod is restarted for its controller alone",
        file=_OBSTACLES,
        edits=(
            (
                "    return broker_obstacle(broker, desired, observed, now_ms, forced=forced)\n",
                "    return None\n",
            ),
        ),
        harm="a change of the controllers takes partitions below min.insync.replicas",
        tests=_PODS,
    ),
    Mistake(
        name="a broker that leaves takes a voter with it",
        file=f"{_OPERATOR}/planning/decommission.py",
        edits=(
            (
                "controller is not None and controller.node_id in self.kafka.quorum.voters",
                "controller is not None and controller.node_id in self.held",
            ),
        ),
        harm="the quorum loses a voter without a successor, and may lose its majority",
        tests=_PODS,
    ),
    Mistake(
        name="a broker starts without the controller in its pod",
        file=f"{_OPERATOR}/planning/pods.py",
        edits=(
            (
                "        if mate_id in given:\n",
                "        if not mate.state.runs:\n",
            ),
        ),
        harm="the pod waits for a volume that another voter still has, or runs without its controller",
        tests=_PODS,
    ),
    Mistake(
        name="a controller ends at the same time as its broker",
        file=f"{_OPERATOR}/resources/shared_pods.py",
        edits=(('node | {"restartPolicy": "Always"}', "node"),),
        harm="brokers ask in vain for their controlled shutdown, and recover their logs",
        tests=("unit/operator/resources/test_shared_pods.py",),
    ),
    Mistake(
        name="an unregistered broker is restarted before it has served",
        file=f"{_OPERATOR}/planning/registrations.py",
        edits=(("seen.state is NodeState.UNREADY or starts_long", "seen.state.runs"),),
        harm="a broker that can't register is restarted every minute",
        tests=_ROLLS,
    ),
    Mistake(
        name="claims are deleted while those of another node are going",
        file=f"{_OPERATOR}/planning/replacement.py",
        edits=(
            (
                '        if loses_volumes(seen):\n            return f"{other.label} gets new volumes"\n',
                "",
            ),
        ),
        harm="the disks of all nodes of a request are lost with their next stops, one beside the other",
        tests=("unit/operator/planning/test_replacement.py",),
    ),
    Mistake(
        name="volumes are unbound as soon as their machine is away",
        file=f"{_OPERATOR}/planning/replacement.py",
        edits=(("due_ms = lost.since_ms + after_ms", "due_ms = lost.since_ms"),),
        harm="a machine that restarts loses the data of its nodes",
        tests=("unit/operator/planning/test_replacement.py",),
    ),
    Mistake(
        name="volumes are unbound while the pod may run",
        file=f"{_OPERATOR}/planning/replacement.py",
        edits=(("elif lost.has_pod:", "elif lost.has_pod and False:"),),
        harm="two processes have the same node id, one of them on a machine that is cut off",
        tests=("unit/operator/planning/test_replacement.py",),
    ),
    Mistake(
        name="a recovery is for any loss",
        file=f"{_OPERATOR}/planning/recovery.py",
        edits=(("        formation.leader_epoch,\n    )", "        asked.leader_epoch,\n    )"),),
        harm="a request that stays in a manifest rebuilds the quorum again, and records are lost without a decision",
        tests=("unit/operator/planning/test_recovery.py",),
    ),
    Mistake(
        name="a drained broker is forgotten before its throttles are removed",
        file=f"{_OPERATOR}/planning/decommission.py",
        edits=(("(ReassignPartitions, ForgetNode)", "(ReassignPartitions,)"),),
        harm="the replication of all brokers stays throttled for good",
        tests=("unit/operator/planning/test_drain_throttles.py",),
    ),
    Mistake(
        name="a controller on a machine that is gone holds up brokers",
        file=f"{_OPERATOR}/planning/rollout.py",
        edits=(
            (
                "    if not all(restart.seen.unreachable_host for restart in controllers):\n",
                "    if controllers:\n",
            ),
        ),
        harm="a roll never ends, although nothing is wrong with the nodes that are left",
        tests=("unit/operator/planning/test_blocked_rolls.py",),
    ),
    Mistake(
        name="a voter is added by what its former process fetched",
        file=f"{_OPERATOR}/planning/membership.py",
        edits=(("not (is_ready and observer.caught_up)", "not observer.caught_up"),),
        harm="a quorum counts on a voter that does not fetch yet",
        tests=("unit/operator/planning/test_membership.py",),
    ),
    Mistake(
        name="brokers have the time of controllers to stop",
        file=f"{_OPERATOR}/planning/lifecycle.py",
        edits=(
            (
                "CONTROLLER_GRACE_MS if role is Role.CONTROLLER else BROKER_GRACE_MS",
                "CONTROLLER_GRACE_MS",
            ),
        ),
        harm="a broker is killed in its controlled shutdown, and recovers its logs when it starts",
        tests=("unit/operator/planning/test_lifecycle.py",),
    ),
    Mistake(
        name="Events are shown on the page of any cluster that a resource names",
        file=f"{_OPERATOR}/handlers/entities/reports.py",
        edits=(
            (
                "        return self._key.event_key if is_own or member.is_admitted else None\n",
                "        return self._key.event_key\n",
            ),
        ),
        harm="a tenant writes into the status page of another one",
        tests=("unit/operator/handlers/test_entity_groups.py",),
    ),
    Mistake(
        name="the login of a deleted Secret is used for all resources",
        file=f"{_OPERATOR}/handlers/entities/group.py",
        edits=(
            (
                "            leaving = [work for work in works if is_deleted(work.member.body)]\n",
                "            leaving = list(works)\n",
            ),
        ),
        harm="a login that was withdrawn by the deletion of its Secret still changes topics",
        tests=("unit/operator/handlers/test_entity_deletions.py",),
    ),
    Mistake(
        name="an authority is trusted when one node trusts it",
        file=f"{_OPERATOR}/resources/cluster_authority.py",
        edits=(
            (
                "return trusted.intersection(*(node.trusted for node in nodes))",
                "return trusted.intersection(*(node.trusted for node in nodes[:1]))",
            ),
        ),
        harm="nodes show certificates that others do not trust yet",
        tests=_CERTIFICATES,
    ),
    Mistake(
        name="a former authority is dropped while a node shows its certificate",
        file=f"{_OPERATOR}/resources/authority.py",
        edits=(("case Stage.SIGNING if set(in_use) <= {known.signing.fingerprint}:", "case Stage.SIGNING:"),),
        harm="nodes that were not restarted yet are cut off",
        tests=_CERTIFICATES,
    ),
    Mistake(
        name="a certificate is signed that running nodes would not trust",
        file=f"{_OPERATOR}/resources/cluster_authority.py",
        edits=(("    if distrusting:\n", "    if distrusting and pair is not None:\n"),),
        harm="brokers of a pool that had another authority can't fetch from each other",
        tests=_CERTIFICATES,
    ),
    Mistake(
        name="a Secret is taken for one of the cluster by its label",
        file=f"{_OPERATOR}/resources/issued_certificates.py",
        edits=(('reference.get("uid") == uid and', "reference and"),),
        harm="the operator overwrites a Secret of another owner",
        tests=("unit/operator/kubernetes_runtime/test_issued_certificates.py",),
    ),
    Mistake(
        name="brokers change their password in place",
        file=f"{_OPERATOR}/planning/logins.py",
        edits=(("    fault = _fault_between_brokers(desired, running)\n", "    fault = None\n"),),
        harm="the first broker that restarts can't fetch from the others, nor they from it",
        tests=("unit/operator/planning/test_logins.py",),
    ),
    Mistake(
        name="a former password ends when the next one is set",
        file=f"{_OPERATOR}/entities/users.py",
        edits=(
            (
                "        others = observed.mechanisms - {mechanism, former}\n",
                "        others = observed.mechanisms - {mechanism}\n",
            ),
        ),
        harm="clients that were not deployed again yet are locked out",
        tests=("unit/operator/entities/test_password_overlap.py",),
    ),
    Mistake(
        name="a new authority signs as soon as nodes trust it",
        file=f"{_OPERATOR}/resources/cluster_authority.py",
        edits=(("    if not (nodes and _is_announced(", "    if True or not (nodes and _is_announced("),),
        harm="clients outside refuse the nodes before they could read the new authority",
        tests=_CERTIFICATES,
    ),
    Mistake(
        name="nodes connect by a new listener as soon as processes serve it",
        file=_LISTENERS,
        edits=(("if voter.endpoints and name not in voter.endpoints:", "if not voter.endpoints:"),),
        harm="a candidate has no address of the voters that the voter set has at the former listener alone",
        tests=_MOVES,
    ),
    Mistake(
        name="a listener that was removed is dropped while nodes connect by it",
        file=f"{_OPERATOR}/models/started_listeners.py",
        edits=(
            (
                "    whole = _with_ports([*listeners, *kept_on], known)\n",
                "    whole = _with_ports(listeners, known)\n",
            ),
        ),
        harm="the nodes that were not restarted yet are cut off from those that were",
        tests=_MOVES,
    ),
    Mistake(
        name="a stopped cluster starts by the listeners of its manifest alone",
        file=_LISTENERS,
        edits=(("        if kafka is None:\n", "        if kafka is None:\n            return ()\n"),),
        harm="voters know each other at the former listener: no leader is ever elected",
        tests=_MOVES,
    ),
)
