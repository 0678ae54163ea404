"""Table `acl_changes`: access control entries added and removed."""

from typing import Final

from pyspark.sql.types import BooleanType, StringType
from quorate_protocol.kafka.enums import AclOperation, AclPermissionType, PatternType, ResourceType

from pyspark_quorate.rows import CLUSTER_ID, column, schema
from pyspark_quorate.tables.contract import Fields, Line, Table, name_of
from pyspark_quorate.tables.intervals import CHANGE_COLUMNS, Interval, KeyedFold, State, boundaries

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

_ADD: Final = "AccessControlEntryRecord"
_REMOVE: Final = "RemoveAccessControlEntryRecord"


class AclChanges(KeyedFold):
    """The state of the table. An entry that is replaced under its id is removed and added."""

    TYPES = (_ADD, _REMOVE)

    def step(self, line: Line) -> None:
        """Apply a record that adds or removes an entry."""
        state = _entry(line.fields) if line.type == _ADD else None
        self.intervals.set_state((line.fields["id"],), state, line)

    def end_interval(self, interval: Interval, previous: Interval | None, is_followed: bool) -> None:
        """Add a row for the start of an interval, and one for its end."""
        for boundary in boundaries(interval, previous, is_followed):
            for change, entry in (("removed", boundary.before), ("added", boundary.after)):
                if entry is not None:
                    self.rows.append(
                        (boundary.time_us, boundary.offset, change, *interval.key, *entry, boundary.exact)
                    )


def _entry(fields: Fields) -> State:
    return (
        name_of(ResourceType, fields["resourceType"]),
        fields["resourceName"],
        name_of(PatternType, fields["patternType"]),
        fields["principal"],
        fields["host"],
        name_of(AclOperation, fields["operation"]),
        name_of(AclPermissionType, fields["permissionType"]),
    )


TABLE: Final = Table(
    name="acl_changes",
    fold=AclChanges,
    doc="Access control entries added and removed. Kafka does not record which principal made a change.",
    schema=SCHEMA,
    key=("cluster_id", "acl_id", "offset", "change"),
)
