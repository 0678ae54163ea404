"""Fetch and FetchSnapshot: requests on the leader, responses on the follower (KIP-595, KIP-630, KIP-1166)."""

from typing import TYPE_CHECKING

from quorate_protocol.errors import ErrorCode

from quorate_controller.raft.events import SnapshotChunk
from quorate_controller.raft.handlers.common import (
    is_other_cluster,
    leader_request_error,
    leader_state,
    voter_request_error,
)
from quorate_controller.raft.messages import (
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    SnapshotRead,
)
from quorate_controller.raft.model import BOOTSTRAP_SNAPSHOT_ID, Download
from quorate_controller.raft.records import check_fetched
from quorate_controller.raft.roles.follower import Follower
from quorate_controller.raft.roles.leader import HeldFetch, Leader, refuse_fetch

if TYPE_CHECKING:
    from quorate_controller.raft.model import OffsetAndEpoch, SnapshotId
    from quorate_controller.raft.transitions import ElectingReplica


# -------------------------------------------------------------------------------------- on the leader


def handle_fetch(
    replica: "ElectingReplica", token: int, request: FetchRequest, listener: str
) -> FetchResponse | None:
    """Respond with records, or the point where the logs diverge; None when the request is held."""
    if is_other_cluster(replica, request.cluster_id):
        return FetchResponse(top_level_error_code=ErrorCode.inconsistent_cluster_id)
    error_code = _fetch_error(replica, request)
    if error_code is not ErrorCode.none:
        refused = refuse_fetch(replica, error_code, listener)
        if error_code is ErrorCode.unknown_leader_epoch:
            _note_later_epoch(replica, request)
        return refused
    leader = leader_state(replica)
    position = replica.log.validate(request.fetch_offset, request.last_fetched_epoch)
    if position.is_valid and request.replica.node_id >= 0:
        leader.record_fetch(replica, request)
    elif position.diverging_epoch is not None and request.replica.node_id >= 0:
        leader.progress.record_divergence(request.replica, request.fetch_offset, request.last_fetched_epoch)
    response = leader.fetch_response(replica, request, position, listener)
    has_news = response.read is not None or not position.is_valid or _is_behind(request, response)
    if has_news or request.max_wait_ms == 0:
        return response
    held = HeldFetch(
        token=token, request=request, listener=listener, deadline_ms=replica.now_ms + request.max_wait_ms
    )
    return None if leader.hold(held) else response


def _fetch_error(replica: "ElectingReplica", request: FetchRequest) -> ErrorCode:
    is_epoch_valid = 0 <= request.last_fetched_epoch <= request.current_leader_epoch
    if request.max_wait_ms < 0 or request.fetch_offset < 0 or not is_epoch_valid:
        return ErrorCode.invalid_request
    error_code = leader_request_error(replica, request.current_leader_epoch)
    if error_code is ErrorCode.none and request.replica.node_id == replica.key.node_id:
        replica.effects.warn("fetch_from_own_id", replica=str(request.replica))
        return ErrorCode.unknown_server_error
    return error_code


def _note_later_epoch(replica: "ElectingReplica", request: FetchRequest) -> None:
    """A replica is in a later epoch, in which it can't follow this leader. If that lasts, stop leading."""
    state, sender, epoch = replica.state, request.replica, request.current_leader_epoch
    if (
        not isinstance(state, Leader)
        or voter_request_error(replica, sender.node_id, epoch) is not ErrorCode.none
    ):
        return
    if state.is_outrun(replica):
        replica.effects.warn("outrun", sender=str(sender), epoch=epoch, own_epoch=replica.epoch)
        replica.become_unattached(epoch)


def _is_behind(request: FetchRequest, response: FetchResponse) -> bool:
    """Whether the replica lacks the high watermark. Old versions do not send theirs."""
    return request.high_watermark is not None and request.high_watermark < response.high_watermark


def handle_fetch_snapshot(
    replica: "ElectingReplica", request: FetchSnapshotRequest, listener: str
) -> FetchSnapshotResponse:
    """Respond with a chunk of the snapshot, which the driver reads. Any snapshot that still exists is served."""
    if is_other_cluster(replica, request.cluster_id):
        return FetchSnapshotResponse(top_level_error_code=ErrorCode.inconsistent_cluster_id)
    error_code = leader_request_error(replica, request.current_leader_epoch)
    if error_code is ErrorCode.none and request.snapshot_id == BOOTSTRAP_SNAPSHOT_ID:
        # Its content is in the log, where the first leader wrote it.
        error_code = ErrorCode.snapshot_not_found
    if error_code is ErrorCode.none and request.position < 0:
        error_code = ErrorCode.position_out_of_range
    read = None
    if error_code is ErrorCode.none:
        leader_state(replica).record_voter_contact(replica, request.replica)
        size_bytes_max = max(1, min(request.max_bytes, replica.config.snapshot_fetch_size_bytes_max))
        read = SnapshotRead(
            snapshot_id=request.snapshot_id, position=request.position, size_bytes_max=size_bytes_max
        )
    return FetchSnapshotResponse(
        error_code=error_code,
        leader_id=replica.state.leader_id,
        leader_epoch=replica.epoch,
        leader_endpoint=replica.leader_endpoint(listener),
        snapshot_id=request.snapshot_id if read is not None else None,
        position=request.position if read is not None else 0,
        read=read,
    )


# ------------------------------------------------------------------------------------ on the follower


def handle_fetch_response(replica: "ElectingReplica", response: FetchResponse) -> bool:
    """Truncate, start a download, or append. False when the response is not acceptable."""
    follower = replica.state
    if not isinstance(follower, Follower) or response.leader_id != follower.leader_id:
        return False
    if response.diverging_epoch is not None:
        is_accepted = _truncate(replica, response.diverging_epoch)
    elif response.snapshot_id is not None:
        is_accepted = _start_download(replica, follower, response.snapshot_id)
    else:
        is_accepted = _append(replica, response.records)
        if is_accepted:
            replica.follow_high_watermark(response.high_watermark)
    if is_accepted:
        follower.record_leader_contact(replica)
    return is_accepted


def _truncate(replica: "ElectingReplica", diverging_epoch: "OffsetAndEpoch") -> bool:
    end_offset = replica.log.truncation_offset(diverging_epoch)
    if not max(replica.high_watermark, replica.log.start_offset) <= end_offset <= replica.log.end_offset:
        replica.effects.warn(
            "truncation_below_high_watermark", offset=end_offset, high_watermark=replica.high_watermark
        )
        return False
    replica.effects.note("truncate", offset=end_offset, end_offset=replica.log.end_offset)
    replica.truncate_to(end_offset)
    return True


def _start_download(replica: "ElectingReplica", follower: Follower, snapshot_id: "SnapshotId") -> bool:
    is_in_range = snapshot_id.offset > 0 and 0 <= snapshot_id.epoch <= replica.epoch
    if not is_in_range or snapshot_id.offset < replica.high_watermark:
        replica.effects.warn("snapshot_not_acceptable", snapshot_id=str(snapshot_id))
        return False
    if replica.now_ms < replica.next_download_ms:
        # The last download was damaged: ask the live leader again after the retry backoff.
        follower.record_leader_contact(replica)
        return False
    replica.effects.note("download_snapshot", offset=snapshot_id.offset, epoch=snapshot_id.epoch)
    follower.download = Download(snapshot_id=snapshot_id)
    return True


def _append(replica: "ElectingReplica", records: bytes) -> bool:
    checked, fault = check_fetched(
        records,
        end_offset=replica.log.end_offset,
        last_epoch=replica.log.last_epoch,
        leader_epoch=replica.epoch,
    )
    if fault is not None:
        replica.effects.warn("fetched_records_not_acceptable", fault=fault)
    if checked:
        replica.append(checked)
    return fault is None


def handle_fetch_snapshot_response(
    replica: "ElectingReplica", response: FetchSnapshotResponse, *, error_code: ErrorCode
) -> bool:
    """Write the chunk; put the snapshot in place of the log when it is complete."""
    follower = replica.state
    if not isinstance(follower, Follower) or follower.download is None:
        return False
    download = follower.download
    if error_code is ErrorCode.snapshot_not_found or response.snapshot_id is None:
        # The leader has deleted it. The response to the next Fetch names a newer one.
        follower.download = None
        follower.record_leader_contact(replica)
        return True
    chunk, end = response.records, download.position + len(response.records)
    is_expected = response.snapshot_id == download.snapshot_id and response.position == download.position
    if not is_expected or not chunk or end > response.size_bytes:
        replica.effects.warn("snapshot_chunk_not_acceptable", position=response.position)
        follower.download = None
        return False
    replica.effects.snapshot_chunk = SnapshotChunk(
        snapshot_id=download.snapshot_id, position=download.position, data=chunk
    )
    download.position = end
    if end == response.size_bytes:
        follower.download = None
        replica.begin_restore(download.snapshot_id)
    follower.record_leader_contact(replica)
    return True
