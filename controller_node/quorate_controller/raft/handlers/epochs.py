"""Vote, BeginQuorumEpoch, EndQuorumEpoch: the start and the end of an epoch (KIP-595, KIP-996)."""

from typing import TYPE_CHECKING

from quorate_protocol.errors import ErrorCode

from quorate_controller.raft.handlers.common import (
    adopt_leader,
    is_other_cluster,
    is_other_replica,
    voter_request_error,
)
from quorate_controller.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)
from quorate_controller.raft.model import OffsetAndEpoch
from quorate_controller.raft.roles.candidate import Candidate, Prospective
from quorate_controller.raft.roles.follower import Follower
from quorate_controller.raft.roles.leader import Resigned

if TYPE_CHECKING:
    from quorate_controller.raft.events import Destination
    from quorate_controller.raft.model import ReplicaKey
    from quorate_controller.raft.transitions import ElectingReplica


def handle_vote(replica: "ElectingReplica", request: VoteRequest, listener: str) -> VoteResponse:
    """Grant or refuse a vote. Observers vote, too: the candidate may have a later voter set."""
    if is_other_cluster(replica, request.cluster_id):
        return VoteResponse(top_level_error_code=ErrorCode.inconsistent_cluster_id)
    error_code = _vote_error(replica, request)
    is_granted = error_code is ErrorCode.none and _grant(replica, request)
    return VoteResponse(
        error_code=error_code,
        leader_id=replica.state.leader_id,
        leader_epoch=replica.epoch,
        vote_granted=is_granted,
        leader_endpoint=replica.leader_endpoint(listener),
    )


def _vote_error(replica: "ElectingReplica", request: VoteRequest) -> ErrorCode:
    # The epoch that a candidate has just begun has had no leader, so its log ends before that epoch.
    # A pre-vote is for the current epoch, of which the log may have records.
    last_epoch_max = request.replica_epoch if request.pre_vote else request.replica_epoch - 1
    if request.last_offset < 0 or not 0 <= request.last_offset_epoch <= last_epoch_max:
        return ErrorCode.invalid_request
    error_code = voter_request_error(replica, request.replica.node_id, request.replica_epoch)
    if error_code is not ErrorCode.none:
        return error_code
    if request.replica_epoch > replica.epoch:
        replica.become_unattached(request.replica_epoch)
    if is_other_replica(replica, request.voter):
        replica.effects.note("vote_for_other_replica", voter=str(request.voter), sender=str(request.replica))
        return ErrorCode.invalid_voter_key
    return ErrorCode.none


def _grant(replica: "ElectingReplica", request: VoteRequest) -> bool:
    candidate, state = request.replica, replica.state
    if candidate.node_id == replica.key.node_id:
        replica.effects.warn("vote_from_own_id", sender=str(candidate))
        return False
    last = OffsetAndEpoch(epoch=request.last_offset_epoch, offset=request.last_offset)
    if replica.voters.is_voter(candidate):
        replica.peers.end_backoff(candidate.node_id)
    is_granted = state.can_grant_vote(
        candidate, is_up_to_date=last >= replica.log.last, is_pre_vote=request.pre_vote
    )
    if is_granted and not request.pre_vote and state.voted_key is None:
        replica.record_vote(candidate)
    if request.pre_vote and not is_granted and isinstance(state, Prospective):
        # The sender has lost the leader, too. It may grant us a vote that it refused before.
        state.tally.forget(candidate.node_id)
    replica.effects.note(
        "vote",
        candidate=str(candidate),
        epoch=request.replica_epoch,
        is_pre_vote=request.pre_vote,
        is_granted=is_granted,
    )
    return is_granted


def handle_vote_response(
    replica: "ElectingReplica", key: "ReplicaKey", destination: "Destination", response: VoteResponse
) -> None:
    """Count a vote; the role acts on it when polled. `key` and `destination` are of the voter that was asked."""
    state, voter = replica.state, replica.voters.get(key.node_id)
    if voter is not None and voter.key == key and replica.lookup.found_at(voter, destination):
        address = f"{destination.host}:{destination.port}"
        replica.effects.warn("voter_found_at_other_address", voter=str(key), address=address)
    if isinstance(state, Prospective | Candidate):
        state.tally.record(key.node_id, is_granted=response.vote_granted)
        if isinstance(state, Candidate):
            state.unreachable.discard(key.node_id)


def handle_vote_unsupported(replica: "ElectingReplica") -> None:
    """A voter does not support pre-votes: stand without them (KIP-996, as Kafka ships it)."""
    if isinstance(replica.state, Prospective):
        replica.become_candidate()


def handle_voter_unreachable(replica: "ElectingReplica", voter_id: int, destination: "Destination") -> None:
    """A voter did not respond there: it may have to be looked up, and a split vote is detected without it."""
    replica.lookup.failed(voter_id, destination)
    if isinstance(replica.state, Candidate):
        replica.state.unreachable.add(voter_id)


def handle_begin_epoch(
    replica: "ElectingReplica", request: BeginQuorumEpochRequest, listener: str
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
        leader_endpoint=replica.leader_endpoint(listener),
    )


def handle_end_epoch(
    replica: "ElectingReplica", request: EndQuorumEpochRequest, listener: str
) -> EndQuorumEpochResponse:
    """The leader resigns: the first successor stands at once, each other one after a longer backoff."""
    if is_other_cluster(replica, request.cluster_id):
        return EndQuorumEpochResponse(top_level_error_code=ErrorCode.inconsistent_cluster_id)
    error_code = _adopt_sender(replica, request)
    state = replica.state
    if error_code is ErrorCode.none and isinstance(state, Follower) and state.leader_id == request.leader_id:
        state.leader_resigned(replica, _election_backoff_ms(replica, request.preferred_candidates))
    return EndQuorumEpochResponse(
        error_code=error_code,
        leader_id=replica.state.leader_id,
        leader_epoch=replica.epoch,
        leader_endpoint=replica.leader_endpoint(listener),
    )


def _adopt_sender(
    replica: "ElectingReplica", request: BeginQuorumEpochRequest | EndQuorumEpochRequest
) -> ErrorCode:
    error_code = voter_request_error(replica, request.leader_id, request.leader_epoch)
    if error_code is not ErrorCode.none:
        return error_code
    endpoints = request.leader_endpoints or replica.voters.endpoints(request.leader_id)
    if not adopt_leader(replica, request.leader_id, request.leader_epoch, endpoints):
        return ErrorCode.unknown_server_error
    return ErrorCode.none


def _election_backoff_ms(replica: "ElectingReplica", candidates: "tuple[ReplicaKey, ...]") -> int:
    """Return 0 for the first candidate, doubling times for the next ones, the maximum for unlisted voters."""
    backoff_ms_max = replica.config.election_backoff_ms_max
    position = next(
        (index for index, key in enumerate(candidates) if not is_other_replica(replica, key)), len(candidates)
    )
    if position == 0:
        return 0
    if position == len(candidates):
        return backoff_ms_max
    return min(backoff_ms_max, (backoff_ms_max >> (len(candidates) - 1)) << (position - 1))


def handle_end_epoch_response(replica: "ElectingReplica", voter_id: int) -> None:
    """Record that a voter has acknowledged our resignation."""
    if isinstance(replica.state, Resigned):
        replica.state.acknowledge(voter_id)
