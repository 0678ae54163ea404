"""Fetch and FetchSnapshot responses: the follower's side of replication (KIP-595, KIP-630)."""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from quorate_controller.raft.messages import FetchResponse, FetchSnapshotResponse, SnapshotChunk
from quorate_controller.raft.model import Download
from quorate_controller.raft.records import check_fetched
from quorate_controller.raft.roles.follower import Follower

if TYPE_CHECKING:
    from quorate_controller.raft.model import OffsetAndEpoch, SnapshotId
    from quorate_controller.raft.replica import Replica


def handle_fetch_response(replica: "Replica", response: FetchResponse) -> bool:
    """Truncate, start a download, or append. False when the leader's answer is not acceptable."""
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
            replica.set_high_watermark(min(response.high_watermark, replica.log.end_offset))
    if is_accepted:
        follower.heard_from_leader(replica)
    return is_accepted


def _truncate(replica: "Replica", diverging_epoch: "OffsetAndEpoch") -> bool:
    end_offset = replica.log.truncation_offset(diverging_epoch)
    if not max(replica.high_watermark, replica.log.start_offset) <= end_offset <= replica.log.end_offset:
        replica.effects.warn(
            "truncation_below_high_watermark", offset=end_offset, high_watermark=replica.high_watermark
        )
        return False
    replica.effects.note("truncate", offset=end_offset, end_offset=replica.log.end_offset)
    replica.truncate_to(end_offset)
    return True


def _start_download(replica: "Replica", follower: Follower, snapshot_id: "SnapshotId") -> bool:
    is_in_range = snapshot_id.offset > 0 and 0 <= snapshot_id.epoch <= replica.epoch
    if not is_in_range or snapshot_id.offset < replica.high_watermark:
        replica.effects.warn("snapshot_not_acceptable", snapshot_id=str(snapshot_id))
        return False
    if replica.now_ms < replica.next_download_ms:
        # The last download was damaged: ask the leader again after the retry backoff. It is alive.
        follower.heard_from_leader(replica)
        return False
    replica.effects.note("download_snapshot", offset=snapshot_id.offset, epoch=snapshot_id.epoch)
    follower.download = Download(snapshot_id=snapshot_id)
    return True


def _append(replica: "Replica", records: bytes) -> bool:
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
    replica: "Replica", response: FetchSnapshotResponse, *, error_code: ErrorCode
) -> bool:
    """Write the chunk; put the snapshot in place of the log when it is whole."""
    follower = replica.state
    if not isinstance(follower, Follower) or follower.download is None:
        return False
    download = follower.download
    if error_code is ErrorCode.snapshot_not_found or response.snapshot_id is None:
        # The leader has deleted it. The response to the next Fetch names a newer one.
        follower.download = None
        follower.heard_from_leader(replica)
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
    follower.heard_from_leader(replica)
    return True
