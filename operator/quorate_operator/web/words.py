"""Steps, times and sizes in words. Pure."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from quorate_protocol.features import METADATA_VERSION, metadata_version_name

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
    StopNode,
    UnregisterBroker,
    UnregisterController,
    WithdrawAddress,
)

UNKNOWN: Final = "\N{EN DASH}"
"""Stands in a table for what is not known."""

_PLAIN: Final[Mapping[type, str]] = {
    CreateNode: "Create node {0.node_id}",
    StartNode: "Start node {0.node_id}",
    StopNode: "Stop node {0.node_id}",
    DeleteVolume: "Delete the volume of node {0.node_id}",
    ForgetNode: "Forget node {0.node_id}",
    RebuildQuorum: "Rebuild the quorum from controller {0.node_id}",
    PublishAddress: "Publish {0.address} for node {0.node_id}",
    RetireAddress: "Retire {0.address} of node {0.node_id}",
    WithdrawAddress: "Withdraw {0.address} from node {0.node_id}",
    AddVoter: "Add voter {0.node_id}",
    RemoveVoter: "Remove voter {0.node_id}",
    UnregisterController: "Unregister controller {0.node_id}",
    RefreshRegistration: "Refresh the registration of controller {0.node_id}",
    UnregisterBroker: "Unregister broker {0.node_id}",
    ElectPreferredLeaders: "Elect preferred leaders",
}


def action_words(action: Action) -> str:
    """What an action does and to whom: `Remove voter 3002`."""
    match action:
        case FormCluster():
            return f"Form the cluster with controllers {', '.join(map(str, action.node_ids))}"
        case FinalizeFeature():
            verb = "Downgrade" if action.is_downgrade else "Finalize"
            return f"{verb} {action.feature} to {level_words(action.feature, action.level)}"
        case ReassignPartitions():
            return f"Reassign {counted(len(action.targets), 'partition', 'partitions')}"
    return _PLAIN[type(action)].format(action)


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
    """`12.3 GiB`; UNKNOWN for what could not be asked."""
    if size_bytes is None:
        return UNKNOWN
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def counted(count: int, one: str, several: str) -> str:
    """`1 record`, `2 records`."""
    return f"{count} {one if count == 1 else several}"
