"""What a restart makes of the disk, and how a replica leaves."""

from dataclasses import replace

import pytest
from quorate_controller.raft.events import ConnectionLost, Persisted, Propose, Role, Shutdown, Tick
from quorate_controller.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    VoteRequest,
)
from quorate_controller.raft.model import RaftSafetyError, ReplicaKey
from quorate_controller.raft.node import REDIRECT_MS
from quorate_controller.raft.startup import HardState
from quorate_protocol.errors import ErrorCode


@pytest.mark.parametrize(
    ("hard_state", "role", "leader_id"),
    [
        (HardState(), Role.UNATTACHED, -1),
        (HardState(leader_epoch=5), Role.UNATTACHED, -1),
        (HardState(leader_epoch=5, leader_id=2), Role.FOLLOWER, 2),
        (HardState(leader_epoch=5, leader_id=9), Role.UNATTACHED, 9),
        (HardState(leader_epoch=5, leader_id=1), Role.RESIGNED, 1),
    ],
)
def test_a_restart_takes_the_role_it_had_at_most(
    lab, hard_state: HardState, role: Role, leader_id: int
) -> None:
    """Kafka's rules of QuorumState.initialize."""
    node = lab.node(1, log=lab.log(1, 2, 3), hard_state=hard_state)
    result = node.start()
    assert (node.node.role, node.node.leader_id) == (role, leader_id)
    assert node.node.epoch == max(hard_state.leader_epoch, 1)
    assert result.roles[-1].role is role
    assert (result.hard_state is None) == (hard_state.leader_epoch > 0)


@pytest.mark.parametrize("leader_id", [1, 2, 9])
def test_the_leader_of_the_disk_is_not_taken_for_a_living_one(lab, leader_id: int) -> None:
    """The survivor of a lost quorum reports no leader."""
    node = lab.node(1, log=lab.log(1, 2, 3), hard_state=HardState(leader_epoch=5, leader_id=leader_id))
    node.start()
    assert node.node.leader_id == leader_id
    for _ in range(40):
        assert not node.node.is_led, node.node.role
        node.wait(500)


def test_a_vote_for_itself_makes_a_candidate_again(lab) -> None:
    hard_state = HardState(leader_epoch=5, voted_key=lab.key(1))
    node = lab.node(1, log=lab.log(1, 2, 3), hard_state=hard_state)
    result = node.start()
    assert node.node.role is Role.CANDIDATE
    assert {(type(send.request), send.request.replica_epoch) for send in result.sends} == {(VoteRequest, 5)}


def test_a_vote_for_a_former_self_does_not(lab) -> None:
    former = ReplicaKey(node_id=1, directory_id=lab.directory(99))
    node = lab.node(1, log=lab.log(1, 2, 3), hard_state=HardState(leader_epoch=5, voted_key=former))
    node.start()
    assert node.node.role is Role.UNATTACHED


def test_a_quorum_state_behind_the_log_is_reported(lab) -> None:
    node = lab.node(1, log=lab.log(1, 2, 3, epochs=((3, 0),)), hard_state=HardState(leader_epoch=2))
    result = node.start()
    assert node.node.epoch == 3
    assert [note.event for note in result.warnings] == ["quorum_state_behind_log"]


def test_a_former_leader_hands_over_at_start(lab) -> None:
    node = lab.node(1, log=lab.log(1, 2, 3), hard_state=HardState(leader_epoch=5, leader_id=1))
    result = node.start()
    assert result.requests[2] == EndQuorumEpochRequest(cluster_id=lab.cluster_id, leader_id=1, leader_epoch=5)


def test_the_only_voter_leads_again_after_a_restart(lab) -> None:
    node = lab.node(1, log=lab.log(1), hard_state=HardState(leader_epoch=5, leader_id=1))
    node.start()
    assert (node.node.role, node.node.epoch) == (Role.LEADER, 6)


def test_a_first_election_does_not_wait_a_whole_timeout(lab) -> None:
    """A cold cluster elects within the fast backoff."""
    for seed in range(20):
        node = lab.node(1, seed=seed)
        node.start()
        node.wait(lab.config(1).fast_backoff_ms_max)
        assert node.node.role is Role.PROSPECTIVE


def test_runs_are_repeatable(lab) -> None:
    def run(seed: int):
        node = lab.node(1, seed=seed)
        return [node.start().readies, node.wait(20_000).readies]

    assert run(3) == run(3)
    assert run(3) != run(4)


def test_time_does_not_go_back(lab) -> None:
    node = lab.node(1)
    node.start()
    with pytest.raises(RaftSafetyError, match="time went back"):
        node.node.step(Tick(), node.now_ms - 1)


def test_only_a_leader_appends_in_its_epoch_and_only_what_it_has_is_durable(lab) -> None:
    node = lab.node(1)
    node.start()
    with pytest.raises(RaftSafetyError, match="only the leader"):
        node.step(Propose(batches=lab.batch(0, 1)))
    leader = lab.leader()
    with pytest.raises(RaftSafetyError, match="epochs"):
        leader.step(Propose(batches=lab.batch(3, 2)))
    with pytest.raises(RaftSafetyError, match="end offset"):
        leader.step(Propose(batches=lab.batch(4, 1)))
    with pytest.raises(RaftSafetyError, match="never appended"):
        leader.step(Persisted(end_offset=99))


def test_a_follower_leaves_at_once(lab) -> None:
    node = lab.node(1)
    node.start()
    assert not node.node.is_shut_down
    node.step(Shutdown(timeout_ms=5000))
    assert node.node.is_shut_down
    assert not node.wait(10_000).sends


def test_a_leader_hands_over_before_it_leaves(lab) -> None:
    """It stays until a successor is known, its vote may be needed."""
    node = lab.leader()
    result = node.step(Shutdown(timeout_ms=5000))
    assert node.node.role is Role.RESIGNED
    for send in result.sends:
        assert isinstance(send.request, EndQuorumEpochRequest)
        node.respond(send, EndQuorumEpochResponse(leader_id=1, leader_epoch=1))
    node.wait(3000)
    assert node.node.role is Role.RESIGNED
    assert not node.node.is_shut_down
    begin = lab.begin_epoch(2, 2)
    node.ask(begin)
    assert not node.node.is_shut_down


def test_a_leader_that_has_handed_over_tells_of_its_successor(lab) -> None:
    """Observers learn of the successor where they are connected; they need not look for it at an address that
    does not answer any more.
    """
    node = lab.leader()
    for send in node.step(Shutdown(timeout_ms=5000)).sends:
        node.respond(send, EndQuorumEpochResponse(leader_id=1, leader_epoch=1))
    epoch, end_offset = node.node.epoch, node.node.log_end_offset
    fetch = replace(lab.fetch(9, end_offset, epoch), current_leader_epoch=epoch)
    vote = VoteRequest(
        cluster_id=lab.cluster_id,
        voter=None,
        replica=lab.key(2),
        replica_epoch=epoch + 1,
        last_offset=end_offset,
        last_offset_epoch=epoch,
        pre_vote=False,
    )
    assert node.ask(vote)[0].vote_granted
    assert node.ask(fetch)[0].leader_id == -1
    begin = BeginQuorumEpochRequest(
        cluster_id=None, voter=None, leader_id=2, leader_epoch=epoch + 1, leader_endpoints=lab.endpoints(2)
    )
    node.ask(begin)
    response, _ = node.ask(fetch)
    assert response.error_code is ErrorCode.fenced_leader_epoch
    assert (response.leader_id, response.leader_epoch) == (2, epoch + 1)
    assert response.leader_endpoint.host == "host2"
    node.wait(REDIRECT_MS - 1)
    assert not node.node.is_shut_down
    node.wait(1)
    assert node.node.is_shut_down


def test_a_leader_does_not_wait_for_ever(lab) -> None:
    node = lab.leader()
    node.step(Shutdown(timeout_ms=5000))
    node.wait(4999)
    assert not node.node.is_shut_down
    node.wait(1)
    assert node.node.is_shut_down


def test_a_leader_whose_voters_are_all_gone_leaves_at_once(lab) -> None:
    node = lab.leader()
    result = node.step(Shutdown(timeout_ms=5000))
    for send in result.sends:
        assert not node.node.is_shut_down
        node.fail(send)
    assert node.node.is_shut_down


def test_the_only_voter_leaves_at_once(lab) -> None:
    node = lab.node(log=lab.formatted(1))
    node.start()
    assert node.node.role is Role.LEADER
    node.step(Shutdown(timeout_ms=5000))
    assert node.node.is_shut_down


def test_a_leader_whose_voters_leave_with_it_does_not_wait(lab) -> None:
    node = lab.leader()
    for send in node.step(Shutdown(timeout_ms=5000)).sends:
        node.respond(send, EndQuorumEpochResponse(leader_id=1, leader_epoch=1))
    for node_id in (2, 3):
        assert not node.node.is_shut_down
        node.step(ConnectionLost(node_id=node_id))
    assert node.node.is_shut_down


def test_a_leader_that_leaves_at_once_refuses_what_still_comes(lab) -> None:
    """A response of a node that shuts down is not the leader's."""
    node = lab.leader()
    node.step(Shutdown(timeout_ms=0))
    assert node.node.is_shut_down
    response, _ = node.ask(replace(lab.fetch(2, 3, 1), current_leader_epoch=node.node.epoch))
    assert response.error_code is ErrorCode.broker_not_available
