"""Table `quotas`: client quotas over time."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.types import DoubleType, StringType

from pyspark_quorate.rows import CLUSTER_ID, column, list_of, schema
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS, intervals
from pyspark_quorate.tables.timeline import breaks, events_of, field, sorted_list

_ENTITY: Final = list_of(
    column("entity_type", StringType(), "user, client-id or ip"),
    column("entity_name", StringType(), "its name; null: the default of the type"),
)

SCHEMA: Final = schema(
    CLUSTER_ID,
    column("entity", _ENTITY, "the entity: all of these parts together, sorted by type"),
    column(
        "quota_key",
        StringType(),
        "what is limited: producer_byte_rate, consumer_byte_rate, request_percentage, ...",
    ),
    column("quota", DoubleType(), "the limit, in the unit of quota_key"),
    *INTERVAL_COLUMNS,
)
_KEY: Final = ("cluster_id", "entity", "quota_key")


def quotas(lines: DataFrame) -> DataFrame:
    """The table, from the timeline."""
    events = events_of(
        lines,
        "ClientQuotaRecord",
        entity=sorted_list("entity", "entityType: string, entityName: string", _ENTITY),
        quota_key=field("key", "string"),
        quota=field("value", "double"),
        removed=field("remove", "boolean"),
    )
    return intervals(events, breaks(lines), key=_KEY, state=["quota"])


TABLE: Final = Table(
    build=quotas,
    doc="Quotas of users, clients and IP addresses over time.",
    schema=SCHEMA,
    key=(*_KEY, "from_offset"),
)
