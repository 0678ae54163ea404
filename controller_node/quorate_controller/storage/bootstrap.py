"""Checkpoints that formatting writes: `bootstrap.checkpoint` and `…0-…0.checkpoint`.

The first leader of a new cluster writes the bootstrap records into the log: feature levels and SCRAM credentials.
Kafka up to 4.3 and Quorate format them into bootstrap.checkpoint, Kafka 4.4 into 0-0.checkpoint (KIP-1170), which
also has the voters of a dynamic quorum (KIP-853). It is not a snapshot of the log: its records are never loaded, and
it is never served to other nodes.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from quorate_protocol.errors import ProtocolError
from quorate_protocol.features import METADATA_VERSION
from quorate_protocol.image import MetadataImage
from quorate_protocol.image.snapshot import read_checkpoint
from quorate_protocol.kafka.metadata_log import METADATA_DIRECTORY
from quorate_protocol.plain_data import dataclass
from quorate_protocol.records.batch import build_batch
from quorate_protocol.records.control import (
    ControlRecord,
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    encode_control_batch,
)
from quorate_protocol.records.framing import MetadataRecord, encode_record
from quorate_protocol.records.generated import FeatureLevelRecord

from quorate_controller.raft.model import BOOTSTRAP_SNAPSHOT_ID
from quorate_controller.storage.errors import CorruptFileError, StorageError
from quorate_controller.storage.filesystem import FileSystem
from quorate_controller.storage.snapshots import snapshot_file_name

BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
_DAMAGE_ADVICE = "Copy the file from another node of the cluster, or format the directory again"
_FILE_BYTES_MAX = 64 * 1024 * 1024
_EPOCH = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapRecords:
    """The bootstrap records of a directory, and their file. Without such a file: no records, None."""

    records: tuple[MetadataRecord, ...] = ()
    path: Path | None = None


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


def bootstrap_checkpoints(log_dir: Path) -> tuple[Path, Path]:
    """The files that may have bootstrap records; the first with records counts, as in Kafka 4.4."""
    return (
        log_dir / METADATA_DIRECTORY / snapshot_file_name(BOOTSTRAP_SNAPSHOT_ID),
        log_dir / BOOTSTRAP_CHECKPOINT,
    )


def read_bootstrap_records(file_system: FileSystem, log_dir: Path) -> BootstrapRecords:
    """Return the bootstrap records in this metadata directory, which its node writes as the first leader.

    Raises:
        CorruptFileError: a file is not a checkpoint, or its records have no metadata.version.
    """
    for path in bootstrap_checkpoints(log_dir):
        records = _metadata_records(file_system, path)
        if not records:
            continue
        if not any(
            isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION for record in records
        ):
            raise CorruptFileError(
                path, f"has bootstrap records, but none for {METADATA_VERSION}", advice=_DAMAGE_ADVICE
            )
        return BootstrapRecords(records=records, path=path)
    return BootstrapRecords()


def check_bootstrap_records(bootstrap: BootstrapRecords) -> None:
    """Check that a new cluster can begin with these records.

    Raises:
        StorageError: a record cannot be applied, for instance of an unknown level of metadata.version.
    """
    image = MetadataImage()
    try:
        image.replay_all(bootstrap.records, base_offset=image.end_offset)
    except ProtocolError as error:
        assert bootstrap.path is not None, "there are records"
        raise StorageError(
            bootstrap.path,
            f"this version cannot begin a cluster with the bootstrap records ({error.message})",
            advice="Run a version that supports them, or format the directory again with --release-version",
        ) from error


def _metadata_records(file_system: FileSystem, path: Path) -> tuple[MetadataRecord, ...]:
    if not file_system.exists(path):
        return ()
    content = file_system.read_file(path, _FILE_BYTES_MAX)
    try:
        return tuple(read_checkpoint([content]).records)
    except ProtocolError as error:
        raise CorruptFileError(
            path, f"is not a bootstrap checkpoint ({error.message})", advice=_DAMAGE_ADVICE
        ) from error
