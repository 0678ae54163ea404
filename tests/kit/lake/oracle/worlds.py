"""Random clusters: what was appended, and which of it is readable afterwards.

A :class:`World` has every record with the state before and after it.
"""

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from kit.lake.oracle.history import History
from pyspark_quorate import rows
from quorate_protocol import features
from quorate_protocol.image import ImageState, MetadataImage
from quorate_protocol.image.snapshot import image_to_records
from quorate_protocol.kafka.secret_configs import is_secret_config
from quorate_protocol.records import generated as records
from quorate_protocol.records.batch import decode_batches
from quorate_protocol.records.framing import decode_record
from quorate_protocol.records.generated import MetadataRecord
from quorate_protocol.uuids import uuid_to_text

START: Final = datetime(2026, 1, 31, 23, 30, tzinfo=UTC)
CONTROL: Final = "LeaderChangeMessage"
LEADER_CHANGE: Final = '{"leaderId": 1, "voters": [], "grantingVoters": []}'
BROKERS: Final = (1, 2, 3, 4)
NAMES: Final = ("a", "b", "c")


def to_json(value: Any) -> Any:
    """A record as the data source writes it: Kafka's names of the fields, uuids in base64."""
    if is_dataclass(value):
        return {_camel(part.name): to_json(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, UUID):
        return uuid_to_text(value)
    if isinstance(value, tuple):
        return [uuid_to_text(None) if item is None else to_json(item) for item in value]
    return value


def payload_of(record: MetadataRecord) -> str:
    """The payload of a row."""
    return json.dumps(to_json(record))


def _camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


@dataclass(frozen=True, slots=True)
class Entry:
    """One offset of the log; `record` is None for a control record."""

    offset: int
    epoch: int
    time: datetime
    record: MetadataRecord | None

    @property
    def type(self) -> str:
        """The type of its row."""
        return CONTROL if self.record is None else type(self.record).__name__

    @property
    def payload(self) -> str:
        """The payload of its row."""
        return LEADER_CHANGE if self.record is None else payload_of(self.record)


@dataclass(slots=True)
class World(History):
    """The history of one node, with all states."""

    states: list[ImageState] = field(default_factory=list)
    """By offset: the state of all records below it; one more than there are entries."""


class RecordMaker:
    """Makes batches of records that fit the image as it is now."""

    def __init__(self, random_: random.Random, image: MetadataImage) -> None:
        self.random = random_
        self.image = image
        self.ids = 0
        weighted: tuple[tuple[Any, int], ...] = (
            (self.register_broker, 3),
            (self.change_broker, 8),
            (self.create_topic, 3),
            (self.add_partition, 1),
            (self.change_partition, 14),
            (self.clear_elr, 1),
            (self.remove_topic, 1),
            (self.set_config, 4),
            (self.change_acl, 3),
            (self.set_quota, 3),
            (self.allocate_producer_ids, 1),
            (lambda: [records.NoOpRecord()], 1),
        )
        self._makers = [maker for maker, _ in weighted]
        self._weights = [weight for _, weight in weighted]

    def batch(self) -> list[MetadataRecord]:
        """Draw records that are appended together; their brokers' epochs count from the image's end offset."""
        return self.random.choices(self._makers, self._weights)[0]() or [records.NoOpRecord()]

    def new_id(self) -> UUID:
        """An id that was never used. Its text does not begin with the same characters each time."""
        self.ids += 1
        return UUID(int=self.random.getrandbits(64) << 64 | 1000 + self.ids)

    def _some(self, given: Any, least: int = 0) -> tuple[int, ...]:
        given = list(given)
        return tuple(self.random.sample(given, self.random.randint(min(least, len(given)), len(given))))

    def _sometimes(self, value: Any, probability: float = 0.5) -> Any:
        return value if self.random.random() < probability else None

    def register_broker(self) -> list[Any]:
        """A new incarnation."""
        broker_id = self.random.choice(BROKERS)
        return [
            records.RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=self.new_id(),
                broker_epoch=self.image.end_offset,
                end_points=tuple(
                    records.BrokerEndpoint(name=name, host=f"b{broker_id}", port=port, security_protocol=0)
                    for name, port in (("PLAIN", 9092), ("TLS", 40000))[: self.random.randint(1, 2)]
                ),
                features=(),
                rack=self.random.choice([None, "r1", "r2"]),
                fenced=self.random.random() < 0.9,
                log_dirs=tuple(UUID(int=500 + n) for n in range(self.random.randint(0, 2))),
            )
        ]

    def change_broker(self) -> list[Any]:
        """Fenced, unfenced, shutting down, a log directory less; unregistered."""
        if not self.image.cluster.brokers:
            return []
        broker = self.random.choice(list(self.image.cluster.brokers.values()))
        broker_id, epoch = broker.broker_id, broker.epoch
        match self.random.randint(0, 12):
            case 0:
                return [records.UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch)]
            case 1 | 2 | 3:
                return [records.FenceBrokerRecord(id=broker_id, epoch=epoch)]
            case 4 | 5 | 6:
                return [records.UnfenceBrokerRecord(id=broker_id, epoch=epoch)]
        return [
            records.BrokerRegistrationChangeRecord(
                broker_id=broker_id,
                broker_epoch=epoch,
                fenced=self.random.choice((-1, -1, 0, 1)),
                in_controlled_shutdown=int(self.random.random() < 0.2),
                log_dirs=self.random.choice(((), (), (UUID(int=501),))),
                cordoned_log_dirs=self.random.choice((None, None, (UUID(int=501),))),
            )
        ]

    def _partition(self, topic_id: UUID, partition_id: int) -> Any:
        replicas = self._some(BROKERS, 1)
        return records.PartitionRecord(
            partition_id=partition_id,
            topic_id=topic_id,
            replicas=replicas,
            isr=replicas,
            removing_replicas=(),
            adding_replicas=(),
            leader=replicas[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=(),
        )

    def create_topic(self) -> list[Any]:
        """A topic of a name that is free, with partitions and sometimes a config."""
        name = self.random.choice(NAMES)
        if name in self.image.topics.by_name:
            return []
        topic_id = self.new_id()
        made: list[Any] = [records.TopicRecord(name=name, topic_id=topic_id)]
        if self.random.random() < 0.3:
            made.append(records.ConfigRecord(resource_type=2, resource_name=name, name="k", value="v"))
        return made + [self._partition(topic_id, n) for n in range(self.random.randint(1, 3))]

    def _topic(self) -> Any:
        topics = list(self.image.topics.by_id.values())
        return self.random.choice(topics) if topics else None

    def add_partition(self) -> list[Any]:
        """One partition more."""
        topic = self._topic()
        return [self._partition(topic.topic_id, len(topic.partitions))] if topic else []

    def change_partition(self) -> list[Any]:
        """Any fields of a partition."""
        topic = self._topic()
        if topic is None:
            return []
        partition_id = self.random.choice(list(topic.partitions))
        partition = topic.partitions[partition_id]
        if self.random.random() < 0.1:  # what a broker reports after it has placed its replica
            return [records.PartitionChangeRecord(partition_id=partition_id, topic_id=topic.topic_id)]
        replicas = self._sometimes(self._some(BROKERS, 1), 0.2)
        members = replicas or partition.replicas
        return [
            records.PartitionChangeRecord(
                partition_id=partition_id,
                topic_id=topic.topic_id,
                isr=self._sometimes(self._some(members)),
                leader=self.random.choice((-2, -2, -1, *members)),
                replicas=replicas,
                removing_replicas=self._sometimes(self._some(members[:1]), 0.2),
                adding_replicas=self._sometimes(self._some(members[-1:]), 0.2),
                leader_recovery_state=self.random.choice((-1, -1, 0, 1)),
                eligible_leader_replicas=self._sometimes(self._some(members), 0.3),
                last_known_elr=self._sometimes(self._some(members), 0.3),
            )
        ]

    def clear_elr(self) -> list[Any]:
        """Of one topic, or of all."""
        topic = self._topic()
        return [records.ClearElrRecord(topic_name=self.random.choice((topic.name if topic else "", "")))]

    def remove_topic(self) -> list[Any]:
        """The topic with all that it has."""
        topic = self._topic()
        return [records.RemoveTopicRecord(topic_id=topic.topic_id)] if topic else []

    def set_config(self) -> list[Any]:
        """Some config of a topic, a broker or all brokers, secret or not."""
        topic = self._topic()
        resource = self.random.choice([(4, "1"), (4, ""), (2, topic.name) if topic else (4, "2")])
        name = self.random.choice(("k", "ssl.keystore.password"))
        value = (
            self.random.choice(("[redacted]", None)) if name != "k" else self.random.choice(("v", "w", None))
        )
        return [
            records.ConfigRecord(resource_type=resource[0], resource_name=resource[1], name=name, value=value)
        ]

    def change_acl(self) -> list[Any]:
        """One comes or goes."""
        if self.image.acls and self.random.random() < 0.5:
            return [records.RemoveAccessControlEntryRecord(id=self.random.choice(list(self.image.acls)))]
        return [
            records.AccessControlEntryRecord(
                id=self.new_id(),
                resource_type=self.random.choice((2, 3, 99)),
                resource_name=self.random.choice(NAMES),
                pattern_type=self.random.choice((3, 4)),
                principal="User:" + self.random.choice(NAMES),
                host="*",
                operation=self.random.choice((3, 4)),
                permission_type=self.random.choice((2, 3)),
            )
        ]

    def set_quota(self) -> list[Any]:
        """A quota of users, clients or both, set or removed."""
        kinds = [(k, self.random.choice(("a", None))) for k in self._some(("user", "client-id"), 1)]  # type: ignore[arg-type]
        return [
            records.ClientQuotaRecord(
                entity=tuple(records.EntityData(entity_type=str(k), entity_name=n) for k, n in kinds),
                key=self.random.choice(("producer_byte_rate", "request_percentage")),
                value=self.random.choice((1.5, 2.0, 1e9)),
                remove=self.random.random() < 0.3,
            )
        ]

    def allocate_producer_ids(self) -> list[Any]:
        """The next thousand."""
        first = max(self.image.next_producer_id, 0)
        return [
            records.ProducerIdsRecord(
                broker_id=self.random.choice(BROKERS), broker_epoch=7, next_producer_id=first + 1000
            )
        ]


def make_world(seed: int, length: int) -> World:
    """The cluster of a seed after about `length` batches: a longer one begins with the same log."""
    random_ = random.Random(seed)
    world = World(cluster_id=f"cluster-{seed}-{length}")
    _append_log(world, random_, length)
    _lose(world, random.Random(seed + 1))
    return world


def _append_log(world: World, random_: random.Random, length: int) -> None:
    image = MetadataImage()
    maker = RecordMaker(random_, image)
    epoch, time = 1, START
    first: list[Any] = [records.FeatureLevelRecord(name=features.METADATA_VERSION, feature_level=30)]
    world.states.append(image.copy())
    for number in range(length + 1):
        batch: list[Any] = maker.batch() if number else first
        if number == 0 or random_.random() < 0.05:
            epoch += number > 0
            batch = [None] if number else [None, *first]
        # The clock of a new leader may be behind that of the former one.
        time += timedelta(milliseconds=random_.choice((0, 1, 1000, 60_000, 900_000, -5)))
        for record in batch:
            offset = len(world.log)
            if record is not None:
                image.replay(record, offset)
            image.advance(end_offset=offset + 1, epoch=epoch, timestamp_ms=0)
            world.log.append(Entry(offset, epoch, time, record))
            world.states.append(image.copy())


def _lose(world: World, random_: random.Random) -> None:
    end = len(world.log)
    lost: set[int] = set()
    for _ in range(random_.choice((0, 0, 1, 2, 3))):
        first = random_.choice((0, random_.randrange(end)))
        lost |= set(range(first, first + random_.randint(1, max(1, end // 3))))
    world.readable = set(range(end)) - lost
    # Most gaps are bridged, as they are where a controller fell behind and fetched a snapshot.
    for offset in range(2, end + 1):
        ends_gap = offset - 1 in lost and offset not in lost
        if random_.random() < (0.6 if ends_gap else 0.05):
            world.snapshots.add(offset)


def world_of(cluster_id: str, logs: Iterable[Path]) -> World:
    """The world of a real log, in the files of a node, as the lake shows it: secrets are redacted."""
    image = MetadataImage()
    world = World(cluster_id=cluster_id, states=[image.copy()])
    for batch in (batch for path in sorted(logs) for batch in decode_batches(path.read_bytes())):
        epoch = batch.partition_leader_epoch
        for offset, content in enumerate(batch.records, start=batch.base_offset):
            record = None
            if not batch.is_control:
                assert content.value is not None
                record = decode_record(content.value)
                if isinstance(record, records.ConfigRecord) and record.value is not None:
                    is_secret = is_secret_config(record.resource_type, record.name)
                    record = replace(record, value="[redacted]") if is_secret else record
                image.replay(record, offset)
            image.advance(end_offset=offset + 1, epoch=epoch, timestamp_ms=0)
            time = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=content.timestamp_ms)
            world.log.append(Entry(offset, epoch, time, record))
            world.states.append(image.copy())
    world.readable = set(range(len(world.log)))
    return world


def rows_of(world: World) -> list[tuple[Any, ...]]:
    """The rows of the data source of one directory: what can be read of the log, and the checkpoints."""
    made: list[tuple[Any, ...]] = []
    for entry in world.log:
        if entry.offset in world.readable:
            place = (entry.offset, 0, entry.epoch, entry.time, entry.type, 0, entry.payload)
            made.append((world.cluster_id, f"{world.cluster_id}/0.log", rows.LOG, *place))
    for offset in world.snapshots:
        at, file = world.log[offset - 1], f"{world.cluster_id}/{offset}.checkpoint"
        state = [
            (type(record).__name__, payload_of(_in_another_order(record)))
            for record in image_to_records(world.states[offset], 30)
        ]
        lines = [("SnapshotHeaderRecord", "{}"), *state, ("SnapshotFooterRecord", "{}")]
        for ordinal, (kind, payload) in enumerate(lines):
            place = (offset, ordinal, at.epoch, at.time, kind, 0, payload)
            made.append((world.cluster_id, file, rows.SNAPSHOT, *place))
    return made


def _in_another_order(record: MetadataRecord) -> MetadataRecord:
    """Kafka's snapshots have a broker's endpoints in the order of a hash map, not in that of its registration."""
    if isinstance(record, records.RegisterBrokerRecord):
        return replace(record, end_points=record.end_points[::-1])
    return record
