"""Snapshots: which are offered, how they are downloaded, what they do to the log (KIP-630)."""

from dataclasses import replace

import pytest
from quorate_controller.raft.events import (
    LogStartMoved,
    Role,
    SnapshotChunk,
    SnapshotRefused,
    SnapshotRestored,
    SnapshotTaken,
)
from quorate_controller.raft.messages import (
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    SnapshotRead,
)
from quorate_controller.raft.model import BOOTSTRAP_SNAPSHOT_ID, SnapshotId
from quorate_controller.raft.startup import EpochStart, LogState
from quorate_protocol.errors import ErrorCode

SNAPSHOT = SnapshotId(offset=8, epoch=1)


def fetch_snapshot(lab, **changes: object) -> FetchSnapshotRequest:
    request = FetchSnapshotRequest(
        cluster_id=lab.cluster_id,
        replica=lab.key(2),
        current_leader_epoch=2,
        snapshot_id=SNAPSHOT,
        position=0,
    )
    return replace(request, **changes)  # type: ignore[arg-type]


def leading(lab):
    """Node 1 leads epoch 2; the log has epoch 1 up to 10 and the LeaderChange, all committed."""
    node = lab.leader(log=lab.log(1, 2, 3))
    node.ask(lab.fetch(2, 11, 2))
    return node


def test_an_empty_replica_is_sent_to_the_latest_snapshot(lab) -> None:
    node = leading(lab)
    assert node.ask(lab.fetch(4, 0, 0))[0].snapshot_id is None
    node.step(SnapshotTaken(snapshot_id=SNAPSHOT))
    response, _ = node.ask(lab.fetch(4, 0, 0))
    assert response.snapshot_id == SNAPSHOT
    assert response.read is None


def test_below_the_log_start_there_is_only_the_snapshot(lab) -> None:
    node = leading(lab)
    node.step(SnapshotTaken(snapshot_id=SNAPSHOT))
    node.step(LogStartMoved(start_offset=8))
    assert node.node.log_start_offset == 8
    assert node.ask(lab.fetch(3, 7, 1))[0].snapshot_id == SNAPSHOT
    assert node.ask(lab.fetch(3, 8, 0))[0].snapshot_id == SNAPSHOT
    response, _ = node.ask(lab.fetch(3, 8, 1))
    assert response.snapshot_id is None
    assert response.read.start_offset == 8
    assert response.log_start_offset == 8


def test_the_bootstrap_checkpoint_is_never_served(lab) -> None:
    node = lab.leader()
    node.ask(replace(lab.fetch(2, 3, 1), current_leader_epoch=1))
    response, _ = node.ask(replace(lab.fetch(4, 0, 0), current_leader_epoch=1))
    assert response.snapshot_id is None
    request = fetch_snapshot(lab, snapshot_id=BOOTSTRAP_SNAPSHOT_ID, current_leader_epoch=1)
    assert node.ask(request)[0].error_code is ErrorCode.snapshot_not_found


def test_a_chunk_is_named_for_the_driver_to_read(lab) -> None:
    """The core says what to send, storage knows the bytes."""
    node = leading(lab)
    response, _ = node.ask(fetch_snapshot(lab, position=100, max_bytes=50))
    assert response.read == SnapshotRead(snapshot_id=SNAPSHOT, position=100, size_bytes_max=50)
    assert (response.snapshot_id, response.position, response.leader_id) == (SNAPSHOT, 100, 1)
    refused = response.refused(ErrorCode.snapshot_not_found)
    assert (refused.error_code, refused.read, refused.snapshot_id) == (
        ErrorCode.snapshot_not_found,
        None,
        None,
    )


def test_errors_of_a_chunk(lab) -> None:
    node = leading(lab)
    for changes, error_code in [
        ({"position": -1}, ErrorCode.position_out_of_range),
        ({"current_leader_epoch": 1}, ErrorCode.fenced_leader_epoch),
        ({"current_leader_epoch": 3}, ErrorCode.unknown_leader_epoch),
    ]:
        response, _ = node.ask(fetch_snapshot(lab, **changes))
        assert (response.error_code, response.read) == (error_code, None)
    other = node.ask(fetch_snapshot(lab, cluster_id="other"))[0]
    assert other.top_level_error_code is ErrorCode.inconsistent_cluster_id


def test_a_download_keeps_the_leader_in_office(lab) -> None:
    """A voter that loads a snapshot counts for CheckQuorum."""
    node = leading(lab)
    for _ in range(5):
        node.wait(1000)
        node.ask(fetch_snapshot(lab))
    assert node.node.role is Role.LEADER


def chunk(position: int, records: bytes, **changes: object) -> FetchSnapshotResponse:
    response = FetchSnapshotResponse(
        leader_id=2,
        leader_epoch=5,
        snapshot_id=SnapshotId(offset=20, epoch=4),
        size_bytes=5,
        position=position,
        records=records,
    )
    return replace(response, **changes)  # type: ignore[arg-type]


def offered(lab, **node: object):
    """A follower that was offered a snapshot, and its first FetchSnapshot."""
    scripted, send = lab.follower(**node)
    offer = FetchResponse(leader_id=2, leader_epoch=5, snapshot_id=SnapshotId(offset=20, epoch=4))
    return scripted, scripted.respond(send, offer).sends[0]


def test_a_snapshot_is_downloaded_chunk_by_chunk_and_takes_the_place_of_the_log(lab) -> None:
    """Positions follow each other; then restore, then Fetch from its end."""
    node, send = offered(lab)
    snapshot_id = SnapshotId(offset=20, epoch=4)
    assert send.request == FetchSnapshotRequest(
        cluster_id=lab.cluster_id,
        replica=lab.key(1),
        current_leader_epoch=5,
        snapshot_id=snapshot_id,
        position=0,
        max_bytes=2**20,
    )
    result = node.respond(send, chunk(0, b"abc"))
    assert result.chunks == [SnapshotChunk(snapshot_id=snapshot_id, position=0, data=b"abc")]
    assert not result.restores
    (send,) = result.sends
    assert send.request.position == 3
    result = node.respond(send, chunk(3, b"de"))
    assert result.restores == [snapshot_id]
    assert not result.sends
    voters = lab.voters(1, 2)
    restored = SnapshotRestored(snapshot_id=snapshot_id, kraft_version=1, voters=voters)
    result = node.step(restored)
    assert node.node.voters == voters
    assert (node.node.log_start_offset, node.node.log_end_offset, node.node.last_epoch) == (20, 20, 4)
    assert result.high_watermark == 20
    (send,) = result.sends
    assert (send.request.fetch_offset, send.request.last_fetched_epoch) == (20, 4)


@pytest.mark.parametrize("is_readable", [True, False])
def test_the_time_of_a_load_is_no_silence_of_the_leader(lab, is_readable: bool) -> None:
    """After loading a large snapshot a follower fetches again, without an election."""
    node, send = offered(lab)
    fetch_timeout_ms = lab.config(1).fetch_timeout_ms
    node.respond(send, chunk(0, b"abcde"))
    node.wait(10 * fetch_timeout_ms)
    snapshot_id = SnapshotId(offset=20, epoch=4)
    node.step(
        SnapshotRestored(snapshot_id=snapshot_id, kraft_version=1, voters=lab.voters(1, 2))
        if is_readable
        else SnapshotRefused(snapshot_id=snapshot_id, reason="damaged")
    )
    assert node.node.role is Role.FOLLOWER
    node.wait(fetch_timeout_ms - 1)
    assert node.node.role is Role.FOLLOWER
    node.wait(1)
    assert node.node.role is Role.PROSPECTIVE


def test_a_damaged_snapshot_leaves_the_log_and_is_downloaded_again_later(lab) -> None:
    node, send = offered(lab)
    before = (node.node.log_start_offset, node.node.log_end_offset, node.node.last_epoch, node.node.voters)
    snapshot_id = SnapshotId(offset=20, epoch=4)
    offer = FetchResponse(leader_id=2, leader_epoch=5, snapshot_id=snapshot_id)
    for pause_ms in (1_000, 2_000):
        assert node.respond(send, chunk(0, b"abcde")).restores == [snapshot_id]
        result = node.step(SnapshotRefused(snapshot_id=snapshot_id, reason="a bit flipped"))
        assert [note.event for note in result.warnings] == ["fetched_snapshot_damaged"]
        after = (node.node.log_start_offset, node.node.log_end_offset, node.node.last_epoch, node.node.voters)
        assert after == before
        paused_since_ms = node.now_ms
        (send,) = result.sends
        while not isinstance(send.request, FetchSnapshotRequest):
            result = node.respond(send, offer)
            while not result.sends:
                result = node.wait_for_deadline()
            (send,) = result.sends
        # The leader is asked ever less often meanwhile, at least every second.
        assert pause_ms <= node.now_ms - paused_since_ms < pause_ms + 1_200
        assert node.node.role is Role.FOLLOWER


def test_nothing_is_begun_while_a_snapshot_is_put_in_place(lab) -> None:
    node, send = offered(lab)
    node.respond(send, chunk(0, b"abcde"))
    assert not node.wait(10_000).sends
    assert node.node.role is Role.FOLLOWER


def test_a_snapshot_that_is_gone_is_given_up(lab) -> None:
    node, send = offered(lab)
    gone = chunk(0, b"", error_code=ErrorCode.snapshot_not_found, snapshot_id=None)
    result = node.respond(send, gone)
    assert isinstance(result.sends[0].request, FetchRequest)
    assert not result.warnings


def test_wrong_chunks_end_the_download(lab) -> None:
    for wrong in [
        chunk(1, b"abc"),
        chunk(0, b"abcdef"),
        chunk(0, b""),
        chunk(0, b"abc", snapshot_id=SnapshotId(offset=21, epoch=4)),
    ]:
        node, send = offered(lab)
        result = node.respond(send, wrong)
        assert not result.chunks
        assert [note.event for note in result.warnings] == ["snapshot_chunk_not_acceptable"]


def test_a_new_epoch_starts_over(lab) -> None:
    node, send = offered(lab)
    node.respond(send, chunk(0, b"abc"))
    begin = lab.begin_epoch(3, 6)
    _, result = node.ask(begin)
    assert isinstance(result.sends[0].request, FetchRequest)


def test_a_snapshot_below_the_high_watermark_is_not_loaded(lab) -> None:
    node, send = lab.follower()
    (send,) = node.respond(send, FetchResponse(leader_id=2, leader_epoch=5, high_watermark=10)).sends
    offer = FetchResponse(leader_id=2, leader_epoch=5, snapshot_id=SnapshotId(offset=9, epoch=1))
    result = node.respond(send, offer)
    assert [note.event for note in result.warnings] == ["snapshot_not_acceptable"]


def test_a_log_that_starts_late_knows_its_snapshots_epoch(lab) -> None:
    log = replace(
        lab.log(1, 2, 3),
        start_offset=8,
        epochs=(EpochStart(epoch=1, start_offset=8),),
        snapshot_id=SNAPSHOT,
        earliest_snapshot_id=SNAPSHOT,
    )
    node = lab.leader(log=log)
    assert node.ask(lab.fetch(2, 8, 1))[0].read.start_offset == 8
    assert node.ask(lab.fetch(2, 5, 1))[0].snapshot_id == SNAPSHOT
    assert node.node.epoch_at(7) == 1


def test_a_log_of_a_snapshot_alone_has_its_epoch(lab) -> None:
    snapshot_id = SnapshotId(offset=20, epoch=4)
    log = LogState(
        start_offset=20,
        end_offset=20,
        snapshot_id=snapshot_id,
        earliest_snapshot_id=snapshot_id,
        voters=(replace(lab.log(1, 2, 3).voters[0], offset=19),),
        kraft_versions=(replace(lab.log(1, 2, 3).kraft_versions[0], offset=19),),
    )
    _, send = lab.follower(log=log)
    assert (send.request.fetch_offset, send.request.last_fetched_epoch) == (20, 4)
