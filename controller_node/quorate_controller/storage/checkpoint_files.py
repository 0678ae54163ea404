"""The small text files of a partition directory: `leader-epoch-checkpoint` and `partition.metadata`.

Recovery finds the epochs in the batches, whose checksums do not cover them. leader-epoch-checkpoint is the second
place that has them: an epoch that differs was damaged in one of the two. The file is written before the first batch
of an epoch, and after a truncation, so that a crash leaves it ahead of the log at most. Java has the same order.
"""

import logging
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from quorate_protocol.kafka.metadata_log import METADATA_TOPIC_ID
from quorate_protocol.uuids import uuid_to_text

from quorate_controller.raft.startup import EpochStart
from quorate_controller.storage.errors import DAMAGE_ADVICE, CorruptFileError
from quorate_controller.storage.filesystem import FileSystem, write_atomically

_logger = logging.getLogger(__name__)

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
_METADATA_TOPIC_ID = uuid_to_text(METADATA_TOPIC_ID)
_PARTITION_METADATA_TEXT = f"version: 0\ntopic_id: {_METADATA_TOPIC_ID}"
_FILE_BYTES_MAX = 16 * 1024 * 1024


def write_leader_epochs(file_system: FileSystem, directory: Path, epochs: list[EpochStart]) -> None:
    """Version 0: the version, the number of lines, then `epoch start_offset` each."""
    content = _leader_epochs_text(epochs)
    write_atomically(file_system, directory / LEADER_EPOCH_CHECKPOINT, content)


def settle_leader_epochs(
    file_system: FileSystem, directory: Path, epochs: list[EpochStart], end_offset: int
) -> None:
    """Compare the file with the epochs that recovery found, and write it unless that is what it says.

    Raises CorruptFileError: the file and the batches differ.
    """
    path = directory / LEADER_EPOCH_CHECKPOINT
    content = file_system.read_file(path, _FILE_BYTES_MAX) if file_system.exists(path) else None
    if content == _leader_epochs_text(epochs):
        return
    known = _parse_leader_epochs(content) if content is not None else None
    if known is None and (content is not None or epochs):
        _logger.warning("leader_epochs_written_again", extra={"facts": {"file": str(path)}})
    if known:
        # The log may begin earlier than the file: a start that advances deletes whole segments.
        offset, expected, found = _difference(known, epochs, known[0].start_offset, end_offset)
        if expected != found:
            raise CorruptFileError(
                path.parent,
                f"{LEADER_EPOCH_CHECKPOINT} has epoch {expected} at offset {offset}, the log has epoch {found}; "
                "one of them is damaged",
                advice=DAMAGE_ADVICE,
            )
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


def _parse_leader_epochs(content: bytes) -> list[EpochStart] | None:
    """Returns what the file says; None for what is no such file."""
    try:
        version, count, *lines = content.decode("ascii").splitlines()
        epochs = [
            EpochStart(epoch=int(epoch), start_offset=int(start)) for epoch, start in map(str.split, lines)
        ]
        ascends = all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairwise(epochs))
        return epochs if int(version) == 0 and int(count) == len(epochs) and ascends else None
    except ValueError:
        return None


def _difference(
    known: Sequence[EpochStart], found: Sequence[EpochStart], start_offset: int, end_offset: int
) -> tuple[int, int | None, int | None]:
    """Returns the first offset within the bounds at which the epochs differ, with both; else two equal epochs."""
    starts = {start_offset, *(one.start_offset for one in (*known, *found))}
    for offset in sorted(starts):
        if start_offset <= offset < end_offset and found and found[0].start_offset <= offset:
            epochs = _epoch_at(known, offset), _epoch_at(found, offset)
            if epochs[0] != epochs[1]:
                return offset, *epochs
    return start_offset, None, None


def _epoch_at(epochs: Sequence[EpochStart], offset: int) -> int | None:
    return next((one.epoch for one in reversed(epochs) if one.start_offset <= offset), None)


def _leader_epochs_text(epochs: list[EpochStart]) -> bytes:
    lines = ["0", str(len(epochs)), *(f"{entry.epoch} {entry.start_offset}" for entry in epochs)]
    return ("\n".join(lines) + "\n").encode()
