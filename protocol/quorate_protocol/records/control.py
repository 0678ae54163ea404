"""Control records, which the raft layer writes into the metadata log and into checkpoints.

The key of a control record is (version i16, type i16); the value is the message, which starts with its
version. Source: Kafka's ControlRecordType and ControlRecordUtils, KIP-595, KIP-630, KIP-853.
"""

import struct
from collections.abc import Sequence
from typing import Any, Final

from quorate_protocol.errors import MalformedMessage, UnknownRecord
from quorate_protocol.kafka.enums import ControlRecordType
from quorate_protocol.kafka.generated.k_raft_version_record import KRaftVersionRecord
from quorate_protocol.kafka.generated.leader_change_message import LeaderChangeMessage
from quorate_protocol.kafka.generated.leader_change_message import Voter as LeaderChangeVoter
from quorate_protocol.kafka.generated.snapshot_footer_record import SnapshotFooterRecord
from quorate_protocol.kafka.generated.snapshot_header_record import SnapshotHeaderRecord
from quorate_protocol.kafka.generated.voters_record import Endpoint, KRaftVersionFeature, Voter, VotersRecord
from quorate_protocol.kafka.schemas import older_classes
from quorate_protocol.wire.codec import decode, encode
from quorate_protocol.wire.convert import convert

from .batch import Record, RecordBatch, encode_batch

__all__ = (
    "CONTROL_NAMES",
    "ControlRecord",
    "Endpoint",
    "KRaftVersionFeature",
    "KRaftVersionRecord",
    "LeaderChangeMessage",
    "LeaderChangeVoter",
    "SnapshotFooterRecord",
    "SnapshotHeaderRecord",
    "Voter",
    "VotersRecord",
    "decode_control",
    "encode_control_batch",
)

ControlRecord = (
    LeaderChangeMessage | SnapshotHeaderRecord | SnapshotFooterRecord | KRaftVersionRecord | VotersRecord
)

_KEY: Final = struct.Struct(">hh")
_KEY_VERSION: Final = 0

_CLASSES: Final[dict[int, type[Any]]] = {
    ControlRecordType.LEADER_CHANGE: LeaderChangeMessage,
    ControlRecordType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlRecordType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlRecordType.KRAFT_VERSION: KRaftVersionRecord,
    ControlRecordType.KRAFT_VOTERS: VotersRecord,
}
"""Type of control record -> the class of its newest version."""

_TYPES: Final = {newest: control_type for control_type, newest in _CLASSES.items()}

CONTROL_NAMES: Final = tuple(kind.__name__ for kind in _TYPES)
"""The names of all control records."""


def encode_control_batch(
    records: Sequence[ControlRecord], base_offset: int, epoch: int, timestamp_ms: int
) -> bytes:
    """Encode a control batch with one timestamp (Unix milliseconds); each record in its own ``version``."""
    return encode_batch(
        RecordBatch(
            base_offset=base_offset,
            partition_leader_epoch=epoch,
            is_control=True,
            base_timestamp_ms=timestamp_ms,
            max_timestamp_ms=timestamp_ms,
            records=tuple(
                Record(
                    offset_delta=index,
                    timestamp_ms=timestamp_ms,
                    key=_KEY.pack(_KEY_VERSION, _TYPES[type(record)]),
                    value=encode(convert(record, _class_of(type(record), record.version))),
                )
                for index, record in enumerate(records)
            ),
        )
    )


def decode_control(record: Record) -> ControlRecord:
    """Decode a record of a control batch into the class of its highest version.

    Raises:
        UnknownRecord: the type or version is not known; Kafka skips unknown types.
        MalformedMessage: key or value do not decode.
    """
    if record.key is None or len(record.key) < _KEY.size or record.value is None or len(record.value) < 2:
        raise MalformedMessage("a control record has no key of 4 bytes or no value")
    _, control_type = _KEY.unpack_from(record.key)
    newest = _CLASSES.get(control_type)
    if newest is None:
        raise UnknownRecord(f"control record type {control_type} is not known")
    (version,) = struct.unpack_from(">h", record.value)
    if not 0 <= version <= newest.__version__:
        raise UnknownRecord(f"control record type {control_type} version {version} is not known")
    control: ControlRecord = convert(decode(_class_of(newest, version), record.value), newest)
    return control


def _class_of(newest: type[Any], version: int) -> type[Any]:
    if version == newest.__version__:
        return newest
    return older_classes(newest.__name__, version)[newest.__name__]
