"""The observer: one request at a time, one response to each."""

from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from quorate_protocol.errors import ErrorCode, ProtocolError
from quorate_protocol.kafka.generated.fetch_request import FetchRequest
from quorate_protocol.kafka.generated.fetch_snapshot_request import FetchSnapshotRequest
from quorate_protocol.observer import wire
from quorate_protocol.observer.events import (
    BEGINNING,
    Committed,
    Endpoint,
    Event,
    Gap,
    HistoryLostError,
    LeaderChanged,
    Position,
    RefusedError,
    SnapshotAbandoned,
    SnapshotBegun,
    SnapshotChunk,
    SnapshotLoaded,
    Truncated,
)
from quorate_protocol.plain_data import dataclass
from quorate_protocol.records.batch import RecordBatch, decode_batches, scan_batches

NO_LEADER: Final = -1
_UNKNOWN: Final = -1
_SNAPSHOT_SIZE_BYTES_MAX: Final = 2**31 - 1
"""Kafka serves no position above it (KafkaRaftClient.handleFetchSnapshotRequest)."""

_FINAL_ERRORS: Final = frozenset(
    {
        ErrorCode.cluster_authorization_failed,
        ErrorCode.inconsistent_cluster_id,
        ErrorCode.invalid_request,
        ErrorCode.topic_authorization_failed,
        ErrorCode.unsupported_version,
    }
)
_LEADER_ELSEWHERE: Final = (ErrorCode.fenced_leader_epoch, ErrorCode.not_leader_or_follower)
_NO_SUCH_SNAPSHOT: Final = (ErrorCode.snapshot_not_found, ErrorCode.position_out_of_range)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserverConfig:
    """Limits of an observer."""

    cluster_id: str | None = None
    """The cluster that may partition; None accepts any."""
    fetch_size_bytes_max: int = 1024 * 1024
    """Size of one response; a leader still sends a single larger batch."""
    fetched_size_bytes_max: int = 16 * 1024 * 1024
    """Size of the batches that are fetched and not committed. At the limit only the high watermark is fetched."""
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request and the endpoint to send it to."""

    endpoint: Endpoint
    request: FetchRequest | FetchSnapshotRequest
    delay_ms: int
    """How long to wait before sending: the backoff after a failure."""


class _Download:
    def __init__(self, snapshot_id: Position) -> None:
        self.snapshot_id = snapshot_id
        self.position = 0
        self.size_bytes = _UNKNOWN


class Observer:
    """Follows one metadata log from `position` on.

    Usage, in a loop: call :meth:`next_ask`, send the request, pass the response to :meth:`receive`, or call
    :meth:`failed` without a response. Both return events. To continue in another process, store the `position` of the
    events that were processed.

    It relies on the leader's high watermark. A leader that is partitioned from its quorum and has been replaced
    responds with the high watermark of its own epoch, for at most 1.5 fetch timeouts.
    """

    def __init__(
        self, bootstrap: Sequence[Endpoint], config: ObserverConfig, position: Position = BEGINNING
    ) -> None:
        assert bootstrap, "no bootstrap address"
        self.config = config
        self.leader_id = NO_LEADER
        self.leader_epoch = position.epoch
        self.high_watermark = _UNKNOWN
        """The highest high watermark of any leader; -1 if none is known."""
        self.last_failure: str | None = None
        """Why the last request failed; None after a success."""
        self._bootstrap = tuple(bootstrap)
        self._bootstrap_next = 0
        self._endpoint: Endpoint | None = None
        self._asked: Endpoint = self._bootstrap[0]
        self._failures = 0
        self._fetched = PendingBatches(position)
        self._download: _Download | None = None
        self._last_high_watermark = _UNKNOWN

    @property
    def position(self) -> Position:
        """The end of the events so far; a snapshot counts when it is complete."""
        return self._fetched.start

    @property
    def is_caught_up(self) -> bool:
        """Whether the last response was to a Fetch, and nothing below its high watermark is missing."""
        return 0 <= self._last_high_watermark <= self._fetched.end.offset

    @property
    def held_size_bytes(self) -> int:
        """Size of the batches that are fetched and not committed."""
        return self._fetched.size_bytes

    def start_over(self) -> None:
        """Reset the position: read the log from its beginning, or its snapshot."""
        self._fetched = PendingBatches(BEGINNING)
        self._download = None
        self.high_watermark = self._last_high_watermark = _UNKNOWN

    # Asking

    def next_ask(self, max_wait_ms: int) -> Ask:
        """Return the next request. `max_wait_ms` is how long a leader without new records may hold it."""
        if self._endpoint is None:
            self._endpoint = self._bootstrap[self._bootstrap_next]
            self._bootstrap_next = (self._bootstrap_next + 1) % len(self._bootstrap)
        self._asked = self._endpoint
        request: FetchRequest | FetchSnapshotRequest
        if self._download is not None:
            request = wire.fetch_snapshot_request(
                cluster_id=self.config.cluster_id,
                leader_epoch=self.leader_epoch,
                snapshot_id=self._download.snapshot_id,
                position=self._download.position,
                size_bytes_max=self.config.fetch_size_bytes_max,
            )
        else:
            request = wire.fetch_request(
                cluster_id=self.config.cluster_id,
                leader_epoch=self.leader_epoch,
                end=self._fetched.end,
                high_watermark=self.high_watermark,
                max_wait_ms=max_wait_ms,
                size_bytes_max=1 if self._is_full else self.config.fetch_size_bytes_max,
            )
        return Ask(endpoint=self._asked, request=request, delay_ms=self._delay_ms())

    def _delay_ms(self) -> int:
        # At the limit, a leader with more records would respond at once, again and again.
        steps = max(self._failures, int(self._is_full))
        if not steps:
            return 0
        return min(self.config.retry_backoff_ms << min(steps - 1, 16), self.config.retry_backoff_max_ms)

    @property
    def _is_full(self) -> bool:
        return self.held_size_bytes >= self.config.fetched_size_bytes_max

    def failed(self, reason: str) -> tuple[Event, ...]:
        """Note that there is no response: no connection, or a timeout. The next endpoint is asked."""
        self._last_high_watermark = _UNKNOWN
        self._fail(reason)
        self._endpoint = None
        return self._abandon_download()

    def _fail(self, reason: str) -> None:
        self.last_failure = f"{self._asked.host}:{self._asked.port}: {reason}"
        self._failures += 1

    # Responses

    def receive(self, response: Any) -> tuple[Event, ...]:
        """Process the response to the last request, of the canonical class, and return the events.

        Raises:
            RefusedError: the controller refuses the request for good.
            HistoryLostError: the leader's log contradicts committed records.
            CorruptBatch: a committed batch can't be decoded.
        """
        self._last_high_watermark = _UNKNOWN
        if response.error_code is not ErrorCode.none:
            return self._refused(response.error_code)
        is_snapshot = self._download is not None
        partition = wire.read_fetch_snapshot(response) if is_snapshot else wire.read_fetch(response)
        if partition is None:
            return self.failed("the response lacks the metadata partition")
        if partition.error_code is not ErrorCode.none and partition.leader_epoch < 0:
            return self._refused(partition.error_code)
        if self._is_outdated(partition):
            return self.failed(f"it says leader {partition.leader_id} in epoch {partition.leader_epoch}")
        events = self._adopt(partition)
        if partition.error_code in _LEADER_ELSEWHERE:
            return (*events, *self._go_to_leader(partition, is_news=bool(events)))
        if is_snapshot and self._download is None:
            return events  # a new leader's response to a request for the former leader's snapshot
        if partition.error_code in _NO_SUCH_SNAPSHOT and is_snapshot:
            self._fail(f"{int(partition.error_code)} {partition.error_code.name.upper()}")
            return (*events, *self._abandon_download())
        if partition.error_code is not ErrorCode.none:
            return (*events, *self._refused(partition.error_code))
        receive = self._receive_chunk if is_snapshot else self._receive_records
        return (*events, *receive(partition.data))

    def _refused(self, error_code: ErrorCode) -> tuple[Event, ...]:
        if error_code in _FINAL_ERRORS:
            raise RefusedError(error_code)
        return self.failed(f"{int(error_code)} {error_code.name.upper()}")

    # Leaders

    def _is_outdated(self, partition: wire.MetadataPartition) -> bool:
        """Whether it is older than what other controllers reported, or contradicts it: an epoch has one leader."""
        if (
            partition.error_code is ErrorCode.unknown_leader_epoch
            or partition.leader_epoch < self.leader_epoch
        ):
            return True
        is_other = partition.leader_id not in (NO_LEADER, self.leader_id)
        return is_other and self.leader_id != NO_LEADER and partition.leader_epoch == self.leader_epoch

    def _adopt(self, partition: wire.MetadataPartition) -> tuple[Event, ...]:
        """Note a later epoch, or the leader of the current one."""
        is_found = self.leader_id == NO_LEADER != partition.leader_id
        if partition.leader_epoch == self.leader_epoch and not is_found:
            return ()
        self.leader_id, self.leader_epoch = partition.leader_id, partition.leader_epoch
        changed = LeaderChanged(
            leader_id=partition.leader_id, epoch=partition.leader_epoch, endpoint=partition.leader_endpoint
        )
        # Each node writes its own snapshots: the bytes of two with the same id may differ.
        return (changed, *self._abandon_download())

    def _go_to_leader(self, partition: wire.MetadataPartition, *, is_news: bool) -> tuple[Event, ...]:
        error = f"{int(partition.error_code)} {partition.error_code.name.upper()}"
        if partition.leader_endpoint is None:
            return self.failed(f"{error}, no leader known")
        if is_news:
            self._endpoint = partition.leader_endpoint
        else:
            # It named the same leader before: that one does not know yet that it was elected, or is gone.
            self._fail(error)
            self._endpoint = None if partition.leader_endpoint == self._asked else partition.leader_endpoint
        return ()

    def _succeed(self) -> None:
        self._failures = 0
        self.last_failure = None

    # Records

    def _receive_records(self, partition: Any) -> tuple[Event, ...]:
        diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
        if diverging.epoch >= 0:
            return self._truncate(Position(diverging.end_offset, diverging.epoch))
        if snapshot.epoch >= 0 and snapshot.end_offset >= 0:
            return self._begin_download(Position(snapshot.end_offset, snapshot.epoch))
        fault = None
        if not self._is_full:
            fault = self._fetched.append(bytes(partition.records or b""), self.leader_epoch)
        # The leader has checked that our records are a prefix of its log, so its high watermark applies to them.
        # A new leader's may be unknown or lower than the former one's: what was committed stays committed.
        self.high_watermark = max(self.high_watermark, partition.high_watermark)
        if fault is None:
            self._succeed()
            self._last_high_watermark = partition.high_watermark
        else:
            self._fail(f"invalid records: {fault}")
        batches = self._fetched.take_below(self.high_watermark)
        return (Committed(batches=batches, position=self.position),) if batches else ()

    def _truncate(self, leader_end: Position) -> tuple[Event, ...]:
        start = self._fetched.start
        if leader_end.offset < start.offset or leader_end.epoch < start.epoch:
            raise HistoryLostError(start, leader_end)
        dropped = self._fetched.truncate(leader_end)
        if not dropped:
            return self.failed(
                f"the diverging epoch ends at {leader_end}, which is not before {self._fetched.end}"
            )
        self._succeed()
        return (Truncated(position=self._fetched.end, records=dropped),)

    # Snapshots

    def _begin_download(self, snapshot_id: Position) -> tuple[Event, ...]:
        start = self._fetched.start
        if snapshot_id.offset < start.offset or snapshot_id.epoch < start.epoch:
            raise HistoryLostError(start, snapshot_id)
        events: list[Event] = []
        if dropped := self._fetched.clear():
            events.append(Truncated(position=start, records=dropped))
        if start != BEGINNING:
            events.append(Gap(start=start, end=snapshot_id))
        self._download = _Download(snapshot_id)
        return tuple(events)

    def _receive_chunk(self, partition: Any) -> tuple[Event, ...]:
        download = self._download
        assert download is not None
        data, size_bytes = bytes(partition.unaligned_records), partition.size
        snapshot_id = Position(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        end = download.position + len(data)
        is_next = snapshot_id == download.snapshot_id and partition.position == download.position
        is_sized = 0 < size_bytes <= _SNAPSHOT_SIZE_BYTES_MAX and download.size_bytes in (
            _UNKNOWN,
            size_bytes,
        )
        if not is_next or not is_sized or not data or end > size_bytes:
            return self.failed(
                f"an invalid chunk: {len(data)} bytes at {partition.position} of {size_bytes} "
                f"of the snapshot of {snapshot_id}, instead of {download.position} of that of {download.snapshot_id}"
            )
        self._succeed()
        events: list[Event] = []
        if download.position == 0:
            events.append(SnapshotBegun(snapshot_id=download.snapshot_id, size_bytes=size_bytes))
        download.position, download.size_bytes = end, size_bytes
        events.append(SnapshotChunk(data=data))
        if end == size_bytes:
            self._fetched = PendingBatches(download.snapshot_id)
            self.high_watermark = max(self.high_watermark, download.snapshot_id.offset)
            self._download = None
            events.append(SnapshotLoaded(position=self.position))
        return tuple(events)

    def _abandon_download(self) -> tuple[Event, ...]:
        download, self._download = self._download, None
        if download is None or download.position == 0:
            return ()
        return (SnapshotAbandoned(snapshot_id=download.snapshot_id),)


class _Held(NamedTuple):
    last_offset: int
    epoch: int
    data: bytes


class PendingBatches:
    """Batches after `start`, in order and without gaps; kept as bytes until they are committed."""

    def __init__(self, start: Position) -> None:
        self.start = start
        """The end of the committed batches that were returned."""
        self.size_bytes = 0
        self._held: deque[_Held] = deque()

    @property
    def end(self) -> Position:
        """The end of the fetched batches: the next fetch position."""
        if not self._held:
            return self.start
        return Position(self._held[-1].last_offset + 1, self._held[-1].epoch)

    def append(self, records: bytes, leader_epoch: int) -> str | None:
        """Append the next batches. Return the fault of the first bad one, or None.

        It checks checksums, contiguous offsets, and epochs, which never decrease and are not above the leader's.
        A truncated last batch is no fault: the size of a response is limited (KIP-74).
        """
        try:
            for header in scan_batches(records, check_crc=True, allow_partial_tail=True):
                end, epoch = self.end, header.partition_leader_epoch
                if header.base_offset != end.offset:
                    return f"base offset {header.base_offset} instead of {end.offset}"
                if not end.epoch <= epoch <= leader_epoch:
                    return f"epoch {epoch} outside of {end.epoch} to {leader_epoch}"
                data = records[header.position : header.position + header.size_bytes]
                self._held.append(_Held(header.last_offset, epoch, data))
                self.size_bytes += header.size_bytes
        except ProtocolError as error:
            return error.message
        return None

    def take_below(self, high_watermark: int) -> tuple[RecordBatch, ...]:
        """Remove and return the batches that are completely below the high watermark.

        Raises:
            ProtocolError: a batch can't be decoded.
        """
        ready = [held for held in self._held if held.last_offset < high_watermark]
        taken = tuple(batch for held in ready for batch in decode_batches(held.data))
        for held in ready:
            self._held.popleft()
            self.size_bytes -= len(held.data)
            self.start = Position(held.last_offset + 1, held.epoch)
        return taken

    def truncate(self, leader_end: Position) -> int:
        """Drop the records that are not in a log with this epoch up to this offset; return their number."""
        before = self.end.offset
        while self._held and (
            self._held[-1].epoch > leader_end.epoch or self._held[-1].last_offset >= leader_end.offset
        ):
            self.size_bytes -= len(self._held.pop().data)
        return before - self.end.offset

    def clear(self) -> int:
        """Drop all fetched records; return their number."""
        before = self.end.offset
        self._held.clear()
        self.size_bytes = 0
        return before - self.start.offset
