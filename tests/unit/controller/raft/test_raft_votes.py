"""Votes from the side of the voter: one vote per epoch, to logs that are not behind (Raft 5.4.1)."""

from dataclasses import replace

import pytest
from quorate_controller.raft.events import FailureReason, Role
from quorate_controller.raft.messages import EndQuorumEpochRequest, VoteRequest, VoteResponse
from quorate_controller.raft.model import EPOCH_MAX, ReplicaKey
from quorate_controller.raft.startup import HardState
from quorate_protocol.errors import ErrorCode


def vote(lab, **changes: object) -> VoteRequest:
    """Node 2 asks node 1, whose log ends at 10 in epoch 1, for its vote in epoch 4."""
    request = VoteRequest(
        cluster_id=lab.cluster_id,
        voter=lab.key(1),
        replica=lab.key(2),
        replica_epoch=4,
        last_offset=10,
        last_offset_epoch=1,
    )
    return replace(request, **changes)  # type: ignore[arg-type]


def started(lab, **config: object):
    node = lab.node(1, log=lab.log(1, 2, 3), **config)
    node.start()
    return node


def test_a_vote_is_durable_in_the_step_that_answers(lab) -> None:
    response, result = started(lab).ask(vote(lab))
    assert response.vote_granted
    assert result.hard_state == HardState(leader_epoch=4, voted_key=lab.key(2))


def test_one_vote_per_epoch(lab) -> None:
    node = started(lab)
    assert node.ask(vote(lab))[0].vote_granted
    assert node.ask(vote(lab))[0].vote_granted
    assert not node.ask(vote(lab, replica=lab.key(3)))[0].vote_granted
    assert node.ask(vote(lab, replica=lab.key(3), replica_epoch=5))[0].vote_granted


def test_a_vote_survives_a_restart(lab) -> None:
    hard_state = HardState(leader_epoch=4, voted_key=lab.key(2))
    node = lab.node(1, log=lab.log(1, 2, 3), hard_state=hard_state)
    node.start()
    assert not node.ask(vote(lab, replica=lab.key(3)))[0].vote_granted
    assert node.ask(vote(lab))[0].vote_granted


def test_a_vote_is_for_a_directory(lab) -> None:
    node = started(lab)
    assert node.ask(vote(lab))[0].vote_granted
    impostor = ReplicaKey(node_id=2, directory_id=lab.directory(99))
    assert not node.ask(vote(lab, replica=impostor))[0].vote_granted


@pytest.mark.parametrize(
    ("last_offset", "last_offset_epoch", "is_granted"),
    [(10, 1, True), (11, 1, True), (9, 1, False), (5, 2, True), (100, 0, False)],
)
def test_logs_are_compared_by_epoch_then_offset(
    lab, last_offset: int, last_offset_epoch: int, is_granted: bool
) -> None:
    for is_pre_vote in (False, True):
        request = vote(
            lab, last_offset=last_offset, last_offset_epoch=last_offset_epoch, pre_vote=is_pre_vote
        )
        assert started(lab).ask(request)[0].vote_granted is is_granted


@pytest.mark.parametrize(
    ("changes", "error_code"),
    [
        ({"replica_epoch": 0, "last_offset_epoch": 0}, ErrorCode.invalid_request),
        ({"last_offset": -1}, ErrorCode.invalid_request),
        ({"last_offset_epoch": -1}, ErrorCode.invalid_request),
        ({"last_offset_epoch": 4}, ErrorCode.invalid_request),
        ({"last_offset_epoch": 5, "pre_vote": True}, ErrorCode.invalid_request),
        ({"last_offset_epoch": 4, "pre_vote": True}, ErrorCode.none),
        ({"replica": ReplicaKey(node_id=-1)}, ErrorCode.invalid_request),
        ({"voter": ReplicaKey(node_id=9)}, ErrorCode.invalid_voter_key),
        ({"voter": None}, ErrorCode.none),
        ({"voter": ReplicaKey(node_id=1)}, ErrorCode.none),
    ],
)
def test_errors_are_kafkas(lab, changes: dict[str, object], error_code: ErrorCode) -> None:
    assert started(lab).ask(vote(lab, **changes))[0].error_code is error_code


def test_another_directory_of_ours_is_another_voter(lab) -> None:
    """Votes meant for a disk we no longer have are refused."""
    voter = ReplicaKey(node_id=1, directory_id=lab.directory(99))
    response, _ = started(lab).ask(vote(lab, voter=voter))
    assert response.error_code is ErrorCode.invalid_voter_key


def test_a_higher_epoch_counts_before_the_key_is_checked(lab) -> None:
    """Even a misdirected vote makes us leave an old epoch."""
    node = started(lab)
    node.ask(vote(lab, voter=ReplicaKey(node_id=9)))
    assert node.node.epoch == 4
    assert node.node.role is Role.UNATTACHED


def test_another_cluster_is_a_top_level_error(lab) -> None:
    node = started(lab)
    other = node.ask(vote(lab, cluster_id="other"))[0]
    assert other.top_level_error_code is ErrorCode.inconsistent_cluster_id
    assert node.node.epoch == 1
    assert node.ask(vote(lab, cluster_id=None))[0].vote_granted


def test_an_old_epoch_is_fenced_and_told_the_leader(lab) -> None:
    """A late candidate learns the leader."""
    node = lab.leader(log=lab.log(1, 2, 3))
    response, _ = node.ask(vote(lab, replica_epoch=1, last_offset_epoch=0))
    assert response.error_code is ErrorCode.fenced_leader_epoch
    assert (response.leader_id, response.leader_epoch) == (1, 2)
    assert (response.leader_endpoint.node_id, response.leader_endpoint.host) == (1, "host1")


def test_the_endpoint_is_that_of_the_listener_asked_on(lab) -> None:
    response, _ = lab.leader(log=lab.log(1, 2, 3)).ask(vote(lab), listener="INTERNAL")
    assert response.leader_endpoint is None


def test_observers_vote(lab) -> None:
    """A voter that does not know of its being one helps to elect."""
    node = lab.node(4, log=lab.log(1, 2, 3))
    node.start()
    assert node.ask(vote(lab, voter=lab.key(4)))[0].vote_granted


def test_a_leader_grants_nothing_in_its_epoch(lab) -> None:
    """Neither votes nor pre-votes unseat a leader."""
    node = lab.leader(log=lab.log(1, 2, 3))
    for is_pre_vote in (False, True):
        request = vote(lab, replica_epoch=2, last_offset=99, pre_vote=is_pre_vote)
        assert not node.ask(request)[0].vote_granted
    assert node.node.role is Role.LEADER


def test_a_follower_that_has_fetched_refuses_pre_votes(lab) -> None:
    """A voter that alone lost the leader does not disturb it (KIP-996)."""
    pre_vote = vote(lab, pre_vote=True)
    assert lab.follower(leader=3, epoch=4, has_fetched=False)[0].ask(pre_vote)[0].vote_granted
    assert not lab.follower(leader=3, epoch=4, has_fetched=True)[0].ask(pre_vote)[0].vote_granted


def test_a_follower_that_lost_its_leader_grants_pre_votes(lab) -> None:
    node, fetch = lab.follower(leader=3, epoch=4, has_fetched=True)
    (again,) = node.fail(fetch, FailureReason.DISCONNECTED).sends
    node.fail(again)
    assert node.ask(vote(lab, pre_vote=True))[0].vote_granted


def test_an_observer_that_lost_its_leader_grants_pre_votes(lab) -> None:
    """A replica that does not know yet that it is a voter again helps to elect the one that knows it."""
    node, _ = lab.follower(4, leader=3, epoch=4, has_fetched=True)
    pre_vote = vote(lab, voter=lab.key(4), pre_vote=True)
    node.wait(lab.config(4).fetch_timeout_ms - 1)
    assert not node.ask(pre_vote)[0].vote_granted
    node.wait(1)
    assert node.ask(pre_vote)[0].vote_granted


def test_a_follower_gives_no_vote_in_its_leaders_epoch(lab) -> None:
    assert not lab.follower(leader=3, epoch=4, has_fetched=False)[0].ask(vote(lab))[0].vote_granted


def test_a_pre_vote_changes_nothing(lab) -> None:
    node = started(lab)
    for node_id in (2, 3):
        request = vote(lab, replica=lab.key(node_id), replica_epoch=1, pre_vote=True)
        response, result = node.ask(request)
        assert response.vote_granted
        assert result.hard_state is None


def test_a_prospective_voter_asks_again_who_asks_it(lab) -> None:
    """Of two that lost the leader the one with the longer log gets elected at once."""
    node = started(lab)
    prospective = node.wait_for_deadline()
    refusal = next(send for send in prospective.sends if send.destination.node_id == 2)
    node.respond(refusal, VoteResponse(leader_epoch=1))
    response, result = node.ask(vote(lab, replica_epoch=1, last_offset=5, pre_vote=True))
    assert not response.vote_granted
    assert [send.destination.node_id for send in result.sends] == [2]


def test_a_prospective_voter_may_vote_for_another(lab) -> None:
    node = lab.node(1, log=lab.log(1, 2, 3), hard_state=HardState(leader_epoch=4))
    node.start()
    node.wait_for_deadline()
    assert node.node.role is Role.PROSPECTIVE
    response, result = node.ask(vote(lab))
    assert response.vote_granted
    assert result.hard_state == HardState(leader_epoch=4, voted_key=lab.key(2))
    assert node.node.role is Role.PROSPECTIVE


def test_nobody_else_may_use_our_id(lab) -> None:
    clone = ReplicaKey(node_id=1, directory_id=lab.directory(99))
    response, result = started(lab).ask(vote(lab, replica=clone))
    assert not response.vote_granted
    assert [note.event for note in result.warnings] == ["vote_from_own_id"]


@pytest.mark.parametrize(("sender_id", "step_max"), [(2, 1_000_000), (9, 1_000)])
def test_a_request_raises_the_epoch_by_a_bounded_step(lab, sender_id: int, step_max: int) -> None:
    node = started(lab)
    epoch = node.node.epoch
    for too_high in (epoch + step_max + 1, EPOCH_MAX):
        for request in (
            vote(lab, replica=lab.key(sender_id), replica_epoch=too_high),
            lab.begin_epoch(sender_id, too_high),
            EndQuorumEpochRequest(
                cluster_id=None,
                leader_id=sender_id,
                leader_epoch=too_high,
                preferred_candidates=(),
                leader_endpoints=lab.endpoints(sender_id),
            ),
        ):
            response, result = node.ask(request)
            assert response.error_code is ErrorCode.invalid_request
            assert [note.event for note in result.warnings] == ["epoch_out_of_range"]
            assert (node.node.epoch, result.hard_state) == (epoch, None)
    assert node.ask(vote(lab, replica=lab.key(sender_id), replica_epoch=epoch + step_max))[0].vote_granted


def test_nobody_stands_when_the_epochs_are_used_up(lab) -> None:
    """No epoch that the protocol cannot carry, and no election after the other without a pause."""
    node = lab.node(1, log=lab.log(1), hard_state=HardState(leader_epoch=EPOCH_MAX))
    node.start()
    turns = 0
    until_ms = node.now_ms + 60_000
    while node.now_ms < until_ms:
        node.wait_for_deadline()
        turns += 1
        assert (node.node.epoch, node.node.role) != (EPOCH_MAX + 1, Role.CANDIDATE)
    assert node.node.epoch == EPOCH_MAX
    assert turns < 200


def test_who_has_voted_still_grants_pre_votes_to_logs_that_are_not_behind(lab) -> None:
    """A pre-vote does not bind the voter, and does not depend on the vote of the epoch (KIP-996)."""
    node = started(lab)
    assert node.ask(vote(lab))[0].vote_granted
    asked = vote(lab, replica=lab.key(3), pre_vote=True)
    assert node.ask(asked)[0].vote_granted
    assert not node.ask(replace(asked, last_offset=9))[0].vote_granted
