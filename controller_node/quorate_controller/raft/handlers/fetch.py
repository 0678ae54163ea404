"""Fetch and FetchSnapshot requests: the leader's side of replication (KIP-595, KIP-630, KIP-1166)."""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from quorate_controller.raft.handlers.common import is_other_cluster, leader_request_error
from quorate_controller.raft.held import HeldFetch, answer_fetch, leader_endpoint, refuse_fetch
from quorate_controller.raft.messages import (
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    SnapshotRead,
)
from quorate_controller.raft.model import BOOTSTRAP_SNAPSHOT_ID
from quorate_controller.raft.roles.leader import Leader

if TYPE_CHECKING:
    from quorate_controller.raft.replica import Replica


def handle_fetch(
    replica: "Replica", token: int, request: FetchRequest, listener: str
) -> FetchResponse | None:
    """Answer with records, or where the logs part; None when the request is held until there is news."""
    if is_other_cluster(replica, request.cluster_id):
        return FetchResponse(top_level_error_code=ErrorCode.inconsistent_cluster_id)
    error_code = _error_of(replica, request)
    if error_code is not ErrorCode.none:
        return refuse_fetch(replica, error_code, listener)
    leader = replica.state
    assert isinstance(leader, Leader)
    position = replica.log.validate(request.fetch_offset, request.last_fetched_epoch)
    if position.is_valid and request.replica.node_id >= 0:
        leader.record_fetch(replica, request.replica, request.fetch_offset)
    response = answer_fetch(replica, request, position, leader.high_watermark, listener)
    has_news = response.read is not None or not position.is_valid or _is_behind(request, response)
    if has_news or request.max_wait_ms == 0:
        return response
    held = HeldFetch(
        token=token, request=request, listener=listener, deadline_ms=replica.now_ms + request.max_wait_ms
    )
    return None if leader.held.hold(held) else response


def _error_of(replica: "Replica", request: FetchRequest) -> ErrorCode:
    is_epoch_valid = 0 <= request.last_fetched_epoch <= request.current_leader_epoch
    if request.max_wait_ms < 0 or request.fetch_offset < 0 or not is_epoch_valid:
        return ErrorCode.invalid_request
    error_code = leader_request_error(replica, request.current_leader_epoch)
    if error_code is ErrorCode.none and request.replica.node_id == replica.key.node_id:
        replica.effects.warn("fetch_from_own_id", replica=str(request.replica))
        return ErrorCode.unknown_server_error
    return error_code


def _is_behind(request: FetchRequest, response: FetchResponse) -> bool:
    """Whether there is a newer high watermark for the replica. Old versions do not send the one they know."""
    return request.high_watermark is not None and request.high_watermark < response.high_watermark


def handle_fetch_snapshot(
    replica: "Replica", request: FetchSnapshotRequest, listener: str
) -> FetchSnapshotResponse:
    """Answer with a chunk of the snapshot, which the driver reads. Snapshots stay as long as they exist."""
    if is_other_cluster(replica, request.cluster_id):
        return FetchSnapshotResponse(top_level_error_code=ErrorCode.inconsistent_cluster_id)
    error_code = leader_request_error(replica, request.current_leader_epoch)
    if error_code is ErrorCode.none and request.snapshot_id == BOOTSTRAP_SNAPSHOT_ID:
        # What it says is in the log: the first leader wrote it there.
        error_code = ErrorCode.snapshot_not_found
    if error_code is ErrorCode.none and request.position < 0:
        error_code = ErrorCode.position_out_of_range
    leader = replica.state
    read = None
    if error_code is ErrorCode.none:
        assert isinstance(leader, Leader)
        leader.heard_from(replica, request.replica)
        size_bytes_max = max(1, min(request.max_bytes, replica.config.snapshot_fetch_size_bytes_max))
        read = SnapshotRead(
            snapshot_id=request.snapshot_id, position=request.position, size_bytes_max=size_bytes_max
        )
    return FetchSnapshotResponse(
        error_code=error_code,
        leader_id=replica.state.leader_id,
        leader_epoch=replica.epoch,
        leader_endpoint=leader_endpoint(replica, listener),
        snapshot_id=request.snapshot_id if read is not None else None,
        position=request.position if read is not None else 0,
        read=read,
    )
