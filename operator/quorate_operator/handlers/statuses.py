"""What is written into `status`, from what was observed and planned. Pure, apart from the time that is passed in."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from quorate_protocol.features import METADATA_VERSION, metadata_version_name

from quorate_operator.models.status import (
    PLAN_STEPS_MAX,
    REFUSALS_MAX,
    BrokerStatus,
    Condition,
    ConditionType,
    HistoryStatus,
    KafkaBrokerStatus,
    KafkaControllerStatus,
    PlanStep,
    QuorumStatus,
    RefusalStatus,
    RegistrationStatus,
    VoterStatus,
)
from quorate_operator.planning.cluster import (
    BrokerLoad,
    DesiredCluster,
    Lifecycle,
    NodeState,
    ObservedCluster,
    ObservedNode,
    ObservedRegistration,
    Role,
)
from quorate_operator.planning.steps import Plan, WaitFor
from quorate_operator.web.facts import ghosts

Judgement = tuple[ConditionType, bool | None, str, str]
"""A condition: its type, whether it holds, the reason for programs, and the message."""


def controller_status(
    desired: DesiredCluster,
    observed: ObservedCluster,
    plan: Plan,
    *,
    generation: int,
    problem: str | None = None,
    history: HistoryStatus | None = None,
) -> dict[str, Any]:
    """The status of a KafkaController, without conditions and without what is kept: `formation`."""
    nodes = _nodes_of(desired, observed, desired.name)
    quorum, kafka = observed.quorum, observed.kafka
    status = KafkaControllerStatus(
        observed_generation=generation,
        cluster_id=observed.formation.cluster_id if observed.formation else None,
        replicas=len(nodes),
        ready_replicas=_count_ready(nodes),
        selector=f"quorate.dev/cluster={desired.name},quorate.dev/pool={desired.name}",
        plan=_steps(plan),
        refusals=_refusals(plan),
        version=_version(desired, desired.name, nodes),
        metadata_version=_metadata_version(observed),
        quorum=QuorumStatus(
            leader_id=quorum.leader_id,
            epoch=quorum.leader_epoch,
            high_watermark=quorum.high_watermark,
            kraft_version=quorum.kraft_version,
        )
        if quorum
        else None,
        voters=tuple(
            VoterStatus(
                node_id=voter.node_id,
                directory_id=voter.directory_id,
                endpoint=next((str(address) for address in voter.endpoints.values()), None),
                caught_up=voter.caught_up,
            )
            for _, voter in sorted(quorum.voters.items())
        )
        if quorum
        else (),
        registrations=_registrations(observed) if kafka else (),
        history=history,
    )
    judged = [
        *_common(desired, nodes, plan, problem),
        _quorum_health(observed, desired),
        _upgrade(plan),
    ]
    return _dump(status) | {"conditions": _conditions(judged, generation)}


def broker_status(
    desired: DesiredCluster,
    observed: ObservedCluster,
    plan: Plan,
    *,
    pool: str,
    generation: int,
    problem: str | None = None,
) -> dict[str, Any]:
    """The status of a KafkaBroker, with the part of the plan that concerns its brokers."""
    nodes = _nodes_of(desired, observed, pool)
    own = {node.node_id for node in nodes} | {
        node.node_id for node in observed.nodes.values() if node.pool == pool
    }
    part = Plan(
        steps=tuple(
            step
            for step in plan.steps
            if (own & set(step.node_ids) if isinstance(step, WaitFor) else step.node_id in own)
        ),
        refusals=plan.refusals,
    )
    registrations = observed.kafka.registrations if observed.kafka else {}
    loads = observed.kafka.loads if observed.kafka else {}
    status = KafkaBrokerStatus(
        observed_generation=generation,
        replicas=len(nodes),
        ready_replicas=_count_ready(nodes),
        selector=f"quorate.dev/cluster={desired.name},quorate.dev/pool={pool}",
        plan=_steps(part),
        refusals=_refusals(part),
        version=_version(desired, pool, nodes),
        brokers=tuple(
            _broker(node, registrations.get(node.node_id), loads.get(node.node_id)) for node in nodes
        ),
    )
    judged = _common(desired, nodes, part, problem)
    return _dump(status) | {"conditions": _conditions(judged, generation)}


def _broker(
    node: ObservedNode, registration: ObservedRegistration | None, load: BrokerLoad | None
) -> BrokerStatus:
    endpoints = registration.endpoints if registration else {}
    return BrokerStatus(
        node_id=node.node_id,
        state=node.state.value,
        fenced=registration.fenced if registration else None,
        replicas=load.replicas if load else None,
        rack=registration.rack if registration else None,
        advertised={listener: str(address) for listener, address in endpoints.items()},
    )


def refused_status(message: str, generation: int) -> dict[str, Any]:
    """The part of a status that says that a manifest can't be used; what is known otherwise stays."""
    judged: list[Judgement] = [
        ("Ready", False, "InvalidManifest", message),
        ("Progressing", False, "InvalidManifest", message),
        ("Degraded", True, "InvalidManifest", message),
    ]
    return {"observedGeneration": generation, "conditions": _conditions(judged, generation)}


def failed_status(problem: str, generation: int) -> dict[str, Any]:
    """The part of a status that says that a look or a step failed; what is known otherwise stays."""
    return {"conditions": _conditions([("Degraded", True, "StepFailed", problem)], generation)}


def merged_status(before: Mapping[str, Any], new: Mapping[str, Any], now: str) -> dict[str, Any] | None:
    """A merge-patch that makes `before` into `new`, or None if nothing changed that is worth a write.

    The high watermark grows all the time: it is written along with something else. `clusterId` and
    `formation` stay whatever `new` says; so do fields of a refused manifest. Conditions keep the time of
    their last change.
    """
    known = {one["type"]: one for one in before.get("conditions", ())}
    conditions = []
    for condition in new["conditions"]:
        old = known.get(condition["type"])
        is_same = old is not None and old["status"] == condition["status"]
        time = old["lastTransitionTime"] if old is not None and is_same else now
        conditions.append({**condition, "lastTransitionTime": time})
    listed = {condition["type"] for condition in conditions}
    conditions += [one for kind, one in known.items() if kind not in listed]
    target = {**new, "conditions": conditions}
    if target.get("clusterId") is None:
        target.pop("clusterId", None)
    if _without_watermark(target) == _without_watermark(
        {key: value for key, value in before.items() if key in target}
    ):
        return None
    return target


def _common(
    desired: DesiredCluster, nodes: Sequence[ObservedNode], plan: Plan, problem: str | None
) -> list[Judgement]:
    waiting = [node for node in nodes if node.state is not NodeState.READY]
    first = plan.steps[0].reason if plan.steps else ""
    ready: Judgement
    if desired.lifecycle is Lifecycle.HIBERNATED:
        ready = ("Ready", False, "Hibernated", "the cluster is hibernated")
    elif not waiting:
        ready = ("Ready", True, "AllReady", f"{len(nodes)} of {len(nodes)} nodes are ready")
    else:
        told = ", ".join(f"{node.node_id} is {node.state}" for node in waiting[:10])
        ready = ("Ready", False, "NodesNotReady", told)
    is_paused = desired.lifecycle is Lifecycle.PAUSED
    progressing: Judgement = (
        ("Progressing", False, "Paused", "nothing is changed while the cluster is paused")
        if is_paused
        else ("Progressing", bool(plan.steps), "Working" if plan.steps else "AsDesired", first)
    )
    return [ready, progressing, _degraded(nodes, plan, problem)]


def _degraded(nodes: Sequence[ObservedNode], plan: Plan, problem: str | None) -> Judgement:
    if problem is not None:
        return ("Degraded", True, "StepFailed", problem)
    blocked = [f"{node.node_id}: {node.problem}" for node in nodes if node.problem]
    if blocked:
        return ("Degraded", True, "NodeProblem", "; ".join(blocked))
    lost = [node.node_id for node in nodes if node.state in (NodeState.CRASHED, NodeState.UNREADY)]
    if lost:
        return ("Degraded", True, "NodesFailed", f"failed or not ready any more: {', '.join(map(str, lost))}")
    if plan.refusals:
        refusal = plan.refusals[0]
        return ("Degraded", True, refusal.code, refusal.message)
    return ("Degraded", False, "Healthy", "")


def _quorum_health(observed: ObservedCluster, desired: DesiredCluster) -> Judgement:
    quorum = observed.quorum
    if quorum is None:
        if desired.lifecycle is Lifecycle.HIBERNATED:
            return ("QuorumHealthy", None, "Hibernated", "the quorum sleeps")
        is_new = observed.formation is None or not observed.formation.is_formed
        reason = "NotFormed" if is_new else "NoLeader"
        return ("QuorumHealthy", False, reason, "no leader answers")
    behind = [node_id for node_id, voter in sorted(quorum.voters.items()) if not voter.caught_up]
    if behind:
        return ("QuorumHealthy", False, "VotersBehind", f"not caught up: {', '.join(map(str, behind))}")
    return ("QuorumHealthy", True, "AllCaughtUp", f"{len(quorum.voters)} voters, {quorum.leader_id} leads")


def _upgrade(plan: Plan) -> Judgement:
    blocked = [refusal for refusal in plan.refusals if refusal.code == "UpgradeBlocked"]
    if blocked:
        return ("UpgradeBlocked", True, "UpgradeBlocked", blocked[0].message)
    return ("UpgradeBlocked", False, "NotBlocked", "")


def _conditions(judged: Iterable[Judgement], generation: int) -> list[dict[str, Any]]:
    words = {True: "True", False: "False", None: "Unknown"}
    return [
        Condition(
            type=kind,
            status=words[holds],  # type: ignore[arg-type]
            observed_generation=generation,
            last_transition_time="",
            reason=reason,
            message=message[:32768],
        ).model_dump(by_alias=True)
        for kind, holds, reason, message in judged
    ]


def _nodes_of(desired: DesiredCluster, observed: ObservedCluster, pool: str) -> list[ObservedNode]:
    ids = [node.node_id for node in desired.nodes if node.pool == pool]
    return [observed.nodes[node_id] for node_id in sorted(ids) if node_id in observed.nodes]


def _count_ready(nodes: Iterable[ObservedNode]) -> int:
    return sum(node.state is NodeState.READY for node in nodes)


def _version(desired: DesiredCluster, pool: str, nodes: Sequence[ObservedNode]) -> str | None:
    """The release that all of them run; None while they differ."""
    wanted = {node.kafka_version for node in desired.nodes if node.pool == pool}
    running = {node.revision.get("version") for node in nodes if node.state.runs}
    return wanted.pop() if len(wanted) == 1 and running == wanted else None


def _metadata_version(observed: ObservedCluster) -> str | None:
    level = observed.kafka.features.get(METADATA_VERSION) if observed.kafka else None
    return metadata_version_name(level) if level is not None else None


def _registrations(observed: ObservedCluster) -> tuple[RegistrationStatus, ...]:
    assert observed.kafka is not None
    blocks = {
        ghost.registration.node_id: "; ".join(
            f"{feature}: it goes up to {highest}, the others to {level}"
            for feature, highest, level in ghost.blocks
        )
        for ghost in ghosts(observed)
    }
    return tuple(
        RegistrationStatus(node_id=node_id, ghost=node_id in blocks, blocks=blocks.get(node_id) or None)
        for node_id, one in sorted(observed.kafka.registrations.items())
        if one.role is Role.CONTROLLER
    )


def _steps(plan: Plan) -> tuple[PlanStep, ...]:
    steps: list[PlanStep] = []
    waits_for: str | None = None
    for step in plan.steps[:PLAN_STEPS_MAX]:
        node_id = step.node_ids[0] if isinstance(step, WaitFor) and step.node_ids else None
        if not isinstance(step, WaitFor):
            node_id = step.node_id
        steps.append(
            PlanStep(
                step=type(step).__name__,
                node_id=node_id if node_id is not None and node_id >= 0 else None,
                reason=step.reason,
                waits_for=waits_for,
            )
        )
        if isinstance(step, WaitFor):
            waits_for = step.reason
    return tuple(steps)


def _refusals(plan: Plan) -> tuple[RefusalStatus, ...]:
    return tuple(RefusalStatus(code=one.code, message=one.message) for one in plan.refusals[:REFUSALS_MAX])


def _dump(status: KafkaControllerStatus | KafkaBrokerStatus) -> dict[str, Any]:
    dumped = status.model_dump(by_alias=True, exclude={"conditions", "formation"}, mode="json")
    return {key: _without_nulls(value) for key, value in dumped.items()}


def _without_nulls(value: Any) -> Any:
    match value:
        case dict():
            return {key: _without_nulls(part) for key, part in value.items() if part is not None}
        case list():
            return [_without_nulls(part) for part in value]
    return value


def _without_watermark(status: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in status.items() if value is not None}
    if quorum := kept.get("quorum"):
        kept["quorum"] = {key: value for key, value in quorum.items() if key != "highWatermark"}
    return kept
