"""Checks that many requests and responses share."""

from typing import TYPE_CHECKING, Final

from quorate_protocol.errors import ErrorCode

from quorate_controller.raft.messages import LeaderEndpoint
from quorate_controller.raft.model import NO_NODE_ID, Endpoint, RaftSafetyError, ReplicaKey, find_endpoint
from quorate_controller.raft.roles.follower import Follower
from quorate_controller.raft.roles.leader import Leader

if TYPE_CHECKING:
    from quorate_controller.raft.transitions import ElectingReplica

VOTER_EPOCH_STEP_MAX: Final = 1_000_000
"""The most by which a voter's request may raise our epoch: more than the elections that a node misses in a week.

Epochs are never lowered again and have 31 bits, so that a single request could use them up. A replica that is further
behind learns the epoch from the responses to its own requests.
"""
UNKNOWN_EPOCH_STEP_MAX: Final = 1_000
"""The same for other senders: the VotersRecord with the sender may not have reached us yet."""


def leader_state(replica: "ElectingReplica") -> Leader:
    """The state of this replica, which was found to lead.

    Raises:
        RaftSafetyError: it does not lead.
    """
    state = replica.state
    if not isinstance(state, Leader):
        raise RaftSafetyError(f"the leader is expected here: {state.role} of epoch {state.epoch}")
    return state


def is_other_cluster(replica: "ElectingReplica", cluster_id: str | None) -> bool:
    """Whether a request names another cluster. The cluster id is optional."""
    return cluster_id is not None and cluster_id != replica.config.cluster_id


def is_other_replica(replica: "ElectingReplica", receiver: ReplicaKey | None) -> bool:
    """Whether a request is meant for another replica, for instance the previous owner of our address."""
    return receiver is not None and not receiver.matches(replica.key)


def voter_request_error(replica: "ElectingReplica", sender_id: int, epoch: int) -> ErrorCode:
    """Return the error of a request that may raise our epoch, or NONE.

    Such requests are Vote, BeginQuorumEpoch, EndQuorumEpoch, and a Fetch of a later epoch.
    """
    if epoch < replica.epoch:
        return ErrorCode.fenced_leader_epoch
    if sender_id < 0:
        return ErrorCode.invalid_request
    step_max = VOTER_EPOCH_STEP_MAX if sender_id in replica.voters.ids else UNKNOWN_EPOCH_STEP_MAX
    if epoch - replica.epoch > step_max:
        replica.effects.warn(
            "epoch_out_of_range", sender_id=sender_id, epoch=epoch, epoch_max=replica.epoch + step_max
        )
        return ErrorCode.invalid_request
    return ErrorCode.none


def leader_request_error(replica: "ElectingReplica", epoch: int) -> ErrorCode:
    """Return the error of a request that only the leader of `epoch` handles, or NONE."""
    if epoch < replica.epoch:
        return ErrorCode.fenced_leader_epoch
    if epoch > replica.epoch:
        return ErrorCode.unknown_leader_epoch
    if not isinstance(replica.state, Leader):
        return ErrorCode.not_leader_or_follower
    if replica.is_shutting_down:
        return ErrorCode.broker_not_available
    return ErrorCode.none


def endpoints_of_leader(
    replica: "ElectingReplica", leader_id: int, reported: LeaderEndpoint | None
) -> tuple[Endpoint, ...]:
    """The leader's endpoints in a response, or in the voter set when its version has no endpoints."""
    if leader_id == NO_NODE_ID:
        return ()
    if reported is None or reported.node_id != leader_id:
        return replica.voters.endpoints(leader_id)
    return (Endpoint(listener=replica.config.listener, host=reported.host, port=reported.port),)


def adopt_leader(
    replica: "ElectingReplica", leader_id: int, epoch: int, endpoints: tuple[Endpoint, ...]
) -> bool:
    """Adopt the leader and epoch that a peer reports.

    Returns False if they contradict our state: another leader of the same epoch, or this replica as the leader of an
    epoch that it does not lead.
    """
    if epoch < replica.epoch:
        return True
    state = replica.state
    if epoch == replica.epoch and leader_id != NO_NODE_ID:
        is_own = leader_id == replica.key.node_id
        if (state.has_leader and state.leader_id != leader_id) or (is_own and not state.has_leader):
            replica.effects.warn(
                "contradicting_leaders", epoch=epoch, known=state.leader_id, reported=leader_id
            )
            return False
        if not replica.can_reach_leader and endpoints:
            replica.follow(epoch, leader_id, endpoints)
        elif isinstance(state, Follower) and find_endpoint(endpoints, replica.config.listener) is not None:
            state.update_endpoints(endpoints)
    elif epoch > replica.epoch and leader_id != NO_NODE_ID:
        replica.follow(epoch, leader_id, endpoints)
    elif epoch > replica.epoch:
        replica.become_unattached(epoch)
    return True
