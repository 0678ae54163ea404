"""The small text files of a log: `leader-epoch-checkpoint`, `partition.metadata`, and the recovery point.

Recovery finds the epochs in the batches, whose checksums do not cover them. leader-epoch-checkpoint is the second
place that has them: an epoch that differs was damaged in one of the two. The file is written before the first batch
of an epoch, and after a truncation, so that a crash leaves it ahead of the log at most. Java has the same order.

`recovery-point-offset-checkpoint` has the offset up to which the metadata log is durable, in version 0 of Kafka's
format (CheckpointFile, OffsetCheckpointFile): the version, the number of lines, then `topic partition offset` each.
Java's controllers neither write nor read it. It may lag behind the log, so that an append need not write it, but is
never ahead of it: a log that ends below it has lost records.
"""

import logging
from collections.abc import Iterable, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Final

from quorate_protocol.kafka.metadata_log import METADATA_PARTITION, METADATA_TOPIC, METADATA_TOPIC_ID
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
    """Compare the file with the epochs that recovery found, and write it unless it has the same content.

    Raises CorruptFileError: the file and the batches differ.
    """
    path = directory / LEADER_EPOCH_CHECKPOINT
    content = file_system.read_file(path, _FILE_BYTES_MAX) if file_system.exists(path) else None
    if content == _leader_epochs_text(epochs):
        return
    known = _parse_leader_epochs(content) if content is not None else None
    if known is None and (content is not None or epochs):
        _logger.warning("leader_epochs_written_again", extra={"facts": {"file": str(path)}})
    difference = _first_difference(known or [], epochs, end_offset)
    if difference is not None:
        offset, expected, found = difference
        raise CorruptFileError(
            path.parent,
            f"{LEADER_EPOCH_CHECKPOINT} has epoch {expected} at offset {offset}, the log has epoch {found}; "
            "one of them is damaged",
            advice=DAMAGE_ADVICE,
        )
    write_leader_epochs(file_system, directory, epochs)


def epochs_within(epochs: Iterable[EpochStart], start_offset: int, end_offset: int) -> list[EpochStart]:
    """Return the epochs of the offsets from `start_offset` to below `end_offset`; `epochs` ascend.

    The first begins at `start_offset` if `epochs` reach back that far.
    """
    within: list[EpochStart] = []
    for entry in epochs:
        if max(entry.start_offset, start_offset) >= end_offset:
            break
        if entry.start_offset <= start_offset:
            within = [EpochStart(epoch=entry.epoch, start_offset=start_offset)]
        else:
            within.append(entry)
    return within


def ensure_partition_metadata(file_system: FileSystem, directory: Path) -> None:
    """Write the id of the metadata topic, or check the id in the file."""
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
    """Return the epochs in the file; None for other content."""
    try:
        version, count, *lines = content.decode("ascii").splitlines()
        epochs = [
            EpochStart(epoch=int(epoch), start_offset=int(start)) for epoch, start in map(str.split, lines)
        ]
        ascends = all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairwise(epochs))
        return epochs if int(version) == 0 and int(count) == len(epochs) and ascends else None
    except ValueError:
        return None


def _first_difference(
    known: Sequence[EpochStart], found: Sequence[EpochStart], end_offset: int
) -> tuple[int, int, int] | None:
    """Return the first offset at which the epochs differ and both epochs there; None if they agree.

    Compares the offsets that both cover. The log may begin earlier than the file, since a start that advances deletes
    whole segments, and the file may be ahead of the log's end.
    """
    if not known or not found:
        return None
    start_offset = max(known[0].start_offset, found[0].start_offset)
    expected_epoch = found_epoch = -1
    for expected, actual in zip_longest(
        epochs_within(known, start_offset, end_offset), epochs_within(found, start_offset, end_offset)
    ):
        if expected != actual:
            offset = min(entry.start_offset for entry in (expected, actual) if entry is not None)
            if expected is not None and expected.start_offset == offset:
                expected_epoch = expected.epoch
            if actual is not None and actual.start_offset == offset:
                found_epoch = actual.epoch
            return offset, expected_epoch, found_epoch
        expected_epoch = found_epoch = expected.epoch
    return None


def _leader_epochs_text(epochs: list[EpochStart]) -> bytes:
    lines = ["0", str(len(epochs)), *(f"{entry.epoch} {entry.start_offset}" for entry in epochs)]
    return ("\n".join(lines) + "\n").encode()


RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
_OFFSET_MAX: Final = 2**63 - 1
_VERSION: Final = "0"
_PARTITION: Final = str(METADATA_PARTITION)


class RecoveryPointFile:
    """The recovery point of a log directory: only the metadata log's line counts."""

    def __init__(self, file_system: FileSystem, path: Path) -> None:
        """Read the file, if there is one.

        Raises:
            CorruptFileError: it is not what Kafka or Quorate would write.
        """
        self._file_system = file_system
        self._path = path
        self.offset = self._read() if file_system.exists(path) else 0
        """Everything below it is durable."""

    def write(self, offset: int) -> None:
        """Replace the offset, durably."""
        if offset == self.offset:
            return
        content = f"{_VERSION}\n1\n{METADATA_TOPIC} {_PARTITION} {offset}\n"
        write_atomically(self._file_system, self._path, content.encode())
        self.offset = offset

    def _read(self) -> int:
        content = self._file_system.read_file(self._path, _FILE_BYTES_MAX)
        try:
            return _parse(content.decode("ascii").splitlines())
        except ValueError as error:
            raise CorruptFileError(
                self._path,
                f"its content is not that of a checkpoint of offsets, version 0 ({error})",
                advice="Remove the file: the start then cannot detect whether the log lost its last records",
            ) from error


def _parse(lines: Sequence[str]) -> int:
    version, count, *entries = lines
    if version != _VERSION or int(count) != len(entries):
        raise ValueError(f"version {version}; {len(entries)} lines instead of {count}")
    offsets = {(topic, partition): int(offset) for topic, partition, offset in map(str.split, entries)}
    offset = offsets.get((METADATA_TOPIC, _PARTITION), 0)
    if not 0 <= offset <= _OFFSET_MAX:
        raise ValueError(f"offset {offset}; it must be from 0 to {_OFFSET_MAX}")
    return offset
