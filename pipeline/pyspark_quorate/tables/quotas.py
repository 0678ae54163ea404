"""Table `quotas`: client quotas over time."""

from typing import Final

from pyspark.sql.types import DoubleType, StringType

from pyspark_quorate.rows import CLUSTER_ID, column, list_of, schema
from pyspark_quorate.tables.contract import Line, Table
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS, Interval, KeyedFold

ENTITY: Final = list_of(
    column("entity_type", StringType(), "user, client-id or ip"),
    column("entity_name", StringType(), "its name; null: the default of the type"),
)

SCHEMA: Final = schema(
    CLUSTER_ID,
    column("entity", ENTITY, "the entity: all of these parts together, sorted by type"),
    column(
        "quota_key",
        StringType(),
        "what is limited: producer_byte_rate, consumer_byte_rate, request_percentage, ...",
    ),
    column("quota", DoubleType(), "the limit, in the unit of quota_key"),
    *INTERVAL_COLUMNS,
)
_KEY: Final = ("cluster_id", "entity", "quota_key")


class Quotas(KeyedFold):
    """The state of the table."""

    TYPES = ("ClientQuotaRecord",)

    def step(self, line: Line) -> None:
        """Apply a record that sets or removes a quota. The order of an entity's parts is arbitrary in snapshots."""
        parts = [(part["entityType"], part["entityName"]) for part in line.fields["entity"]]
        parts.sort(key=lambda part: (part[0], part[1] or ""))
        state = None if line.fields["remove"] else (line.fields["value"],)
        self.intervals.set_state((tuple(parts), line.fields["key"]), state, line)

    def end_interval(self, interval: Interval, previous: Interval | None, is_followed: bool) -> None:  # noqa: ARG002
        """Add a row for the interval."""
        self.rows.append((*interval.key, *interval.state, *interval.span))


TABLE: Final = Table(
    name="quotas",
    fold=Quotas,
    doc="Quotas of users, clients and IP addresses over time.",
    schema=SCHEMA,
    key=(*_KEY, "from_offset"),
)
