"""The leader's side of Fetch: commits, long polls, divergence, CheckQuorum (KIP-595, KIP-1166)."""

from dataclasses import replace

import pytest
from quorate_controller.raft.events import Propose, Resign, Role
from quorate_controller.raft.handlers.common import UNKNOWN_EPOCH_STEP_MAX
from quorate_controller.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    ReadRange,
    VoteRequest,
)
from quorate_controller.raft.model import OffsetAndEpoch, ReplicaKey
from quorate_controller.raft.startup import HardState
from quorate_protocol.errors import ErrorCode
from quorate_protocol.records.batch import decode_batches
from quorate_protocol.records.control import LeaderChangeMessage, decode_control


def fetch(lab, node_id: int, offset: int, epoch: int = 2, **changes: object) -> FetchRequest:
    """A Fetch from the end of a log that ends at `offset`, in the leader's epoch 2."""
    request = replace(lab.fetch(node_id, offset, epoch), max_wait_ms=500, high_watermark=-1)
    return replace(request, **changes)  # type: ignore[arg-type]


def leading(lab, **node: object):
    """Node 1 leads epoch 2; its log has epoch 1 up to 10, and the LeaderChange at 10."""
    return lab.leader(log=lab.log(1, 2, 3), **node)


def test_an_epoch_opens_with_a_leader_change(lab) -> None:
    """The first record of an epoch names leader, voters and who granted."""
    node = lab.node(1, log=lab.log(1, 2, 3))
    node.start()
    result = node.become_leader()
    (batch,) = decode_batches(result.appended)
    assert (batch.base_offset, batch.partition_leader_epoch, batch.is_control) == (10, 2, True)
    change = decode_control(batch.records[0])
    assert isinstance(change, LeaderChangeMessage)
    assert len(batch.records) == 1
    assert change.leader_id == 1
    assert [voter.voter_id for voter in change.voters] == [1, 2, 3]
    assert len(change.granting_voters) == 2


def test_voters_are_told_of_the_new_leader_until_they_fetch(lab) -> None:
    """BeginQuorumEpoch at once and every half fetch timeout to the silent."""
    node = lab.node(1, log=lab.log(1, 2, 3))
    node.start()
    result = node.become_leader()
    assert result.requests[2] == BeginQuorumEpochRequest(
        cluster_id=lab.cluster_id,
        voter=lab.key(2),
        leader_id=1,
        leader_epoch=2,
        leader_endpoints=lab.endpoints(1),
    )
    for send in result.sends:
        node.respond(send, BeginQuorumEpochResponse(leader_id=1, leader_epoch=2))
    assert not node.wait(900).sends
    node.ask(fetch(lab, 2, 11))
    assert set(node.wait(200).requests) == {3}


def test_a_majority_commits(lab) -> None:
    """The high watermark is what two of three have, the leader only once it is durable."""
    node = leading(lab)
    node.ask(fetch(lab, 2, 11))
    assert node.node.high_watermark == 11
    node.is_slow_disk = True
    node.step(Propose(batches=lab.batch(11, 2, 3)))
    assert node.ask(fetch(lab, 2, 14))[1].high_watermark is None
    node.is_slow_disk = False
    assert node.ask(fetch(lab, 3, 14))[1].high_watermark == 14


def test_nothing_old_is_committed_before_something_new(lab) -> None:
    """Raft 5.4.2."""
    node = leading(lab)
    node.ask(fetch(lab, 2, 10, epoch=1))
    node.ask(fetch(lab, 3, 10, epoch=1))
    assert node.node.high_watermark == -1
    node.ask(fetch(lab, 2, 11))
    assert node.node.high_watermark == 11


def test_records_are_answered_at_once(lab) -> None:
    response, _ = leading(lab, fetch_size_bytes_max=1000).ask(fetch(lab, 2, 5, epoch=1, max_bytes=5000))
    assert response.read == ReadRange(start_offset=5, end_offset=11, size_bytes_max=1000)
    assert (response.leader_id, response.leader_epoch, response.log_start_offset) == (1, 2, 0)


def test_a_long_poll_ends_with_new_records(lab) -> None:
    node = leading(lab)
    node.ask(fetch(lab, 2, 11))
    assert node.ask(fetch(lab, 2, 11, high_watermark=11))[0] is None
    result = node.step(Propose(batches=lab.batch(11, 2)))
    (outgoing,) = result.readies[0].responses
    assert outgoing.response.read == ReadRange(start_offset=11, end_offset=12, size_bytes_max=2**20)


def test_a_long_poll_ends_with_a_new_high_watermark(lab) -> None:
    node = leading(lab)
    held, _ = node.ask(fetch(lab, 4, 11))
    assert held is None
    response, result = node.ask(fetch(lab, 2, 11))
    assert response.high_watermark == 11
    assert [outgoing.response.high_watermark for outgoing in result.responses] == [11, 11]


def test_who_asks_the_same_shares_an_answer(lab) -> None:
    """One answer is read and encoded for all observers, and none of them delays a voter."""
    node = leading(lab)
    node.ask(fetch(lab, 2, 11))
    for node_id in (3, 4, 5):
        assert node.ask(fetch(lab, node_id, 11, high_watermark=11))[0] is None
    assert node.ask(fetch(lab, 6, 11, high_watermark=11, max_bytes=10))[0] is None
    appended = node.step(Propose(batches=lab.batch(11, 2)))
    assert [outgoing.is_for_observer for outgoing in appended.responses] == [False]
    _, committed = node.ask(fetch(lab, 2, 12, high_watermark=11))
    assert [outgoing.is_for_observer for outgoing in committed.responses] == [True, True, True, False]
    first, second, other, _ = committed.responses
    assert first.response is second.response
    assert first.response.read == ReadRange(start_offset=11, end_offset=12, size_bytes_max=2**20)
    assert other.response is not first.response
    assert other.response.read == ReadRange(start_offset=11, end_offset=12, size_bytes_max=10)


def test_observers_get_no_record_that_is_not_committed(lab) -> None:
    node = leading(lab)
    node.ask(fetch(lab, 2, 11))
    assert node.ask(fetch(lab, 4, 11, high_watermark=11))[0] is None
    assert not node.step(Propose(batches=lab.batch(11, 2))).responses
    behind, _ = node.ask(fetch(lab, 5, 5, epoch=1, high_watermark=11))
    assert behind.read == ReadRange(start_offset=5, end_offset=11, size_bytes_max=2**20)
    committed, result = node.ask(fetch(lab, 2, 12, high_watermark=11))
    outgoing, _ = result.responses
    assert outgoing.is_for_observer
    assert outgoing.response.read == ReadRange(start_offset=11, end_offset=12, size_bytes_max=2**20)
    assert outgoing.response.high_watermark == committed.high_watermark == 12


def test_observers_of_a_new_leader_wait_for_its_first_commit(lab) -> None:
    node = leading(lab)
    assert node.ask(fetch(lab, 4, 5, epoch=1))[0] is None
    _, result = node.ask(fetch(lab, 2, 11))
    outgoing, _ = result.responses
    assert outgoing.is_for_observer
    assert outgoing.response.read == ReadRange(start_offset=5, end_offset=11, size_bytes_max=2**20)


def test_an_observer_has_not_caught_up_with_what_nobody_knows(lab) -> None:
    node = leading(lab)
    assert node.ask(fetch(lab, 4, 5, epoch=1))[0] is None
    (observer,) = node.node.describe_quorum(node.now_ms).observers
    assert observer.last_caught_up_timestamp_ms == -1


def test_an_observer_with_all_that_is_committed_has_caught_up(lab) -> None:
    """A load that never pauses does not keep an observer from becoming a voter."""
    node = leading(lab)
    node.ask(fetch(lab, 2, 11))
    node.step(Propose(batches=lab.batch(11, 2)))
    node.ask(fetch(lab, 4, 11, high_watermark=11))
    (observer,) = node.node.describe_quorum(node.now_ms).observers
    assert observer.last_caught_up_timestamp_ms == node.now_ms


def test_a_known_high_watermark_is_waited_past(lab) -> None:
    """Fetch v18 says what the replica knows; older ones do not and wait."""
    node = leading(lab)
    node.ask(fetch(lab, 2, 11))
    assert node.ask(fetch(lab, 3, 11, high_watermark=10))[0].high_watermark == 11
    assert node.ask(fetch(lab, 3, 11, high_watermark=11))[0] is None
    assert node.ask(fetch(lab, 3, 11, high_watermark=None))[0] is None


def test_a_leader_knows_what_an_observer_knows_to_be_committed(lab) -> None:
    node = leading(lab)
    assert node.node.high_watermark_of(7) == -1
    node.ask(fetch(lab, 7, 11, high_watermark=-1))
    assert node.node.high_watermark_of(7) == -1
    node.ask(fetch(lab, 7, 11, high_watermark=10))
    assert node.node.high_watermark_of(7) == 10
    node.ask(fetch(lab, 7, 11, high_watermark=None))
    assert node.node.high_watermark_of(7) == 11  # an old version: its records are all that is known
    node.wait(10_000)  # without a majority it resigns
    assert node.node.high_watermark_of(7) == -1


def test_a_long_poll_ends_with_its_time(lab) -> None:
    """An empty answer after max_wait_ms, at once without one."""
    node = leading(lab)
    assert node.ask(fetch(lab, 4, 11, max_wait_ms=0))[0].read is None
    assert node.ask(fetch(lab, 4, 11, max_wait_ms=300))[0] is None
    assert not node.wait(299).responses
    (outgoing,) = node.wait(1).responses
    assert outgoing.response.error_code is ErrorCode.none
    assert outgoing.response.read is None


def test_held_requests_are_bounded(lab) -> None:
    """A flood of long polls costs no memory."""
    node = leading(lab, fetches_held_max=2)
    assert node.ask(fetch(lab, 4, 11))[0] is None
    assert node.ask(fetch(lab, 5, 11))[0] is None
    assert node.ask(fetch(lab, 6, 11))[0].error_code is ErrorCode.none


def test_who_waits_is_told_when_the_leader_goes(lab) -> None:
    node = leading(lab)
    node.ask(fetch(lab, 4, 11))
    vote = VoteRequest(
        cluster_id=None,
        voter=None,
        replica=lab.key(2),
        replica_epoch=9,
        last_offset=11,
        last_offset_epoch=2,
    )
    _, result = node.ask(vote)
    refused = [
        outgoing.response for outgoing in result.responses if not hasattr(outgoing.response, "vote_granted")
    ]
    assert [(response.error_code, response.leader_epoch) for response in refused] == [
        (ErrorCode.not_leader_or_follower, 9)
    ]


@pytest.mark.parametrize(
    ("changes", "error_code"),
    [
        ({"max_wait_ms": -1}, ErrorCode.invalid_request),
        ({"fetch_offset": -1}, ErrorCode.invalid_request),
        ({"last_fetched_epoch": -1}, ErrorCode.invalid_request),
        ({"last_fetched_epoch": 3}, ErrorCode.invalid_request),
        ({"current_leader_epoch": 1, "last_fetched_epoch": 1}, ErrorCode.fenced_leader_epoch),
        ({"current_leader_epoch": 3}, ErrorCode.unknown_leader_epoch),
        ({"replica": ReplicaKey(node_id=1)}, ErrorCode.unknown_server_error),
    ],
)
def test_errors_name_the_leader(lab, changes: dict[str, object], error_code: ErrorCode) -> None:
    response, _ = leading(lab).ask(fetch(lab, 2, 11, **changes))
    assert response.error_code is error_code
    assert (response.leader_id, response.leader_epoch) == (1, 2)
    assert response.leader_endpoint.port == 9001


def test_replicas_in_a_later_epoch_lead_to_an_election(lab) -> None:
    """Replicas that know an epoch whose candidate was removed are not left without a leader."""
    node = leading(lab)
    later = fetch(lab, 4, 11, current_leader_epoch=5)
    for _ in range(3):
        response, _ = node.ask(later)
        assert (response.error_code, response.leader_epoch) == (ErrorCode.unknown_leader_epoch, 2)
        node.wait(lab.config(1).fetch_timeout_ms // 2)
        for voter in (2, 3):
            node.ask(fetch(lab, voter, 11, max_wait_ms=0))
        assert node.node.role is Role.LEADER
    response, _ = node.ask(later)
    assert response.error_code is ErrorCode.unknown_leader_epoch
    assert (node.node.role, node.node.epoch) == (Role.UNATTACHED, 5)


@pytest.mark.parametrize("epoch", [5 + UNKNOWN_EPOCH_STEP_MAX, 2**31 - 1])
def test_a_fetch_does_not_use_epochs_up(lab, epoch: int) -> None:
    """An observer can't take the cluster to the last epoch."""
    node = leading(lab)
    for _ in range(4):
        node.ask(fetch(lab, 4, 11, current_leader_epoch=epoch))
        node.wait(lab.config(1).fetch_timeout_ms // 2)
        for voter in (2, 3):
            node.ask(fetch(lab, voter, 11, max_wait_ms=0))
    assert (node.node.role, node.node.epoch) == (Role.LEADER, 2)


def test_a_follower_sends_replicas_to_the_leader(lab) -> None:
    node = lab.node(3, log=lab.log(1, 2, 3))
    node.start()
    begin = lab.begin_epoch(2, 2)
    node.ask(begin)
    response, _ = node.ask(fetch(lab, 4, 5, epoch=1))
    assert response.error_code is ErrorCode.not_leader_or_follower
    assert (response.leader_id, response.leader_endpoint.host) == (2, "host2")


def test_another_cluster_is_a_top_level_error(lab) -> None:
    response, _ = leading(lab).ask(fetch(lab, 2, 11, cluster_id="other"))
    assert response.top_level_error_code is ErrorCode.inconsistent_cluster_id


@pytest.mark.parametrize(
    ("offset", "epoch", "diverging"),
    [(15, 1, OffsetAndEpoch(epoch=1, offset=10)), (12, 2, OffsetAndEpoch(epoch=2, offset=11))],
)
def test_a_diverging_log_is_told_where(lab, offset: int, epoch: int, diverging: OffsetAndEpoch) -> None:
    """A follower with other records learns the common end, and does not count."""
    node = leading(lab)
    response, _ = node.ask(fetch(lab, 2, offset, epoch=epoch))
    assert response.diverging_epoch == diverging
    assert response.read is None
    assert node.node.high_watermark == -1


def test_a_reader_that_is_no_replica_may_fetch(lab) -> None:
    node = leading(lab)
    node.ask(fetch(lab, 2, 11))
    response, _ = node.ask(fetch(lab, 2, 5, epoch=1, replica=ReplicaKey(node_id=-1)))
    assert response.read is not None
    assert not node.node.describe_quorum(node.now_ms).observers


def test_a_leader_without_a_majority_resigns(lab) -> None:
    node = leading(lab)
    node.wait(1000)
    node.ask(fetch(lab, 2, 11, max_wait_ms=0))
    node.wait(2999)
    assert node.node.role is Role.LEADER
    result = node.wait(1)
    assert node.node.role is Role.RESIGNED
    assert "lost_quorum" in [note.event for note in result.warnings]


def test_observers_do_not_keep_a_leader(lab) -> None:
    node = leading(lab)
    for _ in range(4):
        node.wait(750)
        node.ask(fetch(lab, 4, 11, max_wait_ms=0))
    assert node.node.role is Role.RESIGNED


def test_the_most_caught_up_is_asked_to_succeed_first(lab) -> None:
    """EndQuorumEpoch lists successors by descending offset."""
    node = leading(lab)
    node.ask(fetch(lab, 2, 5, epoch=1))
    node.ask(fetch(lab, 3, 11))
    result = node.step(Resign(epoch=2))
    assert result.requests[2] == EndQuorumEpochRequest(
        cluster_id=lab.cluster_id,
        leader_id=1,
        leader_epoch=2,
        preferred_candidates=(lab.key(3), lab.key(2)),
    )
    assert set(result.requests) == {2, 3}


def test_a_resignation_of_a_former_epoch_is_void(lab) -> None:
    """A late request does not depose the leader."""
    node = leading(lab)
    node.step(Resign(epoch=1))
    assert node.node.role is Role.LEADER


def test_a_resigned_leader_is_heard_until_acknowledged_then_moves_on(lab) -> None:
    """EndQuorumEpoch is repeated to the deaf; in the end the epoch goes up."""
    node = leading(lab)
    first, second = node.step(Resign(epoch=2)).sends
    node.respond(first, EndQuorumEpochResponse(leader_id=1, leader_epoch=2))
    node.fail(second)
    again = node.wait(20)
    assert set(again.requests) == {second.destination.node_id}
    node.wait(2000)
    assert node.node.epoch == 3
    assert node.node.role in (Role.UNATTACHED, Role.PROSPECTIVE)


def test_the_quorum_is_described(lab) -> None:
    """DescribeQuorum's offsets and times (KIP-836)."""
    node = leading(lab)
    node.ask(fetch(lab, 2, 11))
    caught_up_ms = node.now_ms
    node.step(Propose(batches=lab.batch(11, 2)), after_ms=50)
    node.ask(fetch(lab, 2, 11, max_wait_ms=0))
    node.ask(fetch(lab, 4, 5, epoch=1))
    description = node.node.describe_quorum(node.now_ms + 7)
    assert description.error_code is ErrorCode.none
    assert (description.leader_id, description.leader_epoch, description.high_watermark) == (1, 2, 11)
    leader, second, third = description.voters
    assert (leader.log_end_offset, leader.last_fetch_timestamp_ms) == (12, node.now_ms + 7)
    assert (second.log_end_offset, second.last_fetch_timestamp_ms) == (11, node.now_ms)
    assert second.last_caught_up_timestamp_ms == caught_up_ms
    assert second.endpoints == lab.endpoints(2)
    assert (third.log_end_offset, third.last_fetch_timestamp_ms) == (-1, -1)
    (observer,) = description.observers
    assert (observer.key, observer.log_end_offset) == (lab.key(4), 5)
    assert observer.last_caught_up_timestamp_ms == -1
    assert not node.node.describe_quorum(node.now_ms + 300_000).observers


def test_without_leading_a_replica_describes_the_voters_alone(lab) -> None:
    """The survivor of a lost quorum names the missing voters."""
    node = lab.node(1, log=lab.log(1, 2, 3), hard_state=HardState(leader_epoch=5, leader_id=2))
    node.start()
    description = node.node.describe_quorum(node.now_ms)
    assert description.error_code is ErrorCode.not_leader_or_follower
    assert (description.leader_id, description.leader_epoch, description.high_watermark) == (-1, 5, -1)
    assert [voter.key for voter in description.voters] == [lab.key(1), lab.key(2), lab.key(3)]
    assert description.voters[1].endpoints == lab.endpoints(2)
    assert {(voter.log_end_offset, voter.last_fetch_timestamp_ms) for voter in description.voters} == {
        (-1, -1)
    }


@pytest.mark.parametrize(
    ("high_watermark", "event", "is_warning"),
    [(None, "fetch_offset_fell", True), (-1, "fetch_offset_fell", True), (4, "fetch_arrived_late", False)],
)
def test_a_falling_fetch_offset_is_reported(
    lab, high_watermark: int | None, event: str, is_warning: bool
) -> None:
    """A voter that lost durable records is noticed, and a late request, as after a cut link, is not taken for
    that.
    """
    node = leading(lab)
    node.ask(fetch(lab, 2, 11))
    _, result = node.ask(fetch(lab, 2, 5, epoch=1, high_watermark=high_watermark))
    (note,) = (note for ready in result.readies for note in ready.notes)
    assert (note.event, note.is_warning) == (event, is_warning)
    assert (note.facts["before"], note.facts["now"]) == (11, 5)
    assert node.node.high_watermark == 11


def test_a_late_fetch_takes_nothing_back_that_is_committed(lab) -> None:
    """The high watermark that a leader answers never falls."""
    node = leading(lab)
    node.step(Propose(batches=lab.batch(11, 2, 2)))
    node.ask(fetch(lab, 2, 13, high_watermark=11))
    assert node.node.describe_quorum(node.now_ms).high_watermark == 13
    response, _ = node.ask(fetch(lab, 2, 12, high_watermark=11))
    assert response.high_watermark == 13
    assert node.node.describe_quorum(node.now_ms).high_watermark == 13
