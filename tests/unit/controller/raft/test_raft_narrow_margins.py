"""Rules of Raft at their very boundary: one record, one voter, one vote more or less would break a promise."""

from dataclasses import replace
from typing import Any

import pytest
from quorate_controller.raft.events import Persisted, Propose, Resign, Role
from quorate_controller.raft.messages import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    VoteRequest,
    VoteResponse,
)
from quorate_controller.raft.progress import CAUGHT_UP_FETCH_AGE_MS_MAX, Progress
from quorate_controller.raft.startup import HardState
from quorate_protocol.errors import ErrorCode

ONE_SECOND_MS = 1_000
NOW_MS = 10_000_000


def removal(lab: Any, node_id: int) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(cluster_id=lab.cluster_id, voter=lab.key(node_id))


def test_a_vote_stays_given_through_lost_pre_votes(lab: Any) -> None:
    """One vote in an epoch, whatever roles the voter passes in it."""
    node = lab.node(1, log=lab.log(1, 2, 3))
    node.start()
    request = VoteRequest(
        cluster_id=lab.cluster_id,
        voter=lab.key(1),
        replica=lab.key(2),
        replica_epoch=4,
        last_offset=10,
        last_offset_epoch=1,
    )
    rival = replace(request, replica=lab.key(3))
    assert node.ask(request)[0].vote_granted
    pre_votes = node.wait_for_deadline()
    while node.node.role is not Role.PROSPECTIVE:
        pre_votes = node.wait_for_deadline()
    assert pre_votes.hard_state is None
    assert not node.ask(rival)[0].vote_granted
    for send in pre_votes.sends:
        assert node.respond(send, VoteResponse(leader_epoch=4)).hard_state is None
    assert (node.node.role, node.node.epoch, node.node.voted_id) == (Role.UNATTACHED, 4, 2)
    assert not node.ask(rival)[0].vote_granted
    assert node.ask(request)[0].vote_granted


def test_a_removed_leader_needs_a_majority_of_the_others(lab: Any) -> None:
    node = lab.leader(log=lab.log(1, 2, 3))
    node.ask(lab.fetch(2, 11))
    node.ask(removal(lab, 1))
    assert node.node.voters.ids == (2, 3)
    for _ in range(4):
        node.ask(lab.fetch(2, 12))
        node.wait(ONE_SECOND_MS)
    assert node.node.role is Role.RESIGNED


def test_a_majority_has_to_fetch_again_in_each_period(lab: Any) -> None:
    node = lab.leader(log=lab.log(1, 2, 3, 4, 5))
    node.ask(lab.fetch(2, 11))
    node.ask(lab.fetch(3, 11))
    assert node.node.high_watermark == 11
    for _ in range(4):
        node.ask(lab.fetch(2, 11))
        node.ask(lab.fetch(6, 11))
        node.wait(ONE_SECOND_MS)
    assert node.node.role is Role.RESIGNED


def test_a_leader_counts_its_records_once_they_are_durable(lab: Any) -> None:
    node = lab.leader(log=lab.log(1, 2, 3))
    node.ask(lab.fetch(2, 11))
    node.is_slow_disk = True
    node.step(Propose(batches=lab.batch(11, 2)))
    node.step(Propose(batches=lab.batch(12, 2)))
    node.ask(lab.fetch(2, 13))
    assert node.node.high_watermark == 11
    node.step(Persisted(end_offset=12))
    assert node.node.high_watermark == 12
    node.step(Persisted(end_offset=13))
    assert node.node.high_watermark == 13


def test_a_removal_counts_once_its_own_record_is_committed(lab: Any) -> None:
    """Neither is the client answered nor does the leader resign while the removal may be lost."""
    node = lab.leader(log=lab.log(1, 2, 3))
    node.ask(lab.fetch(2, 11))
    node.step(Propose(batches=lab.batch(11, 2)))
    response, _ = node.ask(removal(lab, 1))
    assert response is None
    responses = [
        outgoing for voter_id in (2, 3) for outgoing in node.ask(lab.fetch(voter_id, 12))[1].responses
    ]
    assert node.node.high_watermark == 12
    assert RemoveRaftVoterResponse() not in [outgoing.response for outgoing in responses]
    assert node.node.role is Role.LEADER
    responses = [
        outgoing for voter_id in (2, 3) for outgoing in node.ask(lab.fetch(voter_id, 13))[1].responses
    ]
    assert node.node.high_watermark == 13
    assert RemoveRaftVoterResponse() in [outgoing.response for outgoing in responses]
    assert node.node.role is Role.RESIGNED


@pytest.mark.parametrize(
    ("age_ms", "is_caught_up"), [(CAUGHT_UP_FETCH_AGE_MS_MAX - 1, True), (CAUGHT_UP_FETCH_AGE_MS_MAX, False)]
)
def test_an_observer_that_has_been_away_has_not_caught_up(lab: Any, age_ms: int, is_caught_up: bool) -> None:
    """A new voter can take part in commits at once (KIP-853)."""
    progress = Progress(lab.key(1), lab.voters(1, 2, 3), observers_max=10)
    progress.record_fetch(lab.key(4), 11, 11, 11, NOW_MS)
    assert progress.is_caught_up(lab.key(4), NOW_MS + age_ms) is is_caught_up


def test_a_voter_change_is_refused_while_one_is_uncommitted_by_a_record(lab: Any) -> None:
    node = lab.leader(log=lab.log(1, 2, 3, 4))
    for voter_id in (2, 3):
        node.ask(lab.fetch(voter_id, 11))
    node.step(Propose(batches=lab.batch(11, 2)))
    node.ask(removal(lab, 4))
    timed_out = node.wait(lab.config(1).request_timeout_ms).responses
    assert [outgoing.response.error_code for outgoing in timed_out] == [ErrorCode.request_timed_out]
    for voter_id in (2, 3):
        node.ask(lab.fetch(voter_id, 12))
    assert node.node.high_watermark == 12
    assert node.ask(removal(lab, 3))[0].error_code is ErrorCode.request_timed_out
    for voter_id in (2, 3):
        node.ask(lab.fetch(voter_id, 13))
    assert node.ask(removal(lab, 3))[0] is None


@pytest.mark.parametrize(
    "role", [Role.UNATTACHED, Role.FOLLOWER, Role.PROSPECTIVE, Role.CANDIDATE, Role.RESIGNED]
)
def test_no_role_grants_a_pre_vote_to_a_shorter_log(lab: Any, role: Role) -> None:
    """A voter that wins the pre-votes can win the votes (KIP-996): else epochs rise without a leader."""
    node = lab.node(1, log=lab.log(1, 2, 3), hard_state=HardState(leader_epoch=2))
    election = node.start()
    match role:
        case Role.FOLLOWER:
            begin = lab.begin_epoch(3, 2)
            node.ask(begin)
        case Role.PROSPECTIVE | Role.CANDIDATE:
            while node.node.role is not Role.PROSPECTIVE:
                election = node.wait_for_deadline()
            if role is Role.CANDIDATE:
                node.win_votes(election)
        case Role.RESIGNED:
            node.become_leader()
            node.step(Resign(epoch=node.node.epoch))
    assert node.node.role is role
    end_offset = node.node.log_end_offset
    for last_offset, is_granted in ((end_offset - 1, False), (end_offset, True)):
        request = VoteRequest(
            cluster_id=lab.cluster_id,
            voter=lab.key(1),
            replica=lab.key(2),
            replica_epoch=node.node.epoch,
            last_offset=last_offset,
            last_offset_epoch=node.node.last_epoch,
            pre_vote=True,
        )
        assert node.ask(request)[0].vote_granted is is_granted
