"""ControllerHeartbeatRequest, key 20051 (KIP-631)."""

from dataclasses import field
from enum import IntEnum
from typing import ClassVar

from quorate_protocol.plain_data import dataclass


class SnapshotState(IntEnum):
    """The state of a controller's next snapshot."""

    IDLE = 0
    """No snapshot is due."""
    DUE = 1
    """A snapshot is due and waits for permission."""
    WRITING = 2
    """A snapshot is being written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerHeartbeatRequest:
    """The heartbeat that a standby sends to the active controller every few seconds."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 20051
    controller_id: int = field(metadata={"kafka_type": "int32"})
    """The controller ID."""
    last_snapshot_offset: int = field(metadata={"kafka_type": "int64"})
    """The end offset of the last snapshot on this controller node, -1 without one."""
    snapshot_state: int = field(metadata={"kafka_type": "int8"})
    """A `SnapshotState`. The proposal does not have this field."""
