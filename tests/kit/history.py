"""A script that gives a cluster a history, and a ledger of what it did and when, which tables are compared with.

Each entry has the earliest and the latest time at which it can have happened: from before it was asked for until it
was seen. Voters come and go, brokers flap, topics, configs, ACLs and quotas change, leaders fall, one of them with
records that no other node had, and the metadata version goes up once a ghost is out of the way.
"""

import asyncio
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Producer
from kit.cluster import START_TIMEOUT_S, Cluster, manifests, unfenced
from kit.membership import Membership
from kit.metadata import end_offset
from kit.waiting import eventually
from quorate_admin.client import AdminClient
from quorate_admin.results import Results
from quorate_admin.types.acls import (
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    ResourcePattern,
    ResourcePatternFilter,
)
from quorate_admin.types.cluster import FeatureUpdate
from quorate_admin.types.configs import AlterConfigOp, ConfigResource
from quorate_admin.types.quotas import ClientQuotaAlteration, ClientQuotaEntity
from quorate_admin.types.topics import NewTopic
from quorate_protocol.kafka.enums import (
    CLIENT_ID,
    USER,
    AclOperation,
    ConfigOpType,
    ConfigResourceType,
    ResourceType,
    UpgradeType,
)

CLOCK_ERROR = timedelta(milliseconds=50)
"""Our controllers use the monotonic clock from their start on, while the wall clock may be adjusted."""
GHOST = 3099
LEVEL_BEFORE, LEVEL_AFTER = 27, 30
CONFIG = {
    "internal.metadata.log.segment.bytes": 16_000,
    "metadata.log.max.record.bytes.between.snapshots": 12_000,
    "broker.session.timeout.ms": 6_000,
}
"""Small segments and frequent snapshots, of which nothing is deleted."""
BROKER_CONFIG = {"broker.heartbeat.interval.ms": 1_000}
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""Controllers keep ACLs only if there is an authorizer."""
TOPICS = {"orders": 3, "short-lived": 1}
"""The first topics, and how many partitions they have."""
TRUNCATED_MIN = 2
"""Records that only the lost leader has."""

_Response = TypeVar("_Response")


@dataclass(frozen=True, slots=True)
class Entry:
    """An event between two times. `what` is its kind, `key` its subject, `value` the new state."""

    what: str
    key: tuple[Any, ...]
    value: Any
    after: datetime
    before: datetime

    def holds(self, moment: datetime) -> bool:
        """Whether it can have happened then."""
        return self.after - CLOCK_ERROR <= moment <= self.before + CLOCK_ERROR


@dataclass(slots=True)
class Ledger:
    """The actions of a script, in order."""

    entries: list[Entry] = field(default_factory=list)

    @contextmanager
    def noting(self, what: str, *key: Any, value: Any = None) -> Iterator[None]:
        """Note an action whose effect takes place between the start and the end of the context."""
        after = _now()
        yield
        self.entries.append(Entry(what, key, value, after, _now()))

    def of(self, what: str) -> list[Entry]:
        """The entries of a kind, in order."""
        return [entry for entry in self.entries if entry.what == what]


class Script:
    """Drives a cluster of `found`, and writes down what it does. `kept` is where a lost leader's log is copied to."""

    def __init__(self, cluster: Membership, kept: Path) -> None:
        self.cluster = cluster
        self.ledger = Ledger()
        self._kept = kept

    def run(self) -> Ledger:
        """The whole history."""
        with self.ledger.noting("founded", value=self.cluster.founders):
            self.cluster.start_founders()
        self.note_leader()
        self.topics_and_configs()
        self.access()
        self.quotas()
        self.producers()
        self.voters_come_and_go()
        self.a_broker_flaps()
        self.a_ghost_blocks_the_upgrade()
        self.a_leader_is_lost_with_its_tail()
        self.a_topic_comes_again()
        self.cluster.await_quorum(*self.cluster.voters())
        return self.ledger

    # Chapters

    def topics_and_configs(self) -> None:
        """Two topics are created; a topic's config is set, changed and deleted; that of all brokers is set."""
        for name, partitions in TOPICS.items():
            self._create(name, partitions)
        orders = ConfigResource(ConfigResourceType.TOPIC, "orders")
        for value in ("86400000", "3600000", None):
            self._configure(orders, "retention.ms", value)
        self._configure(ConfigResource(ConfigResourceType.BROKER, ""), "message.max.bytes", "2000000")

    def access(self) -> None:
        """An ACL is added, another is added and removed."""
        for name in ("orders", "short-lived"):
            binding = AclBinding(
                pattern=ResourcePattern(resource_type=ResourceType.TOPIC, name=name),
                entry=AccessControlEntry(principal="User:alice", operation=AclOperation.READ),
            )
            with self.ledger.noting("acl", name, "User:alice", "READ", value="added"):
                self._do(lambda client, entry=binding: client.create_acls([entry]))
        asked = AclBindingFilter(
            pattern=ResourcePatternFilter(resource_type=ResourceType.TOPIC, name="short-lived"),
            entry=AccessControlEntryFilter(principal="User:alice"),
        )
        with self.ledger.noting("acl", "short-lived", "User:alice", "READ", value="removed"):
            self._do(lambda client: client.delete_acls([asked]))

    def producers(self) -> None:
        """An idempotent producer needs an id, and a broker a block of them."""
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap_servers, "enable.idempotence": True})
        with self.ledger.noting("producer"):
            producer.produce("orders", b"one")
            assert producer.flush(START_TIMEOUT_S) == 0

    def quotas(self) -> None:
        """A quota is set, changed and removed."""
        entity = ClientQuotaEntity.of({USER: "alice", CLIENT_ID: None})
        for rate in (1000.0, 2000.0, None):
            alteration = ClientQuotaAlteration(entity=entity, values={"producer_byte_rate": rate})
            with self.ledger.noting("quota", entity.entries, "producer_byte_rate", value=rate):
                self._do(lambda client, entry=alteration: client.alter_client_quotas([entry]))

    def voters_come_and_go(self) -> None:
        """The fourth controller becomes a voter; a founder leaves, and comes back with another directory."""
        cluster = self.cluster
        newcomer = next(
            controller for controller in cluster.controllers if controller not in cluster.founders
        )
        cluster.observe(newcomer)
        self._add(newcomer)
        leaver = next(founder for founder in cluster.founders if founder != self._leader())
        directory_id = cluster.directory_id(leaver)
        with self.ledger.noting("voter", leaver, directory_id, value=False):
            cluster.remove(leaver, directory_id)
        cluster.terminate(leaver)
        shutil.rmtree(cluster.data(leaver))
        cluster.observe(leaver)
        self._add(leaver)
        self.note_leader()

    def a_broker_flaps(self) -> None:
        """A broker is killed and comes back; then it is stopped in order and comes back."""
        broker = self.cluster.brokers[-1]
        for end in (self.cluster.kill, self.cluster.terminate):
            with self.ledger.noting("broker", broker, value="fenced"):
                end(broker)
                eventually(lambda: broker not in self._unfenced(), START_TIMEOUT_S, f"{broker} to be fenced")
            with self.ledger.noting("in sync", broker):
                with self.ledger.noting("broker", broker, value="unfenced"):
                    self.cluster.start(broker)
                    self.cluster.await_unfenced(broker)
                eventually(self._all_in_sync, START_TIMEOUT_S, "all replicas to be in sync")

    def a_ghost_blocks_the_upgrade(self) -> None:
        """A controller of Kafka 4.1 registers and is gone; the upgrade is possible once it is refreshed."""
        with self.ledger.noting("blocker", GHOST, value=True):
            self.cluster.leave_ghost(GHOST)
        levels = {"metadata.version": FeatureUpdate(max_level=LEVEL_AFTER, upgrade_type=UpgradeType.UPGRADE)}
        with self.ledger.noting("blocker", GHOST, value=False):
            self._do(lambda client: client.refresh_controller(GHOST), controllers=True)
        with self.ledger.noting("level", "metadata.version", value=LEVEL_AFTER):
            self._do(lambda client: client.update_features(levels), controllers=True)

    def a_leader_is_lost_with_its_tail(self) -> None:
        """The leader runs alone until it has records that no other node has, and is killed. Its log is kept."""
        cluster = self.cluster
        leader = self._leader()
        others = [voter for voter in cluster.voters() if voter != leader]
        cluster.suspend(*others)
        alone_from = end_offset(cluster.metadata(leader))
        # NoOpRecords make its log grow, and no other node gets them. The first of them completes the requests
        # that it held: the others read that when they run again.
        eventually(
            lambda: end_offset(cluster.metadata(leader)) >= alone_from + 1 + TRUNCATED_MIN,
            START_TIMEOUT_S,
            f"records that {leader} alone has",
        )
        with self.ledger.noting("lost leader", leader):
            cluster.kill(leader)
            shutil.copytree(cluster.data(leader), self._kept)
            for other in others:
                cluster.signal(other, signal.SIGCONT)
            cluster.await_leader(other_than=leader)
        self.note_leader(*others)
        self._create("after-the-loss", 1)
        cluster.start(leader)
        cluster.await_quorum(*others, leader)

    def a_topic_comes_again(self) -> None:
        """A topic is deleted, and another gets its name."""
        with self.ledger.noting("topic", "short-lived", value=False):
            self._do(lambda client: client.delete_topics(["short-lived"]))
        self._create("short-lived", 2)

    # Steps of chapters

    def note_leader(self, *voters: int) -> None:
        """Write down who leads in which epoch now; `voters` are those that run, all without."""
        quorum = self.cluster.await_quorum(*(voters or self.cluster.voters()))
        now = _now()
        self.ledger.entries.append(Entry("leader", (quorum.leader_epoch,), quorum.leader_id, now, now))

    def _create(self, name: str, partitions: int) -> None:
        topic = NewTopic(name=name, partitions=partitions, replication_factor=2)
        with self.ledger.noting("topic", name, value=partitions):
            self._do(lambda client: client.create_topics([topic]))

    def _configure(self, resource: ConfigResource, name: str, value: str | None) -> None:
        kind = ConfigOpType.DELETE if value is None else ConfigOpType.SET
        change = AlterConfigOp(name=name, value=value, operation=kind)
        with self.ledger.noting("config", resource.type.name, resource.name, name, value=value):
            self._do(lambda client: client.incremental_alter_configs({resource: [change]}))

    def _add(self, node_id: int) -> None:
        with self.ledger.noting("voter", node_id, self.cluster.directory_id(node_id), value=True):
            self.cluster.add(node_id)

    def _leader(self) -> int:
        return self.cluster.await_leader()

    def _unfenced(self) -> set[int]:
        seen = self.cluster.describe_brokers()
        return set(self.cluster.brokers) if seen is None else unfenced(seen)

    def _all_in_sync(self) -> bool:
        described = self._do(lambda client: client.describe_topics(TOPICS))
        return all(
            set(partition.isr) == set(partition.replicas)
            for topic in described.values.values()
            for partition in topic.partitions
        )

    def _do(
        self, action: Callable[[AdminClient], Awaitable[_Response]], *, controllers: bool = False
    ) -> _Response:
        """Do it with a client of its own. An error is raised, also one of a single key."""

        async def run() -> _Response:
            if controllers:
                client = AdminClient(bootstrap_controllers=self.cluster.asks().split(","))
            else:
                client = AdminClient(bootstrap_servers=self.cluster.bootstrap_servers.split(","))
            async with client:
                response = await action(client)
                if isinstance(response, Results):
                    response.raise_any()
                return response

        return asyncio.run(run())


def found(directory: Path, jars: Path, *, java: bool) -> Membership:
    """A cluster for the script: three founders, a place for a fourth controller, and two brokers."""
    first = 3000
    return Membership.found(
        directory,
        jars,
        manifests(
            controllers=4,
            java=range(first, first + 4) if java else (),
            brokers=2,
            metadata_version="4.1",
            config={**CONFIG, **AUTHORIZER},
            broker_config={**BROKER_CONFIG, **AUTHORIZER},
        ),
        founders=3,
    )


def directories(cluster: Cluster, *kept: Path) -> list[Path]:
    """What there is to ingest: the log directories of the controllers, and those that were kept."""
    return [
        *(
            cluster.data(controller)
            for controller in cluster.controllers
            if cluster.metadata(controller).exists()
        ),
        *kept,
    ]


def _now() -> datetime:
    # Records carry milliseconds.
    return datetime.fromtimestamp(time.time_ns() // 1_000_000 / 1000, UTC)
