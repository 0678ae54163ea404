"""Table `quotas`: client quotas over time."""

from typing import Final

from kit.lake.plans.contract import Plan
from kit.lake.plans.intervals import intervals
from kit.lake.plans.timeline import breaks, events_of, field, sorted_list
from pyspark.sql import DataFrame
from pyspark_quorate.tables.quotas import ENTITY

_KEY: Final = ("cluster_id", "entity", "quota_key")


def quotas(lines: DataFrame) -> DataFrame:
    """The table, from the timeline."""
    events = events_of(
        lines,
        "ClientQuotaRecord",
        entity=sorted_list("entity", "entityType: string, entityName: string", ENTITY),
        quota_key=field("key", "string"),
        quota=field("value", "double"),
        removed=field("remove", "boolean"),
    )
    return intervals(events, breaks(lines), key=_KEY, state=["quota"])


PLAN: Final = Plan(build=quotas)
