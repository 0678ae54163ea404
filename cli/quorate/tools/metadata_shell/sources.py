"""Load an image from files: one checkpoint or log segment, or the directory of a metadata partition.

Files are only read, and may belong to a running node: a batch that the node is writing is ignored as a torn end.
Files have no high watermark, so the end of a log may hold records that were never committed.
"""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

from quorate_protocol.errors import ProtocolError
from quorate_protocol.image import ImageState, MetadataImage, Provenance, ReplayError
from quorate_protocol.image.loading import NotedImage, load_checkpoint
from quorate_protocol.kafka.metadata_log import METADATA_DIRECTORY
from quorate_protocol.records.batch import PREFIX, RecordBatch, decode_batches
from quorate_protocol.records.framing import decode_record

from quorate.console import warn

BATCH_SIZE_BYTES_MAX = 64 * 1024 * 1024
"""Eight times the longest batch of Kafka's metadata log. A greater length is taken for a corrupt one."""
_CHUNK_BYTES = 1024 * 1024
_CHECKPOINT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_SEGMENT = re.compile(r"(\d{20})\.log")


class SourceError(Exception):
    """There is no metadata to read; the message has path and reason."""


class TornError(Exception):
    """A file ends with bytes that are not a batch."""


def visible(image: MetadataImage) -> tuple[ImageState, Provenance]:
    """The committed part of an image and its end. It is a copy only while a transaction is open."""
    if image.transaction is None:
        return image, image.provenance
    return image.committed_copy(), image.stable


def warn_of(read: NotedImage) -> None:
    """Print the notes on what may be missing or wrong in the metadata, as warnings."""
    for note in read.notes:
        warn(note)
    if read.notes_dropped:
        warn(f"{read.notes_dropped} more of these")


def load_file(path: Path) -> NotedImage:
    """Load one file, a checkpoint or a log segment, as Kafka's shell does.

    Each record has the offset that it has in the file. Control records are skipped. A record that can't be applied is
    skipped with a note.

    Raises:
        OSError: the file can't be read.
    """
    loaded = NotedImage()
    try:
        with path.open("rb") as file:
            for batch in _batches(file):
                if not batch.is_control:
                    _replay(loaded, batch)
    except TornError as error:
        loaded.note(str(error))
    if not loaded.image.end_offset:
        loaded.note(f"{path}: no metadata records")
    return loaded


def load_directory(path: Path) -> NotedImage:
    """Load a metadata partition: its newest complete checkpoint, and the log after it.

    `path` is the partition's directory, or the log directory that contains it.

    Raises:
        SourceError: there is no such directory, or it holds neither a checkpoint nor a segment.
        OSError: a file can't be read.
    """
    directory = path / METADATA_DIRECTORY if (path / METADATA_DIRECTORY).is_dir() else path
    if not directory.is_dir():
        raise SourceError(f"{path}: no such directory")
    checkpoints, segments = _files_of(directory)
    if not checkpoints and not segments:
        raise SourceError(
            f"{path}: neither a checkpoint nor a log segment; a {METADATA_DIRECTORY} directory has them"
        )
    loaded = NotedImage()
    for end_offset, epoch, file in checkpoints:
        if end_offset and _restore(loaded, file, end_offset, epoch):
            break
    for place, (base_offset, segment) in enumerate(segments):
        next_base = segments[place + 1][0] if place + 1 < len(segments) else None
        if next_base is not None and next_base <= loaded.image.end_offset:
            continue  # the checkpoint contains the whole segment
        if base_offset > loaded.image.end_offset:
            loaded.note(f"{segment}: the records from {loaded.image.end_offset} on are missing before it")
        if not _follow(loaded, segment):
            break
    return loaded


def _files_of(directory: Path) -> tuple[list[tuple[int, int, Path]], list[tuple[int, Path]]]:
    """Checkpoints, newest first, and segments, oldest first."""
    checkpoints, segments = [], []
    for file in directory.iterdir():
        if match := _CHECKPOINT.fullmatch(file.name):
            checkpoints.append((int(match[1]), int(match[2]), file))
        elif match := _SEGMENT.fullmatch(file.name):
            segments.append((int(match[1]), file))
    return sorted(checkpoints, reverse=True), sorted(segments)


def _restore(loaded: NotedImage, path: Path, end_offset: int, epoch: int) -> bool:
    try:
        with path.open("rb") as file:
            chunks = iter(partial(file.read, _CHUNK_BYTES), b"")
            load_checkpoint(loaded.image, chunks, end_offset=end_offset, epoch=epoch)
    except ProtocolError as error:
        loaded.note(f"{path}: not used: {error.message}")
        return False
    return True


def _follow(loaded: NotedImage, path: Path) -> bool:
    """Replay a segment from the end of the image on. Returns False if the segment has a torn end."""
    try:
        with path.open("rb") as file:
            for batch in _batches(file):
                if batch.base_offset >= loaded.image.end_offset:
                    _replay(loaded, batch)
    except TornError as error:
        loaded.note(str(error))
        return False
    return True


def _replay(loaded: NotedImage, batch: RecordBatch) -> None:
    image = loaded.image
    if batch.base_offset < image.end_offset:
        loaded.note(f"offset {batch.base_offset} comes again behind {image.end_offset}: skipped")
        return
    for record in () if batch.is_control else batch.records:
        offset = batch.base_offset + record.offset_delta
        try:
            image.replay(decode_record(record.value or b""), offset)
        except ReplayError as error:
            loaded.note(error.message)
        except ProtocolError as error:
            loaded.note(f"Can't read the record at offset {offset}: {error.message}")
    end_offset = batch.last_offset + 1
    image.advance(
        end_offset=end_offset, epoch=batch.partition_leader_epoch, timestamp_ms=batch.max_timestamp_ms
    )
    image.commit(end_offset)


def _batches(file: BinaryIO) -> Iterator[RecordBatch]:
    """The batches of a file. Raises TornError."""
    position = 0
    while prefix := file.read(PREFIX.size):
        size_bytes = PREFIX.size + int.from_bytes(prefix[8:], "big", signed=True)
        rest = b""
        if len(prefix) == PREFIX.size < size_bytes <= BATCH_SIZE_BYTES_MAX:
            rest = file.read(size_bytes - PREFIX.size)
        try:
            yield from decode_batches(prefix + rest)
        except ProtocolError as error:
            left = Path(file.name).stat().st_size - position
            raise TornError(f"{file.name}: the last {left} bytes are left out: {error.message}") from None
        position += size_bytes
