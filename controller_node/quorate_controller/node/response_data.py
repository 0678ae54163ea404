"""The bytes of log and checkpoints that raft's responses carry: raft returns ranges, which are read here."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from quorate_protocol.errors import ErrorCode

from quorate_controller.node.events import ResponseWithData
from quorate_controller.raft.messages import FetchResponse, FetchSnapshotResponse

if TYPE_CHECKING:
    from quorate_controller.raft.messages import RaftResponse, ReadRange, SnapshotRead
    from quorate_controller.storage.controller_storage import ControllerStorage


def read_response_data(response: RaftResponse, storage: ControllerStorage) -> ResponseWithData:
    """Return the response with its data. The range may be gone meanwhile: truncated, or deleted.

    Raises:
        StorageError: the disk failed. The process has to end.
    """
    match response:
        case FetchResponse(read=read) if read is not None:
            return ResponseWithData(response=response, data=_records(read, storage))
        case FetchSnapshotResponse(read=read) if read is not None:
            return _chunk(response, read, storage)
        case _:
            return ResponseWithData(response=response)


def _records(read: ReadRange, storage: ControllerStorage) -> bytes:
    log = storage.log
    if not log.start_offset <= read.start_offset <= log.end_offset:
        return b""
    return log.read(read.start_offset, read.size_bytes_max, min(read.end_offset, log.end_offset))


def _chunk(
    response: FetchSnapshotResponse, read: SnapshotRead, storage: ControllerStorage
) -> ResponseWithData:
    snapshots = storage.snapshots
    if not snapshots.serves(read.snapshot_id):
        return ResponseWithData(response=response.refused(ErrorCode.snapshot_not_found))
    size_bytes = snapshots.size(read.snapshot_id)
    if not 0 <= read.position < size_bytes:
        return ResponseWithData(response=response.refused(ErrorCode.position_out_of_range))
    data = snapshots.read(read.snapshot_id, read.position, read.size_bytes_max)
    return ResponseWithData(response=replace(response, size_bytes=size_bytes), data=data)
