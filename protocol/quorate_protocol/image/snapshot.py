"""An image as records and as a checkpoint file, and a checkpoint file as records (KIP-630).

A checkpoint is a sequence of record batches whose offsets start at 0 and are unrelated to those of the log:
a control batch with SnapshotHeaderRecord and, at kraft.version 1, KRaftVersionRecord and VotersRecord; the
metadata records; a control batch with SnapshotFooterRecord. All of them have the epoch of the snapshot's id.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from quorate_protocol import features
from quorate_protocol.errors import CorruptBatch
from quorate_protocol.image.errors import CorruptCheckpointError, UnwritableImageError
from quorate_protocol.image.state import ImageState
from quorate_protocol.plain_data import dataclass
from quorate_protocol.records.batch import (
    BATCH_SIZE_BYTES_MAX,
    HEADER_SIZE_BYTES,
    PREFIX,
    RecordBatch,
    batches_of_values,
    build_batch,
    decode_batches,
)
from quorate_protocol.records.control import (
    ControlRecord,
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    decode_control,
    encode_control_batch,
)
from quorate_protocol.records.framing import decode_record, encode_record, record_version_for
from quorate_protocol.records.generated import (
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    FeatureLevelRecord,
    MetadataRecord,
    ProducerIdsRecord,
    TopicRecord,
)

RECORDS_PER_BATCH: Final = 1024
"""Kafka's number of records in one batch of a snapshot."""

RECORDS_PER_STEP: Final = 128
"""Records that are encoded before the writer of a checkpoint may pause: one to two milliseconds of work."""


# Image to records


def image_to_records(image: ImageState, metadata_version: int | None = None) -> Iterator[MetadataRecord]:
    """Yield the records that recreate ``image``: in Kafka's order of kinds, features first, each kind sorted.

    They are for ``metadata_version``, by default that of the image.

    Raises:
        UnwritableImageError: that version has no records for a part of the image.
    """
    level = image.metadata_version if metadata_version is None else metadata_version
    if level not in features.METADATA_VERSIONS:
        raise UnwritableImageError(level, "anything")
    yield from _feature_records(image, level)
    yield from _cluster_records(image, level)
    yield from _topic_records(image, level)
    yield from _config_records(image)
    yield from _client_quota_records(image)
    if image.next_producer_id >= 0:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
    for acl_id, acl in sorted(image.acls.items()):
        yield acl.to_record(acl_id)
    yield from _credential_records(image, level)


def _feature_records(image: ImageState, level: int) -> Iterator[MetadataRecord]:
    # metadata.version first: it may affect how the following records are read.
    yield FeatureLevelRecord(name=features.METADATA_VERSION, feature_level=level)
    for name, feature_level in sorted(image.features.items()):
        if name != features.METADATA_VERSION:
            yield FeatureLevelRecord(name=name, feature_level=feature_level)


def _cluster_records(image: ImageState, level: int) -> Iterator[MetadataRecord]:
    for _, broker in sorted(image.cluster.brokers.items()):
        yield broker.to_record(level)
    if image.cluster.controllers and level < features.CONTROLLER_REGISTRATION_SINCE:
        raise UnwritableImageError(level, "controller registration data")
    for _, controller in sorted(image.cluster.controllers.items()):
        yield controller.to_record()


def _topic_records(image: ImageState, level: int) -> Iterator[MetadataRecord]:
    # Names alone sort several times faster than pairs, and this sort is one step of a checkpoint.
    for name in sorted(image.topics.by_name):
        topic = image.topics.by_name[name]
        yield TopicRecord(name=name, topic_id=topic.topic_id)
        for partition_id, partition in sorted(topic.partitions.items()):
            yield partition.to_record(topic.topic_id, partition_id, level)


def _config_records(image: ImageState) -> Iterator[MetadataRecord]:
    for (resource_type, resource_name), configs in sorted(image.configs.items()):
        for name, value in sorted(configs.items()):
            yield ConfigRecord(
                resource_type=resource_type, resource_name=resource_name, name=name, value=value
            )


def _client_quota_records(image: ImageState) -> Iterator[MetadataRecord]:
    # The default entity has no name: it sorts as the empty one.
    for entity, values in sorted(
        image.client_quotas.items(), key=lambda row: [(kind, name or "") for kind, name in row[0]]
    ):
        parts = tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity)
        for key, value in sorted(values.items()):
            yield ClientQuotaRecord(entity=parts, key=key, value=value, remove=False)


def _credential_records(image: ImageState, level: int) -> Iterator[MetadataRecord]:
    if image.scram and level < features.SCRAM_SINCE:
        raise UnwritableImageError(level, f"SCRAM credentials of {len(image.scram)} users")
    for (mechanism, user), credential in sorted(image.scram.items()):
        yield credential.to_record(user, mechanism)
    if image.delegation_tokens and level < features.DELEGATION_TOKENS_SINCE:
        raise UnwritableImageError(level, f"{len(image.delegation_tokens)} delegation tokens")
    for _, token in sorted(image.delegation_tokens.items()):
        yield token.to_record()


# Records to checkpoint


def write_checkpoint(
    image: ImageState,
    *,
    now_ms: int,
    kraft_version: int = 0,
    voters: VotersRecord | None = None,
) -> Iterator[bytes]:
    """Yield the checkpoint of an image, usually a :meth:`MetadataImage.committed_copy`; see :func:`write_records`.

    Its id is ``end_offset`` and ``epoch`` of ``image.provenance``; ``now_ms`` is the time of its batches.

    Raises:
        UnwritableImageError: see :func:`image_to_records`.
    """
    return write_records(
        image_to_records(image),
        metadata_version=image.metadata_version,
        now_ms=now_ms,
        epoch=image.provenance.epoch,
        last_contained_log_timestamp_ms=image.provenance.timestamp_ms,
        kraft_version=kraft_version,
        voters=voters,
    )


def write_records(
    records: Iterable[MetadataRecord],
    *,
    metadata_version: int,
    now_ms: int,
    epoch: int = 0,
    last_contained_log_timestamp_ms: int = 0,
    kraft_version: int = 0,
    voters: VotersRecord | None = None,
) -> Iterator[bytes]:
    """Yield a checkpoint of any records, for instance ``bootstrap.checkpoint``, in whole batches.

    A batch takes several steps of RECORDS_PER_STEP records. A step that completes none yields empty bytes, so
    that its caller can pause.

    The records are written in the versions of ``metadata_version``.

    Raises:
        ValueTooLong: a record has a string or an array that Kafka's readers refuse.
        RecordsTooLarge: a record, or the head with the voters, fits no batch.
    """
    assert voters is None or kraft_version > 0, "kraft.version 0 has no VotersRecord"
    head: list[ControlRecord] = [
        SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_log_timestamp_ms)
    ]
    if kraft_version > 0:
        head.append(KRaftVersionRecord(version=0, k_raft_version=kraft_version))
    if voters is not None:
        head.append(voters)
    yield encode_control_batch(head, 0, epoch, now_ms)
    offset = len(head)
    values = (encode_record(record, record_version_for(type(record), metadata_version)) for record in records)
    unwritten: list[bytes] = []
    while step := list(islice(values, RECORDS_PER_STEP)):
        unwritten += step
        if len(unwritten) > RECORDS_PER_BATCH:
            *batches, unwritten = batches_of_values(unwritten, records_max=RECORDS_PER_BATCH)
            for batch_values in batches:
                yield build_batch(batch_values, offset, epoch, now_ms)
                offset += len(batch_values)
        elif len(step) == RECORDS_PER_STEP:
            yield b""
    for batch_values in batches_of_values(unwritten, records_max=RECORDS_PER_BATCH):
        yield build_batch(batch_values, offset, epoch, now_ms)
        offset += len(batch_values)
    yield encode_control_batch([SnapshotFooterRecord(version=0)], offset, epoch, now_ms)


# Checkpoint to records


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint that is being read: its header, and an iterator over its metadata records."""

    last_contained_log_timestamp_ms: int
    kraft_version: int
    """0 without a KRaftVersionRecord."""
    voters: VotersRecord | None
    epoch: int
    """Leader epoch of its batches."""
    records: Iterator[MetadataRecord]
    """Can be consumed once. Raises the errors of :func:`read_checkpoint`; at the end for a missing footer."""


def read_checkpoint(chunks: Iterable[bytes]) -> Checkpoint:
    """Read a checkpoint from its bytes, which ``chunks`` may split anywhere; chunks are taken as they are needed.

    Raises:
        CorruptCheckpointError: no header, no footer, gaps in offsets, several epochs, misplaced records.
        ProtocolError: CorruptBatch, UnknownRecord or MalformedMessage, as batches and records raise them.
    """
    batches = _consecutive_batches(chunks)
    first = next(batches, None)
    if first is None or not first.is_control:
        raise CorruptCheckpointError("a checkpoint has to start with a control batch")
    header, *others = (decode_control(record) for record in first.records)
    if not isinstance(header, SnapshotHeaderRecord):
        raise CorruptCheckpointError(f"a checkpoint starts with a {type(header).__name__}")
    kraft_version, voters = 0, None
    for record in others:
        if isinstance(record, KRaftVersionRecord):
            kraft_version = record.k_raft_version
        elif isinstance(record, VotersRecord):
            voters = record
        else:
            raise CorruptCheckpointError(f"the head of a checkpoint has a {type(record).__name__}")
    return Checkpoint(
        last_contained_log_timestamp_ms=header.last_contained_log_timestamp,
        kraft_version=kraft_version,
        voters=voters,
        epoch=first.partition_leader_epoch,
        records=_metadata_records(batches),
    )


def _metadata_records(batches: Iterator[RecordBatch]) -> Iterator[MetadataRecord]:
    for batch in batches:
        if batch.is_control:
            last = decode_control(batch.records[-1])
            if not isinstance(last, SnapshotFooterRecord) or next(batches, None) is not None:
                raise CorruptCheckpointError(f"a {type(last).__name__} in the middle of a checkpoint")
            return
        for record in batch.records:
            if record.value is None:
                raise CorruptCheckpointError(f"no value at {batch.base_offset + record.offset_delta}")
            yield decode_record(record.value)
    raise CorruptCheckpointError("a checkpoint has no footer: it is incomplete")


def _consecutive_batches(chunks: Iterable[bytes]) -> Iterator[RecordBatch]:
    expected_offset, epoch = 0, None
    for data in _whole_batches(chunks):
        for batch in _decode(data, expected_offset):
            if batch.base_offset != expected_offset:
                raise CorruptCheckpointError(f"offset {batch.base_offset} instead of {expected_offset}")
            # No checksum covers the epoch.
            if batch.partition_leader_epoch != epoch and epoch is not None:
                raise CorruptCheckpointError(f"epoch {batch.partition_leader_epoch} instead of {epoch}")
            expected_offset, epoch = batch.last_offset + 1, batch.partition_leader_epoch
            yield batch


def _decode(data: bytes, offset: int) -> Iterator[RecordBatch]:
    try:
        yield from decode_batches(data)
    except CorruptBatch as error:
        raise CorruptBatch(f"{error.message}, in the batch at offset {offset} of the checkpoint") from error


def _whole_batches(chunks: Iterable[bytes]) -> Iterator[bytes]:
    buffer = bytearray()
    for chunk in chunks:
        buffer += chunk
        while len(buffer) >= PREFIX.size:
            _, length = PREFIX.unpack_from(buffer)
            size_bytes = PREFIX.size + length
            if not HEADER_SIZE_BYTES <= size_bytes <= BATCH_SIZE_BYTES_MAX:
                raise CorruptCheckpointError(f"a batch of {size_bytes} bytes; {BATCH_SIZE_BYTES_MAX} at most")
            if len(buffer) < size_bytes:
                break
            yield bytes(buffer[:size_bytes])
            del buffer[:size_bytes]
    if buffer:
        raise CorruptCheckpointError(f"a checkpoint ends {len(buffer)} bytes into a batch")
