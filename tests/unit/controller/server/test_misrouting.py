"""Misrouted connections, by what requests and responses contain."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from quorate_controller.raft import messages as m
from quorate_controller.raft.events import Destination, Send
from quorate_controller.raft.model import OffsetAndEpoch, ReplicaKey
from quorate_controller.server.misrouting import (
    LEADER_DOUBTS_MIN,
    LEADER_DOUBTS_SPAN_MS_MAX,
    ConnectionFindings,
    Misrouting,
    NodeIdentity,
    meant_by,
    of_request,
    of_response,
    verdict,
)
from quorate_protocol.errors import ErrorCode

OURS, OTHER = 1, 2
SENDER = ReplicaKey(node_id=3, directory_id=UUID(int=3))
EPOCH = 5


def vote(voter: ReplicaKey | None) -> m.VoteRequest:
    return m.VoteRequest(
        cluster_id="c", voter=voter, replica=SENDER, replica_epoch=EPOCH, last_offset=0, last_offset_epoch=0
    )


def begin(voter: ReplicaKey | None) -> m.BeginQuorumEpochRequest:
    return m.BeginQuorumEpochRequest(cluster_id="c", voter=voter, leader_id=3, leader_epoch=EPOCH)


FETCH = m.FetchRequest(
    cluster_id="c",
    replica=SENDER,
    current_leader_epoch=EPOCH,
    fetch_offset=0,
    last_fetched_epoch=0,
    max_wait_ms=500,
)
FETCH_SNAPSHOT = m.FetchSnapshotRequest(
    cluster_id="c",
    replica=SENDER,
    current_leader_epoch=EPOCH,
    snapshot_id=OffsetAndEpoch(offset=1, epoch=1),
    position=0,
)
END = m.EndQuorumEpochRequest(cluster_id="c", leader_id=3, leader_epoch=EPOCH)
OUR_VOTER = ReplicaKey(node_id=OURS, directory_id=UUID(int=1))
OTHER_VOTER = ReplicaKey(node_id=OTHER, directory_id=UUID(int=2))
REFUSED = m.VoteResponse(error_code=ErrorCode.invalid_voter_key, leader_epoch=EPOCH)
NOT_LEADER = m.FetchResponse(error_code=ErrorCode.not_leader_or_follower, leader_id=OTHER, leader_epoch=EPOCH)


@pytest.mark.parametrize(
    ("request_", "response", "expected"),
    [
        (vote(OUR_VOTER), m.VoteResponse(), None),
        (vote(None), m.VoteResponse(), None),
        (vote(OTHER_VOTER), REFUSED, Misrouting.NODE),
        (vote(OTHER_VOTER), m.VoteResponse(error_code=ErrorCode.fenced_leader_epoch), Misrouting.NODE),
        (vote(OUR_VOTER), REFUSED, Misrouting.DIRECTORY),
        (begin(OTHER_VOTER), m.BeginQuorumEpochResponse(), Misrouting.NODE),
        (
            begin(OUR_VOTER),
            m.BeginQuorumEpochResponse(error_code=ErrorCode.invalid_voter_key),
            Misrouting.DIRECTORY,
        ),
        (
            vote(OTHER_VOTER),
            m.VoteResponse(top_level_error_code=ErrorCode.inconsistent_cluster_id),
            Misrouting.CLUSTER,
        ),
        (
            END,
            m.EndQuorumEpochResponse(top_level_error_code=ErrorCode.inconsistent_cluster_id),
            Misrouting.CLUSTER,
        ),
        (END, m.EndQuorumEpochResponse(), None),
        (FETCH, NOT_LEADER, Misrouting.LEADER),
        (FETCH_SNAPSHOT, NOT_LEADER, Misrouting.LEADER),
        (FETCH, m.FetchResponse(leader_id=OURS, leader_epoch=EPOCH), None),
        (FETCH, replace(NOT_LEADER, leader_epoch=EPOCH + 1), None),
        (FETCH, replace(NOT_LEADER, leader_id=-1), None),
        (FETCH, replace(NOT_LEADER, leader_id=OURS), None),
        (replace(FETCH, replica=ReplicaKey(node_id=-1)), NOT_LEADER, None),
    ],
)
def test_a_request_tells_whom_its_sender_meant(
    request_: Any, response: Any, expected: Misrouting | None
) -> None:
    """Peers that don't name the intended node are judged, too."""
    assert of_request(request_, response, node_id=OURS) is expected


UPDATE = m.UpdateRaftVoterRequest(
    cluster_id="c",
    current_leader_epoch=EPOCH,
    voter=SENDER,
    endpoints=(),
    kraft_versions=m.VersionRange(lowest=0, highest=1),
)


@pytest.mark.parametrize(
    ("request_", "node_id", "response", "expected"),
    [
        (vote(OTHER_VOTER), OTHER, m.VoteResponse(vote_granted=True), None),
        (vote(OTHER_VOTER), OTHER, REFUSED, Misrouting.NODE),
        (begin(OTHER_VOTER), OTHER, REFUSED, Misrouting.NODE),
        (FETCH, OTHER, NOT_LEADER, Misrouting.NODE),
        (FETCH, OTHER, replace(NOT_LEADER, leader_id=3), None),
        (FETCH, OTHER, replace(NOT_LEADER, leader_epoch=EPOCH - 1), None),
        (FETCH, OTHER, m.FetchResponse(leader_id=OTHER, leader_epoch=EPOCH), None),
        (FETCH, -2, NOT_LEADER, None),
        (
            UPDATE,
            OTHER,
            m.UpdateRaftVoterResponse(
                error_code=ErrorCode.not_leader_or_follower, leader_id=OTHER, leader_epoch=EPOCH
            ),
            Misrouting.NODE,
        ),
        (
            UPDATE,
            OTHER,
            m.UpdateRaftVoterResponse(error_code=ErrorCode.inconsistent_cluster_id),
            Misrouting.CLUSTER,
        ),
        (
            FETCH,
            -2,
            m.FetchResponse(top_level_error_code=ErrorCode.inconsistent_cluster_id),
            Misrouting.CLUSTER,
        ),
    ],
)
def test_a_response_makes_doubtful_who_answers(
    request_: Any, node_id: int, response: Any, expected: Misrouting | None
) -> None:
    """An address that leads to another node is suspected with the first response."""
    destination = Destination(node_id=node_id, host="h", port=9093)
    send = Send(request_id=1, destination=destination, request=request_, timeout_ms=1)
    assert of_response(send, response) is expected


@pytest.mark.parametrize(
    ("doubt", "answering", "expected"),
    [
        (Misrouting.NODE, NodeIdentity(cluster_id="c", is_meant=True, node_id=2), None),
        (Misrouting.NODE, NodeIdentity(cluster_id="c", is_meant=False, node_id=3), Misrouting.NODE),
        (Misrouting.NODE, NodeIdentity(cluster_id="other", is_meant=True, node_id=2), Misrouting.CLUSTER),
        (Misrouting.NODE, NodeIdentity(is_meant=False), Misrouting.NODE),
        (Misrouting.NODE, NodeIdentity(), None),
        (Misrouting.CLUSTER, NodeIdentity(), Misrouting.CLUSTER),
        (Misrouting.CLUSTER, NodeIdentity(cluster_id="c", is_meant=True, node_id=2), None),
        (Misrouting.CLUSTER, NodeIdentity(cluster_id="c", is_meant=False), Misrouting.NODE),
    ],
)
def test_who_answers_decides(doubt: Misrouting, answering: NodeIdentity, expected: Misrouting | None) -> None:
    """A new directory or a leader that has resigned is nothing wrong."""
    assert verdict(doubt, answering, cluster_id="c") is expected


def test_each_finding_of_a_connection_is_told_once() -> None:
    """A peer that tries for hours makes one line for each thing that is wrong."""
    findings = ConnectionFindings()
    reported = [
        findings.report(finding, 0) for finding in (Misrouting.NODE, Misrouting.NODE, Misrouting.CLUSTER)
    ]
    assert reported == [True, False, True]


@pytest.mark.parametrize(
    ("times_ms", "reported"),
    [
        ([0, 40, 80, 120, 160, 200, 240], 1),
        ([0, 40, 80], 0),
        ([0, 500], 0),
        ([0, 600, 1_200, 1_800, 2_400], 0),
        ([0, 400, 800], 1),
        ([0, 60_000, 120_000, 180_000], 0),
    ],
)
def test_a_replica_that_looks_for_its_leader_is_not_misrouted(times_ms: list[int], reported: int) -> None:
    findings = ConnectionFindings()
    assert sum(findings.report(Misrouting.LEADER, now_ms) for now_ms in times_ms) == reported


def test_a_fetch_that_is_served_ends_the_doubts() -> None:
    """The next misrouting is reported again."""
    findings = ConnectionFindings()

    def doubts(since_ms: int) -> int:
        times_ms = [since_ms + 100 * place for place in range(LEADER_DOUBTS_MIN + 1)]
        assert times_ms[-1] - since_ms < LEADER_DOUBTS_SPAN_MS_MAX
        return sum(findings.report(Misrouting.LEADER, now_ms) for now_ms in times_ms)

    assert (doubts(0), doubts(1_000)) == (1, 0)
    findings.served()
    assert doubts(2_000) == 1


def test_a_finding_names_sender_and_meant_node() -> None:
    assert meant_by(vote(OTHER_VOTER), REFUSED) == {
        "request": "VoteRequest",
        "meant_cluster_id": "c",
        "sender": str(SENDER),
        "meant_voter": str(OTHER_VOTER),
    }
    assert meant_by(FETCH, NOT_LEADER)["meant_leader_id"] == OTHER
    assert meant_by(END, m.EndQuorumEpochResponse())["sender"] == "3"
