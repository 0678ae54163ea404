"""The small text files of a partition directory: `leader-epoch-checkpoint` and `partition.metadata`.

Our log never depends on leader-epoch-checkpoint: recovery finds the epochs in the batches. Java does.
"""

from pathlib import Path

from quorate_protocol.kafka.metadata_log import METADATA_TOPIC_ID
from quorate_protocol.uuids import uuid_to_text

from quorate_controller.raft.startup import EpochStart
from quorate_controller.storage.errors import CorruptFileError
from quorate_controller.storage.filesystem import FileSystem, write_atomically

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
_METADATA_TOPIC_ID = uuid_to_text(METADATA_TOPIC_ID)
_PARTITION_METADATA_TEXT = f"version: 0\ntopic_id: {_METADATA_TOPIC_ID}"
_FILE_BYTES_MAX = 16 * 1024 * 1024


def write_leader_epochs(file_system: FileSystem, directory: Path, epochs: list[EpochStart]) -> None:
    """Version 0: the version, the number of lines, then `epoch start_offset` each."""
    content = _leader_epochs_text(epochs)
    write_atomically(file_system, directory / LEADER_EPOCH_CHECKPOINT, content)


def refresh_leader_epochs(file_system: FileSystem, directory: Path, epochs: list[EpochStart]) -> None:
    """Write the file unless that is what it says."""
    path = directory / LEADER_EPOCH_CHECKPOINT
    if not file_system.exists(path) or file_system.read_file(path, _FILE_BYTES_MAX) != _leader_epochs_text(
        epochs
    ):
        write_leader_epochs(file_system, directory, epochs)


def ensure_partition_metadata(file_system: FileSystem, directory: Path) -> None:
    """Write the id of the metadata topic, or check that it is the one that is there."""
    path = directory / PARTITION_METADATA
    if not file_system.exists(path):
        write_atomically(file_system, path, _PARTITION_METADATA_TEXT.encode())
        return
    text = file_system.read_file(path, _FILE_BYTES_MAX).decode(errors="replace")
    if text.split() != _PARTITION_METADATA_TEXT.split():
        raise CorruptFileError(
            path, f"contains {text!r} instead of the metadata topic's id {_METADATA_TOPIC_ID}"
        )


def _leader_epochs_text(epochs: list[EpochStart]) -> bytes:
    lines = ["0", str(len(epochs)), *(f"{entry.epoch} {entry.start_offset}" for entry in epochs)]
    return ("\n".join(lines) + "\n").encode()
