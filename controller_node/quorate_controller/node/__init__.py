"""One controller as a synchronous whole: raft, storage, image and control, without sockets or clocks.

`ControllerNode.turn(events, now_ms)` takes everything that happened since the last turn and returns what is to
be sent. All records of one turn are flushed once and replicated together (group commit, no linger). A message
leaves only after what it promises is durable.
"""

from quorate_controller.node.events import (
    ControlRequest,
    ControlResponse,
    Effects,
    OutgoingRaftResponse,
    OwnRequest,
    OwnRequestAnswered,
    OwnRequestFailed,
)
from quorate_controller.node.turn import ControllerNode

__all__ = [
    "ControlRequest",
    "ControlResponse",
    "ControllerNode",
    "Effects",
    "OutgoingRaftResponse",
    "OwnRequest",
    "OwnRequestAnswered",
    "OwnRequestFailed",
]
