"""BeginQuorumEpoch and EndQuorumEpoch: how voters learn that a leader came, or goes (KIP-595)."""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from quorate_controller.raft.handlers.common import (
    adopt_leader,
    is_other_cluster,
    is_other_replica,
    voter_request_error,
)
from quorate_controller.raft.held import leader_endpoint
from quorate_controller.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
)
from quorate_controller.raft.roles.follower import Follower
from quorate_controller.raft.roles.prospective import Prospective
from quorate_controller.raft.roles.resigned import Resigned

if TYPE_CHECKING:
    from quorate_controller.raft.model import ReplicaKey
    from quorate_controller.raft.replica import Replica


def handle_begin_epoch(
    replica: "Replica", request: BeginQuorumEpochRequest, listener: str
) -> BeginQuorumEpochResponse:
    """Follow the leader that announces itself."""
    if is_other_cluster(replica, request.cluster_id):
        return BeginQuorumEpochResponse(top_level_error_code=ErrorCode.inconsistent_cluster_id)
    error_code = _adopt_sender(replica, request)
    if error_code is ErrorCode.none and is_other_replica(replica, request.voter):
        error_code = ErrorCode.invalid_voter_key
    state = replica.state
    is_alive_again = isinstance(state, Prospective) and state.leader_id == request.leader_id
    if error_code is ErrorCode.none and is_alive_again and replica.can_reach_leader:
        replica.give_up_standing()
    return BeginQuorumEpochResponse(
        error_code=error_code,
        leader_id=replica.state.leader_id,
        leader_epoch=replica.epoch,
        leader_endpoint=leader_endpoint(replica, listener),
    )


def handle_end_epoch(
    replica: "Replica", request: EndQuorumEpochRequest, listener: str
) -> EndQuorumEpochResponse:
    """The leader resigns: the first successor stands at once, the others after a while each."""
    if is_other_cluster(replica, request.cluster_id):
        return EndQuorumEpochResponse(top_level_error_code=ErrorCode.inconsistent_cluster_id)
    error_code = _adopt_sender(replica, request)
    state = replica.state
    is_own_leader = isinstance(state, Follower) and state.leader_id == request.leader_id
    if error_code is ErrorCode.none and is_own_leader:
        assert isinstance(state, Follower)
        state.leader_resigned(replica, _election_backoff_ms(replica, request.preferred_candidates))
    return EndQuorumEpochResponse(
        error_code=error_code,
        leader_id=replica.state.leader_id,
        leader_epoch=replica.epoch,
        leader_endpoint=leader_endpoint(replica, listener),
    )


def _adopt_sender(replica: "Replica", request: BeginQuorumEpochRequest | EndQuorumEpochRequest) -> ErrorCode:
    error_code = voter_request_error(replica, request.leader_id, request.leader_epoch)
    if error_code is not ErrorCode.none:
        return error_code
    endpoints = request.leader_endpoints or replica.voters.endpoints(request.leader_id)
    if not adopt_leader(replica, request.leader_id, request.leader_epoch, endpoints):
        return ErrorCode.unknown_server_error
    return ErrorCode.none


def _election_backoff_ms(replica: "Replica", candidates: "tuple[ReplicaKey, ...]") -> int:
    """None for the first candidate, then doubling; the whole maximum for who is not listed."""
    backoff_ms_max = replica.config.election_backoff_ms_max
    position = next(
        (index for index, key in enumerate(candidates) if not is_other_replica(replica, key)), len(candidates)
    )
    if position == 0:
        return 0
    if position == len(candidates):
        return backoff_ms_max
    return min(backoff_ms_max, (backoff_ms_max >> (len(candidates) - 1)) << (position - 1))


def handle_end_epoch_response(replica: "Replica", voter_id: int) -> None:
    """A voter knows that we resigned."""
    if isinstance(replica.state, Resigned):
        replica.state.acknowledge(voter_id)
