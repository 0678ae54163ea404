"""A formatted directory of a controller for tests of its storage, and checkpoints in it."""

from pathlib import Path
from uuid import UUID

from quorate_controller.raft.model import SnapshotId
from quorate_controller.raft.voters import VoterSet
from quorate_controller.storage.bootstrap import encode_voters_checkpoint
from quorate_controller.storage.controller_storage import ControllerStorage
from quorate_controller.storage.filesystem import FileSystem
from quorate_controller.storage.log import LogConfig
from quorate_controller.storage.meta_properties import MetaProperties, write_meta_properties

DIRECTORY_ID = UUID("18c84144-6502-49a8-9f28-cc7613f0f26e")
PARTITION = "__cluster_metadata-0"
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=200)


def prepare(file_system: FileSystem, directory: Path, directory_id: UUID | None = DIRECTORY_ID) -> None:
    """Write meta.properties."""
    file_system.make_directory(directory)
    properties = MetaProperties(cluster_id="c", node_id=1, directory_id=directory_id)
    write_meta_properties(file_system, directory, properties)


def voters_checkpoint(timestamp_ms: int = 1000) -> bytes:
    """A checkpoint with an empty set of voters."""

    return encode_voters_checkpoint(VoterSet().to_record(), 1, timestamp_ms)


def add_snapshot(
    storage: ControllerStorage, offset: int, epoch: int = 1, timestamp_ms: int = 1000
) -> SnapshotId:
    """Write a checkpoint as the node does."""
    snapshot_id = SnapshotId(offset=offset, epoch=epoch)
    writer = storage.create_snapshot(snapshot_id)
    writer.append(voters_checkpoint(timestamp_ms))
    writer.freeze()
    return snapshot_id
