"""Responses to our requests, and requests that failed. Leader and epoch of every response are adopted first."""

from typing import TYPE_CHECKING

from quorate_protocol.errors import ErrorCode

from quorate_controller.raft.events import Destination, FailureReason
from quorate_controller.raft.handlers import epochs, membership, replication
from quorate_controller.raft.handlers.common import adopt_leader, endpoints_of_leader
from quorate_controller.raft.messages import (
    AddRaftVoterResponse,
    ApiVersionsProbe,
    ApiVersionsProbeResponse,
    BeginQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderResponse,
    PartitionResponse,
    RaftResponse,
    RemoveRaftVoterResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    VoteRequest,
    VoteResponse,
)
from quorate_controller.raft.model import find_endpoint
from quorate_controller.raft.peers import InFlight
from quorate_controller.raft.roles.follower import Follower
from quorate_controller.raft.roles.leader import Resigned

if TYPE_CHECKING:
    from quorate_controller.raft.transitions import ElectingReplica


def on_response(replica: "ElectingReplica", request_id: int, response: RaftResponse) -> None:
    """Handle a response, unless its request was dropped. After an error, back off from the node."""
    in_flight = replica.peers.complete(request_id)
    if in_flight is None:
        return
    state, node_id = replica.state, in_flight.destination.node_id
    if isinstance(response, ApiVersionsProbeResponse):
        is_ok = membership.handle_probe_response(replica, node_id, response)
    elif isinstance(response, AddRaftVoterResponse | RemoveRaftVoterResponse):
        is_ok = membership.handle_join_response(replica, response)
    else:
        is_ok = _on_epoch_response(replica, in_flight, response)
    if is_ok:
        replica.peers.succeeded(node_id)
    elif replica.state is state and not in_flight.is_lookup:
        # A server that is not the looked-up voter is asked for the next voter.
        replica.peers.back_off(node_id, replica.now_ms)


def on_failure(replica: "ElectingReplica", request_id: int, reason: FailureReason) -> None:
    """A request got no response."""
    in_flight = replica.peers.complete(request_id)
    if in_flight is None:
        return
    state, node_id = replica.state, in_flight.destination.node_id
    is_unsupported = reason is FailureReason.UNSUPPORTED_VERSION
    match in_flight.request:
        case VoteRequest(pre_vote=True) if is_unsupported and not in_flight.is_lookup:
            epochs.handle_vote_unsupported(replica)
        case VoteRequest(voter=voter) | BeginQuorumEpochRequest(voter=voter) if voter is not None:
            epochs.handle_voter_unreachable(replica, voter.node_id, in_flight.destination)
        case UpdateRaftVoterRequest() if is_unsupported:
            membership.handle_update_unsupported(replica)
            return
        case ApiVersionsProbe():
            is_misrouted = reason is FailureReason.MISROUTED
            error_code = ErrorCode.rebootstrap_required if is_misrouted else ErrorCode.network_exception
            membership.handle_probe_response(
                replica, node_id, ApiVersionsProbeResponse(error_code=error_code)
            )
    if reason is FailureReason.MISROUTED:
        _drop_endpoint(replica, in_flight.destination)
    is_fetch = isinstance(in_flight.request, FetchRequest | FetchSnapshotRequest)
    if isinstance(state, Follower) and state.leader_id == node_id and is_fetch:
        if reason is FailureReason.DISCONNECTED and state.may_fetch_again_at_once():
            return
        if reason in (FailureReason.UNREACHABLE, FailureReason.MISROUTED):
            state.leader_unreachable(replica)
    elif reason in (FailureReason.DISCONNECTED, FailureReason.UNREACHABLE, FailureReason.MISROUTED):
        on_connection_lost(replica, node_id)
    if replica.state is state:
        replica.peers.back_off(node_id, replica.now_ms)


def _drop_endpoint(replica: "ElectingReplica", destination: Destination) -> None:
    """The leader's address is wrong: use the address in the voter set, then the next one that a voter or bootstrap
    server reports. `discover` asks them during the backoff from the leader's node.
    """
    state = replica.state
    if not isinstance(state, Follower) or state.leader_id != destination.node_id:
        return
    state.is_endpoint_wrong = True
    voter_endpoints = replica.voters.endpoints(state.leader_id)
    endpoint = find_endpoint(voter_endpoints, replica.config.listener)
    if endpoint is not None and (endpoint.host, endpoint.port) != (destination.host, destination.port):
        state.leader_endpoints = voter_endpoints


def on_connection_lost(replica: "ElectingReplica", node_id: int) -> None:
    """A connection to that node closed: a resigned leader cannot hand over to it.

    A follower judges its leader by its Fetch requests alone: every other connection is idle most of the time,
    and either side closes idle connections.
    """
    if isinstance(replica.state, Resigned):
        replica.state.unreachable.add(node_id)


def _on_epoch_response(replica: "ElectingReplica", in_flight: InFlight, response: LeaderResponse) -> bool:
    """Return whether the next request to the node may leave at once."""
    request, node_id = in_flight.request, in_flight.destination.node_id
    voter = request.voter if isinstance(request, VoteRequest | BeginQuorumEpochRequest) else None
    if voter is not None and _is_other_node(response):
        epochs.handle_voter_unreachable(replica, voter.node_id, in_flight.destination)
        if in_flight.is_lookup:
            # Most servers are not the looked-up voter. They may know the leader.
            _settle_epoch(replica, response)
            return False
    if isinstance(response, PartitionResponse):
        top_level_error_code = response.top_level_error_code
        if top_level_error_code is ErrorCode.unsupported_version and isinstance(response, VoteResponse):
            epochs.handle_vote_unsupported(replica)
            return False
        if top_level_error_code is not ErrorCode.none:
            _warn(replica, node_id, response, top_level_error_code)
            return False
    settled = _settle_epoch(replica, response)
    if settled is not None:
        return settled
    match response:
        case FetchSnapshotResponse(error_code=ErrorCode.none | ErrorCode.snapshot_not_found):
            return replication.handle_fetch_snapshot_response(
                replica, response, error_code=response.error_code
            )
        case UpdateRaftVoterResponse(error_code=ErrorCode.none | ErrorCode.unsupported_version):
            membership.handle_update_response(replica)
        case _ if response.error_code is not ErrorCode.none:
            _warn(replica, node_id, response, response.error_code)
            return False
        case FetchResponse():
            return replication.handle_fetch_response(replica, response)
        case VoteResponse() if voter is not None:
            epochs.handle_vote_response(replica, voter, in_flight.destination, response)
        case EndQuorumEpochResponse():
            epochs.handle_end_epoch_response(replica, node_id)
    return True


def _is_other_node(response: LeaderResponse) -> bool:
    """Whether a response to Vote comes from another node, or from the voter with another directory."""
    top_level = getattr(response, "top_level_error_code", ErrorCode.none)
    is_other_cluster = top_level is ErrorCode.inconsistent_cluster_id
    return is_other_cluster or response.error_code is ErrorCode.invalid_voter_key


def _settle_epoch(replica: "ElectingReplica", response: LeaderResponse) -> bool | None:
    """Adopt leader and epoch. None for a response of our epoch, which still has to be handled."""
    leader_id, epoch, error_code = response.leader_id, response.leader_epoch, response.error_code
    if epoch < replica.epoch or error_code is ErrorCode.unknown_leader_epoch:
        return error_code is ErrorCode.none
    endpoints = endpoints_of_leader(replica, leader_id, response.leader_endpoint)
    is_stale_request = error_code in (ErrorCode.fenced_leader_epoch, ErrorCode.not_leader_or_follower)
    if epoch > replica.epoch or is_stale_request:
        adopt_leader(replica, leader_id, epoch, endpoints)
        return False
    if (
        leader_id >= 0
        and not replica.can_reach_leader
        and not adopt_leader(replica, leader_id, epoch, endpoints)
    ):
        return False
    # The response to a Fetch that found the leader may carry records: the new follower handles it.
    return None


def _warn(replica: "ElectingReplica", node_id: int, response: LeaderResponse, error_code: ErrorCode) -> None:
    replica.effects.warn(
        "request_refused", response=type(response).__name__, node_id=node_id, error=error_code.name
    )
