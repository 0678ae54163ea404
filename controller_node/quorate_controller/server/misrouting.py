"""Detects connections that lead to the wrong node, from what requests and responses contain.

Clients and controllers that send ApiVersions 5 name the intended cluster and node (KIP-1242). No Java controller
sends or checks it. So requests are judged by their other fields: the cluster, the voter with its directory, the
leader's epoch.

| what is wrong | in requests to this node | in responses to this node |
|---|---|---|
| `CLUSTER` | ApiVersions, or a Raft request, names another cluster | INCONSISTENT_CLUSTER_ID |
| `NODE` | ApiVersions, Vote or BeginQuorumEpoch names another node | INVALID_VOTER_KEY, or a leader does not lead |
| `DIRECTORY` | Vote or BeginQuorumEpoch names another directory of this node | |
| `LEADER` | a replica fetches again and again in an epoch that another node leads | |

A response raises a doubt only: a voter with a new directory responds INVALID_VOTER_KEY, too, and a leader that has
resigned does not lead. `verdict` decides with what the node at that address reports of itself.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.plain_data import dataclass
from quorate_protocol.wire.versions import CONTROLLER_SOFTWARE_NAME

from quorate_controller.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    LeaderResponse,
    UpdateRaftVoterRequest,
    VoteRequest,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quorate_protocol.kafka.generated.api_versions_request import ApiVersionsRequest

    from quorate_controller.raft.events import Send
    from quorate_controller.raft.messages import RaftRequest, RaftResponse

UNKNOWN_NODE_ID: Final = -1
COORDINATOR_IDS_FROM: Final = 2**31 - 1
"""Java clients use a separate connection to a coordinator, under this number minus the node's id."""

LEADER_DOUBTS_MIN: Final = 3
LEADER_DOUBTS_SPAN_MS_MIN: Final = 200
LEADER_DOUBTS_SPAN_MS_MAX: Final = 1_000
"""A replica that looks for the leader fetches from any node once or twice, and then from the leader. With the wrong
address for the leader it fetches there again after each retry backoff, 20 ms by default."""


class Misrouting(Enum):
    """The kind of a misrouted connection. The values are labels of a metric."""

    CLUSTER = "cluster"
    NODE = "node"
    DIRECTORY = "directory"
    LEADER = "leader"


def of_client(body: ApiVersionsRequest, *, cluster_id: str, node_id: int) -> Misrouting | None:
    """Return how a client was misrouted; None also when it names no cluster and node, or only one of them."""
    if body.cluster_id is None or body.node_id == UNKNOWN_NODE_ID:
        return None
    if body.cluster_id != cluster_id:
        return Misrouting.CLUSTER
    if body.node_id not in (node_id, COORDINATOR_IDS_FROM - node_id):
        return Misrouting.NODE
    return None


def looks_up_voters(body: ApiVersionsRequest) -> bool:
    """Whether a connection is one of our controllers to a bootstrap server: it names no intended node.

    A Vote or BeginQuorumEpoch on it finds out whether this node is the voter that it names (see `raft.lookup`).
    """
    return body.client_software_name == CONTROLLER_SOFTWARE_NAME and body.node_id == UNKNOWN_NODE_ID


def of_request(
    request: RaftRequest, response: RaftResponse, *, node_id: int, is_lookup: bool = False
) -> Misrouting | None:
    """Return how the sender of a request was misrouted, by the request and by Raft's response to it.

    `is_lookup`: whether the sender looks for the voter that this node is. `LEADER` is a doubt, which
    `ConnectionFindings` turns into a finding when it comes again and again.
    """
    if _is_other_cluster(response):
        return Misrouting.CLUSTER
    match request:
        case VoteRequest() | BeginQuorumEpochRequest() if is_lookup:
            return None
        case VoteRequest(voter=voter) | BeginQuorumEpochRequest(voter=voter) if voter is not None:
            if voter.node_id != node_id:
                return Misrouting.NODE
            is_other = response.error_code is ErrorCode.invalid_voter_key
            return Misrouting.DIRECTORY if is_other else None
        case FetchRequest() | FetchSnapshotRequest() if request.replica.node_id >= 0:
            is_led = isinstance(response, LeaderResponse) and response.leader_id not in (
                UNKNOWN_NODE_ID,
                node_id,
            )
            is_same_epoch = _is_no_leader_of(response, request.current_leader_epoch)
            return Misrouting.LEADER if is_led and is_same_epoch else None
    return None


def of_response(send: Send, response: RaftResponse) -> Misrouting | None:
    """Return the doubt that a response raises about the node that it came from, a reason to identify that node."""
    if _is_other_cluster(response):
        return Misrouting.CLUSTER
    meant, request = send.destination.node_id, send.request
    match request:
        case VoteRequest() | BeginQuorumEpochRequest() if meant >= 0:
            return Misrouting.NODE if response.error_code is ErrorCode.invalid_voter_key else None
        case FetchRequest() | FetchSnapshotRequest() | UpdateRaftVoterRequest() if meant >= 0:
            says_meant_leads = isinstance(response, LeaderResponse) and response.leader_id == meant
            is_no_leader = _is_no_leader_of(response, request.current_leader_epoch)
            return Misrouting.NODE if says_meant_leads and is_no_leader else None
    return None


def meant_by(request: RaftRequest, response: RaftResponse) -> Mapping[str, object]:
    """Return the facts of a misrouted request for the log: its sender, and the node that was meant."""
    facts: dict[str, object] = {
        "request": type(request).__name__,
        "meant_cluster_id": getattr(request, "cluster_id", None),
    }
    match request:
        case VoteRequest() | FetchRequest() | FetchSnapshotRequest():
            facts["sender"] = str(request.replica)
        case BeginQuorumEpochRequest() | EndQuorumEpochRequest():
            facts["sender"] = str(request.leader_id)
        case UpdateRaftVoterRequest():
            facts["sender"] = str(request.voter)
    match request:
        case VoteRequest() | BeginQuorumEpochRequest():
            facts["meant_voter"] = str(request.voter)
        case FetchRequest() | FetchSnapshotRequest() if isinstance(response, LeaderResponse):
            facts["meant_leader_id"] = response.leader_id
    return facts


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdentity:
    """What the node at an address reports of itself; None where it reports nothing."""

    cluster_id: str | None = None
    is_meant: bool | None = None
    """Whether it has the id of the node that is meant."""
    node_id: int | None = None


def verdict(doubt: Misrouting | None, identity: NodeIdentity, *, cluster_id: str) -> Misrouting | None:
    """Decide about an address by a doubt, if any, and the node there; None if it leads to the intended node."""
    if identity.cluster_id not in (None, cluster_id):
        return Misrouting.CLUSTER
    if identity.is_meant is False:
        return Misrouting.NODE
    # INCONSISTENT_CLUSTER_ID needs no second opinion.
    is_unexplained = doubt is Misrouting.CLUSTER and identity.cluster_id is None
    return Misrouting.CLUSTER if is_unexplained else None


class ConnectionFindings:
    """The findings about one connection that a peer has opened. Each finding is reported once."""

    __slots__ = ("_leader_doubts_ms", "_reported", "looks_up_voters")

    def __init__(self) -> None:
        self.looks_up_voters = False
        self._reported: frozenset[Misrouting] = frozenset()
        self._leader_doubts_ms: deque[int] = deque(maxlen=LEADER_DOUBTS_MIN)

    def is_reported(self, what: Misrouting) -> bool:
        """Whether this was reported already."""
        return what in self._reported

    def report(self, what: Misrouting, now_ms: int) -> bool:
        """Return whether to report this now: it is certain, and was not reported before."""
        if self.is_reported(what):
            return False
        if what is Misrouting.LEADER and not self._is_leader_certain(now_ms):
            return False
        self._reported |= {what}
        return True

    def served(self) -> None:
        """The peer got from this node what only the leader sends, so it has reached the leader."""
        self._leader_doubts_ms.clear()
        self._reported -= {Misrouting.LEADER}

    def _is_leader_certain(self, now_ms: int) -> bool:
        doubts_ms = self._leader_doubts_ms
        while doubts_ms and now_ms - doubts_ms[0] > LEADER_DOUBTS_SPAN_MS_MAX:
            doubts_ms.popleft()
        if len(doubts_ms) < LEADER_DOUBTS_MIN:
            doubts_ms.append(now_ms)
        else:
            doubts_ms[-1] = now_ms
        is_often = len(doubts_ms) == LEADER_DOUBTS_MIN
        return is_often and now_ms - doubts_ms[0] >= LEADER_DOUBTS_SPAN_MS_MIN


def _is_other_cluster(response: RaftResponse) -> bool:
    top_level = getattr(response, "top_level_error_code", ErrorCode.none)
    return ErrorCode.inconsistent_cluster_id in (top_level, response.error_code)


def _is_no_leader_of(response: RaftResponse, epoch: int) -> bool:
    is_refused = response.error_code is ErrorCode.not_leader_or_follower
    return is_refused and isinstance(response, LeaderResponse) and response.leader_epoch == epoch
