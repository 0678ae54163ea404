"""Changes of the voter set: AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter, upgrade of kraft.version (KIP-853).

One at a time, and only when the one before is committed: then old and new majorities always overlap. The
VotersRecord is in force once appended, and committed by the majority of the new set.
"""

from typing import TYPE_CHECKING

from quorate_protocol.errors import ErrorCode, ProtocolError

from quorate_controller.raft.events import Destination
from quorate_controller.raft.handlers.common import is_other_cluster, leader_request_error, leader_state
from quorate_controller.raft.messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    ApiVersionsProbe,
    ApiVersionsProbeResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from quorate_controller.raft.model import VersionRange, Voter, find_endpoint
from quorate_controller.raft.records import kraft_version_record
from quorate_controller.raft.roles.follower import Follower
from quorate_controller.raft.roles.leader import ChangeKind, Leader, VoterChange
from quorate_controller.raft.startup import KRAFT_VERSION_DYNAMIC

if TYPE_CHECKING:
    from quorate_protocol.records.control import ControlRecord

    from quorate_controller.raft.transitions import ElectingReplica
    from quorate_controller.raft.voters import VoterSet

Refusal = tuple[ErrorCode, str | None]


def handle_add_voter(
    replica: "ElectingReplica", token: int, request: AddRaftVoterRequest
) -> AddRaftVoterResponse | None:
    """Probe the new voter; `handle_probe_response` continues. None: the response is sent later."""
    error_code, message = _add_refusal(replica, request)
    endpoint = find_endpoint(request.endpoints, replica.config.listener)
    if error_code is not ErrorCode.none or endpoint is None:
        return AddRaftVoterResponse(error_code=error_code, error_message=message)
    leader, node_id = leader_state(replica), request.voter.node_id
    if not replica.peers.is_ready(node_id, replica.now_ms):
        return AddRaftVoterResponse(
            error_code=ErrorCode.request_timed_out,
            error_message=f"New voter {request.voter} is not ready to receive requests",
        )
    leader.change = VoterChange(
        kind=ChangeKind.ADD,
        token=token,
        voter=request.voter,
        endpoints=request.endpoints,
        deadline_ms=replica.now_ms + replica.config.request_timeout_ms,
        ack_when_committed=request.ack_when_committed,
    )
    destination = Destination(node_id=node_id, host=endpoint.host, port=endpoint.port)
    replica.peers.send(replica.effects, destination, ApiVersionsProbe(), replica.now_ms)
    return None


def _add_refusal(replica: "ElectingReplica", request: AddRaftVoterRequest) -> Refusal:
    refusal = _leader_refusal(replica, request.cluster_id)
    if refusal is not None:
        return refusal
    if request.voter.node_id < 0 or request.voter.directory_id is None:
        return ErrorCode.invalid_request, "Add voter request didn't include a valid voter"
    listener = replica.config.listener
    if find_endpoint(request.endpoints, listener) is None:
        return (
            ErrorCode.invalid_request,
            f"Add voter request didn't include the endpoint for the default listener {listener}",
        )
    refusal = _change_refusal(replica, "adding")
    if refusal is not None:
        return refusal
    if request.voter.node_id in replica.voters.ids:
        voters = ", ".join(str(voter.key) for voter in replica.voters)
        return (
            ErrorCode.duplicate_voter,
            f"The voter id for {request.voter} is already part of the set of voters {voters}.",
        )
    # The probe will return the supported versions. Every range has the same size.
    any_versions = VersionRange(lowest=0, highest=KRAFT_VERSION_DYNAMIC)
    voters_after = replica.voters.add(
        Voter(key=request.voter, endpoints=request.endpoints, kraft_versions=any_versions)
    )
    message = voters_after.why_unwritable()
    return (ErrorCode.none if message is None else ErrorCode.invalid_request), message


def handle_probe_response(
    replica: "ElectingReplica", node_id: int, response: ApiVersionsProbeResponse
) -> bool:
    """Add the voter if it supports the finalized kraft.version and has caught up with our log."""
    leader = replica.state
    change = leader.change if isinstance(leader, Leader) else None
    is_expected = change is not None and change.kind is ChangeKind.ADD and change.offset is None
    if not isinstance(leader, Leader) or change is None or not is_expected or change.voter.node_id != node_id:
        return True
    kraft_version, supported = replica.history.kraft_version, response.kraft_versions
    if response.error_code is not ErrorCode.none:
        message = _probe_failure(change, response.error_code)
        leader.end_change(replica, ErrorCode.request_timed_out, message)
        return False
    if supported is None or kraft_version not in supported:
        lowest, highest = (0, 0) if supported is None else (supported.lowest, supported.highest)
        message = (
            f"Aborted add voter operation for {change.voter} since the kraft.version range (min: {lowest}, "
            f"max: {highest}) doesn't support the finalized version {kraft_version}"
        )
        leader.end_change(replica, ErrorCode.invalid_request, message)
        return True
    divergence = leader.progress.divergence(change.voter)
    if divergence is not None:
        message = (
            f"Aborted add voter operation for {change.voter} since its log diverged from that of this quorum: it "
            f"ends at offset {divergence.fetch_offset} in epoch {divergence.last_fetched_epoch} with records that "
            f"the leader does not have. Format the directory again, so that it becomes another voter"
        )
        leader.end_change(replica, ErrorCode.invalid_request, message)
        return True
    if not leader.progress.is_caught_up(change.voter, replica.now_ms):
        message = f"Aborted add voter operation for {change.voter} since it is lagging behind"
        leader.end_change(replica, ErrorCode.request_timed_out, message)
        return True
    voters = replica.voters.add(Voter(key=change.voter, endpoints=change.endpoints, kraft_versions=supported))
    change.offset = _append_voters(replica, voters)
    if not change.ack_when_committed:
        replica.effects.respond(change.token, AddRaftVoterResponse())
        change.is_acknowledged = True
    return True


def _probe_failure(change: VoterChange, error_code: ErrorCode) -> str:
    if error_code is ErrorCode.rebootstrap_required:
        return (
            f"Aborted add voter operation for {change.voter} since another node, or a node of another cluster, "
            f"answers at {', '.join(f'{endpoint.host}:{endpoint.port}' for endpoint in change.endpoints)}"
        )
    return (
        f"Aborted add voter operation for {change.voter} since API_VERSIONS returned an error "
        f"{error_code.name.upper()}"
    )


def handle_remove_voter(
    replica: "ElectingReplica", token: int, request: RemoveRaftVoterRequest
) -> RemoveRaftVoterResponse | None:
    """Append the voter set without that voter. None: the response is sent after the commit."""
    error_code, message = _remove_refusal(replica, request)
    voters = replica.voters.remove(request.voter) if error_code is ErrorCode.none else None
    if voters is None:
        return RemoveRaftVoterResponse(error_code=error_code, error_message=message)
    # Its failures do not count for its successor with the same id.
    replica.peers.end_backoff(request.voter.node_id)
    leader_state(replica).change = VoterChange(
        kind=ChangeKind.REMOVE,
        token=token,
        voter=request.voter,
        deadline_ms=replica.now_ms + replica.config.request_timeout_ms,
        offset=_append_voters(replica, voters),
    )
    return None


def _remove_refusal(replica: "ElectingReplica", request: RemoveRaftVoterRequest) -> Refusal:
    refusal = _leader_refusal(replica, request.cluster_id)
    if refusal is not None:
        return refusal
    if request.voter.node_id < 0 or request.voter.directory_id is None:
        return ErrorCode.invalid_request, "Remove voter request didn't include a valid voter"
    refusal = _change_refusal(replica, "removing")
    if refusal is not None:
        return refusal
    if replica.voters.remove(request.voter) is None:
        voters = ", ".join(str(voter.key) for voter in replica.voters)
        return (
            ErrorCode.voter_not_found,
            f"Cannot remove voter {request.voter} from the set of voters {voters}",
        )
    return ErrorCode.none, None


def _leader_refusal(replica: "ElectingReplica", cluster_id: str | None) -> Refusal | None:
    if is_other_cluster(replica, cluster_id):
        message = f'The given id "{cluster_id}" doesn\'t match the cluster id "{replica.config.cluster_id}"'
        return ErrorCode.inconsistent_cluster_id, message
    error_code = leader_request_error(replica, replica.epoch)
    return None if error_code is ErrorCode.none else (error_code, None)


def _change_refusal(replica: "ElectingReplica", verb: str) -> Refusal | None:
    """Return the error of a voter change that cannot start now, which Kafka's clients retry; or None."""
    leader = leader_state(replica)
    if leader.change is not None:
        message = "Request timed out waiting for leader to handle previous voter change request"
        return ErrorCode.request_timed_out, message
    if leader.high_watermark is None:
        message = "Request timed out waiting for leader to establish HWM and fence previous voter changes"
        return ErrorCode.request_timed_out, message
    kraft_version = replica.history.kraft_version
    if kraft_version < KRAFT_VERSION_DYNAMIC:
        message = f"Cluster doesn't support {verb} voter because the kraft.version feature is {kraft_version}"
        return ErrorCode.unsupported_version, message
    offset = replica.history.voters_offset
    if offset is None or offset >= leader.high_watermark:
        message = (
            f"Request timed out waiting for voters to commit the latest voter change at {offset} "
            f"with HWM {leader.high_watermark}"
        )
        return ErrorCode.request_timed_out, message
    return None


def handle_update_voter(
    replica: "ElectingReplica", request: UpdateRaftVoterRequest, listener: str
) -> UpdateRaftVoterResponse:
    """Replace the description of a voter: in the log, or under kraft.version 0 in memory until the upgrade."""
    error_code = _update_error(replica, request)
    if error_code is ErrorCode.none:
        error_code = _update_voter(replica, request)
    return UpdateRaftVoterResponse(
        error_code=error_code,
        leader_id=replica.state.leader_id,
        leader_epoch=replica.epoch,
        leader_endpoint=replica.leader_endpoint(listener),
    )


def _update_error(replica: "ElectingReplica", request: UpdateRaftVoterRequest) -> ErrorCode:
    if is_other_cluster(replica, request.cluster_id):
        return ErrorCode.inconsistent_cluster_id
    error_code = leader_request_error(replica, request.current_leader_epoch)
    if error_code is not ErrorCode.none:
        return error_code
    voter, versions = request.voter, request.kraft_versions
    has_endpoint = find_endpoint(request.endpoints, replica.config.listener) is not None
    if voter.node_id < 0 or voter.directory_id is None or not has_endpoint:
        return ErrorCode.invalid_request
    if not 0 <= versions.lowest <= versions.highest:
        return ErrorCode.invalid_request
    return ErrorCode.none


def _update_voter(replica: "ElectingReplica", request: UpdateRaftVoterRequest) -> ErrorCode:
    leader, kraft_version = leader_state(replica), replica.history.kraft_version
    is_dynamic = kraft_version >= KRAFT_VERSION_DYNAMIC
    if leader.change is not None or leader.high_watermark is None:
        return ErrorCode.request_timed_out
    offset = replica.history.voters_offset
    if is_dynamic and (offset is None or offset >= leader.high_watermark):
        return ErrorCode.request_timed_out
    if not is_dynamic and leader.volatile_voters is None:
        return ErrorCode.request_timed_out
    if kraft_version not in request.kraft_versions:
        return ErrorCode.invalid_request
    voter = Voter(key=request.voter, endpoints=request.endpoints, kraft_versions=request.kraft_versions)
    volatile = None if is_dynamic else leader.volatile_voters
    updated = replica.voters.update(voter) if volatile is None else volatile.update_ignoring_directory(voter)
    if updated is None:
        return ErrorCode.voter_not_found
    if updated.why_unwritable() is not None:
        return ErrorCode.invalid_request
    if volatile is not None:
        leader.volatile_voters = updated
    elif updated != replica.voters:
        _append_voters(replica, updated)
    leader.record_voter_contact(replica, request.voter)
    return ErrorCode.none


def _append_voters(replica: "ElectingReplica", voters: "VoterSet") -> int:
    replica.effects.note("voters", voters=[str(voter.key) for voter in voters])
    return replica.append_control([voters.to_record()])


def handle_update_response(replica: "ElectingReplica") -> None:
    """Note that the leader has this replica's endpoints and versions."""
    if isinstance(replica.state, Follower):
        replica.state.has_updated_leader = True
        replica.state.record_leader_contact(replica)


def handle_update_unsupported(replica: "ElectingReplica") -> None:
    """The leader does not support UpdateRaftVoter: do not retry while it leads."""
    if isinstance(replica.state, Follower):
        replica.state.has_updated_leader = True


def handle_join_response(
    replica: "ElectingReplica", response: AddRaftVoterResponse | RemoveRaftVoterResponse
) -> bool:
    """Our own request to become a voter got its response: wait before the next one, whatever the result."""
    if isinstance(replica.state, Follower):
        replica.state.restart_voter_update_period(replica)
    if response.error_code is ErrorCode.none:
        return True
    replica.effects.note("join_refused", error=response.error_code.name, message=response.error_message)
    return False


def upgrade_kraft_version(
    replica: "ElectingReplica", kraft_version: int, *, validate_only: bool
) -> int | None:
    """Append the new level, and the voters as their UpdateRaftVoter requests describe them.

    Returns the offset of the last record; None without a change, or with `validate_only`.

    Raises:
        ProtocolError: NOT_LEADER_OR_FOLLOWER; INVALID_UPDATE_VERSION with the reason.
    """
    leader = replica.state
    if not isinstance(leader, Leader):
        raise ProtocolError(ErrorCode.not_leader_or_follower, "this replica is not the current leader")
    current = replica.history.kraft_version
    if kraft_version == current:
        return None
    how = f"Invalid upgrade of kraft.version from version {current} to {kraft_version}"
    if kraft_version < current:
        raise ProtocolError(ErrorCode.invalid_update_version, f"{how} because the new version is a downgrade")
    voters = leader.volatile_voters
    if voters is None or not voters.supports(kraft_version):
        raise ProtocolError(
            ErrorCode.invalid_update_version, f"{how} because not all of the voters support it"
        )
    unknown = [voter.node_id for voter in voters if voter.key.directory_id is None]
    if unknown:
        raise ProtocolError(
            ErrorCode.invalid_update_version,
            f"{how} because the directory ids of voters {unknown} are not known",
        )
    if validate_only:
        return None
    records: list[ControlRecord] = [kraft_version_record(kraft_version)]
    if voters != replica.voters:
        records.append(voters.to_record())
    return replica.append_control(records)
