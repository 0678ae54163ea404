"""Steps of a plan in words, for people, and as JSON, for programs. Pure."""

from collections.abc import Callable
from typing import Any

from quorate_operator.planning.steps import (
    Action,
    AddVoter,
    CreateNode,
    DeleteVolume,
    ElectPreferredLeaders,
    FinalizeFeature,
    ForgetNode,
    FormCluster,
    Plan,
    PublishAddress,
    ReassignPartitions,
    RebuildQuorum,
    RefreshRegistration,
    RemoveVoter,
    RetireAddress,
    StartNode,
    Step,
    StopNode,
    UnregisterBroker,
    UnregisterController,
    WaitFor,
    WithdrawAddress,
)

Label = Callable[[int], str]
"""A node's name for people, by its id."""

VERBS: dict[type[Action], tuple[str, str]] = {
    FormCluster: ("form", "forming"),
    CreateNode: ("create", "creating"),
    StartNode: ("start", "starting"),
    StopNode: ("stop", "stopping"),
    DeleteVolume: ("delete", "deleting"),
    ForgetNode: ("forget", "forgetting"),
    RebuildQuorum: ("rebuild", "rebuilding"),
    PublishAddress: ("publish", "publishing"),
    RetireAddress: ("retire", "retiring"),
    WithdrawAddress: ("withdraw", "withdrawing"),
    AddVoter: ("add", "adding"),
    RemoveVoter: ("remove", "removing"),
    UnregisterController: ("unregister", "unregistering"),
    RefreshRegistration: ("refresh", "refreshing"),
    UnregisterBroker: ("unregister", "unregistering"),
    FinalizeFeature: ("finalize", "finalizing"),
    ReassignPartitions: ("reassign", "reassigning"),
    ElectPreferredLeaders: ("elect", "electing"),
}
"""Of each kind of action, what is to be done and what is being done."""


def in_words(step: Step, label: Label, *, under_way: bool = False) -> str:
    """`start controller-3000: it does not run`; or `starting controller-3000: ...`."""
    if isinstance(step, WaitFor):
        return f"wait for {step.reason}"
    return f"{VERBS[type(step)][under_way]} {_object(step, label)}: {step.reason}"


def plan_as_json(plan: Plan, label: Label) -> dict[str, Any]:
    """The plan for programs: steps in order, and what is refused. Documented in docs/play.md."""
    due = plan.due
    return {
        "steps": [
            _step_as_json(step, label, is_due=place < len(due)) for place, step in enumerate(plan.steps)
        ],
        "refusals": [{"code": one.code, "message": one.message} for one in plan.refusals],
    }


def _step_as_json(step: Step, label: Label, *, is_due: bool) -> dict[str, Any]:
    return {
        "step": type(step).__name__,
        "nodeId": None if isinstance(step, WaitFor) else step.node_id,
        "text": in_words(step, label),
        "reason": step.reason,
        "due": is_due,
        "untilMs": step.until_ms if isinstance(step, WaitFor) else None,
    }


def _object(action: Action, label: Label) -> str:
    match action:
        case FormCluster(node_ids=node_ids):
            return f"the cluster of {', '.join(label(node_id) for node_id in node_ids)}"
        case DeleteVolume():
            return f"the data of {label(action.node_id)}"
        case RebuildQuorum():
            return f"the quorum from the data of {label(action.node_id)}"
        case PublishAddress() | RetireAddress() | WithdrawAddress():
            return f"{action.address} of {label(action.node_id)}"
        case AddVoter() | RemoveVoter():
            return f"voter {label(action.node_id)}"
        case RefreshRegistration():
            return f"the registration of {label(action.node_id)}"
        case FinalizeFeature():
            return f"{action.feature} at level {action.level}"
        case ReassignPartitions():
            count = len(action.targets)
            return f"{count} partition{'' if count == 1 else 's'}"
        case ElectPreferredLeaders():
            return "preferred leaders"
    return label(action.node_id)
