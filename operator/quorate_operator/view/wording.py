"""Steps, levels, times and sizes in words. Pure."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from quorate_protocol.features import METADATA_VERSION, metadata_version_name

from quorate_operator.planning.relocation import format_bytes
from quorate_operator.planning.steps import (
    Action,
    AddVoter,
    CreateNode,
    DeleteVolume,
    ElectPreferredLeaders,
    FinalizeFeature,
    ForgetNode,
    FormCluster,
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
UNKNOWN: Final = "\N{EN DASH}"
"""Stands in a table for what is not known."""
WITHOUT_LEADER: Final = "without a leader"

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


def action_words(action: Action, label: Label) -> str:
    """Returns what an action does and to which node, without its reason: `Remove voter controller-3002`."""
    words = in_words(action, label).removesuffix(f": {action.reason}")
    return words[:1].upper() + words[1:]


def quorum_words(leader_id: int, epoch: int, high_watermark: int, kraft_version: int) -> str:
    """Returns who leads: `led by 3000 in epoch 4, high watermark 812, kraft.version 1`."""
    return (
        f"led by {leader_id} in epoch {epoch}, high watermark {high_watermark}, kraft.version {kraft_version}"
    )


def level_words(feature: str, level: int) -> str:
    """A feature's level, that of metadata.version with its name: `30 (4.3-IV0)`."""
    return (
        f"{level} ({metadata_version_name(level)})" if feature == METADATA_VERSION and level else str(level)
    )


def iso_time(at_ms: int) -> str:
    """`2026-11-22T02:14:05Z`, for machines."""
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def clock_time(at_ms: int) -> str:
    """`02:14:05 UTC`, for people; the script of the page adds how long ago that is."""
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).strftime("%H:%M:%S UTC")


def size_words(size_bytes: int | None) -> str:
    """`12.3 GiB`; UNKNOWN for what is not known."""
    return UNKNOWN if size_bytes is None else format_bytes(size_bytes)


def counted(count: int, one: str, several: str) -> str:
    """`1 record`, `2 records`."""
    return f"{count} {one if count == 1 else several}"
