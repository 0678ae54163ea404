"""The replicated state machine of one node: the image, the applied offset, and responses that wait for a commit.

On a standby the image follows the high watermark. On the active controller it runs ahead: each decision is
replayed at once, so that the next one sees it, and is undone if leadership is lost before its commit.

`Proposals` passes the records of decisions to raft. Decisions of a turn share batches. What raft has got counts as
proposed until its commit, which is timed.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from quorate_protocol.errors import ErrorCode, ProtocolError, ValueTooLong
from quorate_protocol.image.loading import loading_checkpoint, replaying_log_batch
from quorate_protocol.plain_data import dataclass
from quorate_protocol.records.batch import (
    BATCH_SIZE_BYTES_MAX,
    RECORD_SIZE_BYTES_MAX,
    batches_of_values,
    build_batch,
    decode_batches,
    size_in_batch_bytes,
)
from quorate_protocol.records.framing import encode_record_at
from quorate_protocol.records.generated import ConfigRecord, FeatureLevelRecord

from quorate_controller.control.api import RECORDS_PER_BATCH_MAX, ControlError
from quorate_controller.node.measurements import LatencyHistogram
from quorate_controller.node.slices import run_slice
from quorate_controller.raft.events import Note, Propose
from quorate_controller.raft.model import BOOTSTRAP_SNAPSHOT_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from quorate_protocol.image import MetadataImage
    from quorate_protocol.kafka.apis import Payload
    from quorate_protocol.records.framing import MetadataRecord

    from quorate_controller.control.api import ControlResult
    from quorate_controller.control.controller import QuorumController
    from quorate_controller.node.events import Requester
    from quorate_controller.raft.events import Ready
    from quorate_controller.raft.model import SnapshotId
    from quorate_controller.raft.node import RaftNode
    from quorate_controller.storage.controller_storage import ControllerStorage
    from quorate_controller.unix_time import UnixTime

REPLAY_READ_BYTES: Final = 1024 * 1024
"""Bytes of log that are read at once when catching up: about 10,000 records."""

REPLAY_SLICE_MS: Final = 10
"""A turn replays until the first step that ends after this time. A step takes some milliseconds."""

SHARED_BATCH_SIZE_BYTES_MAX: Final = 1024 * 1024
"""Decisions of one turn share batches up to this size; a single larger decision still gets one batch."""

NOT_CONTROLLER_MESSAGE = "The active controller is another node, or none is elected yet"


@dataclass(frozen=True, slots=True)
class Waiter:
    """A response that may leave once everything below `end_offset` is committed."""

    end_offset: int
    token: int
    result: Payload | ControlError
    requester: Requester | None = None
    """Set if the response may wait for brokers, too."""


class MetadataState:
    """Image and control of one node, between log and responses. It does not depend on raft's roles."""

    def __init__(self, image: MetadataImage, control: QuorumController, *, clock: Callable[[], int]) -> None:
        self.image = image
        self.control = control
        self._clock = clock
        self.applied_offset = 0
        """Everything below is committed and in the image."""
        self.applied_timestamp_ms = 0
        self.has_records = False
        """Whether log or checkpoint had a metadata record: the cluster is not new."""
        self.finalized_levels: Mapping[str, int] = {}
        """Committed feature levels. The image's own may include levels that can still be reverted."""
        self._features_change_at: int | None = None
        self._replaying: Generator[None, None, int] | None = None
        """The rest of the log that was read: it may have begun a batch, of which the image has a part."""
        self._waiters: deque[Waiter] = deque()
        self._pending: list[bytes] = []
        self._pending_base_offset = 0
        self._pending_size_bytes = 0

    # ------------------------------------------------------------------------------- following the log

    def load(self, chunks: Iterable[bytes], snapshot_id: SnapshotId) -> None:
        """Replace the image by a checkpoint.

        Raises:
            ProtocolError: the checkpoint is damaged. Nothing has changed.
        """
        for _ in self.loading(chunks, snapshot_id):
            pass

    def loading(self, chunks: Iterable[bytes], snapshot_id: SnapshotId) -> Iterator[int]:
        """Load as `load` does, in steps between which the node serves others. Nothing changes before the last."""
        if snapshot_id != BOOTSTRAP_SNAPSHOT_ID:
            self.has_records = True
            yield from loading_checkpoint(
                self.image, chunks, end_offset=snapshot_id.offset, epoch=snapshot_id.epoch
            )
        self._replaying = None
        self.finalized_levels = dict(self.image.features)
        self.applied_offset = snapshot_id.offset

    def catch_up(self, storage: ControllerStorage, high_watermark: int, now_ms: int) -> int:
        """Replay one slice of the committed log; more is left while `applied_offset` is below the high watermark.

        Returns:
            The bytes of log that have been replayed, once all that was read at once has been; else 0.

        Raises:
            CorruptFileError: records cannot be read or do not fit the image. The process has to end.
        """
        if self._replaying is None:
            if self.applied_offset >= high_watermark:
                return 0
            self._replaying = self._replay(storage, high_watermark, now_ms)
        size_bytes = run_slice(self._replaying, self._clock, REPLAY_SLICE_MS)
        if size_bytes is not None:
            self._replaying = None
        if self.applied_offset > self.image.committed_end_offset:
            self.image.commit(self.applied_offset)
            self._finalize_features()
        return size_bytes or 0

    def _replay(
        self, storage: ControllerStorage, high_watermark: int, now_ms: int
    ) -> Generator[None, None, int]:
        data = storage.log.read(self.applied_offset, REPLAY_READ_BYTES, high_watermark)
        try:
            for batch in decode_batches(data):
                records = yield from replaying_log_batch(self.image, batch)
                self.applied_offset = batch.last_offset + 1
                self.applied_timestamp_ms = batch.max_timestamp_ms
                if records:
                    self.has_records = True
                    self._note_features(records, batch.base_offset)
                    self.control.observe(records, batch.base_offset, now_ms)
        except ProtocolError as error:
            raise storage.log.unreadable(self.applied_offset, error) from error
        return len(data)

    def repair_note(self, activation: ControlResult) -> Note | None:
        """The warning that an activation writes feature levels into a log that has records, and no metadata.version.

        Stock controllers end at such a log (KAFKA-20839). None for a new cluster and for a log with a level.
        """
        levels = {
            record.name: record.feature_level
            for record in activation.records
            if isinstance(record, FeatureLevelRecord)
        }
        if not levels or not self.has_records:
            return None
        facts = {"offset": self.applied_offset, "written": levels, "record_count": len(activation.records)}
        return Note(event="log_without_metadata_version_repaired", facts=facts, is_warning=True)

    def _note_features(self, records: Sequence[MetadataRecord], base_offset: int) -> None:
        for offset, record in enumerate(records, base_offset):
            if isinstance(record, FeatureLevelRecord):
                self._features_change_at = offset

    def _finalize_features(self) -> None:
        """Publish the image's levels once all of them are committed."""
        if self._features_change_at is not None and self._features_change_at < self.applied_offset:
            self._features_change_at = None
            self.finalized_levels = dict(self.image.features)

    # ---------------------------------------------------------------------------------- running ahead

    def encode_decision(self, result: ControlResult) -> list[list[bytes]]:
        """Encode the records of a decision: the values of each batch that it takes, of one if it is atomic.

        All are encoded before any is replayed: a decision that can't be written changes nothing.

        Raises:
            ControlError: Kafka's readers, or ours, would refuse a record or the batch.
            Exception: a record cannot be encoded.
        """
        if not result.records:
            return []
        metadata_version = self.image.metadata_version
        values = [_encode(record, metadata_version) for record in result.records]
        records_max = len(values) if result.atomic else RECORDS_PER_BATCH_MAX
        batches = list(batches_of_values(values, records_max=records_max))
        if result.atomic and len(batches) > 1:
            size_bytes = sum(map(size_in_batch_bytes, values))
            raise ControlError(
                ErrorCode.record_list_too_large,
                f"The total record(s) size of {size_bytes} exceeds the maximum allowed batch size of "
                f"{BATCH_SIZE_BYTES_MAX}",
            )
        return batches

    def apply_decision(
        self, records: Sequence[MetadataRecord], values: Sequence[bytes], offset: int, now_ms: int
    ) -> None:
        """Replay records of a decision; `values` are the same records as `encode_decision` encoded them.

        `offset` is the end of the log and of the pending records.

        Raises:
            Exception: a record cannot be replayed. None of `records` is kept.
        """
        if not self._pending:
            self._pending_base_offset = offset
        assert offset == self._pending_base_offset + len(self._pending)
        self.image.replay_all(records, base_offset=offset)
        self._pending.extend(values)
        self._pending_size_bytes += sum(map(size_in_batch_bytes, values))
        self._note_features(records, offset)
        self.control.observe(records, offset, now_ms)

    @property
    def pending_count(self) -> int:
        """The number of records that are decided and replayed, but not yet proposed to raft."""
        return len(self._pending)

    def has_room(self, values: Sequence[bytes]) -> bool:
        """Whether these may share a batch with the pending records."""
        if not self._pending:
            return True
        size_bytes = self._pending_size_bytes + sum(map(size_in_batch_bytes, values))
        return size_bytes <= SHARED_BATCH_SIZE_BYTES_MAX

    def pop_batch(self, epoch: int, unix_ms: int) -> bytes:
        """The pending records as one batch for raft to append."""
        batch = build_batch(self._pending, self._pending_base_offset, epoch, unix_ms)
        self.skip_to(self._pending_base_offset + len(self._pending), epoch, unix_ms)
        self._pending = []
        self._pending_size_bytes = 0
        return batch

    def skip_to(self, end_offset: int, epoch: int, unix_ms: int) -> None:
        """Advance past a batch that ends before `end_offset`: ours, already replayed, or raft's control records."""
        self.image.advance(end_offset=end_offset, epoch=epoch, timestamp_ms=unix_ms)

    def wait(self, waiter: Waiter) -> None:
        """Keep a response until the commit of everything below its end offset."""
        self._waiters.append(waiter)

    def committed(self, high_watermark: int, unix_ms: int) -> list[Waiter]:
        """Note that the high watermark passed decisions of ours. Returns the responses that may leave."""
        if high_watermark > self.applied_offset:
            self.image.commit(high_watermark)
            self.applied_offset = high_watermark
            self.applied_timestamp_ms = unix_ms
            self._finalize_features()
        released = []
        while self._waiters and self._waiters[0].end_offset <= high_watermark:
            released.append(self._waiters.popleft())
        return released

    def abandon(self) -> list[Waiter]:
        """Revert uncommitted records, because leadership is lost. Returns the responses that waited for them."""
        self.control.deactivate()
        self._pending = []
        self._pending_size_bytes = 0
        self.image.revert_to(self.image.committed_end_offset)
        self._features_change_at = None
        abandoned = list(self._waiters)
        self._waiters.clear()
        return abandoned


def _encode(record: MetadataRecord, metadata_version: int) -> bytes:
    """Encode a record that Kafka's readers, and ours, accept.

    Raises:
        ControlError: it has too long a string or array, or too many bytes.
    """
    try:
        value = encode_record_at(record, metadata_version)
    except ValueTooLong as error:
        is_config = isinstance(record, ConfigRecord)
        error_code = ErrorCode.invalid_config if is_config else ErrorCode.invalid_request
        raise ControlError(error_code, f"{type(record).__name__}: {error.message}") from error
    if len(value) > RECORD_SIZE_BYTES_MAX:
        raise ControlError(
            ErrorCode.record_list_too_large,
            f"A {type(record).__name__} has {len(value)} bytes, at most {RECORD_SIZE_BYTES_MAX} are allowed",
        )
    return value


def not_controller() -> ControlError:
    """The response of a node that has lost the leadership."""
    return ControlError(ErrorCode.not_controller, NOT_CONTROLLER_MESSAGE)


class Perform(Protocol):
    """Carries out raft's effects; `is_proposal` if they are those of the records that a decision has written."""

    def __call__(self, ready: Ready, *, is_proposal: bool = False) -> None:
        """See `turn.ControllerNode`."""


class Proposals:
    """Decided records between the image, which has them, and the commit."""

    def __init__(
        self,
        *,
        raft: RaftNode,
        metadata: MetadataState,
        applied: Callable[[int], None],
        perform: Perform,
        unix_ms_of: UnixTime,
    ) -> None:
        self._raft = raft
        self._metadata = metadata
        self._applied = applied
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
        """Replay the records of a decision, to be proposed with others.

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
        """Return whether this node leads afterwards."""
        self.propose(now_ms)
        return self._metadata.control.is_active

    def propose(self, now_ms: int) -> None:
        """Pass the pending records to raft, as one batch."""
        metadata = self._metadata
        if not metadata.pending_count:
            return
        batch = metadata.pop_batch(self._raft.epoch, self._unix_ms_of(now_ms))
        self._applied(len(batch))
        self._perform(self._raft.step(Propose(batches=batch), now_ms), is_proposal=True)
        if metadata.control.is_active:  # raft may have deposed this node in the very step
            self._proposed.append((self._raft.log_end_offset, now_ms))

    def committed(self, high_watermark: int, now_ms: int) -> None:
        """Measure the commit latency of proposals below the high watermark."""
        while self._proposed and self._proposed[0][0] <= high_watermark:
            self.commit_latency.observe_ms(now_ms - self._proposed.popleft()[1])

    def abandon(self) -> None:
        """Drop uncommitted proposals, because leadership is lost."""
        self._proposed.clear()
