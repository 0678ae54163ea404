"""What an observer asks next, and what it makes of answers that are not just records."""

from datetime import timedelta
from typing import Any

import pytest
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.apis import find_api
from quorate_protocol.kafka.generated import fetch_response as fetch
from quorate_protocol.kafka.generated import fetch_snapshot_response as snapshots
from quorate_protocol.kafka.generated.fetch_request import FetchRequest
from quorate_protocol.kafka.generated.fetch_snapshot_request import FetchSnapshotRequest
from quorate_protocol.kafka.metadata_log import METADATA_TOPIC, METADATA_TOPIC_ID
from quorate_protocol.observer import (
    BEGINNING,
    Committed,
    Endpoint,
    Gap,
    HistoryLostError,
    LeaderChanged,
    Observer,
    ObserverConfig,
    Position,
    RefusedError,
    SnapshotAbandoned,
    SnapshotBegun,
    SnapshotChunk,
    SnapshotLoaded,
    Truncated,
)
from quorate_protocol.observer.observer import PendingBatches
from quorate_protocol.records.batch import build_batch
from quorate_protocol.wire.client import encode_request

NO_TIME = timedelta()
A, B, C = (Endpoint(name, 9093) for name in "abc")
LEADER, EPOCH = 1, 7


def batch(base: int, count: int, epoch: int = EPOCH) -> bytes:
    """A batch of records."""
    return build_batch([b"value"] * count, base, epoch, 0)


def response(
    error: ErrorCode = ErrorCode.none,
    *,
    leader: int = LEADER,
    epoch: int = EPOCH,
    endpoint: Endpoint | None = A,
    records: bytes = b"",
    high_watermark: int = -1,
    diverging: Position | None = None,
    snapshot: Position | None = None,
) -> Any:
    """A Fetch response."""
    partition = fetch.PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=high_watermark,
        diverging_epoch=fetch.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.offset)
        if diverging
        else fetch.EpochEndOffset(),
        current_leader=fetch.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
        snapshot_id=fetch.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch)
        if snapshot
        else fetch.SnapshotId(),
        aborted_transactions=None,
        records=records,
    )
    return fetch.FetchResponse(
        throttle_time=NO_TIME,
        error_code=ErrorCode.none,
        responses=(fetch.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=(partition,)),),
        node_endpoints=(fetch.NodeEndpoint(node_id=leader, host=endpoint.host, port=endpoint.port),)
        if endpoint
        else (),
    )


def chunk(
    snapshot: Position,
    position: int,
    size: int,
    data: bytes,
    error: ErrorCode = ErrorCode.none,
    *,
    leader: int = LEADER,
    epoch: int = EPOCH,
) -> Any:
    """A FetchSnapshot response."""
    partition = snapshots.PartitionSnapshot(
        index=0,
        error_code=error,
        snapshot_id=snapshots.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        current_leader=snapshots.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch),
        size=size,
        position=position,
        unaligned_records=data,
    )
    return snapshots.FetchSnapshotResponse(
        throttle_time=NO_TIME,
        error_code=ErrorCode.none,
        topics=(snapshots.TopicSnapshot(name=METADATA_TOPIC, partitions=(partition,)),),
        node_endpoints=(snapshots.NodeEndpoint(node_id=leader, host="b", port=9093),),
    )


def refused(error: ErrorCode) -> Any:
    """A Fetch response that is nothing but an error."""
    return fetch.FetchResponse(throttle_time=NO_TIME, error_code=error, responses=())


@pytest.fixture
def observer() -> Observer:
    """An observer that follows the leader at A from offset 10 on."""
    observer = Observer((A, B, C), ObserverConfig(), Position(10, EPOCH))
    observer.next_ask(0)
    observer.receive(response())
    return observer


def test_the_first_fetch_is_that_of_nobody() -> None:
    observer = Observer((A, B), ObserverConfig(cluster_id="cluster"))
    ask = observer.next_ask(500)
    assert isinstance(ask.request, FetchRequest)
    partition = ask.request.topics[0].partitions[0]
    assert (ask.endpoint, ask.delay_ms, ask.request.cluster_id) == (A, 0, "cluster")
    assert ask.request.replica_state.replica_id == -1
    assert partition.replica_directory_id is None
    assert (partition.fetch_offset, partition.last_fetched_epoch, partition.current_leader_epoch) == (0, 0, 0)
    assert partition.high_watermark == -1


@pytest.mark.parametrize("version", [13, 17, 18])
def test_requests_fit_into_the_versions_that_controllers_have(version: int, observer: Observer) -> None:
    assert encode_request(find_api(1), version, 0, None, observer.next_ask(0).request)


def test_it_goes_where_it_is_sent_without_delay_once() -> None:
    observer = Observer((A, B), ObserverConfig(retry_backoff_ms=100, retry_backoff_max_ms=300))
    observer.next_ask(0)
    events = observer.receive(response(ErrorCode.fenced_leader_epoch, endpoint=C))
    assert events == (LeaderChanged(leader_id=LEADER, epoch=EPOCH, endpoint=C),)
    ask = observer.next_ask(0)
    assert (ask.endpoint, ask.delay_ms) == (C, 0)
    assert ask.request.topics[0].partitions[0].current_leader_epoch == EPOCH
    # The one that was named sends us to itself: it was the leader, or will be.
    for delay_ms in (100, 200, 300, 300):
        assert (
            observer.receive(
                response(ErrorCode.not_leader_or_follower, endpoint=observer.next_ask(0).endpoint)
            )
            == ()
        )
        assert observer.next_ask(0).delay_ms == delay_ms
    assert observer.last_failure is not None
    assert "NOT_LEADER_OR_FOLLOWER" in observer.last_failure


def test_without_an_endpoint_all_addresses_are_asked_in_turn() -> None:
    observer = Observer((A, B, C), ObserverConfig())
    asked = []
    for _ in range(4):
        asked.append(observer.next_ask(0).endpoint)
        observer.receive(response(ErrorCode.not_leader_or_follower, endpoint=None))
    assert asked == [A, B, C, A]
    observer.next_ask(0)
    observer.receive(response(endpoint=None, high_watermark=0))  # B leads
    assert observer.next_ask(0).endpoint == B
    assert observer.is_caught_up


def test_a_lost_connection_leads_to_the_next_address(observer: Observer) -> None:
    assert observer.failed("connection refused") == ()
    ask = observer.next_ask(0)
    assert (ask.endpoint, ask.delay_ms) == (B, 100)
    assert observer.last_failure == "a:9093: connection refused"
    observer.receive(response(high_watermark=0))
    assert observer.last_failure is None


@pytest.mark.parametrize(
    "stale",
    [
        response(epoch=EPOCH - 1, records=batch(10, 1), high_watermark=11),
        response(ErrorCode.unknown_leader_epoch, epoch=EPOCH - 1),
        response(leader=LEADER + 1, records=batch(10, 1), high_watermark=11),
    ],
    ids=["earlier epoch", "unknown epoch", "two leaders in an epoch"],
)
def test_answers_of_the_past_are_not_believed(observer: Observer, stale: Any) -> None:
    observer.next_ask(0)
    assert observer.receive(stale) == ()
    assert observer.position.offset == 10
    assert (observer.leader_id, observer.leader_epoch) == (LEADER, EPOCH)
    assert observer.next_ask(0).endpoint == B


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.cluster_authorization_failed,
        ErrorCode.inconsistent_cluster_id,
        ErrorCode.unsupported_version,
    ],
)
def test_a_refusal_is_final(observer: Observer, error: ErrorCode) -> None:
    observer.next_ask(0)
    with pytest.raises(RefusedError, match=error.name.upper()):
        observer.receive(refused(error))


def test_a_passing_error_is_not_final(observer: Observer) -> None:
    observer.next_ask(0)
    assert observer.receive(response(ErrorCode.broker_not_available)) == ()
    assert observer.next_ask(0).endpoint == B
    assert observer.receive(refused(ErrorCode.unknown_server_error)) == ()
    assert (
        observer.receive(fetch.FetchResponse(throttle_time=NO_TIME, error_code=ErrorCode.none, responses=()))
        == ()
    )
    assert observer.next_ask(0).delay_ms == 400


def test_records_wait_for_the_high_watermark(observer: Observer) -> None:
    observer.next_ask(0)
    data = batch(10, 2) + batch(12, 1) + batch(13, 3)
    (event,) = observer.receive(response(records=data, high_watermark=12))
    assert isinstance(event, Committed)
    assert [batch.base_offset for batch in event.batches] == [10]
    assert observer.position == event.position == (12, EPOCH)
    assert observer.is_caught_up
    ask = observer.next_ask(0)
    assert ask.request.topics[0].partitions[0].fetch_offset == 16
    assert ask.request.topics[0].partitions[0].high_watermark == 12
    (event,) = observer.receive(response(high_watermark=16))
    assert [batch.base_offset for batch in event.batches] == [12, 13]
    assert observer.held_size_bytes == 0


def test_a_lower_high_watermark_takes_nothing_back(observer: Observer) -> None:
    observer.next_ask(0)
    observer.receive(response(records=batch(10, 2), high_watermark=12))
    observer.next_ask(0)
    observer.receive(response(ErrorCode.fenced_leader_epoch, leader=2, epoch=EPOCH + 1, endpoint=B))
    observer.next_ask(0)
    assert observer.receive(response(leader=2, epoch=EPOCH + 1, endpoint=B)) == ()
    assert observer.high_watermark == 12
    assert not observer.is_caught_up  # the new one does not know what is committed


def test_a_new_leader_that_lacks_records_has_them_dropped(observer: Observer) -> None:
    observer.next_ask(0)
    data = batch(10, 2) + batch(12, 2) + batch(14, 1)
    observer.receive(response(records=data, high_watermark=12))
    observer.next_ask(0)
    (event,) = observer.receive(response(diverging=Position(14, EPOCH)))
    assert event == Truncated(position=Position(14, EPOCH), records=1)
    assert observer.next_ask(0).request.topics[0].partitions[0].fetch_offset == 14


@pytest.mark.parametrize("end", [Position(9, EPOCH), Position(20, EPOCH - 1)])
def test_a_log_that_contradicts_what_was_committed_ends_it(observer: Observer, end: Position) -> None:
    observer.next_ask(0)
    with pytest.raises(HistoryLostError, match="offset 10"):
        observer.receive(response(diverging=end))
    observer.next_ask(0)
    with pytest.raises(HistoryLostError):
        observer.receive(response(snapshot=end))
    observer.start_over()
    assert observer.position == BEGINNING


def test_a_divergence_behind_our_end_is_no_answer(observer: Observer) -> None:
    observer.next_ask(0)
    assert observer.receive(response(diverging=Position(10, EPOCH))) == ()
    assert observer.next_ask(0).delay_ms > 0


def test_a_snapshot_replaces_what_is_missing(observer: Observer) -> None:
    snapshot = Position(50, EPOCH)
    observer.next_ask(0)
    observer.receive(response(records=batch(10, 1)))
    observer.next_ask(0)
    events = observer.receive(response(snapshot=snapshot))
    assert events == (
        Truncated(position=Position(10, EPOCH), records=1),
        Gap(start=Position(10, EPOCH), end=snapshot),
    )
    ask = observer.next_ask(0)
    assert isinstance(ask.request, FetchSnapshotRequest)
    assert ask.request.replica_id == -1
    events = observer.receive(chunk(snapshot, 0, 5, b"abc"))
    assert events == (SnapshotBegun(snapshot_id=snapshot, size_bytes=5), SnapshotChunk(data=b"abc"))
    assert observer.position == (10, EPOCH)  # until it is whole
    assert observer.next_ask(0).request.topics[0].partitions[0].position == 3
    events = observer.receive(chunk(snapshot, 3, 5, b"de"))
    assert events == (SnapshotChunk(data=b"de"), SnapshotLoaded(position=snapshot))
    assert observer.position == snapshot
    assert isinstance(observer.next_ask(0).request, FetchRequest)


@pytest.mark.parametrize(
    "bad",
    [
        chunk(Position(50, EPOCH), 3, 9, b"x" * 6),
        chunk(Position(50, EPOCH), 2, 5, b"xx"),
        chunk(Position(51, EPOCH), 3, 5, b"xx"),
        chunk(Position(50, EPOCH), 3, 5, b""),
        chunk(Position(50, EPOCH), 3, 5, b"xxx"),
        chunk(Position(50, EPOCH), 0, 0, b"", ErrorCode.snapshot_not_found),
        chunk(Position(50, EPOCH), 0, 0, b"", ErrorCode.not_leader_or_follower, leader=2, epoch=EPOCH + 1),
    ],
    ids=["size changes", "position", "other snapshot", "empty", "too much", "deleted", "other leader"],
)
def test_a_snapshot_that_goes_wrong_is_abandoned(observer: Observer, bad: Any) -> None:
    snapshot = Position(50, EPOCH)
    observer.next_ask(0)
    observer.receive(response(snapshot=snapshot))
    observer.next_ask(0)
    observer.receive(chunk(snapshot, 0, 5, b"abc"))
    observer.next_ask(0)
    assert SnapshotAbandoned(snapshot_id=snapshot) in observer.receive(bad)
    assert observer.position == (10, EPOCH)
    assert isinstance(observer.next_ask(0).request, FetchRequest)


@pytest.mark.parametrize(
    ("records", "fault"),
    [
        (batch(11, 1), "base offset 11 instead of 10"),
        (batch(10, 1, EPOCH - 1), "epoch 6 outside of 7 to 7"),
        (batch(10, 1, EPOCH + 1), "epoch 8 outside of 7 to 7"),
        (b"\0" * 61, "no batch"),
    ],
)
def test_records_that_do_not_continue_ours_are_not_taken(records: bytes, fault: str) -> None:
    fetched = PendingBatches(Position(9, EPOCH))
    reported = fetched.append(batch(9, 1) + records, EPOCH)
    assert reported is not None
    assert fault in reported
    assert fetched.end == (10, EPOCH)
    assert fetched.append(batch(10, 1)[:-1], EPOCH) is None  # cut short, which is no fault
    assert fetched.end == (10, EPOCH)
