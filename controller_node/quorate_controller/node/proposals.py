"""The records of decisions on their way to the log: replayed at once, proposed to raft in batches.

Decisions of a turn share batches. What raft has got counts as proposed until its commit, which is timed.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from quorate_protocol.errors import ErrorCode

from quorate_controller.control.api import ControlError
from quorate_controller.node.latency import LatencyHistogram
from quorate_controller.raft.messages import Propose

if TYPE_CHECKING:
    from quorate_controller.control.api import ControlResult
    from quorate_controller.node.metadata import MetadataState
    from quorate_controller.node.snapshotter import Snapshotter
    from quorate_controller.raft.messages import Ready
    from quorate_controller.raft.node import RaftNode
    from quorate_controller.unix_time import UnixTime

NOT_CONTROLLER_MESSAGE = "The active controller is another node, or none is elected yet"


def not_controller() -> ControlError:
    """The response of a node that lost the leadership on the way."""
    return ControlError(ErrorCode.not_controller, NOT_CONTROLLER_MESSAGE)


class Perform(Protocol):
    """Carries out raft's effects, see `ControllerNode`."""

    def __call__(self, ready: Ready, *, is_proposal: bool = False) -> None: ...


class Proposals:
    """Decided records between the image, which has them, and the commit."""

    def __init__(
        self,
        *,
        raft: RaftNode,
        metadata: MetadataState,
        snapshotter: Snapshotter,
        perform: Perform,
        unix_ms_of: UnixTime,
    ) -> None:
        self._raft = raft
        self._metadata = metadata
        self._snapshotter = snapshotter
        self._perform = perform
        self._unix_ms_of = unix_ms_of
        self._proposed: deque[tuple[int, int]] = deque()
        """End offset and time of each proposal that is not committed."""
        self.commit_latency = LatencyHistogram()

    @property
    def next_offset(self) -> int:
        """The offset of the next decided record."""
        return self._raft.log_end_offset + self._metadata.pending_count

    def write(self, result: ControlResult, now_ms: int) -> Exception | None:
        """Replays the records of a decision, to be proposed with others.

        Returns:
            The exception when a record cannot be encoded or replayed. An atomic decision then leaves nothing
            behind; of any other, whole batches may stay. NOT_CONTROLLER when raft deposed this node on the way.
        """
        if not result.records and result.kraft_version is None:
            return None
        metadata = self._metadata
        try:
            batches = metadata.encode_decision(result)
        except Exception as error:
            return error
        start = 0
        for values in batches:
            if not metadata.has_room(values) and not self._propose_as_leader(now_ms):
                return not_controller()
            records = result.records[start : start + len(values)]
            try:
                metadata.apply_decision(records, values, self.next_offset, now_ms)
            except Exception as error:
                return error
            start += len(values)
        if result.kraft_version is not None:
            if not self._propose_as_leader(now_ms):
                return not_controller()
            _, ready = self._raft.upgrade_kraft_version(
                result.kraft_version.level, validate_only=False, now_ms=now_ms
            )
            self._perform(ready)
            if not metadata.control.is_active:
                return not_controller()
        return None

    def _propose_as_leader(self, now_ms: int) -> bool:
        """Returns whether this node leads afterwards."""
        self.propose(now_ms)
        return self._metadata.control.is_active

    def propose(self, now_ms: int) -> None:
        """Passes what was decided to raft, as one batch."""
        metadata = self._metadata
        if not metadata.pending_count:
            return
        batch = metadata.take_batch(self._raft.epoch, self._unix_ms_of(now_ms))
        self._snapshotter.applied(len(batch))
        self._perform(self._raft.step(Propose(batches=batch), now_ms), is_proposal=True)
        if metadata.control.is_active:  # raft may have deposed this node in the very step
            self._proposed.append((self._raft.log_end_offset, now_ms))

    def committed(self, high_watermark: int, now_ms: int) -> None:
        """Notes the latency of what is committed now."""
        while self._proposed and self._proposed[0][0] <= high_watermark:
            self.commit_latency.observe_ms(now_ms - self._proposed.popleft()[1])

    def abandon(self) -> None:
        """Forgets proposals that were not committed, because leadership is lost."""
        self._proposed.clear()
