"""Table `records`: every record of logs and checkpoints, once.

They are chosen from the rows by :class:`pyspark_quorate.tables.timeline.Timeline`.
"""

from typing import Final

from pyspark.sql.types import (
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampType,
    VariantType,
)

from pyspark_quorate.rows import CLUSTER_ID, column, nullable, schema
from pyspark_quorate.tables.contract import Table

SCHEMA: Final = schema(
    CLUSTER_ID,
    column("kind", StringType(), "log or snapshot"),
    column("offset", LongType(), "log: the record's offset; snapshot: its end offset, exclusive"),
    column("ordinal", IntegerType(), "snapshot: the record's index, from 0; otherwise 0"),
    column("epoch", IntegerType(), "leader epoch of the batch, or of the snapshot id"),
    nullable(
        "time",
        TimestampType(),
        "log: when the active controller appended it; snapshot: the time of its last record; null: unknown",
    ),
    column("type", StringType(), "the record's name in Kafka's schema"),
    column("version", ShortType(), "the version of the record"),
    column(
        "payload", VariantType(), "the record's fields, by their names in Kafka's schema; secrets redacted"
    ),
    column("source", StringType(), "a file or controller that has the record; others may have it too"),
)

TABLE: Final = Table(
    name="records",
    fold=None,
    doc=(
        "Every record of the logs and checkpoints that were read. Copies on several nodes are removed; of a "
        "checkpoint that several nodes have, one copy is kept. Records that a leader lost are included: they have "
        "the same offset and a lower epoch. The other tables contain only records that took effect."
    ),
    schema=SCHEMA,
    key=("cluster_id", "kind", "offset", "epoch", "ordinal"),
)
