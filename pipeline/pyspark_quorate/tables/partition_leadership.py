"""Table `partition_leadership`: leader, in-sync replicas and the other state of partitions, over time.

A PartitionRecord is complete. A PartitionChangeRecord has only changes (PartitionRegistration.merge): a field that it
lacks keeps its value. Change records have no epochs, so the epochs are counted from the PartitionRecord on; they are
unknown after a gap without a snapshot.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pyspark.sql.types import ArrayType, IntegerType, StringType
from quorate_protocol.image import NO_LEADER_CHANGE
from quorate_protocol.kafka.enums import LeaderRecoveryState

from pyspark_quorate.rows import CLUSTER_ID, column, nullable, schema
from pyspark_quorate.tables.contract import Cluster, Fields, Fold, Line, Table
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS, Interval, Key, KeyedFold, OnEnd
from pyspark_quorate.tables.topics import REMOVE, TOPIC, TopicNames

PARTITION: Final = ("cluster_id", "topic_id", "partition")
"""Key of a partition."""
PARTITION_COLUMNS: Final = (
    CLUSTER_ID,
    column("topic_id", StringType(), "id of the topic: 22 characters of base64"),
    nullable("topic", StringType(), "name of the topic; null if no record has it"),
    column("partition", IntegerType(), "number of the partition"),
)
"""The first columns of every table of partitions."""

_BROKERS: Final = ArrayType(IntegerType())

SCHEMA: Final = schema(
    *PARTITION_COLUMNS,
    column("leader", IntegerType(), "broker id of the leader, -1 without one"),
    nullable("leader_epoch", IntegerType(), "the partition's leader epoch; null: hidden by a gap"),
    nullable(
        "partition_epoch",
        IntegerType(),
        "the partition's epoch, which grows with each change; null: hidden by a gap",
    ),
    column(
        "leader_recovery_state",
        StringType(),
        "RECOVERING after an unclean leader election until recovery is done (KIP-704); otherwise RECOVERED",
    ),
    column("isr", _BROKERS, "broker ids of the in-sync replicas"),
    column("replicas", _BROKERS, "broker ids of the replicas, the preferred leader first"),
    column("adding_replicas", _BROKERS, "the replicas that a reassignment adds"),
    column("removing_replicas", _BROKERS, "the replicas that a reassignment removes"),
    column(
        "elr", _BROKERS, "eligible leader replicas: not in sync, but with all committed records (KIP-966)"
    ),
    column("last_known_elr", _BROKERS, "former eligible leader replicas that stopped uncleanly (KIP-966)"),
    *INTERVAL_COLUMNS,
)

_LISTS: Final = (
    "isr",
    "replicas",
    "addingReplicas",
    "removingReplicas",
    "eligibleLeaderReplicas",
    "lastKnownElr",
)
"""Fields of a PartitionRecord, in the order of the columns."""
_RECORD: Final = "PartitionRecord"
_CHANGE: Final = "PartitionChangeRecord"
_CLEAR: Final = "ClearElrRecord"


class PartitionState(NamedTuple):
    """The state of a partition, as the table's columns."""

    leader: int
    leader_epoch: int | None
    partition_epoch: int | None
    leader_recovery_state: str
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Partition:
    """A partition, and the run that has its PartitionRecord. In later runs the epochs are unknown."""

    state: PartitionState
    run: int
    leader_epoch: int
    partition_epoch: int


class PartitionIntervals(KeyedFold):
    """The existing partitions. Passes each interval of a partition to all `listeners` when it ends."""

    TYPES = (_RECORD, _CHANGE, _CLEAR, TOPIC, REMOVE)
    NEEDS = (TopicNames,)

    def __init__(self, cluster: Cluster, names: TopicNames) -> None:
        super().__init__(cluster)
        self.names = names
        self.listeners: list[OnEnd] = []
        self._topics: dict[str, dict[int, _Partition]] = defaultdict(dict)
        """Topic id -> partition id -> the partition."""
        self._in_snapshot: dict[str, dict[int, _Partition]] | None = None

    def step(self, line: Line) -> None:
        """Apply a partition's record or change, or the end of its topic."""
        match line.type:
            case "PartitionRecord":
                self._set_state(
                    line.fields["topicId"], line.fields["partitionId"], _complete_partition(line), line
                )
            case "PartitionChangeRecord":
                topic_id, number = line.fields["topicId"], line.fields["partitionId"]
                known = self._topics[topic_id].get(number) if topic_id in self._topics else None
                if known is not None:
                    self._set_state(topic_id, number, _changed_partition(known, line.fields, line.run), line)
            case "ClearElrRecord":
                self._clear_elr(line)
            case _:
                ended = self.names.ended
                if ended is not None:
                    for number in self._topics.pop(ended.topic_id, {}):
                        self.intervals.set_state((ended.topic_id, number), None, line)

    def begin_snapshot(self, line: Line) -> None:
        """Begin a snapshot, whose lines name all partitions that exist."""
        self._in_snapshot = defaultdict(dict)
        super().begin_snapshot(line)

    def end_snapshot(self) -> None:
        """End the partitions that the snapshot lacks."""
        if self._in_snapshot is not None:
            self._topics, self._in_snapshot = self._in_snapshot, None
        super().end_snapshot()

    def _clear_elr(self, line: Line) -> None:
        """Clear the eligible leader replicas of a topic, or of all where the record has no name.

        Kafka skips partitions without any (TopicDelta).
        """
        name = line.fields["topicName"]
        topics = [self.names.latest.get(name)] if name else list(self._topics)
        no_replicas = {"eligibleLeaderReplicas": (), "lastKnownElr": ()}
        for topic_id in topics:
            if topic_id is None or topic_id not in self._topics:
                continue
            for number, known in list(self._topics[topic_id].items()):
                if known.state.elr or known.state.last_known_elr:
                    self._set_state(topic_id, number, _changed_partition(known, no_replicas, line.run), line)

    def _set_state(self, topic_id: str, number: int, now: _Partition, line: Line) -> None:
        self._topics[topic_id][number] = now
        if self._in_snapshot is not None:
            self._in_snapshot[topic_id][number] = now
        self.intervals.set_state((topic_id, number), now.state, line)

    def end_interval(self, interval: Interval, previous: Interval | None, is_followed: bool) -> None:
        """Pass the interval to all listeners."""
        for on_end in self.listeners:
            on_end(interval, previous, is_followed)


def _complete_partition(line: Line) -> _Partition:
    """The partition of a PartitionRecord, which has all fields."""
    fields = line.fields
    epochs = (fields["leaderEpoch"], fields["partitionEpoch"])
    state = PartitionState(
        fields["leader"],
        *epochs,
        _recovery_name(fields.get("leaderRecoveryState")),
        *(tuple(fields.get(name) or ()) for name in _LISTS),
    )
    return _Partition(state, line.run, *epochs)


def _changed_partition(known: _Partition, fields: Fields, run: int) -> _Partition:
    """The partition after a change record, which has only changed fields.

    A negative recovery state means no change.
    """
    before = known.state
    leader = fields.get("leader", NO_LEADER_CHANGE)
    names_leader = leader != NO_LEADER_CHANGE
    recovery = fields.get("leaderRecoveryState", -1)
    leader_epoch = known.leader_epoch + names_leader
    partition_epoch = known.partition_epoch + 1
    is_known = run == known.run

    def changed(name: str, otherwise: tuple[int, ...]) -> tuple[int, ...]:
        value = fields.get(name)
        return otherwise if value is None else tuple(value)

    state = PartitionState(
        leader if names_leader else before.leader,
        leader_epoch if is_known else None,
        partition_epoch if is_known else None,
        before.leader_recovery_state if recovery < 0 else _recovery_name(recovery),
        changed("isr", before.isr),
        changed("replicas", before.replicas),
        changed("addingReplicas", before.adding_replicas),
        changed("removingReplicas", before.removing_replicas),
        changed("eligibleLeaderReplicas", before.elr),
        changed("lastKnownElr", before.last_known_elr),
    )
    return _Partition(state, known.run, leader_epoch, partition_epoch)


def _recovery_name(number: int | None) -> str:
    is_recovering = number == int(LeaderRecoveryState.RECOVERING)
    return LeaderRecoveryState.RECOVERING.name if is_recovering else LeaderRecoveryState.RECOVERED.name


class PartitionRows(Fold):
    """A table of partitions.

    A row waits until the name of its topic is known, which may be late if offsets are missing.
    """

    NEEDS = (PartitionIntervals,)

    def __init__(self, cluster: Cluster, partitions: PartitionIntervals) -> None:
        super().__init__(cluster)
        self._names = partitions.names
        self._waiting: dict[str, list[tuple[int, tuple[Any, ...]]]] = {}
        self._names.listeners.append(self._name)
        partitions.listeners.append(self.end_interval)

    def end_interval(self, interval: Interval, previous: Interval | None, is_followed: bool) -> None:
        """Receive an interval of a partition, the one right before it, and whether another follows."""
        raise NotImplementedError

    def add(self, key: Key, *values: Any) -> None:
        """Add a row; `values` are the columns after those of the partition."""
        topic_id, number = key
        name = self._names.names.get(topic_id)
        if name is None:
            self._waiting.setdefault(topic_id, []).append((number, values))
            return
        self.rows.append((topic_id, name, number, *values))

    def finish(self) -> None:
        """Add the waiting rows with no topic name, because no record has it."""
        for topic_id in list(self._waiting):
            self._name(topic_id, None)

    def _name(self, topic_id: str, name: str | None) -> None:
        waiting = self._waiting.pop(topic_id, ())
        self.rows.extend((topic_id, name, number, *values) for number, values in waiting)


class PartitionLeadership(PartitionRows):
    """The state of the table, which consists only of waiting rows."""

    def end_interval(self, interval: Interval, previous: Interval | None, is_followed: bool) -> None:  # noqa: ARG002
        """Add a row for each interval."""
        self.add(interval.key, *interval.state, *interval.span)


TABLE: Final = Table(
    name="partition_leadership",
    fold=PartitionLeadership,
    doc="Each partition's leader, in-sync replicas, replicas and epochs; a line for each partition epoch.",
    schema=SCHEMA,
    key=(*PARTITION, "from_offset"),
)
