"""Table `quotas`: client quotas over time."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, DoubleType, StringType, StructType

from pyspark_quorate.rows import column
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.intervals import EVENT_COLUMNS, INTERVAL_COLUMNS, intervals
from pyspark_quorate.tables.timeline import breaks, field, records_of

_ENTITY: Final = ArrayType(
    StructType(
        [
            column("entity_type", StringType(), "user, client-id or ip", is_nullable=True),
            column("entity_name", StringType(), "its name; null: the default of the type", is_nullable=True),
        ]
    )
)

SCHEMA: Final = StructType(
    [
        column("cluster_id", StringType(), "Kafka's cluster id"),
        column(
            "entity",
            _ENTITY,
            "the entity: all of these parts together, sorted by type",
        ),
        column(
            "quota_key",
            StringType(),
            "what is limited: producer_byte_rate, consumer_byte_rate, request_percentage, ...",
        ),
        column("quota", DoubleType(), "the limit, in the unit of quota_key"),
        *INTERVAL_COLUMNS,
    ]
)
_KEY: Final = ("cluster_id", "entity", "quota_key")


def quotas(lines: DataFrame) -> DataFrame:
    """The table, from the timeline."""
    events = records_of(lines, "ClientQuotaRecord").select(
        "cluster_id",
        _entity().alias("entity"),
        field("key", "string").alias("quota_key"),
        field("value", "double").alias("quota"),
        field("remove", "boolean").alias("removed"),
        *(name for name in EVENT_COLUMNS if name != "removed"),
    )
    return intervals(events, breaks(lines), key=_KEY, state=["quota"])


def _entity() -> Column:
    stated = field("entity", "array<struct<entityType: string, entityName: string>>")
    return f.array_sort(
        f.transform(
            stated,
            lambda one: f.struct(
                one["entityType"].alias("entity_type"), one["entityName"].alias("entity_name")
            ),
        )
    )


TABLE: Final = Table(
    name="quotas",
    doc="Quotas of users, clients and IP addresses over time.",
    schema=SCHEMA,
    inputs=("timeline",),
    key=(*_KEY, "from_offset"),
    day="valid_from",
    build=quotas,
)
