"""Topics and their partitions, stored so that a copy of a large image is cheap.

A partition takes some 220 bytes, indexes included, where most replica lists occur several times (for instance
20 partitions per topic on 30 brokers), and some 430 where no two partitions have the same one.

A copy shares the topics with its original. Each image has a token of its own, and changes in place only
topics that carry it; it clones any other topic before a change. A copy gives both images new tokens, so that
from then on the one that writes to a topic clones it, once.
"""

from typing import Final, Protocol
from uuid import UUID

from quorate_protocol.image.partitions import PartitionRegistration

PartitionKey = tuple[UUID, int]
"""Topic id and partition id."""


class TopicImage:
    """One topic with its partitions. Readers must not change it, nor keep it beyond the next replay."""

    __slots__ = ("name", "owner", "partitions", "topic_id")

    def __init__(
        self, name: str, topic_id: UUID, partitions: dict[int, PartitionRegistration], owner: object
    ) -> None:
        self.name: Final = name
        self.topic_id: Final = topic_id
        self.partitions: Final = partitions
        """By partition id."""
        self.owner: Final = owner
        """The token of the only image that may change it in place."""

    def __repr__(self) -> str:
        return f"TopicImage({self.name!r}, {self.topic_id}, {len(self.partitions)} partitions)"


def _metric_name(name: str) -> str:
    return name.replace(".", "_")


class TopicsObserver(Protocol):
    """Follows the changes of topics, each after it has been made."""

    def on_change(
        self,
        topic: TopicImage,
        partition_id: int,
        old: PartitionRegistration | None,
        new: PartitionRegistration | None,
    ) -> None:
        """A partition was created (``old`` is None), changed, or removed (``new`` is None)."""

    def on_topic_removed(self, topic: TopicImage) -> None:
        """A topic was removed with all its partitions."""

    def on_topic_restored(self, topic: TopicImage) -> None:
        """Such a topic is back."""


class TopicsImage:
    """All topics, by id and by name."""

    __slots__ = (
        "_by_metric_name",
        "_observer",
        "_owner",
        "by_id",
        "by_name",
    )

    def __init__(self, observer: TopicsObserver | None = None) -> None:
        self.by_id: dict[UUID, TopicImage] = {}
        self.by_name: dict[str, TopicImage] = {}
        self._by_metric_name: dict[str, tuple[str, ...]] = {}
        """Names with '.' or '_' by the one that metrics have for them."""
        self._owner = object()
        self._observer = observer

    @property
    def names(self) -> "TopicNames":
        """The same as a table: topic id -> name."""
        # Not kept: topics that refer to themselves would stay in memory until a full garbage collection, or for
        # ever when they are excluded from it.
        return TopicNames(self)

    @property
    def partitions(self) -> "TopicPartitions":
        """The same as a table: (topic id, partition id) -> PartitionRegistration."""
        return TopicPartitions(self)

    @property
    def removals(self) -> "RemovedTopics":
        """Topics with their partitions as a table from which they are removed whole."""
        return RemovedTopics(self)

    def named_alike(self, name: str) -> tuple[str, ...]:
        """Return the topics whose names differ from `name` at most in '.' against '_'; none if it has neither."""
        return self._by_metric_name.get(_metric_name(name), ())

    def get_partition(self, topic_id: UUID, partition_id: int) -> PartitionRegistration | None:
        topic = self.by_id.get(topic_id)
        return topic.partitions.get(partition_id) if topic else None

    def copy(self) -> "TopicsImage":
        """Return an equal image that changes independently. The time depends on the number of topics alone."""
        copied = TopicsImage()
        copied.by_id = self.by_id.copy()
        copied.by_name = self.by_name.copy()
        copied._by_metric_name = self._by_metric_name.copy()
        self._owner = object()
        return copied

    def same_as(self, other: "TopicsImage") -> bool:
        """Whether both have equal topics with equal partitions."""
        return self.by_name.keys() == other.by_name.keys() and all(
            topic.topic_id == other.by_name[name].topic_id
            and topic.partitions == other.by_name[name].partitions
            for name, topic in self.by_name.items()
        )

    def write_name(self, topic_id: UUID, name: str | None) -> str | None:
        """Create a topic, or (None) remove one without partitions; return its old name."""
        old = self.by_id.get(topic_id)
        assert not old or (name is None and not old.partitions), f"topic {topic_id} exists: {old}"
        if name is not None:
            self._add(TopicImage(name, topic_id, {}, self._owner))
        elif old is not None:
            self._drop(old)
        return old.name if old else None

    def write_whole(self, topic_id: UUID, topic: TopicImage | None) -> TopicImage | None:
        """Remove a topic with its partitions (None), or put it back; return the topic that there was."""
        old = self.by_id.get(topic_id)
        if old is not None:
            self._drop(old)
            if self._observer:
                self._observer.on_topic_removed(old)
        if topic is not None:
            self._add(topic)
            if self._observer:
                self._observer.on_topic_restored(topic)
        return old

    def write_partition(
        self, topic_id: UUID, partition_id: int, partition: PartitionRegistration | None
    ) -> PartitionRegistration | None:
        """Write or (None) remove a partition of an existing topic; return the previous one."""
        topic = self.by_id[topic_id]
        if topic.owner is not self._owner:
            topic = TopicImage(topic.name, topic.topic_id, topic.partitions.copy(), self._owner)
            self._put(topic)
        old = topic.partitions.get(partition_id)
        if partition is not None:
            topic.partitions[partition_id] = partition
        elif old is not None:
            del topic.partitions[partition_id]
        if self._observer:
            self._observer.on_change(topic, partition_id, old, partition)
        return old

    def _index(self, name: str, *, is_present: bool) -> None:
        if "." not in name and "_" not in name:
            return
        metric_name = _metric_name(name)
        others = tuple(other for other in self._by_metric_name.get(metric_name, ()) if other != name)
        names = (*others, name) if is_present else others
        if names:
            self._by_metric_name[metric_name] = names
        else:
            self._by_metric_name.pop(metric_name, None)

    def _add(self, topic: TopicImage) -> None:
        self._index(topic.name, is_present=True)
        self._put(topic)

    def _drop(self, topic: TopicImage) -> None:
        del self.by_id[topic.topic_id]
        if self.by_name.get(topic.name) is topic:
            del self.by_name[topic.name]
            self._index(topic.name, is_present=False)

    def _put(self, topic: TopicImage) -> None:
        self.by_id[topic.topic_id] = topic
        self.by_name[topic.name] = topic


class TopicNames:
    """Topics as a table whose rows are their names."""

    __slots__ = ("_topics", "name")

    def __init__(self, topics: TopicsImage) -> None:
        self.name: Final = "topics"
        self._topics = topics

    def get(self, topic_id: UUID, /) -> str | None:
        topic = self._topics.by_id.get(topic_id)
        return topic.name if topic else None

    def write(self, key: UUID, value: str | None, /) -> str | None:
        return self._topics.write_name(key, value)


class TopicPartitions:
    """Partitions of all topics as one table."""

    __slots__ = ("_topics", "name")

    def __init__(self, topics: TopicsImage) -> None:
        self.name: Final = "partitions"
        self._topics = topics

    def get(self, key: PartitionKey, /) -> PartitionRegistration | None:
        return self._topics.get_partition(*key)

    def write(
        self, key: PartitionKey, value: PartitionRegistration | None, /
    ) -> PartitionRegistration | None:
        return self._topics.write_partition(key[0], key[1], value)


class RemovedTopics:
    """Topics as a table whose rows are whole: one write removes a topic, whatever its number of partitions.

    A removed topic is the row that the journal keeps; nothing changes it until an undo puts it back.
    """

    __slots__ = ("_topics", "name")

    def __init__(self, topics: TopicsImage) -> None:
        self.name: Final = "removals"
        self._topics = topics

    def get(self, topic_id: UUID, /) -> TopicImage | None:
        return self._topics.by_id.get(topic_id)

    def write(self, key: UUID, value: TopicImage | None, /) -> TopicImage | None:
        return self._topics.write_whole(key, value)
