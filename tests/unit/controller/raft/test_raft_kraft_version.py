"""kraft.version 0, static voters, and the way to 1 (KIP-853)."""

from dataclasses import replace

import pytest
from quorate_controller.raft.events import FailureReason, Role
from quorate_controller.raft.messages import (
    AddRaftVoterRequest,
    FetchRequest,
    FetchResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    VoteRequest,
)
from quorate_controller.raft.model import Endpoint, ReplicaKey, VersionRange
from quorate_controller.raft.startup import HardState, LogState
from quorate_protocol.errors import ErrorCode, ProtocolError
from quorate_protocol.records.batch import decode_batches
from quorate_protocol.records.control import KRaftVersionRecord, VotersRecord, decode_control


def static(lab, node_id: int = 1, **node: object):
    return lab.node(
        node_id, log=LogState(), static_voters=lab.static_voters(1, 2, 3), bootstrap_servers=(), **node
    )


def leading(lab):
    """Node 1 leads epoch 1 of the static quorum 1, 2, 3; the LeaderChange is committed."""
    node = static(lab)
    node.start()
    node.become_leader()
    fetch = FetchRequest(
        cluster_id=None,
        replica=lab.key(2),
        current_leader_epoch=1,
        fetch_offset=1,
        last_fetched_epoch=1,
        max_wait_ms=0,
    )
    node.ask(fetch)
    return node


def update(lab, node_id: int, **changes: object) -> UpdateRaftVoterRequest:
    request = UpdateRaftVoterRequest(
        cluster_id=lab.cluster_id,
        current_leader_epoch=1,
        voter=lab.key(node_id),
        endpoints=lab.endpoints(node_id),
        kraft_versions=VersionRange(lowest=0, highest=1),
    )
    return replace(request, **changes)  # type: ignore[arg-type]


def test_static_voters_elect_by_node_id(lab) -> None:
    node = static(lab)
    node.start()
    result = node.wait_for_deadline()
    assert all(isinstance(send.request, VoteRequest) for send in result.sends)
    assert {send.request.voter for send in result.sends} == {ReplicaKey(node_id=2), ReplicaKey(node_id=3)}
    node.win_votes(node.win_votes(result))
    assert node.node.role is Role.LEADER


def test_a_static_epoch_opens_with_the_leader_change_alone(lab) -> None:
    node = static(lab)
    node.start()
    (batch,) = decode_batches(node.become_leader().appended)
    assert len(batch.records) == 1
    assert node.node.voters_at(0) is None
    assert node.node.kraft_version == 0


def test_a_vote_without_directory_binds_after_a_restart(lab) -> None:
    """Quorum-state of version 0 has no directory; a vote for ourselves stands."""
    node = static(lab, hard_state=HardState(leader_epoch=3, voted_key=ReplicaKey(node_id=1)))
    node.start()
    assert node.node.role is Role.CANDIDATE


def test_static_voters_cannot_be_changed(lab) -> None:
    request = AddRaftVoterRequest(cluster_id=None, timeout_ms=1, voter=lab.key(4), endpoints=lab.endpoints(4))
    response, _ = leading(lab).ask(request)
    assert response.error_code is ErrorCode.unsupported_version
    assert "kraft.version" in response.error_message


def test_a_static_follower_introduces_itself_to_each_leader(lab) -> None:
    """UpdateRaftVoter once per leader, one fetch timeout after following."""
    node = static(lab, 3)
    node.start()
    for leader, epoch in ((1, 5), (2, 6)):
        begin = lab.begin_epoch(leader, epoch)
        response = FetchResponse(leader_id=leader, leader_epoch=epoch, high_watermark=0)
        send = node.ask(begin)[1].sends[-1]
        requests = []
        for _ in range(8):
            node.wait(500)
            (send,) = node.respond(send, response).sends
            requests.append(send.request)
            if isinstance(send.request, UpdateRaftVoterRequest):
                known = UpdateRaftVoterResponse(leader_id=leader, leader_epoch=epoch)
                (send,) = node.respond(send, known).sends
        assert [type(request).__name__ for request in requests].count("UpdateRaftVoterRequest") == 1
        assert isinstance(requests[3], UpdateRaftVoterRequest)


def test_a_leader_too_old_to_be_told_is_left_alone(lab) -> None:
    node = static(lab, 3)
    node.start()
    begin = lab.begin_epoch(1)
    response = FetchResponse(leader_id=1, leader_epoch=5, high_watermark=0)
    send = node.ask(begin)[1].sends[-1]
    while not isinstance(send.request, UpdateRaftVoterRequest):
        node.wait(500)
        (send,) = node.respond(send, response).sends
    (send,) = node.fail(send, FailureReason.UNSUPPORTED_VERSION).sends
    assert isinstance(send.request, FetchRequest)
    assert node.node._replica.state.has_updated_leader


def upgrade(node, version: int = 1, *, validate_only: bool = False):
    return node.node.upgrade_kraft_version(version, validate_only=validate_only, now_ms=node.now_ms)


def test_the_upgrade_waits_for_every_voter(lab) -> None:
    node = leading(lab)
    for node_id in (2, 3):
        with pytest.raises(ProtocolError, match="not all of the voters") as refusal:
            upgrade(node)
        assert refusal.value.error_code is ErrorCode.invalid_update_version
        response, result = node.ask(update(lab, node_id))
        assert response.error_code is ErrorCode.none
        assert not result.appended
    assert upgrade(node, validate_only=True)[0] is None
    assert node.node.kraft_version == 0
    offset, ready = upgrade(node)
    (batch,) = decode_batches(ready.append)
    version, voters = (decode_control(record) for record in batch.records)
    assert isinstance(version, KRaftVersionRecord)
    assert isinstance(voters, VotersRecord)
    assert (version.k_raft_version, offset) == (1, 2)
    assert node.node.kraft_version == 1
    assert node.node.voters == lab.voters(1, 2, 3)
    assert upgrade(node)[0] is None


def test_a_voter_that_cannot_run_it_blocks_the_upgrade(lab) -> None:
    node = leading(lab)
    node.ask(update(lab, 2))
    node.ask(update(lab, 3, kraft_versions=VersionRange(lowest=0, highest=0)))
    with pytest.raises(ProtocolError, match="not all of the voters"):
        upgrade(node)


def test_strangers_do_not_count_as_voters(lab) -> None:
    """Only static voters introduce themselves, on our listener."""
    node = leading(lab)
    assert node.ask(update(lab, 9))[0].error_code is ErrorCode.voter_not_found
    elsewhere = (Endpoint(listener="OTHER", host="h", port=1),)
    refused = node.ask(update(lab, 2, endpoints=elsewhere))[0]
    assert refused.error_code is ErrorCode.invalid_request


def test_only_the_leader_upgrades_and_nobody_goes_back(lab) -> None:
    node = static(lab)
    node.start()
    with pytest.raises(ProtocolError) as refusal:
        upgrade(node)
    assert refusal.value.error_code is ErrorCode.not_leader_or_follower
    with pytest.raises(ProtocolError, match="downgrade") as refusal:
        upgrade(lab.leader(), 0)
    assert refusal.value.error_code is ErrorCode.invalid_update_version
