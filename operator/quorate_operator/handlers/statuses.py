"""The status of the resources, rendered from the view of their cluster. Pure: the time is passed in."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from quorate_protocol.features import METADATA_VERSION, metadata_version_name

from quorate_operator.models.base import without_nulls
from quorate_operator.models.status import (
    INVALID_MANIFEST,
    MESSAGE_LENGTH_MAX,
    NODE_PROBLEM,
    NODES_FAILED,
    PLAN_STEPS_MAX,
    REFUSALS_MAX,
    STEP_FAILED,
    BrokerStatus,
    ConditionType,
    HistoryStatus,
    KafkaBrokerStatus,
    KafkaControllerStatus,
    ListenerStatus,
    PlanStep,
    QuorumStatus,
    RefusalStatus,
    RegistrationStatus,
    VoterStatus,
)
from quorate_operator.planning.address_verification import ADDRESS_CODES
from quorate_operator.planning.cluster import Lifecycle, NodeState, ObservedNode, Role
from quorate_operator.planning.planner import PAUSED
from quorate_operator.planning.rollout import RESTART_SKIPPED
from quorate_operator.planning.steps import (
    STARTS_LONG,
    GrowVolume,
    Refusal,
    WaitFor,
    some_of,
    utc_text,
)
from quorate_operator.planning.volumes import CANNOT_GROW
from quorate_operator.view.clients import ClientsView
from quorate_operator.view.cluster import ClusterView, NodeView, PoolView, StepView

ROLLOUT_DUE = "RolloutDue"
"""The reason of Ready while nodes are ready, and a restart is due for some."""
RESTARTS_POSTPONED = "RestartsPostponed"
"""The reason of Ready and Reconciling while only restarts are left, which wait for a maintenance window."""
HOSTS_CHANGE = "HostsChange"
"""The reason of ClientsRebootstrap while hosts are about to change, and clients would be lost."""
DRAINING = "Draining"
"""The reason of Ready of a pool that is deleted, while its replicas move to others."""
_REQUESTED = frozenset({PAUSED, RESTART_SKIPPED})
"""The codes of refusals that the user requested."""
_NAMED_MAX = 10
"""How many nodes a message names."""
UNKNOWN_FIELDS = "UnknownFields"
"""The reason of Events about fields that the installed definitions have, and this release does not know."""


class Condition(NamedTuple):
    """A condition without its times. `status` is None for Unknown; `reason` is for programs, `message` for users."""

    type: ConditionType
    status: bool | None
    reason: str
    message: str


def controller_status(
    view: ClusterView, *, generation: int, history: HistoryStatus | None = None
) -> dict[str, Any]:
    """Return the status of a KafkaController, without conditions' times and without `formation`, which is kept."""
    pool = view.pool(view.name, is_controllers=True)
    quorum = view.described
    level = view.levels.get(METADATA_VERSION)
    status = KafkaControllerStatus(
        observed_generation=generation,
        cluster_id=view.formed_as,
        replicas=pool.running,
        ready_replicas=pool.ready,
        selector=f"quorate.dev/cluster={view.name},"
        + ("quorate.dev/runs-controller=true" if view.has_shared_pods else f"quorate.dev/pool={view.name}"),
        plan=_steps(pool.steps),
        refusals=_refusals(pool.refusals),
        version=pool.version,
        metadata_version=metadata_version_name(level) if level is not None else None,
        quorum=QuorumStatus(
            leader_id=quorum.leader_id,
            epoch=quorum.leader_epoch,
            high_watermark=quorum.high_watermark,
            kraft_version=quorum.kraft_version,
        )
        if quorum
        else None,
        voters=_voters(view),
        registrations=_registrations(view),
        history=history,
    )
    conditions = [*_common(view, pool), _quorum_health(view), _upgrade(view)]
    return _dump(status) | {"conditions": conditions_of(conditions, generation)}


def broker_status(
    view: ClusterView, *, pool: str, generation: int, listeners: tuple[ListenerStatus, ...] | None = None
) -> dict[str, Any]:
    """Return the status of a KafkaBroker, with the part of the plan that concerns its brokers.

    Without `listeners`, what the status says of them stays.
    """
    own = view.pool(pool)
    status = KafkaBrokerStatus(
        observed_generation=generation,
        replicas=own.running,
        ready_replicas=own.ready,
        selector=f"quorate.dev/cluster={view.name},quorate.dev/pool={pool}",
        plan=_steps(own.steps),
        refusals=_refusals(own.refusals),
        version=own.version,
        brokers=tuple(_broker(node) for node in own.nodes),
        listeners=listeners or (),
    )
    conditions = [*_common(view, own), _emptying(own.nodes), _clients(own.clients)]
    reported = _dump(status) | {"conditions": conditions_of(conditions, generation)}
    if listeners is None:
        del reported["listeners"]
    return reported


def _broker(node: NodeView) -> BrokerStatus:
    registration = node.registration
    endpoints = registration.endpoints if registration else {}
    return BrokerStatus(
        node_id=node.seen.node_id,
        state=node.seen.state.value,
        fenced=registration.fenced if registration else None,
        replicas=node.load.replicas if node.load else None,
        rack=registration.rack if registration else None,
        advertised={listener: str(address) for listener, address in endpoints.items()},
    )


def refused_status(
    message: str,
    generation: int,
    *,
    accepted_spec: Mapping[str, Any] | None = None,
    reason: str = INVALID_MANIFEST,
) -> dict[str, Any]:
    """Return the part of a status that says that a manifest can't be used; the rest of the status stays.

    `accepted_spec` is what is used in its place.
    """
    statuses: dict[ConditionType, bool] = {
        "Ready": False,
        "Reconciling": False,
        "Stalled": True,
    }
    conditions = [Condition(kind, status, reason, message) for kind, status in statuses.items()]
    used = {} if accepted_spec is None else {"acceptedSpec": dict(accepted_spec)}
    return {"observedGeneration": generation, "conditions": conditions_of(conditions, generation), **used}


def with_unknown_fields(status: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """Return a status whose condition Ready also names the fields that this release does not know."""
    note = unknown_fields_note(fields)
    return {
        **status,
        "conditions": [
            {**condition, "message": _with_note(condition["message"], note)}
            if condition["type"] == "Ready"
            else condition
            for condition in status["conditions"]
        ],
    }


def _with_note(message: str, note: str) -> str:
    return "; ".join(part for part in (message, note) if part)[:MESSAGE_LENGTH_MAX]


def unknown_fields_note(fields: Sequence[str]) -> str:
    """Return a text about fields that this release does not know; empty without any."""
    if not fields:
        return ""
    return f"not used, because this release of the operator does not know them: {some_of(fields)}"


def failed_status(problem: str, generation: int) -> dict[str, Any]:
    """Return the part of a status that says that observing or a step failed; the rest of the status stays.

    What failed is tried again.
    """
    conditions = [Condition("Reconciling", True, STEP_FAILED, problem)]
    return {"conditions": conditions_of(conditions, generation)}


def _common(view: ClusterView, pool: PoolView) -> list[Condition]:
    postponed = _postponed(pool.nodes)
    ready = _ready(view, pool, postponed)
    return [ready, _reconciling(view, pool, postponed), _stalled(pool), _resizing(pool)]


def _ready(view: ClusterView, pool: PoolView, postponed: str) -> Condition:
    nodes = pool.nodes
    waiting = [node.seen for node in nodes if node.seen.state is not NodeState.READY]
    outdated = [
        f"{node.seen.node_id} ({', '.join(node.differs)})"
        for node in nodes
        if node.differs and node.postponed_until_ms is None
    ]
    refusal = _first_fault(pool)
    if pool.is_drained and refusal is not None:
        return Condition("Ready", False, refusal.code, refusal.message)
    if pool.is_drained:
        return Condition("Ready", False, DRAINING, "deleted: removed once its brokers hold no replicas")
    if view.lifecycle is Lifecycle.HIBERNATED:
        return Condition("Ready", False, "Hibernated", "the cluster is hibernated")
    if wait := _first_wait(pool, ADDRESS_CODES):
        return Condition("Ready", False, wait.code, f"waits for {wait.reason}")
    problems = "; ".join(f"{node.seen.node_id}: {node.seen.problem}" for node in nodes if node.seen.problem)
    if waiting:
        return _not_ready(pool, waiting, problems)
    if outdated:
        return Condition("Ready", False, ROLLOUT_DUE, f"to be restarted: {'; '.join(outdated[:_NAMED_MAX])}")
    parts = (f"{len(nodes)} of {len(nodes)} nodes are ready", problems, postponed)
    reason = NODE_PROBLEM if problems else RESTARTS_POSTPONED if postponed else "AllReady"
    return Condition("Ready", True, reason, "; ".join(part for part in parts if part))


def _not_ready(pool: PoolView, waiting: Sequence[ObservedNode], problems: str) -> Condition:
    """Say why nodes are not ready: what went wrong first, and last that they are on their way."""
    if problems:
        return Condition("Ready", False, NODE_PROBLEM, problems)
    lost = [_failure(seen) for seen in waiting if seen.state in (NodeState.CRASHED, NodeState.UNREADY)]
    if lost:
        return Condition("Ready", False, NODES_FAILED, f"crashed or no longer ready: {', '.join(lost)}")
    late = _first_wait(pool, {STARTS_LONG})
    if late is not None:
        return Condition("Ready", False, STARTS_LONG, f"waits for {late.reason}")
    states = ", ".join(f"{seen.node_id} is {seen.state}" for seen in waiting[:_NAMED_MAX])
    return Condition("Ready", False, "NodesNotReady", states)


def _reconciling(view: ClusterView, pool: PoolView, postponed: str) -> Condition:
    if view.problem is not None:
        return Condition("Reconciling", True, STEP_FAILED, view.problem)
    if view.lifecycle is Lifecycle.PAUSED:
        return Condition("Reconciling", False, PAUSED, "the cluster is paused: the operator changes nothing")
    if pool.steps:
        return Condition("Reconciling", True, "Working", pool.steps[0].step.reason)
    if postponed:
        return Condition("Reconciling", False, RESTARTS_POSTPONED, postponed)
    return Condition("Reconciling", False, "AsDesired", "")


def _postponed(nodes: Sequence[NodeView]) -> str:
    """Return which restarts wait for a maintenance window, and when it opens; an empty text if none waits."""
    waiting = [(node.postponed_until_ms, node) for node in nodes if node.postponed_until_ms is not None]
    if not waiting:
        return ""
    opens = utc_text(min(until_ms for until_ms, _ in waiting))
    named = "; ".join(f"{node.seen.node_id} ({', '.join(node.differs)})" for _, node in waiting[:_NAMED_MAX])
    return f"to be restarted from {opens} on: {named}"


def _stalled(pool: PoolView) -> Condition:
    """Whether a part of the plan waits for a change by the user: of the resources, or of their environment."""
    refusal = _first_fault(pool)
    if refusal is not None:
        return Condition("Stalled", True, refusal.code, refusal.message)
    stalled = next((wait for wait in _waits(pool) if wait.is_stalled), None)
    if stalled is not None:
        return Condition("Stalled", True, stalled.code, f"waits for {stalled.reason}")
    return Condition("Stalled", False, "NothingRefused", "")


def _first_fault(pool: PoolView) -> Refusal | None:
    """Return the first refusal other than those that the user requested."""
    return next((refusal for refusal in pool.refusals if refusal.code not in _REQUESTED), None)


def _first_wait(pool: PoolView, codes: Collection[str]) -> WaitFor | None:
    """Return the first wait of the pool with one of these codes."""
    return next((wait for wait in _waits(pool) if wait.code in codes), None)


def _waits(pool: PoolView) -> Iterator[WaitFor]:
    """Yield the waits of the plan for nodes of the pool, or for the whole cluster."""
    own = {node.seen.node_id for node in pool.nodes}
    for step in pool.steps:
        wait = step.step
        if isinstance(wait, WaitFor) and (not wait.node_ids or own.intersection(wait.node_ids)):
            yield wait


def _resizing(pool: PoolView) -> Condition:
    """Whether volumes are smaller than desired, with the reason that Kubernetes reports for the first.

    It holds as soon as the larger size is observed, before the claim is patched: `kubectl wait` for the end of the
    growth would otherwise return at once.
    """
    due = {
        (step.step.node_id, step.step.volume_id) for step in pool.steps if isinstance(step.step, GrowVolume)
    }
    growing = [
        (node.seen.node_id, volume)
        for node in pool.nodes
        for volume_id, volume in sorted(node.seen.volumes.items())
        if volume.is_growing or (node.seen.node_id, volume_id) in due
    ]
    if growing:
        reported = [f"{node_id}: {volume.progress or 'requested'}" for node_id, volume in growing]
        first = next((volume.progress for _, volume in growing if volume.progress), "Requested")
        return Condition("VolumesResizing", True, first.partition(":")[0], "; ".join(reported[:_NAMED_MAX]))
    refused = next((refusal for refusal in pool.refusals if refusal.code == CANNOT_GROW), None)
    if refused is not None:
        return Condition("VolumesResizing", True, refused.code, refused.message)
    return Condition("VolumesResizing", False, "AsRequested", "")


def _emptying(nodes: Sequence[NodeView]) -> Condition:
    """Whether brokers have volumes that were removed from the manifest and may still hold replicas."""
    named = [
        f"{node.seen.node_id} (volume {', '.join(map(str, node.leaving_volumes))})"
        for node in nodes
        if node.leaving_volumes
    ]
    if not named:
        return Condition("VolumesEmptying", False, "AsRequested", "")
    message = f"removed as soon as they hold no replica: {'; '.join(named[:_NAMED_MAX])}"
    return Condition("VolumesEmptying", True, "RemovedFromVolumes", message)


def _clients(clients: ClientsView | None) -> Condition:
    """Whether the connected clients start again at their bootstrap servers when all hosts change.

    The message has no number of connections, which changes all the time.
    """
    kind: ConditionType = "ClientsRebootstrap"
    if clients is None:
        return Condition(
            kind,
            None,
            "NotRead",
            "clients are read from brokers with metrics.enabled, and none were read yet",
        )
    if clients.lost:
        reason = HOSTS_CHANGE if clients.hosts_change else "ClientsWouldBeLost"
        now = "hosts change now, and " if clients.hosts_change else ""
        message = (
            f"{now}these clients do not start again when all hosts change: {some_of(clients.lost)}. Before hosts "
            "change, upgrade them, or restart them during the overlap"
        )
        return Condition(kind, False, reason, message)
    if clients.unread:
        return Condition(
            kind,
            None,
            "NotAllRead",
            f"of {clients.unread} broker(s) no clients were read: {clients.reason_unread}",
        )
    if clients.unknown:
        message = f"it is unknown whether these start again when all hosts change: {some_of(clients.unknown)}"
        return Condition(kind, None, "ClientsUnknown", message)
    return Condition(
        kind, True, "AllRebootstrap", "clients that send their name start again when all hosts change"
    )


def _failure(seen: ObservedNode) -> str:
    is_crashed = seen.state is NodeState.CRASHED and seen.exit_reason
    return f"{seen.node_id} ({seen.exit_reason})" if is_crashed else str(seen.node_id)


def has_leader(view: ClusterView) -> bool | None:
    """Return whether a leader of the quorum answers; None if none has to yet, or while the cluster hibernates."""
    if view.quorum is not None and view.described is not None:
        return True
    return False if view.is_formed and view.lifecycle is not Lifecycle.HIBERNATED else None


def _quorum_health(view: ClusterView) -> Condition:
    quorum = view.described
    if view.quorum is None or quorum is None:
        if view.lifecycle is Lifecycle.HIBERNATED:
            return Condition("QuorumHealthy", None, "Hibernated", "the cluster is hibernated")
        reason = "NotFormed" if has_leader(view) is None else "NoLeader"
        known = view.quorum.voters if view.quorum is not None else ()
        down = [str(replica.node_id) for replica in known if replica.state is None or not replica.state.runs]
        message = f"no leader answers; not running: {', '.join(down)}" if down else "no leader answers"
        return Condition("QuorumHealthy", False, reason, message)
    behind = [str(voter.node_id) for voter in view.quorum.voters if not voter.caught_up]
    if behind:
        return Condition("QuorumHealthy", False, "VotersBehind", f"not caught up: {', '.join(behind)}")
    return Condition(
        "QuorumHealthy", True, "AllCaughtUp", f"{len(quorum.voters)} voters, {quorum.leader_id} leads"
    )


def _upgrade(view: ClusterView) -> Condition:
    blocked = [refusal for refusal in view.refusals if refusal.code == "UpgradeBlocked"]
    if blocked:
        return Condition("UpgradeBlocked", True, "UpgradeBlocked", blocked[0].message)
    return Condition("UpgradeBlocked", False, "NotBlocked", "")


def conditions_of(conditions: Iterable[Condition], generation: int) -> list[dict[str, Any]]:
    """Return conditions as the status has them, but without their times."""
    return [
        {
            "type": condition.type,
            "status": "Unknown" if condition.status is None else str(condition.status),
            "observedGeneration": generation,
            "lastTransitionTime": "",
            "reason": condition.reason,
            "message": condition.message[:MESSAGE_LENGTH_MAX],
        }
        for condition in conditions
    ]


def _voters(view: ClusterView) -> tuple[VoterStatus, ...]:
    if view.quorum is None or view.quorum.described is None:
        return ()
    return tuple(
        VoterStatus(
            node_id=voter.node_id,
            directory_id=voter.directory_id,
            endpoint=str(voter.endpoint) if voter.endpoint is not None else None,
            caught_up=voter.caught_up,
            lag=None if voter.caught_up else voter.lag,
        )
        for voter in view.quorum.voters
    )


def _registrations(view: ClusterView) -> tuple[RegistrationStatus, ...]:
    return tuple(
        RegistrationStatus(
            node_id=registration.registration.node_id,
            ghost=registration.is_ghost,
            blocks="; ".join(
                f"{block.feature}: it supports up to {block.highest}, other nodes up to {block.target}"
                for block in registration.blocks
            )
            or None,
        )
        for registration in view.registrations or ()
        if registration.registration.role is Role.CONTROLLER
    )


def _steps(views: Sequence[StepView]) -> tuple[PlanStep, ...]:
    return tuple(
        PlanStep(
            step=type(view.step).__name__,
            node_id=_node_id(view),
            reason=view.step.reason,
            waits_for=view.waits_for,
        )
        for view in views[:PLAN_STEPS_MAX]
    )


def _node_id(view: StepView) -> int | None:
    step = view.step
    if isinstance(step, WaitFor):
        return step.node_ids[0] if step.node_ids and step.node_ids[0] >= 0 else None
    return step.node_id if step.node_id is not None and step.node_id >= 0 else None


def _refusals(refusals: Sequence[Refusal]) -> tuple[RefusalStatus, ...]:
    return tuple(
        RefusalStatus(code=refusal.code, message=refusal.message) for refusal in refusals[:REFUSALS_MAX]
    )


def _dump(status: KafkaControllerStatus | KafkaBrokerStatus) -> dict[str, Any]:
    dumped = status.model_dump(by_alias=True, exclude={"conditions", "formation"}, mode="json")
    return {key: without_nulls(value) for key, value in dumped.items()}
