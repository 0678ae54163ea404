"""`recovery-point-offset-checkpoint`: up to where the metadata log is known to be durable.

Version 0 of Kafka's format (CheckpointFile, OffsetCheckpointFile): the version, the number of lines, then
`topic partition offset` each. Java's controllers neither write nor read it. It may lag behind the log, so that an
append need not write it, but is never ahead of it: a log that ends below it has lost records.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from quorate_protocol.kafka.metadata_log import METADATA_PARTITION, METADATA_TOPIC

from quorate_controller.storage.errors import CorruptFileError
from quorate_controller.storage.filesystem import FileSystem, write_atomically

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
_FILE_BYTES_MAX: Final = 16 * 1024 * 1024
_OFFSET_MAX: Final = 2**63 - 1
_VERSION: Final = "0"
_PARTITION: Final = str(METADATA_PARTITION)


class RecoveryPointFile:
    """The file of one log directory, of which only the metadata log's line counts."""

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
                advice="Remove the file: the start then cannot tell whether the log lost its last records",
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
