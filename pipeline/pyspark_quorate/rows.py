"""The rows that the data source yields: one for each metadata record, and one for each gap in what could be read.

Everything else in this package is made from these columns, wherever they come from: a directory, a checkpoint or
a living quorum.
"""

from typing import Final

from pyspark.sql.types import (
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
"""A record of the log. The same offset may come from several nodes' directories, and with several epochs."""
SNAPSHOT: Final = "snapshot"
"""A record of a checkpoint; all of them together are the state before the record at `offset`."""
GAP: Final = "gap"
"""Something that could not be read, or is not there."""

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


def column(name: str, kind: DataType, comment: str, *, is_nullable: bool = False) -> StructField:
    """A column with the words that document it."""
    return StructField(name, kind, is_nullable, {"comment": comment})


SCHEMA: Final = StructType(
    [
        column("cluster_id", StringType(), "Kafka's cluster id, as meta.properties has it"),
        column(
            "source",
            StringType(),
            "the file that it was read from, or host:port,… of the controllers that were followed",
        ),
        column("kind", StringType(), "log, snapshot or gap"),
        column(
            "offset",
            LongType(),
            "log: the record's offset; snapshot: the offset that its state comes before (Kafka's end offset of "
            "the snapshot id); gap: the first offset that is missing, null where it is not known",
            is_nullable=True,
        ),
        column("ordinal", IntegerType(), "snapshot: the record's place in it, from 0; else 0"),
        column(
            "epoch",
            IntegerType(),
            "log: the leader epoch of the batch; snapshot: that of the snapshot id; gap: null if unknown",
            is_nullable=True,
        ),
        column(
            "time",
            TimestampType(),
            "log: when the active controller appended the batch; snapshot: the time of the last record in it "
            "(lastContainedLogTimestamp), null for 0; gap: null",
            is_nullable=True,
        ),
        column(
            "type",
            StringType(),
            "the record's name in Kafka's schema, such as TopicRecord or, of control records, VotersRecord, "
            "LeaderChangeMessage, KRaftVersionRecord, SnapshotHeaderRecord, SnapshotFooterRecord; gap: the reason",
        ),
        column("version", ShortType(), "the version of the record; gap: null", is_nullable=True),
        column(
            "payload",
            StringType(),
            "JSON: the record's fields as Kafka's schema names them (camelCase), defaults included, uuids and bytes "
            "in base64 as Kafka prints them, secrets as '[redacted]'; gap: {endOffset, detail}, endOffset is "
            "exclusive, or null",
        ),
    ]
)
"""Columns of `spark.read.format("quorate")` and of its stream, in this order."""
