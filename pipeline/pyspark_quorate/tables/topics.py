"""Table `topics`: topics created, deleted, and created again under the same name."""

from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql.types import IntegerType, StringType

from pyspark_quorate.rows import CLUSTER_ID, column, nullable, schema
from pyspark_quorate.tables.contract import Cluster, Fold, Line, Table
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS, Interval, KeyedFold

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA: Final = schema(
    CLUSTER_ID,
    column("topic", StringType(), "name of the topic"),
    column("topic_id", StringType(), "its id, never reused: 22 characters of base64"),
    nullable("partitions", IntegerType(), "its last number of partitions; null: unknown"),
    nullable("previous_topic_id", StringType(), "the previous topic of the same name; null: none known"),
    *INTERVAL_COLUMNS,
)

TOPIC: Final = "TopicRecord"
REMOVE: Final = "RemoveTopicRecord"
_PARTITION: Final = "PartitionRecord"


class TopicEnd(NamedTuple):
    """A topic that a line showed to be deleted."""

    topic_id: str
    name: str | None
    """None: no record has its name."""


class TopicNames(Fold):
    """The names of topics, and where the log shows that a topic was deleted.

    A TopicRecord that gives the name to another topic also shows a deletion, whose RemoveTopicRecord is in a gap. So
    a deletion may be reported twice.
    """

    TYPES = (TOPIC, REMOVE)

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.names: dict[str, str] = {}
        """Topic id -> name, of the topics that exist. A topic that ended stays until the next line."""
        self.latest: dict[str, str] = {}
        """Name -> id of the topic that had it last."""
        self.ended: TopicEnd | None = None
        """The topic that the last line ended, if any."""
        self.listeners: list[Callable[[str, str], None]] = []
        """Functions that are called with the id and name of each topic."""
        self._gone: set[str] = set()
        self._in_snapshot: set[str] | None = None

    def step(self, line: Line) -> None:
        """Apply the name of a topic, or its end."""
        for gone in self._gone:
            self.names.pop(gone, None)
        self._gone = set()
        topic_id = line.fields["topicId"]
        if line.type == REMOVE:
            self.ended = TopicEnd(topic_id, self.names.get(topic_id))
            self._gone.add(topic_id)
            return
        name = line.fields["name"]
        previous = self.latest.get(name)
        # A snapshot is complete: it ends all topics that it lacks.
        is_replaced = not line.is_snapshot and previous is not None and previous != topic_id
        self.ended = None
        if is_replaced and previous is not None:
            self.ended = TopicEnd(previous, name)
            self._gone.add(previous)
        self.latest[name] = topic_id
        self.names[topic_id] = name
        for listener in self.listeners:
            listener(topic_id, name)
        if self._in_snapshot is not None:
            self._in_snapshot.add(topic_id)

    def begin_snapshot(self, line: Line) -> None:  # noqa: ARG002
        """Begin a snapshot, whose lines name all topics that exist."""
        self._in_snapshot = set()

    def end_snapshot(self) -> None:
        """Forget the topics that the snapshot lacks."""
        if self._in_snapshot is not None:
            self._gone |= set(self.names) - self._in_snapshot
        self._in_snapshot, self.ended = None, None


class Topics(KeyedFold):
    """The state of the table."""

    TYPES = (TOPIC, REMOVE, _PARTITION)
    NEEDS = (TopicNames,)

    def __init__(self, cluster: Cluster, names: TopicNames) -> None:
        super().__init__(cluster)
        self._names = names
        self._partitions: dict[str, int] = {}
        self._previous: dict[str, str] = {}
        """Topic id -> id of the previous topic of the same name."""
        self._before: dict[str, str] = {}
        """Name -> id of the topic of that name that began last."""

    def step(self, line: Line) -> None:
        """Apply a topic, its end, or one of its partitions."""
        topic_id = line.fields["topicId"]
        if line.type == _PARTITION:
            count = line.fields["partitionId"] + 1
            self._partitions[topic_id] = max(count, self._partitions.get(topic_id, 0))
            return
        ended = self._names.ended
        if ended is not None:
            self.intervals.set_state((ended.topic_id,), None, line)
        if line.type == TOPIC:
            name = line.fields["name"]
            if (topic_id,) not in self.intervals:
                before = self._before.get(name)
                if before is not None:
                    self._previous[topic_id] = before
                self._before[name] = topic_id
            self.intervals.set_state((topic_id,), (name,), line)

    def end_interval(self, interval: Interval, previous: Interval | None, is_followed: bool) -> None:  # noqa: ARG002
        """Add a row for the interval."""
        (topic_id,), (name,) = interval.key, interval.state
        partitions = self._partitions.get(topic_id)
        self.rows.append((name, topic_id, partitions, self._previous.pop(topic_id, None), *interval.span))
        if not is_followed:
            self._partitions.pop(topic_id, None)


TABLE: Final = Table(
    name="topics",
    fold=Topics,
    doc="Topics from creation to deletion, and the previous topic of the same name.",
    schema=SCHEMA,
    key=("cluster_id", "topic_id", "from_offset"),
)
