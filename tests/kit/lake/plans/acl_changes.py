"""Table `acl_changes`: access control entries added and removed."""

from typing import Final

from kit.lake.plans.contract import Plan
from kit.lake.plans.intervals import boundaries, intervals
from kit.lake.plans.timeline import breaks, events_of, field, name_of
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from quorate_protocol.kafka.enums import AclOperation, AclPermissionType, PatternType, ResourceType

_KEY: Final = ("cluster_id", "acl_id")
_STATE: Final = (
    *("resource_type", "resource_name", "pattern_type", "principal", "host"),
    *("operation", "permission_type"),
)


def acl_changes(lines: DataFrame) -> DataFrame:
    """The table, from the timeline. An entry that is replaced under its id is removed and added."""
    events = events_of(
        lines,
        *("AccessControlEntryRecord", "RemoveAccessControlEntryRecord"),
        acl_id=field("id", "string"),
        resource_type=name_of(ResourceType, field("resourceType", "int")),
        resource_name=field("resourceName", "string"),
        pattern_type=name_of(PatternType, field("patternType", "int")),
        principal=field("principal", "string"),
        host=field("host", "string"),
        operation=name_of(AclOperation, field("operation", "int")),
        permission_type=name_of(AclPermissionType, field("permissionType", "int")),
        removed=f.col("type") == "RemoveAccessControlEntryRecord",
    )
    lives = intervals(events, breaks(lines), key=_KEY, state=_STATE)
    both = f.array(
        f.struct(f.lit("removed").alias("change"), f.col("before").alias("entry")),
        f.struct(f.lit("added").alias("change"), f.col("after").alias("entry")),
    )
    return (
        boundaries(lives, key=_KEY, state=_STATE)
        .select(*_KEY, "time", "offset", "exact", f.inline(both))
        .where("entry is not null")
        .select(*_KEY, "time", "offset", "change", "exact", "entry.*")
    )


PLAN: Final = Plan(build=acl_changes)
