"""Collects the effects of one step into one `Ready`."""

from typing import TYPE_CHECKING

from quorate_controller.raft.events import (
    Destination,
    Note,
    OutgoingResponse,
    Ready,
    RoleChange,
    Send,
    SnapshotChunk,
)
from quorate_controller.raft.messages import RaftRequest, RaftResponse

if TYPE_CHECKING:
    from quorate_controller.raft.model import SnapshotId
    from quorate_controller.raft.startup import HardState
    from quorate_controller.raft.voters import VoterSet


class Effects:
    """The effects of the step under way."""

    __slots__ = (
        "_appends",
        "_notes",
        "_responses",
        "_sends",
        "hard_state",
        "high_watermark",
        "restore",
        "role",
        "snapshot_chunk",
        "truncate_to",
        "voters",
    )

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._appends: list[bytes] = []
        self._sends: list[Send] = []
        self._responses: list[OutgoingResponse] = []
        self._notes: list[Note] = []
        self.hard_state: HardState | None = None
        self.truncate_to: int | None = None
        self.snapshot_chunk: SnapshotChunk | None = None
        self.restore: SnapshotId | None = None
        self.high_watermark: int | None = None
        self.role: RoleChange | None = None
        self.voters: VoterSet | None = None

    def append(self, batches: bytes) -> None:
        self._appends.append(batches)

    def send(self, request_id: int, destination: Destination, request: RaftRequest, timeout_ms: int) -> None:
        self._sends.append(
            Send(request_id=request_id, destination=destination, request=request, timeout_ms=timeout_ms)
        )

    def respond(self, token: int, response: RaftResponse, *, is_for_observer: bool = False) -> None:
        self._responses.append(
            OutgoingResponse(token=token, response=response, is_for_observer=is_for_observer)
        )

    def note(self, event: str, **facts: object) -> None:
        self._notes.append(Note(event=event, facts=facts))

    def warn(self, event: str, **facts: object) -> None:
        self._notes.append(Note(event=event, facts=facts, is_warning=True))

    def drain(self) -> Ready:
        """Return all collected effects, and start an empty collection."""
        ready = Ready(
            hard_state=self.hard_state,
            truncate_to=self.truncate_to,
            append=b"".join(self._appends),
            snapshot_chunk=self.snapshot_chunk,
            restore=self.restore,
            sends=tuple(self._sends),
            responses=tuple(self._responses),
            high_watermark=self.high_watermark,
            role=self.role,
            voters=self.voters,
            notes=tuple(self._notes),
        )
        self._clear()
        return ready
