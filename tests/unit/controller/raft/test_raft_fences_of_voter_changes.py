"""What stays of the voters' history when the log start moves; when a new leader may change the voters (KIP-853)."""

from typing import Any

import pytest
from quorate_controller.raft.events import LogStartMoved, Role, SnapshotTaken
from quorate_controller.raft.messages import (
    AddRaftVoterRequest,
    FetchResponse,
    RaftRequest,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
)
from quorate_controller.raft.model import SnapshotId, VersionRange
from quorate_controller.raft.startup import EpochStart, HardState, KRaftVersionAt, LogState, VotersAt
from quorate_protocol.errors import ErrorCode

END_OFFSET = 200
VOTER_CHANGES = (0, 60, 61, 99, 100, 101, 150)
"""The offsets of the VotersRecords in the log: around its new start, and far from it."""
LOG_START = 100


def test_the_voters_at_each_offset_of_the_log_stay_known_when_its_start_moves(lab: Any) -> None:
    """A checkpoint that ends anywhere in the log, or at its start, can name its voters and its kraft.version."""
    sets = [lab.voters(1, 2), lab.voters(1, 2, 3)]
    log = LogState(
        end_offset=END_OFFSET,
        epochs=(EpochStart(epoch=1, start_offset=0),),
        voters=tuple(
            VotersAt(offset=offset, voters=sets[number % 2]) for number, offset in enumerate(VOTER_CHANGES)
        ),
        kraft_versions=(
            KRaftVersionAt(offset=0, kraft_version=1),
            KRaftVersionAt(offset=120, kraft_version=1),
        ),
    )
    node = lab.leader(log=log)
    for voter_id in node.node.voters.ids[1:]:
        node.ask(lab.fetch(voter_id, node.node.log_end_offset))
    offsets = range(LOG_START - 1, node.node.log_end_offset)
    before = [(node.node.voters_at(offset), node.node.kraft_version_at(offset)) for offset in offsets]
    node.step(SnapshotTaken(snapshot_id=SnapshotId(offset=LOG_START, epoch=1)))
    node.step(LogStartMoved(start_offset=LOG_START))
    after = [(node.node.voters_at(offset), node.node.kraft_version_at(offset)) for offset in offsets]
    assert after == before
    assert {voters for voters, _ in before} == set(sets)


def _add(lab: Any) -> RaftRequest:
    return AddRaftVoterRequest(
        cluster_id=lab.cluster_id, timeout_ms=1_000, voter=lab.key(4), endpoints=lab.endpoints(4)
    )


def _remove(lab: Any) -> RaftRequest:
    return RemoveRaftVoterRequest(cluster_id=lab.cluster_id, voter=lab.key(3))


def _update(lab: Any) -> RaftRequest:
    return UpdateRaftVoterRequest(
        cluster_id=lab.cluster_id,
        current_leader_epoch=2,
        voter=lab.key(3),
        endpoints=lab.endpoints(3),
        kraft_versions=VersionRange(lowest=0, highest=1),
    )


@pytest.mark.parametrize("request_of", [_add, _remove, _update])
def test_no_voter_change_while_only_earlier_epochs_are_committed(lab: Any, request_of: Any) -> None:
    """A leader changes the voters only after a record of its own epoch is committed: before, a VotersRecord
    of an earlier leader may be committed that it does not have (the defect of single-server changes).
    """
    node = lab.node(1, log=lab.log(1, 2, 3), hard_state=HardState(leader_epoch=1, leader_id=2))
    raft = node.node
    (fetch,) = node.start().sends
    node.respond(fetch, FetchResponse(leader_id=2, leader_epoch=1, high_watermark=10))
    election = node.wait_for_deadline()
    while raft.role is Role.FOLLOWER:
        election = node.wait_for_deadline()
    node.win_votes(node.win_votes(election))
    assert (raft.role, raft.high_watermark, raft.log_end_offset) == (Role.LEADER, 10, 11)
    node.ask(lab.fetch(4, 11))
    response, result = node.ask(request_of(lab))
    assert response is not None
    assert response.error_code is ErrorCode.request_timed_out
    assert not result.appended
    assert not [send for send in result.sends if send.destination.node_id == 4]
    assert raft.voters.ids == (1, 2, 3)
    node.ask(lab.fetch(2, 11))
    assert raft.high_watermark == 11
    response, _ = node.ask(request_of(lab))
    assert response is None or response.error_code is ErrorCode.none
