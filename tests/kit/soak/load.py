"""What clients do during a soak: they produce, create and delete topics, and change and read configs."""

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from kit.ledger import FLUSH_TIMEOUT_S, IN_FLIGHT_MAX, Worker
from kit.linearizability import CREATE, DELETE, READ, SET
from kit.soak.checker import CONFIG, TOPIC
from kit.soak.history import Recorder, What, ranges
from kit.soak.nodes import SoakCluster
from kit.soak.observer import Observer
from quorate_admin.client import AdminClient
from quorate_admin.errors import AdminError, ServerError
from quorate_admin.types.configs import AlterConfigOp, ConfigResource
from quorate_admin.types.topics import NewTopic
from quorate_protocol.kafka.enums import ConfigOpType, ConfigResourceType, ConfigSource
from quorate_protocol.uuids import uuid_to_text

RECORDS, PARTITIONS = "soak-records", 3
PRODUCE_EVERY_S = 0.05
MARKER = "soak-marker/retention.ms"
CONFIG_TOPICS = 3
CONFIG_NAMES = (
    *("retention.ms", "segment.ms", "flush.ms", "delete.retention.ms", "file.delete.delay.ms"),
    *("max.compaction.lag.ms", "message.timestamp.after.max.ms", "message.timestamp.before.max.ms"),
)
SETS_PER_NAME = 80
"""Changes of a name before clients use the next one; the search for an order should stay short."""
CLIENTS = 3
ACT_EVERY_S = (0.3, 1.0)
REQUEST_TIMEOUT_MS = 8_000
UNANSWERED_MAX = 2
USES_MAX = 12
"""How often a topic's name is used; the search for an order should stay short."""


class PartitionProducer(Worker):
    """Produces consecutive numbers to one partition with acks=all, and notes at the end which were acknowledged."""

    def __init__(self, cluster: SoakCluster, recorder: Recorder, partition: int) -> None:
        super().__init__(f"producer to {partition}")
        self._servers = cluster.bootstrap_servers
        self._recorder = recorder
        self._partition = partition
        self._next = 0
        self._acknowledged: list[int] = []
        self._failures: dict[str, int] = {}
        self._is_fatal = False
        self._producer = self._new_producer()

    def _new_producer(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "delivery.timeout.ms": FLUSH_TIMEOUT_S * 1000,
                "error_cb": self._on_error,
                "log_level": 0,
            }
        )

    def _work(self) -> None:
        if self._is_fatal:  # a producer that failed for good has to be replaced; numbers continue
            self._producer.close()
            self._is_fatal = False
            self._producer = self._new_producer()
        if len(self._producer) < IN_FLIGHT_MAX:
            try:
                self._producer.produce(
                    RECORDS,
                    str(self._next).encode(),
                    partition=self._partition,
                    on_delivery=self._on_delivery,
                )
            except KafkaException as error:
                self._is_fatal = True
                self._count(str(error.args[0]))
            self._next += 1
        self._producer.poll(0)
        self._ended.wait(PRODUCE_EVERY_S)

    def _finish(self) -> None:
        self._producer.flush(FLUSH_TIMEOUT_S)
        self._recorder.note(
            What.PRODUCED,
            partition=self._partition,
            sent=self._next,
            acknowledged=len(self._acknowledged),
            ranges=ranges(self._acknowledged),
            failures=self._failures,
        )

    def _close(self) -> None:
        self._producer.close()

    def _on_error(self, error: KafkaError) -> None:
        self._is_fatal = self._is_fatal or error.fatal()

    def _count(self, failure: str) -> None:
        self._failures[failure] = self._failures.get(failure, 0) + 1

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        assert isinstance(value, bytes)
        if error is None:
            self._acknowledged.append(int(value))
        else:
            self._count(error.name())


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request of a client."""

    client: str
    kind: str
    key: str
    action: str
    written: str | None = None


@dataclass(slots=True)
class _Name:
    """A topic's name that clients use together, and whether they believe that there is such a topic."""

    name: str
    is_there: bool = False
    uses: int = 0
    unanswered: int = 0

    @property
    def is_used_up(self) -> bool:
        return self.uses >= USES_MAX or self.unanswered >= UNANSWERED_MAX


class Administrators:
    """Admin clients in a thread of their own: some use brokers, one reads at the active controller."""

    def __init__(self, cluster: SoakCluster, recorder: Recorder, observer: Observer, seed: int) -> None:
        self._cluster = cluster
        self._recorder = recorder
        self._observer = observer
        self._source = random.Random(seed)
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="administrators", daemon=True)
        self._count = 0
        self._sets = 0
        self._names = [self._new_name() for _ in range(CLIENTS)]

    def __enter__(self) -> "Administrators":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(60)
        if self._failure is not None:
            self._recorder.note(What.BROKEN, rule="the load ended", text=repr(self._failure))

    def _run(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as error:
            self._failure = error

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(self._use_topics(f"topics-{number}"))
                group.create_task(self._set_configs(f"configs-{number}"))
            group.create_task(self._read_configs("reader"))

    def _client(self) -> AdminClient:
        return AdminClient(
            bootstrap_servers=self._cluster.bootstrap_servers.split(","),
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            default_api_timeout_ms=REQUEST_TIMEOUT_MS,
        )

    async def _pause(self) -> None:
        await asyncio.sleep(self._source.uniform(*ACT_EVERY_S))

    def _new_name(self) -> _Name:
        self._count += 1
        return _Name(f"soak-{self._count}")

    # Topics

    async def _use_topics(self, who: str) -> None:
        async with self._client() as client:
            while not self._ended.is_set():
                place = self._source.randrange(len(self._names))
                if self._names[place].is_used_up:
                    self._names[place] = self._new_name()
                await self._use(client, who, self._names[place])
                await self._pause()

    async def _use(self, client: AdminClient, who: str, used: _Name) -> None:
        used.uses += 1
        if used.is_there:

            async def delete() -> None:
                (await client.delete_topics([used.name])).raise_any()

            result = await self._noted(_Asked(who, TOPIC, used.name, DELETE), delete)
            used.is_there = False
        else:

            async def create() -> str | None:
                topic = NewTopic(name=used.name, partitions=1, replication_factor=3)
                created = (await client.create_topics([topic]))[used.name]
                return uuid_to_text(created.topic_id) if created.topic_id else None

            result = await self._noted(_Asked(who, TOPIC, used.name, CREATE), create)
            used.is_there = True
        used.unanswered += result != "ok"

    # Configs

    def _config_key(self) -> str:
        topic = f"soak-config-{self._source.randrange(CONFIG_TOPICS)}"
        return f"{topic}/{CONFIG_NAMES[self._sets // SETS_PER_NAME % len(CONFIG_NAMES)]}"

    async def _set_configs(self, who: str) -> None:
        value = 0
        async with self._client() as client:
            while not self._ended.is_set():
                await self._pause()
                await self._pause()
                value += 1
                self._sets += 1
                key = self._config_key()
                text = str(1_000_000 + value * 10 + int(who.rpartition("-")[2]))

                async def change(key: str = key, text: str = text) -> None:
                    await _set(client, key, text)

                await self._noted(_Asked(who, CONFIG, key, SET, text), change)

    async def _read_configs(self, who: str) -> None:
        while not self._ended.is_set():
            await self._pause()
            leader = self._observer.leader()
            if leader not in self._cluster.python_controllers:
                continue  # a Java controller answers from a cache that follows its log
            key = self._config_key()
            async with self._cluster.client_of(leader, REQUEST_TIMEOUT_MS) as client:
                await self._read(client, who, key, leader)

    async def _read(self, client: AdminClient, who: str, key: str, leader: int) -> None:
        """Read a config. It counts if the same leader commits a write before and after it, in one epoch."""
        topic, _, name = key.partition("/")
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        asked = _Asked(who, CONFIG, key, READ)
        invoked_s = self._recorder.now_s()
        try:
            before = await client.describe_metadata_quorum()
            await _set(client, MARKER, str(int(invoked_s * 1000) + 1))
            invoked_s = self._recorder.now_s()
            entries = (await client.describe_configs([resource]))[resource]
            returned_s = self._recorder.now_s()
            await _set(client, MARKER, str(int(returned_s * 1000)))
            after = await client.describe_metadata_quorum()
        except AdminError as error:
            self._note(asked, result_of(error), invoked_s, self._recorder.now_s())
            return
        terms = {(quorum.leader_id, quorum.leader_epoch) for quorum in (before, after)}
        is_proved = terms == {(leader, before.leader_epoch)}
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG
        value = next((entry.value for entry in entries if entry.name == name and entry.source is own), None)
        result = "ok" if is_proved else "leader changed"
        self._note(asked, result, invoked_s, returned_s, value)

    # Writing down

    async def _noted(self, asked: _Asked, act: Callable[[], Awaitable[Any]]) -> str:
        invoked_s = self._recorder.now_s()
        observed = None
        try:
            observed = await act()
            result = "ok"
        except AdminError as error:
            result = result_of(error)
        self._note(asked, result, invoked_s, self._recorder.now_s(), observed)
        return result

    def _note(
        self, asked: _Asked, result: str, invoked_s: float, returned_s: float, observed: str | None = None
    ) -> None:
        self._recorder.note(
            What.OPERATION,
            **asdict(asked),
            result=result,
            invoked_s=invoked_s,
            returned_s=returned_s,
            observed=observed,
        )


async def _set(client: AdminClient, key: str, value: str) -> None:
    topic, _, name = key.partition("/")
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    change = AlterConfigOp(name=name, value=value, operation=ConfigOpType.SET)
    (await client.incremental_alter_configs({resource: [change]})).raise_any()


def result_of(error: AdminError) -> str:
    """An error in a word, for counting."""
    return error.error_code.name if isinstance(error, ServerError) else type(error).__name__


def make_topics(cluster: SoakCluster) -> None:
    """Create the topics that the load uses all the time."""

    async def make() -> None:
        async with AdminClient(bootstrap_servers=cluster.bootstrap_servers.split(",")) as client:
            names = [MARKER.partition("/")[0], *(f"soak-config-{number}" for number in range(CONFIG_TOPICS))]
            wanted = [
                NewTopic(name=RECORDS, partitions=PARTITIONS, replication_factor=3),
                *(NewTopic(name=name, partitions=1, replication_factor=3) for name in names),
            ]
            (await client.create_topics(wanted)).raise_any()

    asyncio.run(make())
