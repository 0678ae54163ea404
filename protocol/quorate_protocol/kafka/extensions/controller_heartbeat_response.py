"""ControllerHeartbeatResponse, key 20051 (KIP-631)."""

from dataclasses import field
from typing import ClassVar

from quorate_protocol.errors import ErrorCode
from quorate_protocol.plain_data import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerHeartbeatResponse:
    """The active controller's response to a heartbeat of a standby."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 20051
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    """The error code, or 0 if there was no error."""
    start_snapshot: bool = field(metadata={"kafka_type": "bool"}, default=False)
    """True if the sender should start creating a snapshot."""
