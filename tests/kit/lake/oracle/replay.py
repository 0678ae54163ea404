"""A reader of worlds: what it knows of brokers, topics and security at each offset.

:class:`Replay` writes into a book each time that a record or a checkpoint describes a key.
"""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Final
from uuid import UUID

from kit.lake.oracle.intervals import Book, Interval
from kit.lake.oracle.worlds import Entry, World
from quorate_protocol.image import BrokerRegistration, ImageState, PartitionRegistration
from quorate_protocol.image.security import quota_entity
from quorate_protocol.kafka.enums import AclOperation, AclPermissionType, PatternType, ResourceType
from quorate_protocol.records import generated as records
from quorate_protocol.uuids import uuid_to_text

Key = tuple[Any, ...]
State = tuple[Any, ...] | None
"""What a table shows of a key; None: it is not there."""
REDACTED: Final = "[redacted]"
BOOKS: Final = ("topics", "partitions", "brokers", "configs", "acls", "quotas")


@dataclass(slots=True)
class Broker:
    """What is known of a registration; None: a gap hides it."""

    epoch: int
    fenced: bool | None = None
    in_shutdown: bool | None = None
    incarnation: str | None = None
    rack: str | None = None
    endpoints: tuple[Any, ...] | None = None
    log_dirs: tuple[str, ...] | None = None
    cordoned: tuple[str, ...] | None = None

    @classmethod
    def of(cls, registered: BrokerRegistration) -> "Broker":
        """All is known."""
        return cls(
            epoch=registered.epoch,
            fenced=registered.fenced,
            in_shutdown=registered.in_controlled_shutdown,
            incarnation=uuid_to_text(registered.incarnation_id),
            rack=registered.rack,
            endpoints=tuple(
                sorted(
                    (p.name, p.host, p.port, p.security_protocol.name) for p in registered.listeners.values()
                )
            ),
            log_dirs=texts(registered.directories),
            cordoned=None
            if registered.cordoned_directories is None
            else texts(registered.cordoned_directories),
        )

    @property
    def state(self) -> State:
        """As the table has it."""
        name = "fenced" if self.fenced else "controlled-shutdown" if self.in_shutdown else "unfenced"
        shown = None if self.fenced is None else name
        return (self.epoch, self.incarnation, shown, self.rack, self.endpoints, self.log_dirs, self.cordoned)


@dataclass(slots=True)
class Partition:
    """A partition, and whether its epochs are known."""

    now: PartitionRegistration
    knows_epochs: bool = True

    @property
    def state(self) -> State:
        """As the table has it."""
        now, known = self.now, self.knows_epochs
        return (
            now.leader,
            now.leader_epoch if known else None,
            now.partition_epoch if known else None,
            now.leader_recovery_state.name,
            *(now.isr, now.replicas, now.adding_replicas, now.removing_replicas, now.elr, now.last_known_elr),
        )


@dataclass(slots=True)
class Replay:
    """The state that a reader of a world knows, and the history of each key."""

    books: dict[str, Book] = field(default_factory=lambda: {name: Book() for name in BOOKS})
    ended_topics: dict[str, int] = field(default_factory=dict)
    """Name -> how many gaps there were when a topic of that name last ended, with all its configs."""
    topics: dict[UUID, str] = field(default_factory=dict)
    partitions: dict[tuple[UUID, int], Partition] = field(default_factory=dict)
    brokers: dict[int, Broker] = field(default_factory=dict)
    configs: dict[Key, tuple[str, int | None]] = field(default_factory=dict)
    acls: dict[UUID, tuple[Any, ...]] = field(default_factory=dict)
    quotas: dict[Key, float] = field(default_factory=dict)
    next_producer_id: int = 0
    blocks: list[Key] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    """Topic id -> name, of all topics that ever existed."""
    partition_counts: dict[str, int] = field(default_factory=dict)

    def run(self, world: World) -> None:
        """Read all of it."""
        for moment in world.moments():
            if moment.is_snapshot:
                self._restore(world, moment.offset)
            elif moment.entry is not None:
                if moment.entry.record is not None:
                    self._apply(moment.entry)
            else:
                for book in self.books.values():
                    book.gap(moment.offset)
                for partition in self.partitions.values():
                    partition.knows_epochs = False

    def intervals(self, table: str) -> list[list[Interval]]:
        """The intervals of each key, in order."""
        of_key: dict[Key, list[Interval]] = defaultdict(list)
        for interval in sorted(self.books[table].finish(), key=lambda interval: interval.from_offset):
            of_key[interval.key].append(interval)
        return list(of_key.values())

    def states(self) -> dict[str, dict[Key, State]]:
        """What is known now: book -> key -> state."""
        return {
            "topics": {(uuid_to_text(id_),): (name,) for id_, name in self.topics.items()},
            "partitions": {
                (uuid_to_text(topic), number): known.state
                for (topic, number), known in self.partitions.items()
            },
            "brokers": {(id_,): broker.state for id_, broker in self.brokers.items()},
            "configs": dict(self.configs),
            "acls": {(uuid_to_text(id_),): entry for id_, entry in self.acls.items()},
            "quotas": {key: (value,) for key, value in self.quotas.items()},
        }

    def know(self, image: ImageState) -> None:
        """What is not in the image, is not there."""
        self.topics = {id_: topic.name for id_, topic in image.topics.by_id.items()}
        self.partitions = {
            (id_, number): Partition(partition)
            for id_, topic in image.topics.by_id.items()
            for number, partition in topic.partitions.items()
        }
        self.brokers = {id_: Broker.of(broker) for id_, broker in image.cluster.brokers.items()}
        self.configs = {
            (*kind_of(resource), name): (value, None)
            for resource, values in image.configs.items()
            for name, value in values.items()
        }
        self.acls = {id_: entry_of(entry) for id_, entry in image.acls.items()}
        self.quotas = {
            (entity, key): value
            for entity, values in image.client_quotas.items()
            for key, value in values.items()
        }

    def _restore(self, world: World, offset: int) -> None:
        """A checkpoint states everything."""
        image, time = world.states[offset], world.log[offset - 1].time
        just_set = {key: config for key, config in self.configs.items() if config[1] == offset - 1}
        self.know(image)
        self.configs |= just_set
        for id_, topic in image.topics.by_id.items():
            self._name(id_, topic.name, topic.partitions)
        self._allocated(image.next_producer_id, image.next_producer_id, (time, offset - 1))
        for table, states in self.states().items():
            self.books[table].restate(states, time, offset)

    def _name(self, topic_id: UUID, name: str, numbers: Any = ()) -> None:
        text = uuid_to_text(topic_id)
        self.names[text] = name
        for number in numbers:
            self.partition_counts[text] = max(self.partition_counts.get(text, 0), number + 1)

    def _allocated(self, first: int, until: int, at: Key) -> None:
        """Producer ids below `until` are given out; those from `first` on by what is seen here."""
        if first > self.next_producer_id:
            self.blocks.append((*at, None, None, self.next_producer_id, first - 1, False))
        self.next_producer_id = max(self.next_producer_id, until)

    def _apply(self, entry: Entry) -> None:
        before, ended = self.states(), dict(self.ended_topics)
        reported = _RULES.get(type(entry.record), lambda *_: ())(self, entry)
        after = self.states()
        for table, key in {*reported, *_changed(before, after)}:
            book = self.books[table]
            if table == "configs" and key[1] in ended:
                # The end of a topic implies that none of its configs is left.
                known = max(ended[key[1]], book.base)
                book.seen[key] = max(book.seen.get(key, 0), known)
            book.set_state(key, after[table].get(key), entry.time, entry.offset)

    # Each rule changes what is known, and returns the keys that the record describes, by table.

    def register_broker(self, entry: Entry) -> Any:
        self.brokers[entry.record.broker_id] = Broker.of(BrokerRegistration.from_record(entry.record))
        return {("brokers", (entry.record.broker_id,))}

    def unregister_broker(self, entry: Entry) -> Any:
        self.brokers.pop(entry.record.broker_id, None)
        return {("brokers", (entry.record.broker_id,))}

    def _broker(self, broker_id: int, epoch: int) -> Broker:
        known = self.brokers.get(broker_id)
        if known is None or known.epoch != epoch:  # it was registered again in a gap
            known = self.brokers[broker_id] = Broker(epoch)
        return known

    def fence_broker(self, entry: Entry) -> Any:
        fenced = isinstance(entry.record, records.FenceBrokerRecord)
        self._broker(entry.record.id, entry.record.epoch).fenced = fenced
        return {("brokers", (entry.record.id,))}

    def change_broker(self, entry: Entry) -> Any:
        change = entry.record
        broker = self._broker(change.broker_id, change.broker_epoch)
        if change.fenced:
            broker.fenced = change.fenced == 1
        if change.in_controlled_shutdown:
            broker.in_shutdown = True
        if change.log_dirs:
            broker.log_dirs = texts(change.log_dirs)
        if change.cordoned_log_dirs is not None:
            broker.cordoned = texts(change.cordoned_log_dirs)
        return {("brokers", (change.broker_id,))}

    def create_topic(self, entry: Entry) -> Any:
        if entry.record.name in self.names.values():  # if it was not removed before, then in a gap
            self._forget(entry.record.name)
        self.topics[entry.record.topic_id] = entry.record.name
        self._name(entry.record.topic_id, entry.record.name)
        return {("topics", (uuid_to_text(entry.record.topic_id),))}

    def remove_topic(self, entry: Entry) -> Any:
        topic_id = entry.record.topic_id
        name = self.names.get(uuid_to_text(topic_id))
        if name is not None:
            self._forget(name)
        self.partitions = {key: known for key, known in self.partitions.items() if key[0] != topic_id}
        return ()

    def _forget(self, name: str) -> None:
        self.ended_topics[name] = len(self.books["topics"].gaps)
        gone = {id_ for id_, other in self.topics.items() if other == name}
        self.topics = {id_: other for id_, other in self.topics.items() if id_ not in gone}
        self.partitions = {key: known for key, known in self.partitions.items() if key[0] not in gone}
        self.configs = {key: config for key, config in self.configs.items() if key[:2] != ("TOPIC", name)}

    def create_partition(self, entry: Entry) -> Any:
        key = (entry.record.topic_id, entry.record.partition_id)
        self.partitions[key] = Partition(PartitionRegistration.from_record(entry.record))
        text = uuid_to_text(key[0])
        self.partition_counts[text] = max(self.partition_counts.get(text, 0), key[1] + 1)
        return {("partitions", (text, key[1]))}

    def change_partition(self, entry: Entry) -> Any:
        key = (entry.record.topic_id, entry.record.partition_id)
        if key not in self.partitions:  # what it was is not known
            return ()
        known = self.partitions[key]
        self.partitions[key] = replace(known, now=known.now.merge(entry.record))
        return {("partitions", (uuid_to_text(key[0]), key[1]))}

    def clear_elr(self, entry: Entry) -> Any:
        nobody = records.PartitionChangeRecord(topic_id=None, eligible_leader_replicas=(), last_known_elr=())
        named = entry.record.topic_name
        reported = set()
        for key, known in self.partitions.items():
            is_meant = not named or self.topics.get(key[0]) == named
            if is_meant and (known.now.elr or known.now.last_known_elr):
                self.partitions[key] = replace(known, now=known.now.merge(nobody))
                reported.add(("partitions", (uuid_to_text(key[0]), key[1])))
        return reported

    def set_config(self, entry: Entry) -> Any:
        key = (*kind_of((entry.record.resource_type, entry.record.resource_name)), entry.record.name)
        value = entry.record.value
        self.configs.pop(key, None)
        if value is not None:
            self.configs[key] = (value, entry.offset if value == REDACTED else None)
        return {("configs", key)}

    def add_acl(self, entry: Entry) -> Any:
        self.acls[entry.record.id] = entry_of(entry.record)
        return {("acls", (uuid_to_text(entry.record.id),))}

    def remove_acl(self, entry: Entry) -> Any:
        self.acls.pop(entry.record.id, None)
        return {("acls", (uuid_to_text(entry.record.id),))}

    def set_quota(self, entry: Entry) -> Any:
        key = (quota_entity(entry.record.entity), entry.record.key)
        self.quotas.pop(key, None)
        if not entry.record.remove:
            self.quotas[key] = entry.record.value
        return {("quotas", key)}

    def allocate_producer_ids(self, entry: Entry) -> Any:
        until = entry.record.next_producer_id
        self._allocated(until - 1000, until, (entry.time, entry.offset))
        got = (entry.record.broker_id, entry.record.broker_epoch, until - 1000, until - 1, True)
        self.blocks.append((entry.time, entry.offset, *got))
        return ()


def _changed(before: dict[str, dict[Key, State]], after: dict[str, dict[Key, State]]) -> set[tuple[str, Key]]:
    return {
        (table, key)
        for table in after
        for key in {*before[table], *after[table]}
        if before[table].get(key) != after[table].get(key)
    }


_RULES: Final[dict[type, Any]] = {
    records.RegisterBrokerRecord: Replay.register_broker,
    records.UnregisterBrokerRecord: Replay.unregister_broker,
    records.FenceBrokerRecord: Replay.fence_broker,
    records.UnfenceBrokerRecord: Replay.fence_broker,
    records.BrokerRegistrationChangeRecord: Replay.change_broker,
    records.TopicRecord: Replay.create_topic,
    records.RemoveTopicRecord: Replay.remove_topic,
    records.PartitionRecord: Replay.create_partition,
    records.PartitionChangeRecord: Replay.change_partition,
    records.ClearElrRecord: Replay.clear_elr,
    records.ConfigRecord: Replay.set_config,
    records.AccessControlEntryRecord: Replay.add_acl,
    records.RemoveAccessControlEntryRecord: Replay.remove_acl,
    records.ClientQuotaRecord: Replay.set_quota,
    records.ProducerIdsRecord: Replay.allocate_producer_ids,
}


def texts(ids: Any) -> tuple[str, ...]:
    """Ids as a table has them."""
    return tuple(sorted(uuid_to_text(id_) for id_ in ids))


def kind_of(resource: tuple[int, str]) -> tuple[str, str]:
    """A config resource as a table has it."""
    return {2: "TOPIC", 4: "BROKER", 16: "CLIENT_METRICS", 32: "GROUP"}[resource[0]], resource[1]


def entry_of(entry: Any) -> tuple[Any, ...]:
    """An access control entry as a table has it."""
    return (
        name_in(ResourceType, entry.resource_type),
        entry.resource_name,
        name_in(PatternType, entry.pattern_type),
        *(entry.principal, entry.host),
        name_in(AclOperation, entry.operation),
        name_in(AclPermissionType, entry.permission_type),
    )


def name_in(kind: type[IntEnum], number: int) -> str:
    """The name of a number; the number where it has none."""
    return next((member.name for member in kind if member.value == number), str(number))
