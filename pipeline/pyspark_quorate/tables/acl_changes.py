"""Table `acl_changes`: access control entries added and removed."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BooleanType, StringType
from quorate_protocol.kafka.enums import AclOperation, AclPermissionType, PatternType, ResourceType

from pyspark_quorate.rows import CLUSTER_ID, column, schema
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.intervals import CHANGE_COLUMNS, boundaries, intervals
from pyspark_quorate.tables.timeline import breaks, events_of, field, name_of

SCHEMA: Final = schema(
    CLUSTER_ID,
    *CHANGE_COLUMNS,
    column("change", StringType(), "added or removed"),
    column("acl_id", StringType(), "id of the entry: 22 characters of base64"),
    column(
        "resource_type", StringType(), "type of the resource: TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, ..."
    ),
    column("resource_name", StringType(), "its name or prefix; * for all"),
    column("pattern_type", StringType(), "LITERAL or PREFIXED"),
    column("principal", StringType(), "the principal, such as User:alice"),
    column("host", StringType(), "the client's address; * for any"),
    column("operation", StringType(), "READ, WRITE, ALTER_CONFIGS, ..."),
    column("permission_type", StringType(), "ALLOW or DENY"),
    column(
        "exact",
        BooleanType(),
        "false: the time is hidden by a gap or by the start of the history; it is at or before `time`",
    ),
)
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


TABLE: Final = Table(
    build=acl_changes,
    doc="Access control entries added and removed. Kafka does not record by whom.",
    schema=SCHEMA,
    key=(*_KEY, "offset", "change"),
)
