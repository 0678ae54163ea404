"""Problems of a cluster, from the status of its resources, with the commands that help. Pure."""

from collections.abc import Collection, Iterator

from quorate_admin.diagnosis import Severity
from quorate_operator.models.status import NODE_PROBLEM, NODES_FAILED, Condition, KafkaBrokerStatus
from quorate_protocol.plain_data import dataclass

from quorate.clusters.resources import Cluster, Pool

_ORDER = tuple(Severity)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFinding:
    """One finding. `about` names the resource, `commands` are what the user can type next."""

    severity: Severity
    about: str
    message: str
    commands: tuple[str, ...] = ()


def findings_of(cluster: Cluster) -> tuple[ClusterFinding, ...]:
    """Return all findings about a cluster, the worst first."""
    found = [*_of_quorum(cluster), *_of_empty_brokers(cluster)]
    for pool in cluster.pools:
        found += _of_pool(pool)
    return tuple(sorted(found, key=lambda finding: _ORDER.index(finding.severity)))


def is_healthy(findings: tuple[ClusterFinding, ...]) -> bool:
    """Whether all findings are mere notes."""
    return all(finding.severity is Severity.NOTE for finding in findings)


def _of_quorum(cluster: Cluster) -> Iterator[ClusterFinding]:
    about, status = _about(cluster.controllers), cluster.status
    if cluster.is_paused:
        yield ClusterFinding(
            severity=Severity.NOTE,
            about=about,
            message="It is paused: the operator changes nothing.",
            commands=(f"kubectl quorate resume {cluster.name} -n {cluster.namespace}",),
        )
    for voter in status.voters:
        if not voter.caught_up:
            behind = "" if voter.lag is None else f", {voter.lag} records behind the leader"
            yield ClusterFinding(
                severity=Severity.WARNING,
                about=about,
                message=f"Voter {voter.node_id} is not caught up{behind}.",
                commands=(f"kubectl logs {cluster.name}-{voter.node_id} -n {cluster.namespace}",),
            )
    if len(status.voters) == 1 and cluster.controllers.spec.get("replicas") == 1:
        yield ClusterFinding(
            severity=Severity.NOTE,
            about=about,
            message="The quorum has a single voter: while it is down, so is the quorum.",
            commands=(f"kubectl scale kafkacontroller {cluster.name} -n {cluster.namespace} --replicas=3",),
        )
    for registration in status.registrations:
        if registration.ghost:
            blocks = f", which blocks {registration.blocks}" if registration.blocks else ""
            yield ClusterFinding(
                severity=Severity.BLOCKED if registration.blocks else Severity.NOTE,
                about=about,
                message=f"Controller {registration.node_id} is a ghost: it is registered and gone{blocks}.",
            )


def _of_empty_brokers(cluster: Cluster) -> Iterator[ClusterFinding]:
    """Yield a note on brokers that hold nothing while others do: nothing moves to a new broker by itself."""
    counts: dict[int, int] = {}
    for pool in cluster.brokers:
        status = pool.status
        assert isinstance(status, KafkaBrokerStatus)
        counts |= {
            broker.node_id: broker.replicas
            for broker in status.brokers
            if broker.replicas is not None
            and broker.state == "ready"
            and broker.node_id not in pool.decommission
        }
    empty = ",".join(str(node_id) for node_id, replicas in sorted(counts.items()) if not replicas)
    if empty and any(counts.values()):
        command = (
            f"kubectl quorate rebalance {cluster.name} -n {cluster.namespace} --add-brokers={empty} --preview"
        )
        yield ClusterFinding(
            severity=Severity.NOTE,
            about=_about(cluster.controllers),
            message=f"Broker(s) {empty.replace(',', ', ')} hold no replica.",
            commands=(command,),
        )


def _of_pool(pool: Pool) -> Iterator[ClusterFinding]:
    about, status = _about(pool), pool.status
    if not status.conditions:
        yield ClusterFinding(
            severity=Severity.WARNING,
            about=about,
            message="No operator manages it: its status is empty.",
            commands=("kubectl get deployments --all-namespaces -l app.kubernetes.io/name=quorate",),
        )
        return
    if status.observed_generation is not None and status.observed_generation < pool.generation:
        yield ClusterFinding(
            severity=Severity.NOTE,
            about=about,
            message=f"The operator has not seen its last change (generation {pool.generation}); "
            f"the status is that of generation {status.observed_generation}.",
        )
    yield from _of_conditions(about, pool.conditions, {refusal.code for refusal in status.refusals})
    for refusal in status.refusals:
        yield ClusterFinding(
            severity=Severity.BLOCKED, about=about, message=f"{refusal.code}: {refusal.message}"
        )
    for step in status.plan:
        if step.waits_for:
            yield ClusterFinding(
                severity=Severity.NOTE, about=about, message=f"The plan waits for {step.waits_for}"
            )
            break  # all later steps wait for this one, too


def _of_conditions(
    about: str, conditions: dict[str, Condition], refused: Collection[str]
) -> Iterator[ClusterFinding]:
    """Yield the bad conditions, without Stalled for one of the refusals, which are listed.

    Ready is left out if another condition has the reason, unless nodes have failed.
    """
    bad = {
        "QuorumHealthy": ("False", Severity.DANGER),
        "UpgradeBlocked": ("True", Severity.BLOCKED),
        "Stalled": ("True", Severity.WARNING),
        "ClientsRebootstrap": ("False", Severity.WARNING),
    }
    is_explained = False
    for kind, (status, severity) in bad.items():
        condition = conditions.get(kind)
        if condition is not None and condition.status == status:
            is_explained = is_explained or kind != "ClientsRebootstrap"
            if kind == "Stalled" and condition.reason in refused:
                continue
            yield ClusterFinding(
                severity=severity, about=about, message=f"{kind} is {status}: {condition.message}"
            )
    ready = conditions.get("Ready")
    reconciling = conditions.get("Reconciling")
    has_failed = ready is not None and ready.reason in (NODE_PROBLEM, NODES_FAILED)
    if ready is not None and ready.status != "True" and (has_failed or not is_explained):
        moves = reconciling is not None and reconciling.status == "True" and not has_failed
        yield ClusterFinding(
            severity=Severity.NOTE if moves else Severity.WARNING,
            about=about,
            message=f"It is not ready: {ready.message}",
        )


def _about(pool: Pool) -> str:
    return f"{pool.kind} {pool.namespace}/{pool.name}"
