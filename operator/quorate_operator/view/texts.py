"""Texts of steps, levels, times and sizes. Pure."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from quorate_protocol.features import METADATA_VERSION, metadata_version_name

from quorate_operator.planning import steps
from quorate_operator.planning.steps import format_bytes

Label = Callable[[int], str]
"""A node's name for people, by its id."""
UNKNOWN: Final = "\N{EN DASH}"
"""Stands for an unknown value in a table."""
WITHOUT_LEADER: Final = "without a leader"

VERBS: dict[type[steps.Action], tuple[str, str]] = {
    steps.FormCluster: ("form", "forming"),
    steps.CreateNode: ("create", "creating"),
    steps.StartNode: ("start", "starting"),
    steps.StopNode: ("stop", "stopping"),
    steps.CreateVolume: ("create", "creating"),
    steps.GrowVolume: ("grow", "growing"),
    steps.ReleaseVolume: ("release", "releasing"),
    steps.DeleteVolume: ("delete", "deleting"),
    steps.ReplaceVolumes: ("replace", "replacing"),
    steps.ForgetNode: ("forget", "forgetting"),
    steps.RebuildQuorum: ("rebuild", "rebuilding"),
    steps.PublishAddress: ("publish", "publishing"),
    steps.RetireAddress: ("retire", "retiring"),
    steps.WithdrawAddress: ("withdraw", "withdrawing"),
    steps.AddVoter: ("add", "adding"),
    steps.RemoveVoter: ("remove", "removing"),
    steps.UnregisterController: ("unregister", "unregistering"),
    steps.RefreshRegistration: ("refresh", "refreshing"),
    steps.UnregisterBroker: ("unregister", "unregistering"),
    steps.FinalizeFeature: ("finalize", "finalizing"),
    steps.ReassignPartitions: ("reassign", "reassigning"),
    steps.SetThrottles: ("set", "setting"),
    steps.ElectPreferredLeaders: ("elect", "electing"),
    steps.SetLogLevels: ("set", "setting"),
    steps.CordonDirectories: ("cordon", "cordoning"),
    steps.MoveBetweenDirectories: ("move", "moving"),
}
"""The verb of each kind of action: to be done, and being done."""
_OF_CLUSTER: dict[type[steps.Action], str] = {
    steps.SetThrottles: "throttles of replicas",
    steps.ElectPreferredLeaders: "preferred leaders",
}
"""The object of actions that are the same for each cluster."""


def step_text(step: steps.Step, label: Label, *, under_way: bool = False) -> str:
    """`start controller-3000: it does not run`; or `starting controller-3000: ...`."""
    if isinstance(step, steps.WaitFor):
        return f"wait for {step.reason}"
    return f"{VERBS[type(step)][under_way]} {_object(step, label)}: {step.reason}"


def _object(action: steps.Action, label: Label) -> str:
    match action:
        case steps.FormCluster(node_ids=node_ids):
            return f"the cluster of {', '.join(label(node_id) for node_id in node_ids)}"
        case steps.DeleteVolume(volume_id=None) | steps.ReplaceVolumes():
            return f"the data of {label(action.node_id)}"
        case steps.CreateVolume() | steps.GrowVolume() | steps.ReleaseVolume() | steps.DeleteVolume():
            return f"volume {action.volume_id} of {label(action.node_id)}"
        case steps.CordonDirectories() | steps.MoveBetweenDirectories():
            return _object_of_directories(action, label)
        case steps.RebuildQuorum():
            return f"the quorum from the data of {label(action.node_id)}"
        case steps.PublishAddress() | steps.RetireAddress() | steps.WithdrawAddress():
            return f"{action.address} of {label(action.node_id)}"
        case steps.AddVoter() | steps.RemoveVoter():
            return f"voter {label(action.node_id)}"
        case steps.RefreshRegistration():
            return f"the registration of {label(action.node_id)}"
        case steps.FinalizeFeature():
            return f"{action.feature} at level {action.level}"
        case steps.ReassignPartitions():
            count = len(action.targets)
            return f"{count} partition{'' if count == 1 else 's'}"
        case steps.SetThrottles() | steps.ElectPreferredLeaders():
            return _OF_CLUSTER[type(action)]
        case steps.SetLogLevels():
            return f"log levels of {label(action.node_id)}"
    return label(action.node_id)


def _object_of_directories(
    action: steps.CordonDirectories | steps.MoveBetweenDirectories, label: Label
) -> str:
    directories = f"log directories of {label(action.node_id)}"
    if isinstance(action, steps.CordonDirectories):
        return f"{len(action.directories)} {directories}"
    return f"{counted(len(action.targets), 'replica', 'replicas')} between {directories}"


def action_words(action: steps.Action, label: Label) -> str:
    """Return what an action does and to which node, without its reason: `Remove voter controller-3002`."""
    words = step_text(action, label).removesuffix(f": {action.reason}")
    return words[:1].upper() + words[1:]


def quorum_words(leader_id: int, epoch: int, high_watermark: int, kraft_version: int) -> str:
    """Return who leads: `led by 3000 in epoch 4, high watermark 812, kraft.version 1`."""
    return (
        f"led by {leader_id} in epoch {epoch}, high watermark {high_watermark}, kraft.version {kraft_version}"
    )


def level_words(feature: str, level: int) -> str:
    """A feature's level, that of metadata.version with its name: `30 (4.3-IV0)`."""
    return (
        f"{level} ({metadata_version_name(level)})" if feature == METADATA_VERSION and level else str(level)
    )


def iso_time(at_ms: int) -> str:
    """`2026-11-22T02:14:05Z`, for programs."""
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def clock_time(at_ms: int) -> str:
    """`02:14:05 UTC`, for people; the script of the page adds how long ago that is."""
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).strftime("%H:%M:%S UTC")


def size_words(size_bytes: int | None) -> str:
    """`12.3 GiB`; UNKNOWN for what is not known."""
    return UNKNOWN if size_bytes is None else format_bytes(size_bytes)


def counted(count: int, singular: str, several: str) -> str:
    """`1 record`, `2 records`."""
    return f"{count} {singular if count == 1 else several}"
