"""Metadata records as the values of log records.

A value is: frame version (1), record key, record version, each an unsigned varint, then the record's fields.
"""

from typing import Final

from quorate_protocol.errors import MalformedMessage, UnknownRecord
from quorate_protocol.wire.codec import decode, read_unsigned_varint, write_entity
from quorate_protocol.wire.convert import convert

from .generated import RECORD_CLASSES, BrokerRegistrationChangeRecord, MetadataRecord

__all__ = ("MetadataRecord", "decode_record", "encode_record", "encode_record_at", "record_version_for")

FRAME_VERSION: Final = 1

# Record type -> [(lowest metadata.version, record version)], newest first; absent types have version 0 only.
_VERSIONS_BY_LEVEL: Final[dict[str, tuple[tuple[int, int], ...]]] = {
    "RegisterBrokerRecord": ((30, 4), (17, 3), (8, 2), (0, 1)),
    "PartitionRecord": ((23, 2), (17, 1)),
    "PartitionChangeRecord": ((23, 2), (17, 1)),
    "BrokerRegistrationChangeRecord": ((30, 3), (17, 2), (0, 1)),
}


def record_version_for(record_type: type[MetadataRecord], metadata_version: int) -> int:
    """Return the version to write a record in at a finalized metadata.version (a level, such as 30 for 4.3-IV0).

    Source: MetadataVersion.registerBrokerRecordVersion and its siblings.
    """
    for level, version in _VERSIONS_BY_LEVEL.get(record_type.__name__, ()):
        if metadata_version >= level:
            return version
    return 0


def encode_record(record: MetadataRecord, version: int | None = None) -> bytes:
    """Encode a record in the given version, or in its highest.

    Raises:
        UnsupportedVersion: the version lacks a field that is set.
    """
    key = record.__api_key__
    classes = RECORD_CLASSES[key]
    version = len(classes) - 1 if version is None else version
    buffer = bytearray((FRAME_VERSION, key, version))
    write_entity(buffer, convert(record, classes[version]))
    return bytes(buffer)


def encode_record_at(record: MetadataRecord, metadata_version: int) -> bytes:
    """Encode a record in the version that Kafka writes at a finalized metadata.version.

    Raises:
        UnsupportedVersion: that version lacks a field that is set.
    """
    if isinstance(record, BrokerRegistrationChangeRecord):
        return encode_record(record, _lowest_version_of(record))
    return encode_record(record, record_version_for(type(record), metadata_version))


def _lowest_version_of(change: BrokerRegistrationChangeRecord) -> int:
    """Return the lowest version with the fields that are set: Kafka writes that at any metadata.version."""
    if change.cordoned_log_dirs is not None:
        return 3
    if change.log_dirs:
        return 2
    return 1 if change.in_controlled_shutdown else 0


def decode_record(data: bytes) -> MetadataRecord:
    """Decode a record of any version into the class of its highest.

    Raises:
        UnknownRecord: the type or version is not known.
        MalformedMessage: the bytes do not decode.
    """
    try:
        frame_version, offset = read_unsigned_varint(data, 0)
        key, offset = read_unsigned_varint(data, offset)
        version, offset = read_unsigned_varint(data, offset)
    except IndexError as error:
        raise MalformedMessage("a metadata record is truncated") from error
    if frame_version != FRAME_VERSION:
        raise UnknownRecord(f"a metadata record has frame version {frame_version}; {FRAME_VERSION} is known")
    classes = RECORD_CLASSES.get(key)
    if classes is None or version >= len(classes):
        raise UnknownRecord(f"metadata record key {key} version {version} is not known")
    record: MetadataRecord = convert(decode(classes[version], data, offset), classes[-1])
    return record
