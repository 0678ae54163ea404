"""The clients of a run: brokers that start and stop, and an administrator that checks acknowledged changes."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kit.simulator.coverage import Happening
from kit.simulator.invariants import InvariantViolation
from kit.simulator.observers import MetadataObserver
from kit.simulator.world import CLUSTER_ID
from quorate_protocol.errors import ErrorCode
from quorate_protocol.features import SUPPORTED_FEATURES
from quorate_protocol.kafka.enums import ScramMechanism
from quorate_protocol.kafka.generated.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from quorate_protocol.kafka.generated.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from quorate_protocol.kafka.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from quorate_protocol.kafka.generated.broker_heartbeat_response import BrokerHeartbeatResponse
from quorate_protocol.kafka.generated.broker_registration_request import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from quorate_protocol.kafka.generated.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from quorate_protocol.kafka.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kit.simulator.world import World
    from quorate_controller.node import ControllerNode
    from quorate_protocol.image.partitions import PartitionRegistration

GROUP_RESOURCE = 32
CONFIG_SET = 0
HEARTBEAT_MS = 1_000
SILENCE_MS = 8_000
"""Longer than the session: such a broker is fenced."""
DIRECTORY_FAILS = 0.08
CORDONS = 0.1
PAUSES_WHERE_MANY = 5
"""What the pauses between fetches are multiplied by where there are hundreds of brokers, to save time."""
RESTARTS = 0.02
RESTARTS_OF_LEADERS = 0.05
"""How often a broker has lost its process by the next heartbeat; more often where brokers lead partitions."""
NO_EPOCH = -1
LEAVES_ABOVE = 0.97
"""How rarely a broker asks for its controlled shutdown, at each heartbeat."""


class Kind(Enum):
    """The kinds of things that an administrator creates."""

    TOPIC = "topic"
    GROUP = "group"
    QUOTA = "quota"
    USER = "user"


Promise = tuple[Kind, str]
"""An acknowledged change: what was created, and its name."""


def active_node_id(world: World) -> int:
    """The active controller with the highest epoch, else any living one."""
    active = [node for node in world.alive if node.is_active]
    if active:
        return max(active, key=lambda node: node.raft.epoch).node_id
    return world.rng.choice(list(world.machines))


OTHER_KINDS: Final = (Kind.GROUP, Kind.QUOTA, Kind.GROUP, Kind.USER)
"""What is created besides topics, in turn."""
ANSWERS: Final = {
    Kind.TOPIC: "topics",
    Kind.GROUP: "responses",
    Kind.QUOTA: "entries",
    Kind.USER: "results",
}
"""Where the response has its only result."""


class SimulatedBroker:
    """Registers, heartbeats, and now and then restarts as a new incarnation or stays silent until it is fenced."""

    def __init__(
        self,
        world: World,
        broker_id: int,
        *,
        shuts_down: bool = False,
        directories: int = 1,
        troubles: float = 1,
    ) -> None:
        self._world = world
        self.broker_id = broker_id
        self._incarnation = 0
        self._epoch: int | None = None
        self._previous_epoch = NO_EPOCH
        self.directories = tuple(
            UUID(int=(4 << 76) + broker_id + number * 1000) for number in range(1, 1 + directories)
        )
        self._offline: tuple[UUID, ...] = ()
        self._cordoned: tuple[UUID, ...] | None = None
        self._shuts_down = shuts_down
        self._troubles = troubles
        self._is_leaving = False
        self._is_stopped = False
        self.on_start: Callable[[int, bool], None] = lambda _broker_id, _is_clean: None
        """Called with its id when it has a new process, and whether the one before could end in good order."""
        self.metadata = MetadataObserver(
            world, broker_id, active_node_id, pauses=1 if troubles == 1 else PAUSES_WHERE_MANY
        )
        self._start()

    @property
    def epoch(self) -> int | None:
        """The broker epoch of its registration; None before it is registered."""
        return self._epoch

    def lose_power(self) -> None:
        """Its process ends, and the next one begins at once."""
        if not self._is_stopped:
            self._start()

    def can_read(self, partition: PartitionRegistration) -> bool:
        """Whether its replica of a partition is in no directory that has failed."""
        return partition.directory(self.broker_id) not in self._offline

    def stop(self) -> None:
        """Send nothing more."""
        self._is_stopped = True
        self._incarnation += 1
        self.metadata.stop()

    def _start(self) -> None:
        self._incarnation += 1
        self._epoch = None
        self._is_leaving = False
        # Whatever was broken is repaired.
        self._offline, self._cordoned = (), None
        self.on_start(self.broker_id, self._previous_epoch != NO_EPOCH)
        self._id = UUID(int=self._world.rng.getrandbits(128), version=4)
        self._beat_in(self._world.rng.randint(0, 200))

    def _beat_in(self, delay_ms: int) -> None:
        incarnation = self._incarnation

        def beat() -> None:
            if self._incarnation == incarnation:
                self._beat()

        self._world.schedule(delay_ms, beat)

    def _beat(self) -> None:
        incarnation = self._incarnation
        fate = self._world.rng.random() / self._troubles
        if fate < (RESTARTS_OF_LEADERS if self._shuts_down else RESTARTS):
            self._start()
            return
        self._is_leaving |= self._shuts_down and self._epoch is not None and 1 >= fate > LEAVES_ABOVE
        silence_ms = SILENCE_MS if fate < 0.1 else 0
        if len(self.directories) > 1:
            self._change_directories()

        def on_response(response: Any) -> None:
            if self._incarnation == incarnation and not isinstance(response, Exception):
                self._took(response)

        request = self._registration() if self._epoch is None else self._heartbeat()
        self._world.network.ask(active_node_id(self._world), request, on_response)

        self._beat_in(silence_ms + (300 if self._epoch is None else HEARTBEAT_MS))

    def _change_directories(self) -> None:
        """Now and then a directory goes offline, though never the last one, or is cordoned, or is not any more."""
        rng = self._world.rng
        if not self._offline and rng.random() < DIRECTORY_FAILS:
            self._offline = (rng.choice(self.directories),)
        if rng.random() < CORDONS:
            share = rng.choice((0, 0.5, 1))
            self._cordoned = tuple(directory for directory in self.directories if rng.random() < share)

    def _took(self, response: Any) -> None:
        if self._epoch is None:
            if response.error_code is ErrorCode.none:
                self._epoch, self._previous_epoch = response.broker_epoch, NO_EPOCH
        elif response.error_code is ErrorCode.stale_broker_epoch:
            self._epoch = None
        elif isinstance(response, BrokerHeartbeatResponse) and response.should_shut_down:
            # The next incarnation proves with this epoch that it lost nothing.
            self._world.coverage.count(Happening.BROKER_SHUTDOWN)
            self._previous_epoch = self._epoch
            self._start()

    def _registration(self) -> BrokerRegistrationRequest:
        return BrokerRegistrationRequest(
            broker_id=self.broker_id,
            previous_broker_epoch=self._previous_epoch,
            cluster_id=CLUSTER_ID,
            incarnation_id=self._id,
            listeners=(Listener(name="PLAINTEXT", host="broker", port=9092, security_protocol=0),),
            features=tuple(
                Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, (lowest, highest) in SUPPORTED_FEATURES.items()
            ),
            rack=None,
            log_dirs=self.directories,
        )

    def _heartbeat(self) -> BrokerHeartbeatRequest:
        assert self._epoch is not None
        return BrokerHeartbeatRequest(
            broker_id=self.broker_id,
            broker_epoch=self._epoch,
            current_metadata_offset=self.metadata.applied_offset - 1,
            want_fence=False,
            want_shut_down=self._is_leaving,
            offline_log_dirs=self._offline,
            cordoned_log_dirs=self._cordoned,
        )


class Administrator:
    """Creates things with unique names, one request every few milliseconds, and keeps the ledger of promises."""

    def __init__(self, world: World, *, replication_factor: int = 1, topics: float = 0.5) -> None:
        self._world = world
        self._replication_factor = replication_factor
        self._topics_share = topics
        self._number = 0
        self._acknowledged: set[Promise] = set()
        self._stopped = False
        world.schedule(0, self._work)

    @property
    def acknowledged(self) -> int:
        """How many promises were made."""
        return len(self._acknowledged)

    def stop(self) -> None:
        """Ask for nothing more."""
        self._stopped = True

    def _work(self) -> None:
        if self._stopped:
            return
        self._number += 1
        kind = OTHER_KINDS[self._number % len(OTHER_KINDS)]
        if self._world.rng.random() < self._topics_share:
            kind = Kind.TOPIC
        self._create(kind, f"{kind.value}-{self._number}")
        self._world.schedule(self._world.rng.randint(1, 150), self._work)

    def _create(self, kind: Kind, name: str) -> None:
        if kind is Kind.TOPIC:
            is_safe = self._replication_factor > 1 and self._number % 2 == 0
            request: Any = _topic(name, self._replication_factor, is_safe=is_safe)
        else:
            request = {Kind.GROUP: _group, Kind.QUOTA: _quota, Kind.USER: _user}[kind](name)

        def on_response(response: Any) -> None:
            if isinstance(response, Exception):
                return
            (result,) = getattr(response, ANSWERS[kind])
            if result.error_code is ErrorCode.none:
                self._acknowledged.add((kind, name))

        self._world.network.ask(active_node_id(self._world), request, on_response)

    def promises(self) -> tuple[Promise, ...]:
        """The promises that were acknowledged so far."""
        return tuple(sorted(self._acknowledged, key=lambda promise: (promise[0].value, promise[1])))


def _topic(name: str, replication_factor: int, *, is_safe: bool) -> CreateTopicsRequest:
    """`is_safe`: one copy alone acknowledges nothing."""
    configs = (CreatableTopicConfig(name="min.insync.replicas", value="2"),) if is_safe else ()
    topic = CreatableTopic(
        name=name, num_partitions=2, replication_factor=replication_factor, assignments=(), configs=configs
    )
    return CreateTopicsRequest(topics=(topic,), timeout=timedelta(seconds=30))


def _group(name: str) -> IncrementalAlterConfigsRequest:
    config = AlterableConfig(name="consumer.session.timeout.ms", config_operation=CONFIG_SET, value="50000")
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=name, configs=(config,))
    return IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)


def _quota(name: str) -> AlterClientQuotasRequest:
    entry = EntryData(
        entity=(EntityData(entity_type="user", entity_name=name),),
        ops=(OpData(key="producer_byte_rate", value=1000.0, remove=False),),
    )
    return AlterClientQuotasRequest(entries=(entry,), validate_only=False)


def _user(name: str) -> AlterUserScramCredentialsRequest:
    return AlterUserScramCredentialsRequest(deletions=(), upsertions=(upsertion(name),))


def upsertion(name: str) -> ScramCredentialUpsertion:
    """A credential of a user."""
    return ScramCredentialUpsertion(
        name=name,
        mechanism=ScramMechanism.SCRAM_SHA_256,
        iterations=4096,
        salt=b"salt",
        salted_password=b"salted password",
    )


def check_nothing_lost(promises: Sequence[Promise], node: ControllerNode) -> None:
    """NoAcknowledgedRecordLost: each promise is in the image of a node that has caught up."""
    image = node.metadata.image

    def is_kept(kind: Kind, name: str) -> bool:
        match kind:
            case Kind.TOPIC:
                return name in image.topics.by_name
            case Kind.GROUP:
                return (GROUP_RESOURCE, name) in image.configs
            case Kind.QUOTA:
                return (("user", name),) in image.client_quotas
            case Kind.USER:
                return (ScramMechanism.SCRAM_SHA_256, name) in image.scram

    lost = [name for kind, name in promises if not is_kept(kind, name)]
    if lost:
        raise InvariantViolation(
            "NoAcknowledgedRecordLost",
            f"node {node.node_id} lacks {len(lost)} of {len(promises)}: {sorted(lost)[:5]}",
        )
