"""Table `config_changes`: changes of dynamic configs of topics, brokers, groups and client metrics."""

from collections import defaultdict
from typing import Final

from pyspark.sql.types import BooleanType, StringType
from quorate_protocol.kafka.enums import ConfigResourceType

from pyspark_quorate.rows import CLUSTER_ID, column, nullable, schema
from pyspark_quorate.source.payload import REDACTED
from pyspark_quorate.tables.contract import Cluster, Line, Table, name_of
from pyspark_quorate.tables.intervals import CHANGE_COLUMNS, Interval, Key, KeyedFold, boundaries
from pyspark_quorate.tables.topics import REMOVE, TOPIC, TopicNames

SCHEMA: Final = schema(
    CLUSTER_ID,
    *CHANGE_COLUMNS,
    column("resource_type", StringType(), "what is configured: TOPIC, BROKER, GROUP, CLIENT_METRICS"),
    column("resource_name", StringType(), "topic, broker id or group; empty: the default of all brokers"),
    column("name", StringType(), "name of the config"),
    nullable("old_value", StringType(), "null: it had none, or it is unknown"),
    nullable("new_value", StringType(), "null: deleted, or its topic was deleted"),
    column(
        "exact",
        BooleanType(),
        "false: a gap, or what was before history began, hides when it was, at or before `time`, "
        "and whether there were more",
    ),
)
_KEY: Final = ("cluster_id", "resource_type", "resource_name", "name")

_CONFIG: Final = "ConfigRecord"
_TOPIC: Final = ConfigResourceType.TOPIC.name


class ConfigChanges(KeyedFold):
    """The state of the table. Setting the same value is no change, except for secrets, which look alike.

    The state of a config is its value. The state of a secret also has the offset of the record that set it, which is
    unknown for a secret in a snapshot.
    """

    TYPES = (_CONFIG, TOPIC, REMOVE)
    NEEDS = (TopicNames,)

    def __init__(self, cluster: Cluster, names: TopicNames) -> None:
        super().__init__(cluster)
        self._names = names
        self._of_topic: dict[str, set[Key]] = defaultdict(set)
        """Topic name -> its configs that were set."""
        self._ended: dict[str, int] = {}
        """Topic name -> the number of gaps when a topic of that name last ended, and all its configs with it."""
        self._set: dict[Key, int | None] = {}
        """Configs set or removed by the records at `_set_at` -> the offset for a secret, else None."""
        self._set_at = -1

    def step(self, line: Line) -> None:
        """Apply a config, or the end of a topic.

        The end of a topic deletes its configs; there are no records for them (ConfigurationsDelta.deleteTopic).
        """
        if line.type != _CONFIG:
            ended = self._names.ended
            if ended is not None and ended.name is not None:
                self._end(ended.name, line)
            return
        kind = name_of(ConfigResourceType, line.fields["resourceType"])
        name, value = line.fields["resourceName"], line.fields["value"]
        key = (kind, name, line.fields["name"])
        set_offset = line.offset if value == REDACTED and not line.is_snapshot else None
        state = None if value is None else (value, self._note_set(key, set_offset, line))
        if kind == _TOPIC and value is not None:
            self._of_topic[name].add(key)
        self.intervals.set_state(key, state, line, self._ended.get(name, 0) if kind == _TOPIC else 0)

    def end_snapshot(self) -> None:
        """End the configs that the snapshot lacks."""
        super().end_snapshot()
        self._ended = {}

    def end_interval(self, interval: Interval, previous: Interval | None, is_followed: bool) -> None:
        """Add a row for the start of an interval, and one for its end."""
        for boundary in boundaries(interval, previous, is_followed):
            before = boundary.before[0] if boundary.before is not None else None
            after, set_offset = boundary.after if boundary.after is not None else (None, None)
            # A snapshot contains a secret that existed before: whether it is the same one is unknown.
            if before is None or before != after or set_offset is not None:
                self.rows.append(
                    (boundary.time_us, boundary.offset, *interval.key, before, after, boundary.exact)
                )

    def _end(self, topic: str, line: Line) -> None:
        for key in self._of_topic.pop(topic, ()):
            self._note_set(key, None, line)
            self.intervals.set_state(key, None, line)
        self._ended[topic] = self.cluster.gap_ends.count

    def _note_set(self, key: Key, set_offset: int | None, line: Line) -> int | None:
        """Note which record set or removed a config. Returns the offset of the record that set a secret.

        For a secret in a snapshot, the offset is known only if the last record in the snapshot set it.
        """
        if line.is_snapshot:
            return self._set.get(key) if self._set_at == line.placed else None
        if line.offset != self._set_at:
            self._set, self._set_at = {}, line.offset
        self._set[key] = set_offset
        return set_offset


TABLE: Final = Table(
    name="config_changes",
    fold=ConfigChanges,
    doc="Changes of dynamic configs. Kafka does not record which principal made a change. Secrets are redacted.",
    schema=SCHEMA,
    key=(*_KEY, "offset"),
)
