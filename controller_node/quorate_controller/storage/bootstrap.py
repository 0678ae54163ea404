"""Checkpoints that formatting writes: `bootstrap.checkpoint` and the first voters in `…0-…0.checkpoint`.

bootstrap.checkpoint holds the feature levels that the first leader of a new cluster writes into the log
(Kafka: BootstrapDirectory, BatchFileWriter). 0-0.checkpoint holds the voters of a dynamic quorum (KIP-853).
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from quorate_protocol.errors import ProtocolError
from quorate_protocol.features import METADATA_VERSION
from quorate_protocol.records.batch import build_batch, decode_batches
from quorate_protocol.records.control import (
    ControlRecord,
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    encode_control_batch,
)
from quorate_protocol.records.framing import MetadataRecord, decode_record, encode_record
from quorate_protocol.records.generated import FeatureLevelRecord

from quorate_controller.storage.errors import CorruptFileError
from quorate_controller.storage.filesystem import FileSystem

BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
_FILE_BYTES_MAX = 64 * 1024 * 1024
_EPOCH = 0


def feature_records(metadata_version: int, levels: Iterable[tuple[str, int]]) -> tuple[MetadataRecord, ...]:
    """metadata.version first, then the other features above level 0 by name, as Kafka orders them."""
    return (
        FeatureLevelRecord(name=METADATA_VERSION, feature_level=metadata_version),
        *(FeatureLevelRecord(name=name, feature_level=level) for name, level in sorted(levels) if level > 0),
    )


def encode_bootstrap_checkpoint(records: Sequence[MetadataRecord], now_ms: int) -> bytes:
    """Content of bootstrap.checkpoint: header batch, one batch of records, footer batch."""
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=0)
    footer = SnapshotFooterRecord(version=0)
    return b"".join(
        (
            encode_control_batch([header], 0, _EPOCH, now_ms),
            build_batch([encode_record(record) for record in records], 1, _EPOCH, now_ms),
            encode_control_batch([footer], 1 + len(records), _EPOCH, now_ms),
        )
    )


def encode_voters_checkpoint(voters: VotersRecord, kraft_version: int, now_ms: int) -> bytes:
    """Content of 0-0.checkpoint: a header batch with kraft.version and voters, and a footer batch."""
    head: list[ControlRecord] = [
        SnapshotHeaderRecord(version=0, last_contained_log_timestamp=now_ms),
        KRaftVersionRecord(version=0, k_raft_version=kraft_version),
        voters,
    ]
    return encode_control_batch(head, 0, _EPOCH, now_ms) + encode_control_batch(
        [SnapshotFooterRecord(version=0)], len(head), _EPOCH, now_ms
    )


def read_bootstrap_records(file_system: FileSystem, path: Path) -> tuple[MetadataRecord, ...]:
    """Returns the records of a bootstrap.checkpoint; () without such a file.

    Raises:
        CorruptFileError: the file is not a bootstrap checkpoint.
    """
    if not file_system.exists(path):
        return ()
    content = file_system.read_file(path, _FILE_BYTES_MAX)
    try:
        return tuple(
            decode_record(record.value or b"")
            for batch in decode_batches(content)
            if not batch.is_control
            for record in batch.records
        )
    except ProtocolError as error:
        raise CorruptFileError(
            path,
            f"is not a bootstrap checkpoint ({error})",
            advice="Copy the file from another node of the cluster, or format the directory again",
        ) from error
