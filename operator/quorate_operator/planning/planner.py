"""`plan(desired, observed, now_ms)`: the remaining steps, each with its reason. Pure.

Each concern is a module with a pure function that returns its due steps and waits. They are merged in this order:

    addresses, storage, starts      missing nodes are brought back; nothing is stopped
    volumes                         they are created, and grow while their nodes run; removed ones are emptied
    membership                      one voter is added or removed
    registrations, kraft.version    obstacles of a level are removed
    decommission of brokers         drained, stopped, forgotten
    replacement of volumes          the volumes of one node are deleted; the roll restarts it
    rollout                         one node is restarted
    features                        a level is finalized once every node supports it
    listeners                       those by which nodes connect; `stage` decides before all others
    levels of loggers               set while nodes run

Only one living node at a time is taken out of service, by a change of the voter set or by a restart, and none while a
first start is due. Decommissioned brokers are stopped when they hold no replica.
"""

from dataclasses import replace

from quorate_operator.planning.addresses import plan_addresses
from quorate_operator.planning.cluster import DesiredCluster, Lifecycle, NodeState, ObservedCluster
from quorate_operator.planning.decommission import plan_decommission, refuse_while_hibernated
from quorate_operator.planning.features import plan_features, plan_migration, target_level
from quorate_operator.planning.formation import plan_formation
from quorate_operator.planning.lifecycle import late_starts, stop_all, wait_for_ready
from quorate_operator.planning.listeners import plan_listeners
from quorate_operator.planning.liveness import plan_starts
from quorate_operator.planning.log_levels import plan_log_levels
from quorate_operator.planning.membership import plan_membership
from quorate_operator.planning.pods import moved_controllers
from quorate_operator.planning.recovery import plan_recovery, refuse_without_quorum
from quorate_operator.planning.registrations import plan_registrations
from quorate_operator.planning.replacement import plan_replacement
from quorate_operator.planning.rollout import due_for_restart, plan_rollout
from quorate_operator.planning.steps import (
    AddVoter,
    CreateNode,
    FinalizeFeature,
    KafkaAction,
    Part,
    Plan,
    Refusal,
    ReleaseVolume,
    RemoveVoter,
    ReplaceVolumes,
    StartNode,
    StopNode,
    WaitFor,
    merge,
)
from quorate_operator.planning.volumes import plan_volume_removal, plan_volumes

PAUSED = "Paused"
"""Refusal code of a paused cluster."""


def plan(desired: DesiredCluster, observed: ObservedCluster, now_ms: int) -> Plan:
    """Return the steps from the observed to the desired cluster.

    `observed` has every desired node, an absent one as ABSENT. A plan without steps means that nothing is left to do;
    `refusals` has what is asked for and not done. `now_ms` is Unix time in milliseconds.
    """
    if not desired.running:
        return Plan(steps=stop_all(observed, desired.rollouts, reason="the cluster stops"))
    if desired.lifecycle is Lifecycle.PAUSED:
        return _nothing(
            PAUSED, f"the cluster {desired.name} is paused: nothing is changed until it is resumed"
        )
    mismatch = _cluster_id_mismatch(desired, observed)
    if mismatch is not None:
        return _nothing("ClusterIdMismatch", mismatch)
    moved = moved_controllers(desired, observed)
    if moved is not None:
        return _nothing("PlacementChanged", moved)
    if desired.lifecycle is Lifecycle.HIBERNATED:
        return Plan(
            steps=stop_all(observed, desired.rollouts, reason="the cluster hibernates"),
            refusals=refuse_while_hibernated(desired),
        )
    recovery = plan_recovery(desired, observed)
    if recovery is not None:
        return Plan(steps=(*recovery.due, *recovery.rest), refusals=recovery.refusals)
    part = _running(desired, observed, now_ms)
    refusals = (*refuse_without_quorum(desired, observed), *part.refusals)
    return Plan(steps=(*part.due, *part.rest), refusals=refusals, postponed=part.postponed)


def _running(desired: DesiredCluster, observed: ObservedCluster, now_ms: int) -> Part:
    """Plan a cluster that is to serve."""
    addresses = plan_addresses(desired, observed, now_ms)
    published = Part(due=addresses.steps, refusals=addresses.refusals)
    created = plan_formation(desired, observed)
    starts = plan_starts(desired, observed, now_ms, created, addresses)
    volumes = merge((plan_volumes(desired, observed), plan_volume_removal(desired, observed)))
    membership = plan_membership(desired, observed)
    registrations = plan_registrations(desired, observed, target_level(desired))
    decommission = plan_decommission(desired, observed, now_ms)
    migration = plan_migration(desired, observed)
    replacement = plan_replacement(desired, observed, now_ms)
    first = merge((created, starts, membership, migration, volumes, replacement))
    rollout = plan_rollout(desired, observed, now_ms, addresses, hold=_hold(first))
    if _stops_leader(rollout, observed) and _asks_kafka(merge((registrations, decommission))):
        hold = "the active controller has other changes to make first"
        rollout = plan_rollout(desired, observed, now_ms, addresses, hold=hold)
    pending = frozenset(
        (
            *due_for_restart(desired, observed, addresses, now_ms),
            *(restart.node_id for restart in rollout.postponed),
            *decommission.node_ids,
            *_on_their_way(desired, observed),
        )
    )
    features = plan_features(desired, observed, pending)
    parts = (
        published,
        created,
        starts,
        membership,
        registrations,
        decommission,
        migration,
        replacement,
        rollout,
        features,
    )
    late = late_starts(desired, observed, now_ms)
    moves = plan_listeners(desired, observed)
    waits = Part(rest=(*addresses.waits, *late))
    whole = merge((*parts, plan_log_levels(desired, observed), volumes, moves, waits))
    waited = {node_id for step in whole.rest if isinstance(step, WaitFor) for node_id in step.node_ids}
    return replace(whole, rest=(*whole.rest, *wait_for_ready(desired, observed, waited)))


def _hold(first: Part) -> str | None:
    """Return why no node may be stopped now: another step is due, and must be observed as done first."""
    if any(isinstance(step, AddVoter | RemoveVoter | FinalizeFeature) for step in first.due):
        return "the quorum changes"
    if any(isinstance(step, CreateNode | StartNode) for step in first.due):
        return "nodes that are down are started first"
    if any(isinstance(step, ReleaseVolume | ReplaceVolumes) for step in first.due):
        return "volumes are released or replaced first"
    return None


def _stops_leader(rollout: Part, observed: ObservedCluster) -> bool:
    leader_id = observed.kafka.quorum.leader_id if observed.kafka else None
    return any(isinstance(step, StopNode) and step.node_id == leader_id for step in rollout.due)


def _asks_kafka(part: Part) -> bool:
    return any(isinstance(step, KafkaAction) for step in part.due)


def _on_their_way(desired: DesiredCluster, observed: ObservedCluster) -> tuple[int, ...]:
    """Return desired nodes that are not ready, and other nodes that run or vote and are to leave."""
    asked = {node.node_id for node in desired.nodes}
    voters = observed.kafka.quorum.voters.keys() if observed.kafka else ()
    coming = [node_id for node_id in asked if observed.nodes[node_id].state is not NodeState.READY]
    going = [
        seen.node_id for seen in observed.nodes.values() if seen.state.runs and seen.node_id not in asked
    ]
    return (*coming, *going, *(node_id for node_id in voters if node_id not in asked))


def _nothing(code: str, message: str) -> Plan:
    return Plan(steps=(), refusals=(Refusal(code, message),))


def _cluster_id_mismatch(desired: DesiredCluster, observed: ObservedCluster) -> str | None:
    """Return how the ids contradict each other if this is not the desired cluster, or the one formed here."""
    formed = observed.formation.cluster_id if observed.formation else None
    found = observed.kafka.cluster_id if observed.kafka else None
    known = [
        (desired.cluster_id, "spec.clusterId asks for"),
        (formed, "the cluster was formed as"),
        (found, "its nodes answer as"),
    ]
    ids = [(cluster_id, what) for cluster_id, what in known if cluster_id]
    if len({cluster_id for cluster_id, _ in ids}) <= 1:
        return None
    origins = ", ".join(f"{what} {cluster_id}" for cluster_id, what in ids)
    return f"{origins}: a cluster id never changes, and nothing is done until they agree"
