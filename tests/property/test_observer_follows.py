"""An observer against a quorum whose leaders, truncations and snapshots are drawn by chance."""

from dataclasses import dataclass, field
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated import fetch_snapshot_response as snapshots
from quorate_protocol.kafka.generated.fetch_request import FetchRequest
from quorate_protocol.kafka.generated.fetch_response import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from quorate_protocol.kafka.generated.fetch_snapshot_request import FetchSnapshotRequest
from quorate_protocol.kafka.metadata_log import METADATA_TOPIC, METADATA_TOPIC_ID
from quorate_protocol.observer import (
    BEGINNING,
    Committed,
    Endpoint,
    Gap,
    Observer,
    ObserverConfig,
    Position,
    SnapshotAbandoned,
    SnapshotBegun,
    SnapshotChunk,
    SnapshotLoaded,
    Truncated,
)
from quorate_protocol.records.batch import build_batch

NODES = 3
BATCH_SIZE_BYTES_MAX = 200
NO_TIME = timedelta()


@dataclass(frozen=True)
class Batch:
    base: int
    epoch: int
    count: int
    serial: int

    @property
    def end(self) -> int:
        return self.base + self.count

    @property
    def data(self) -> bytes:
        values = [b"%d/%d" % (self.serial, place) for place in range(self.count)]
        return build_batch(values, self.base, self.epoch, self.serial)


@dataclass
class Quorum:
    """The truth: what is committed, and the log of the leader; other nodes only know an epoch."""

    committed: list[Batch] = field(default_factory=list)
    tail: list[Batch] = field(default_factory=list)
    epoch: int = 1
    leader: int = 0
    knows_high_watermark: bool = True
    snapshot: Position | None = None
    serial: int = 0
    logs: list[list[Batch]] = field(default_factory=list)
    """Those of former leaders, some of which part from each other."""
    known_epochs: list[int] = field(default_factory=lambda: [1] * NODES)

    @property
    def log(self) -> list[Batch]:
        return [*self.committed, *self.tail]

    @property
    def committed_end(self) -> int:
        return self.committed[-1].end if self.committed else 0

    @property
    def log_end(self) -> int:
        return self.log[-1].end if self.log else 0

    def append(self, count: int) -> None:
        self.serial += 1
        if self.leader >= 0:
            self.tail.append(Batch(self.log_end, self.epoch, count, self.serial))

    def commit(self, batches: int) -> None:
        # A leader commits what its predecessors wrote only with a record of its own epoch (Raft 5.4.2).
        if self.leader >= 0 and any(batch.epoch == self.epoch for batch in self.tail[:batches]):
            self.committed += self.tail[:batches]
            del self.tail[:batches]
            self.knows_high_watermark = True

    def elect(self, leader: int, choice: int, kept: int) -> None:
        """A new leader, with a part of some log that was ever there and has everything that is committed."""
        self.logs = [*self.logs, self.log][-8:]
        valid = [log for log in self.logs if log[: len(self.committed)] == self.committed]
        self.tail = valid[choice % len(valid)][len(self.committed) :][:kept]
        self.epoch += 1
        self.leader = leader
        self.knows_high_watermark = False
        if leader >= 0:
            self.known_epochs[leader] = self.epoch
            self.append(1)

    def take_snapshot(self, place: int) -> None:
        ends = [Position(batch.end, batch.epoch) for batch in self.committed]
        allowed = [end for end in ends if self.snapshot is None or end.offset >= self.snapshot.offset]
        if allowed:
            self.snapshot = allowed[place % len(allowed)]

    def snapshot_bytes(self, snapshot_id: Position) -> bytes:
        # Those of another leader differ, also in length.
        text = b"leader %d " % self.leader * (self.leader + 3)
        return text + b"".join(batch.data for batch in self.committed if batch.end <= snapshot_id.offset)

    # Answers, as KafkaRaftClient gives them, by the slowest means

    def respond(self, node: int, request: FetchRequest | FetchSnapshotRequest) -> object:
        partition = request.topics[0].partitions[0]
        error = self.error_of(node, partition.current_leader_epoch)
        if isinstance(request, FetchRequest):
            return self.fetch(node, partition, error)
        return self.fetch_snapshot(node, partition, request.max_bytes, error)

    def error_of(self, node: int, epoch: int) -> ErrorCode:
        known = self.known_epochs[node]
        if epoch < known:
            return ErrorCode.fenced_leader_epoch
        if epoch > known:
            return ErrorCode.unknown_leader_epoch
        return ErrorCode.none if self.leads(node) else ErrorCode.not_leader_or_follower

    def leads(self, node: int) -> bool:
        return node == self.leader and self.known_epochs[node] == self.epoch

    def named(self, node: int) -> tuple[int, int]:
        known = self.known_epochs[node]
        return (self.leader if known == self.epoch else -1), known

    def fetch(self, node: int, asked: object, error: ErrorCode) -> FetchResponse:
        leader, epoch = self.named(node)
        diverging, snapshot, records = EpochEndOffset(), SnapshotId(), b""
        if error is ErrorCode.none:
            offset, last_epoch = asked.fetch_offset, asked.last_fetched_epoch
            behind = self.snapshot is not None and (
                offset < self.snapshot.offset
                or (offset == self.snapshot.offset and last_epoch != self.snapshot.epoch)
                or last_epoch < self.snapshot.epoch
            )
            known = [batch for batch in self.log if batch.epoch <= last_epoch]
            end = Position(known[-1].end, known[-1].epoch) if known else BEGINNING
            if behind:
                snapshot = SnapshotId(end_offset=self.snapshot.offset, epoch=self.snapshot.epoch)
            elif offset and (end.epoch != last_epoch or end.offset < offset):
                diverging = EpochEndOffset(epoch=end.epoch, end_offset=end.offset)
            else:
                wanted = [batch.data for batch in self.log if batch.base >= offset]
                # Whole the first one, then as many bytes as fit: the last batch may be cut short.
                if wanted:
                    records = b"".join(wanted)[: max(len(wanted[0]), asked.partition_max_bytes)]
        part = PartitionData(
            partition_index=0,
            error_code=error,
            high_watermark=self.committed_end if self.knows_high_watermark else -1,
            diverging_epoch=diverging,
            current_leader=LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
            snapshot_id=snapshot,
            aborted_transactions=None,
            records=records,
        )
        return FetchResponse(
            throttle_time=NO_TIME,
            error_code=ErrorCode.none,
            responses=(FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=(part,)),),
            node_endpoints=tuple(
                NodeEndpoint(node_id=node_id, host=endpoint.host, port=endpoint.port)
                for node_id, endpoint in enumerate(ENDPOINTS)
                if node_id == leader
            ),
        )

    def fetch_snapshot(self, node: int, asked: object, size_max: int, error: ErrorCode) -> object:
        leader, epoch = self.named(node)
        snapshot_id = Position(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        data = self.snapshot_bytes(snapshot_id)
        if error is ErrorCode.none and snapshot_id != self.snapshot:
            error = ErrorCode.snapshot_not_found
        chunk = data[asked.position : asked.position + size_max] if error is ErrorCode.none else b""
        part = snapshots.PartitionSnapshot(
            index=0,
            error_code=error,
            snapshot_id=snapshots.SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch),
            current_leader=snapshots.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
            size=len(data),
            position=asked.position,
            unaligned_records=chunk,
        )
        return snapshots.FetchSnapshotResponse(
            throttle_time=NO_TIME,
            error_code=ErrorCode.none,
            topics=(snapshots.TopicSnapshot(name=METADATA_TOPIC, partitions=(part,)),),
        )


ENDPOINTS = tuple(Endpoint("controller", 9000 + node) for node in range(NODES))


class Reader:
    """Believes what the observer says, and checks each word of it against the quorum's truth."""

    def __init__(self, quorum: Quorum, observer: Observer) -> None:
        self.quorum = quorum
        self.observer = observer
        self.position = observer.position
        self.snapshot: tuple[Position, int, bytes] | None = None
        self.gap: Gap | None = None

    def exchange(self, *, lost: bool = False) -> None:
        ask = self.observer.next_ask(max_wait_ms=0)
        if lost:
            self.see(self.observer.failed("lost"))
        else:
            node = ENDPOINTS.index(ask.endpoint)
            self.see(self.observer.receive(self.quorum.respond(node, ask.request)))
        assert self.observer.position == self.position
        config = self.observer.config
        assert self.observer.held_size_bytes < config.fetched_size_bytes_max + max(
            config.fetch_size_bytes_max, BATCH_SIZE_BYTES_MAX
        )

    def see(self, events: tuple[object, ...]) -> None:
        for event in events:
            if isinstance(event, Committed):
                for batch in event.batches:
                    values = [record.value for record in batch.records]
                    truth = next(known for known in self.quorum.committed if known.base == batch.base_offset)
                    assert batch.base_offset == self.position.offset
                    assert batch.partition_leader_epoch == truth.epoch
                    assert values == [b"%d/%d" % (truth.serial, place) for place in range(truth.count)]
                    self.position = Position(batch.last_offset + 1, truth.epoch)
                assert event.position == self.position
            elif isinstance(event, Gap):
                assert event.start == self.position
                assert event.end.offset >= self.position.offset
            elif isinstance(event, SnapshotBegun):
                assert self.snapshot is None
                self.snapshot = (event.snapshot_id, event.size_bytes, b"")
            elif isinstance(event, SnapshotChunk):
                snapshot_id, size_bytes, data = self.snapshot
                self.snapshot = (snapshot_id, size_bytes, data + event.data)
            elif isinstance(event, SnapshotAbandoned):
                assert self.snapshot[0] == event.snapshot_id
                self.snapshot = None
            elif isinstance(event, SnapshotLoaded):
                snapshot_id, size_bytes, data = self.snapshot
                assert event.position == snapshot_id
                assert size_bytes == len(data)
                assert data == self.quorum.snapshot_bytes(snapshot_id)
                self.position, self.snapshot = snapshot_id, None
            elif isinstance(event, Truncated):
                assert event.records > 0
                assert event.position.offset >= self.position.offset


STEPS = 150


def play(random: Random, quorum: Quorum, reader: Reader) -> Reader:
    """One step of the world, and what becomes of the reader in it."""
    match random.choices(
        ("append", "commit", "elect", "tell", "snapshot", "exchange", "lose", "resume"),
        (12, 12, 6, 8, 3, 60, 3, 2),
    )[0]:
        case "append":
            quorum.append(random.randint(1, 4))
        case "commit":
            quorum.commit(random.randint(1, 4))
        case "elect":
            quorum.elect(random.randint(-1, NODES - 1), random.randrange(8), random.randint(0, 6))
        case "tell":
            quorum.known_epochs[random.randrange(NODES)] = quorum.epoch
        case "snapshot":
            quorum.take_snapshot(random.randrange(8))
        case "exchange":
            for _ in range(random.randint(1, 4)):
                reader.exchange()
        case "lose":
            reader.exchange(lost=True)
        case "resume":
            return Reader(quorum, Observer(ENDPOINTS, reader.observer.config, reader.position))
    return reader


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 2**32),
    fetch_max=st.sampled_from([40, 150, 1000]),
    held_max=st.sampled_from([1, 200, 100_000]),
)
def test_an_observer_hands_out_what_is_committed_and_all_of_it(
    seed: int, fetch_max: int, held_max: int
) -> None:
    random = Random(seed)
    quorum = Quorum()
    config = ObserverConfig(fetch_size_bytes_max=fetch_max, fetched_size_bytes_max=held_max)
    reader = Reader(quorum, Observer(ENDPOINTS, config))
    for _ in range(STEPS):
        reader = play(random, quorum, reader)

    quorum.elect(1, len(quorum.logs), STEPS)
    quorum.known_epochs[:] = [quorum.epoch] * NODES
    quorum.commit(len(quorum.tail))
    for _ in range(10 + len(quorum.log) + sum(len(batch.data) for batch in quorum.log) // fetch_max):
        reader.exchange()
        if reader.observer.is_caught_up:
            assert reader.position.offset == quorum.committed_end
            return
    pytest.fail(f"stuck at {reader.position} of {quorum.committed_end}: {reader.observer.last_failure}")


@settings(deadline=None)
@given(place=st.integers(0, 300), flip=st.integers(1, 255))
def test_damaged_records_do_not_move_an_observer(place: int, flip: int) -> None:
    quorum = Quorum()
    quorum.append(3)
    quorum.commit(1)
    reader = Reader(quorum, Observer(ENDPOINTS[:1], ObserverConfig()))
    reader.exchange()  # reports the epoch
    response = quorum.respond(0, reader.observer.next_ask(0).request)
    partition = response.responses[0].partitions[0]
    damaged = bytearray(partition.records)
    damaged[place % len(damaged)] ^= flip
    object.__setattr__(partition, "records", bytes(damaged))
    if 12 <= place % len(damaged) < 16:
        return  # no checksum covers the epoch, and another one may be as good
    assert reader.observer.receive(response) == ()
    assert reader.observer.position == BEGINNING
    assert not (reader.observer.is_caught_up and reader.observer.position.offset)
    reader.exchange()
    assert reader.position.offset == 3
