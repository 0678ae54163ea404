"""The rows of the data source: one per metadata record, and one per gap.

All tables are built from these columns, whatever their origin: a directory, a checkpoint or a running quorum.
"""

from inspect import signature
from typing import Any, Final

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

LOG: Final = "log"
"""A record of the log. Several directories may contain the same offset, also with different epochs."""
SNAPSHOT: Final = "snapshot"
"""A record of a checkpoint. Together, a checkpoint's records are the state before the record at `offset`."""
GAP: Final = "gap"
"""Something that is missing or could not be read."""

TORN_TAIL: Final = "torn-tail"
CORRUPT_BATCH: Final = "corrupt-batch"
MISSING_OFFSETS: Final = "missing-offsets"
TRUNCATED_EPOCH: Final = "truncated-epoch"
UNKNOWN_RECORD: Final = "unknown-record"
UNREADABLE_FILE: Final = "unreadable-file"
GAP_REASONS: Final = (
    TORN_TAIL,
    CORRUPT_BATCH,
    MISSING_OFFSETS,
    TRUNCATED_EPOCH,
    UNKNOWN_RECORD,
    UNREADABLE_FILE,
)


def column(name: str, kind: DataType, comment: str) -> StructField:
    """A column with its documentation; it is never null."""
    return StructField(name, kind, nullable=False, metadata={"comment": comment})


def nullable(name: str, kind: DataType, comment: str) -> StructField:
    """A column that may be null; the comment says what that means."""
    return StructField(name, kind, nullable=True, metadata={"comment": comment})


def list_of(*fields: StructField) -> ArrayType:
    """The type of a list of structs. Spark's casts into one require that all fields may be null."""
    return ArrayType(
        StructType([StructField(field.name, field.dataType, metadata=field.metadata) for field in fields])
    )


def schema(*columns: StructField) -> StructType:
    """The columns of a table, in order."""
    return StructType(list(columns))


_IN_UTC: Final[dict[str, Any]] = (
    {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {"timestamp_utc": True}
)
"""The argument for times in UTC: Spark 4.3 gave it another name."""


def arrow_schema(columns: StructType) -> Any:
    """The columns in Arrow, with times in UTC."""
    return to_arrow_schema(columns, **_IN_UTC)


CLUSTER_ID: Final = column("cluster_id", StringType(), "Kafka's cluster id")


SCHEMA: Final = schema(
    column("cluster_id", StringType(), "Kafka's cluster id, from meta.properties"),
    column("source", StringType(), "the file, or host:port,… of the followed controllers"),
    column("kind", StringType(), "log, snapshot or gap"),
    nullable(
        "offset",
        LongType(),
        "log: the record's offset; snapshot: the end offset of the snapshot id, exclusive; gap: the first "
        "missing offset, null if unknown",
    ),
    column("ordinal", IntegerType(), "snapshot: the record's index, from 0; otherwise 0"),
    nullable(
        "epoch",
        IntegerType(),
        "log: the leader epoch of the batch; snapshot: the epoch of the snapshot id; gap: null if unknown",
    ),
    nullable(
        "time",
        TimestampType(),
        "log: when the active controller appended the batch; snapshot: the time of its last record "
        "(lastContainedLogTimestamp), null for 0; gap: null",
    ),
    column(
        "type",
        StringType(),
        "the record's name in Kafka's schema, such as TopicRecord; control records: VotersRecord, "
        "LeaderChangeMessage, KRaftVersionRecord, SnapshotHeaderRecord, SnapshotFooterRecord; gap: the reason",
    ),
    nullable("version", ShortType(), "the version of the record; gap: null"),
    column(
        "payload",
        StringType(),
        "JSON: the record's fields by their names in Kafka's schema (camelCase), including defaults; UUIDs and "
        "bytes in base64 as Kafka prints them, secrets as '[redacted]'; gap: {endOffset, detail}, endOffset is "
        "exclusive, or null; unknown-record: also record, with the bytes of a record that this version can't decode",
    ),
)
"""Columns of `spark.read.format("quorate")` and of its stream, in this order."""
