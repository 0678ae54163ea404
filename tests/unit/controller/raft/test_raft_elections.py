"""Elections from the side of the candidate: pre-vote, candidacy, victory, defeat (KIP-595, KIP-996)."""

from dataclasses import replace

import pytest
from quorate_controller.raft.events import ConnectionLost, FailureReason, Role, Shutdown
from quorate_controller.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchResponse,
    LeaderEndpoint,
    VoteRequest,
    VoteResponse,
)
from quorate_controller.raft.model import EPOCH_MAX
from quorate_controller.raft.startup import HardState
from quorate_protocol.errors import ErrorCode


def begin_epoch(lab, *, leader: int, epoch: int, voter: int = 1) -> BeginQuorumEpochRequest:
    return BeginQuorumEpochRequest(
        cluster_id=lab.cluster_id,
        voter=lab.key(voter),
        leader_id=leader,
        leader_epoch=epoch,
        leader_endpoints=lab.endpoints(leader),
    )


def follower(lab, *, leader: int = 2, epoch: int = 5, has_fetched: bool = True):
    """Node 1 following node 2, which has answered a Fetch already."""
    node = lab.node(1, log=lab.log(1, 2, 3))
    node.start()
    _, result = node.ask(begin_epoch(lab, leader=leader, epoch=epoch))
    if has_fetched:
        response = FetchResponse(leader_id=leader, leader_epoch=epoch, high_watermark=10)
        result = node.respond(result.sends[-1], response)
    return node, result


def test_a_voter_asks_before_it_stands(lab) -> None:
    """A pre-vote names the current epoch and does not bind the voter."""
    node = lab.node(1, log=lab.log(1, 2, 3))
    node.start()
    result = node.wait(lab.config(1).fast_backoff_ms_max)
    votes = [send for send in result.sends if isinstance(send.request, VoteRequest)]
    assert {vote.destination.node_id for vote in votes} == {2, 3}
    assert votes[0].request == VoteRequest(
        cluster_id=lab.cluster_id,
        voter=lab.key(2),
        replica=lab.key(1),
        replica_epoch=1,
        last_offset=10,
        last_offset_epoch=1,
        pre_vote=True,
    )
    assert node.node.role is Role.PROSPECTIVE
    assert node.node.epoch == 1
    assert all(ready.hard_state is None or ready.hard_state.voted_key is None for ready in result.readies)


def test_a_won_pre_vote_begins_an_epoch_with_a_durable_vote(lab) -> None:
    node = lab.node(1, log=lab.log(1, 2, 3))
    node.start()
    prospective = node.wait_for_deadline()
    result = node.respond(prospective.sends[0], VoteResponse(leader_epoch=1, vote_granted=True))
    ready = result.readies[0]
    assert ready.hard_state == HardState(leader_epoch=2, voted_key=lab.key(1))
    assert {type(send.request) for send in ready.sends} == {VoteRequest}
    assert not any(send.request.pre_vote for send in ready.sends)
    assert node.node.role is Role.CANDIDATE


def test_a_majority_of_votes_makes_a_leader_once(lab) -> None:
    """Two of three votes win; the third one changes nothing."""
    node = lab.node(1, log=lab.log(1, 2, 3))
    node.start()
    candidate = node.win_votes(node.wait_for_deadline())
    votes = candidate.sends
    result = node.respond(votes[0], VoteResponse(leader_epoch=2, vote_granted=True))
    assert node.node.role is Role.LEADER
    assert result.hard_state == HardState(leader_epoch=2, leader_id=1)
    assert node.node.epoch_start_offset == 10
    late = node.respond(votes[1], VoteResponse(leader_epoch=2, vote_granted=True))
    assert not late.roles


def test_a_voter_without_pre_vote_is_stood_before_at_once(lab) -> None:
    """Peers that only speak Vote v1 do not block elections."""
    node = lab.node(1, log=lab.log(1, 2, 3))
    node.start()
    prospective = node.wait_for_deadline()
    node.fail(prospective.sends[0], FailureReason.UNSUPPORTED_VERSION)
    assert node.node.role is Role.CANDIDATE
    assert node.node.epoch == 2


def test_an_unsupported_version_in_the_response_counts_the_same(lab) -> None:
    node = lab.node(1, log=lab.log(1, 2, 3))
    node.start()
    prospective = node.wait_for_deadline()
    refusal = VoteResponse(top_level_error_code=ErrorCode.unsupported_version)
    node.respond(prospective.sends[0], refusal)
    assert node.node.role is Role.CANDIDATE


def test_a_lost_pre_vote_leads_back_to_the_leader(lab) -> None:
    node, _ = follower(lab)
    prospective = node.wait_for_deadline()
    assert node.node.role is Role.PROSPECTIVE
    for send in prospective.sends:
        node.respond(send, VoteResponse(leader_epoch=5, leader_id=2))
    assert node.node.role is Role.FOLLOWER
    assert (node.node.epoch, node.node.leader_id) == (5, 2)


def test_a_lost_pre_vote_without_leader_waits(lab) -> None:
    """A node without a leader to follow is unattached, in the same epoch."""
    node = lab.node(1, log=lab.log(1, 2, 3))
    node.start()
    for send in node.wait_for_deadline().sends:
        node.respond(send, VoteResponse(leader_epoch=1))
    assert node.node.role is Role.UNATTACHED
    assert node.node.epoch == 1
    assert node.node.deadline_ms > node.now_ms


def test_votes_are_asked_for_again_until_said(lab) -> None:
    """A lost request is repeated after the retry backoff."""
    node = lab.node(1, log=lab.log(1, 2, 3))
    node.start()
    prospective = node.wait_for_deadline()
    node.fail(prospective.sends[0])
    result = node.wait(20)
    assert [send.destination.node_id for send in result.sends] == [prospective.sends[0].destination.node_id]


def test_a_split_vote_is_retried_soon(lab) -> None:
    """A tie with one voter dead costs a short backoff, not an election timeout."""
    node = lab.node(1, log=lab.log(1, 2, 3))
    node.start()
    candidate = node.win_votes(node.wait_for_deadline())
    dead, rival = candidate.sends
    node.fail(dead)
    node.respond(rival, VoteResponse(leader_epoch=2))
    node.wait(lab.config(1).fast_backoff_ms_max * 2)
    assert node.node.role is Role.PROSPECTIVE
    assert node.node.epoch == 2


def test_an_election_that_may_still_be_won_gets_its_time(lab) -> None:
    node = lab.node(1, log=lab.log(1, 2, 3))
    node.start()
    candidate = node.win_votes(node.wait_for_deadline())
    node.respond(candidate.sends[0], VoteResponse(leader_epoch=2))
    node.wait(lab.config(1).election_timeout_ms - 1)
    assert node.node.role is Role.CANDIDATE


def test_a_silent_election_ends_in_another_pre_vote(lab) -> None:
    node = lab.node(1, log=lab.log(1, 2, 3))
    node.start()
    node.win_votes(node.wait_for_deadline())
    node.wait(2 * lab.config(1).election_timeout_ms)
    assert node.node.role is Role.PROSPECTIVE
    assert node.node.epoch == 2


def test_a_higher_epoch_in_a_response_ends_the_election(lab) -> None:
    """A candidate that is late follows the reported leader."""
    node = lab.node(1, log=lab.log(1, 2, 3))
    node.start()
    candidate = node.win_votes(node.wait_for_deadline())
    fenced = VoteResponse(
        error_code=ErrorCode.fenced_leader_epoch,
        leader_epoch=7,
        leader_id=3,
        leader_endpoint=LeaderEndpoint(node_id=3, host="elsewhere", port=1),
    )
    result = node.respond(candidate.sends[0], fenced)
    assert result.hard_state == HardState(leader_epoch=7, leader_id=3)
    assert result.sends[0].destination.host == "elsewhere"


def test_answers_of_a_former_role_are_ignored(lab) -> None:
    node = lab.node(1, log=lab.log(1, 2, 3))
    node.start()
    prospective = node.wait_for_deadline()
    node.respond(prospective.sends[0], VoteResponse(leader_epoch=1, vote_granted=True))
    node.respond(prospective.sends[1], VoteResponse(leader_epoch=2, vote_granted=True))
    assert node.node.role is Role.CANDIDATE


def test_a_failure_of_a_former_role_is_ignored(lab) -> None:
    """A broken connection to the last leader is no reason to doubt the next one."""
    node, result = follower(lab)
    node.ask(begin_epoch(lab, leader=3, epoch=6))
    assert node.fail(result.sends[-1]).roles == []
    assert node.wait(lab.config(1).fast_backoff_ms_max).roles == []
    assert (node.node.role, node.node.leader_id) == (Role.FOLLOWER, 3)


def test_a_fetch_that_breaks_off_is_sent_again_at_once_and_a_refusal_starts_a_pre_vote(lab) -> None:
    node, result = follower(lab)
    (again,) = node.fail(result.sends[-1], FailureReason.DISCONNECTED).sends
    assert again.request == result.sends[-1].request
    node.fail(again)
    node.wait(lab.config(1).fast_backoff_ms_max)
    assert node.node.role is Role.PROSPECTIVE


def test_a_broken_connection_to_a_leader_that_answers_again_is_no_reason_to_stand(lab) -> None:
    node, result = follower(lab)
    fetch = result.sends[-1]
    for _ in range(3):
        (again,) = node.fail(fetch, FailureReason.DISCONNECTED).sends
        assert node.wait(lab.config(1).fast_backoff_ms_max).roles == []
        (fetch,) = node.respond(again, FetchResponse(leader_id=2, leader_epoch=5)).sends
    assert node.node.role is Role.FOLLOWER


def test_a_leader_that_breaks_off_each_fetch_is_asked_with_pauses_until_the_fetch_timeout(lab) -> None:
    node, result = follower(lab)
    (again,) = node.fail(result.sends[-1], FailureReason.DISCONNECTED).sends
    assert all(send.destination.node_id != 2 for send in node.fail(again, FailureReason.DISCONNECTED).sends)
    node.wait(lab.config(1).fast_backoff_ms_max)
    assert node.node.role is Role.FOLLOWER
    node.wait(lab.config(1).fetch_timeout_ms)
    assert node.node.role is Role.PROSPECTIVE


@pytest.mark.parametrize("node_id", [2, 3], ids=["to the leader", "to another voter"])
def test_a_side_connection_that_closes_deposes_nobody(lab, node_id: int) -> None:
    node, _ = follower(lab)
    node.step(ConnectionLost(node_id=node_id))
    node.wait(lab.config(1).fast_backoff_ms_max)
    assert node.node.role is Role.FOLLOWER


def test_a_refused_connection_to_the_leader_does_the_same(lab) -> None:
    node, result = follower(lab)
    node.fail(result.sends[-1])
    node.wait(lab.config(1).fast_backoff_ms_max)
    assert node.node.role is Role.PROSPECTIVE


def test_the_backoff_grows_while_the_leader_stays_away(lab) -> None:
    node, result = follower(lab)
    fetch = result.sends[-1]
    assert node.node._replica.elections_lost == 0
    for lost in range(1, 4):
        node.fail(fetch)
        assert node.node._replica.elections_lost == lost
        result = node.wait_for_deadline()
        while node.node.role is not Role.PROSPECTIVE:
            result = node.wait_for_deadline()
        for send in result.sends:
            result = node.respond(send, VoteResponse(leader_epoch=5, leader_id=2))
        assert node.node.role is Role.FOLLOWER
        (fetch,) = result.sends


def end_epoch(lab, *candidates: int) -> EndQuorumEpochRequest:
    return EndQuorumEpochRequest(
        cluster_id=lab.cluster_id,
        leader_id=2,
        leader_epoch=5,
        preferred_candidates=tuple(lab.key(node_id) for node_id in candidates),
    )


@pytest.mark.parametrize(
    ("candidates", "backoff_ms"),
    [((1, 3), 0), ((), 0), ((3, 1), 500), ((3, 4, 1), 500), ((3, 4), 1000)],
)
def test_successors_stand_in_their_order(lab, candidates: tuple[int, ...], backoff_ms: int) -> None:
    """The first successor elects at once, later ones back off."""
    node, _ = follower(lab)
    response, _ = node.ask(end_epoch(lab, *candidates))
    assert response.error_code is ErrorCode.none
    if backoff_ms:
        assert node.node.role is Role.FOLLOWER
        node.wait(backoff_ms - 1)
        assert node.node.role is Role.FOLLOWER
        node.wait(1)
    assert node.node.role is Role.PROSPECTIVE


def test_only_the_own_leader_can_resign(lab) -> None:
    """A stale EndQuorumEpoch is fenced."""
    node, _ = follower(lab, epoch=6)
    response, _ = node.ask(end_epoch(lab, 1))
    assert response.error_code is ErrorCode.fenced_leader_epoch
    assert node.node.role is Role.FOLLOWER


def test_a_leader_heard_of_again_ends_the_pre_vote(lab) -> None:
    """BeginQuorumEpoch of the known leader calls a prospective one back."""
    node, _ = follower(lab)
    node.wait_for_deadline()
    assert node.node.role is Role.PROSPECTIVE
    response, _ = node.ask(begin_epoch(lab, leader=2, epoch=5))
    assert response.error_code is ErrorCode.none
    assert node.node.role is Role.FOLLOWER


def test_begin_epoch_for_another_replica_is_refused_but_heeded(lab) -> None:
    """A leader that takes us for another voter gets an error, and its epoch counts."""
    node = lab.node(1, log=lab.log(1, 2, 3))
    node.start()
    response, _ = node.ask(begin_epoch(lab, leader=2, epoch=5, voter=3))
    assert response.error_code is ErrorCode.invalid_voter_key
    assert (response.leader_id, response.leader_epoch) == (2, 5)


def test_two_leaders_in_one_epoch_are_not_believed(lab) -> None:
    node, _ = follower(lab)
    response, result = node.ask(begin_epoch(lab, leader=3, epoch=5))
    assert response.error_code is ErrorCode.unknown_server_error
    assert [note.event for note in result.warnings] == ["contradicting_leaders"]
    assert node.node.leader_id == 2


def test_the_only_voter_leads_at_once(lab) -> None:
    node = lab.node(1, log=lab.formatted(1))
    result = node.start()
    assert node.node.role is Role.LEADER
    assert result.high_watermark == node.node.log_end_offset == 3
    assert not result.sends


@pytest.mark.parametrize("voter_ids", [(1,), (1, 2, 3)])
@pytest.mark.parametrize("epoch", [0, EPOCH_MAX])
def test_timeouts_of_0_end_no_controller(lab, voter_ids: tuple[int, ...], epoch: int) -> None:
    """Kafka's configs allow 0 for all timeouts of elections."""
    node = lab.node(
        1,
        log=lab.formatted(*voter_ids),
        hard_state=HardState(leader_epoch=epoch),
        election_timeout_ms=0,
        fetch_timeout_ms=0,
        election_backoff_ms_max=0,
        fast_backoff_ms_max=0,
    )
    node.start()
    node.wait(20)
    is_leading = voter_ids == (1,) and epoch == 0
    assert (node.node.role is Role.LEADER) == is_leading


@pytest.mark.parametrize("is_end", [False, True], ids=["begin", "end"])
def test_a_leader_of_another_cluster_is_not_heard(lab, is_end: bool) -> None:
    node, _ = follower(lab)
    begin = replace(begin_epoch(lab, leader=3, epoch=6), cluster_id="other")
    end = EndQuorumEpochRequest(
        cluster_id="other", leader_id=2, leader_epoch=5, preferred_candidates=(lab.key(1),)
    )
    response, _ = node.ask(end if is_end else begin)
    assert response.top_level_error_code is ErrorCode.inconsistent_cluster_id
    assert (node.node.role, node.node.leader_id, node.node.epoch) == (Role.FOLLOWER, 2, 5)


def test_the_leader_of_the_own_epoch_is_followed_when_it_shows(lab) -> None:
    node = lab.node(1, log=lab.log(1, 2, 3))
    node.start()
    node.ask(
        VoteRequest(
            cluster_id=lab.cluster_id,
            voter=lab.key(1),
            replica=lab.key(2),
            replica_epoch=5,
            last_offset=10,
            last_offset_epoch=1,
            pre_vote=False,
        )
    )
    assert (node.node.role, node.node.epoch) == (Role.UNATTACHED, 5)
    node.ask(begin_epoch(lab, leader=2, epoch=5))
    assert (node.node.role, node.node.leader_id, node.node.epoch) == (Role.FOLLOWER, 2, 5)


def test_a_higher_epoch_without_a_leader_ends_the_following(lab) -> None:
    node, result = follower(lab)
    deposed = FetchResponse(error_code=ErrorCode.fenced_leader_epoch, leader_id=-1, leader_epoch=9)
    node.respond(result.sends[-1], deposed)
    assert (node.node.role, node.node.leader_id, node.node.epoch) == (Role.UNATTACHED, -1, 9)


def test_a_voter_that_knows_of_the_resignation_is_not_told_again(lab) -> None:
    """EndQuorumEpoch is repeated only to voters that have not responded."""
    node = lab.leader()
    sends = {send.destination.node_id: send for send in node.step(Shutdown(timeout_ms=5000)).sends}
    acknowledged = node.respond(sends[2], EndQuorumEpochResponse(leader_id=1, leader_epoch=node.node.epoch))
    again = [*acknowledged.sends, *node.fail(sends[3], FailureReason.TIMED_OUT).sends, *node.wait(1000).sends]
    assert {(send.destination.node_id, type(send.request)) for send in again} == {(3, EndQuorumEpochRequest)}
