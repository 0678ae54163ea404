"""What decisions are tried on: a controller to ask, whose records are replayed, and an image of partitions."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kit.controller_parts import response_of
from quorate_controller.control.api import (
    ControlConfig,
    ControlError,
    ControlResult,
    RequestContext,
)
from quorate_controller.control.broker_loggers import LoggerManager
from quorate_controller.control.broker_transitions import PartitionTransitions
from quorate_controller.control.config_changes import ConfigManager
from quorate_controller.control.controller import QuorumController
from quorate_controller.control.effective_configs import EffectiveConfigs
from quorate_controller.control.elections import Elections
from quorate_controller.control.partitions import PartitionManager
from quorate_controller.control.policies import NO_POLICIES, Policies
from quorate_controller.control.reassignments import ReassignmentManager
from quorate_controller.control.topics import TopicManager
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image import BrokerRegistration, MetadataImage, PartitionRegistration
from quorate_protocol.kafka.enums import ConfigResourceType
from quorate_protocol.kafka.generated import controller_registration_request as controller_registration
from quorate_protocol.kafka.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from quorate_protocol.kafka.generated.broker_heartbeat_response import BrokerHeartbeatResponse
from quorate_protocol.kafka.generated.broker_registration_request import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from quorate_protocol.records.framing import decode_record, encode_record, record_version_for
from quorate_protocol.records.generated import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
NODE_ID = 3000
FEATURES = {
    "metadata.version": (7, 30),
    "kraft.version": (0, 1),
    "transaction.version": (0, 2),
    "group.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
    "share.version": (0, 1),
    "streams.version": (0, 1),
}
"""What a broker of Kafka 4.3.1 supports."""


@dataclass
class FakeQuorum:
    """Raft as control sees it; ``refusal`` is what it says to an upgrade of kraft.version."""

    kraft_version: int = 1
    leader_id: int = NODE_ID
    voter_ids: frozenset[int] = frozenset({NODE_ID})
    refusal: ControlError | None = None
    upgrades: list[int] = field(default_factory=list)

    def check_kraft_upgrade(self, level: int) -> None:
        if self.refusal:
            raise self.refusal
        if level < self.kraft_version:
            raise ControlError(ErrorCode.invalid_update_version, "a downgrade")
        self.upgrades.append(level)


class FakeLoggers:
    """A process with two loggers; a level that was not set is that of the root."""

    def __init__(self) -> None:
        self.set: dict[str, str | None] = {"root": "INFO", "kafka": None}

    def levels(self) -> dict[str, str]:
        return {name: level or str(self.set["root"]) for name, level in self.set.items()}

    def set_level(self, name: str, level: str | None) -> None:
        assert name in self.set
        self.set[name] = level


class Harness:
    """The active controller of a new cluster, its clock, and the log that it writes."""

    def __init__(
        self,
        metadata_version: int = 30,
        *,
        features: dict[str, int] | None = None,
        policies: Policies = NO_POLICIES,
        **config: Any,
    ) -> None:
        self.image = MetadataImage()
        self.quorum = FakeQuorum()
        self.config = ControlConfig(node_id=NODE_ID, cluster_id=CLUSTER_ID, **config)
        self.loggers = FakeLoggers()
        self.control = QuorumController(
            self.config, self.image, Random(1), self.quorum, self.loggers, policies=policies
        )
        self.now_ms = 1_000_000
        self.records: list[Any] = []
        """What the last decision wrote, as the log gives it back."""
        levels = {"metadata.version": metadata_version, **(features or {})}
        self.replay(*(FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()))
        self.replay_result(self.control.activate(self.now_ms))

    def replay(self, *records: Any) -> None:
        """Append records, commit them, and call observe."""
        version = self.image.metadata_version
        self.records = [
            decode_record(encode_record(record, record_version_for(type(record), version)))
            for record in records
        ]
        if records:
            offset = self.image.end_offset
            self.image.replay_batch(self.records, base_offset=offset, epoch=1, timestamp_ms=self.now_ms)
            self.image.commit(self.image.end_offset)
            self.control.observe(self.records, offset, self.now_ms)

    def replay_result(self, result: ControlResult | None) -> Any:
        """Replay a result, part by part. Returns its response."""
        self.records = []
        return response_of(result, lambda records: self.replay(*records)) if result else None

    def decide(self, request: Any, api_version: int | None = None, **known: Any) -> ControlResult:
        """The decision on a request of the newest version, not yet replayed; `known` is of its context."""
        context = RequestContext(
            now_ms=self.now_ms,
            next_offset=self.image.end_offset,
            api_version=type(request).__version__ if api_version is None else api_version,
            listener="CONTROLLER",
            **known,
        )
        return self.control.decide(request, context)

    def apply(self, request: Any, api_version: int | None = None, **known: Any) -> Any:
        """Decide and replay. Returns the response."""
        return self.replay_result(self.decide(request, api_version, **known))

    def refusal(self, request: Any) -> ControlError:
        """The error with which a request is refused as a whole."""
        with pytest.raises(ControlError) as caught:
            response_of(self.decide(request))
        return caught.value

    def run_until(self, now_ms: int) -> list[Any]:
        """Tick at each deadline of the controller, up to a time. Returns all written records."""
        written = []
        while (deadline_ms := self.control.deadline_ms) is not None and deadline_ms <= now_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.replay_result(self.control.tick(self.now_ms))
            written += self.records
        self.now_ms = now_ms
        return written

    # Brokers

    @staticmethod
    def directory(broker_id: int, number: int = 0) -> UUID:
        """The id of a log directory."""
        return UUID(int=1_000_000 * (broker_id + 1) + number)

    @staticmethod
    def registration(broker_id: int = 1, incarnation: int = 1, **fields: Any) -> BrokerRegistrationRequest:
        """What a stock broker sends; ``features`` maps names to ranges."""
        features = fields.pop("features", FEATURES)
        defaults: dict[str, Any] = {
            "cluster_id": CLUSTER_ID,
            "incarnation_id": UUID(int=10_000 * (broker_id + 1) + incarnation),
            "listeners": (Listener(name="PLAINTEXT", host=f"b{broker_id}", port=9092, security_protocol=0),),
            "features": tuple(
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in features.items()
            ),
            "rack": None,
            "log_dirs": (Harness.directory(broker_id),),
        }
        return BrokerRegistrationRequest(broker_id=broker_id, **(defaults | fields))

    def register(self, broker_id: int = 1, incarnation: int = 1, **fields: Any) -> int:
        """Register a broker. Returns its epoch."""
        epoch: int = self.apply(self.registration(broker_id, incarnation, **fields)).broker_epoch
        return epoch

    def heartbeat(
        self, broker_id: int = 1, *, want_fence: bool = False, offset: int | None = None, **fields: Any
    ) -> BrokerHeartbeatResponse:
        """A heartbeat of a registered broker that has read all of the log, unless ``offset`` says
        otherwise.
        """
        response: BrokerHeartbeatResponse = self.apply(
            BrokerHeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=self.broker(broker_id).epoch,
                current_metadata_offset=self.image.end_offset - 1 if offset is None else offset,
                want_fence=want_fence,
                want_shut_down=fields.pop("want_shut_down", False),
                **fields,
            )
        )
        return response

    def start_broker(self, broker_id: int = 1, incarnation: int = 1, **fields: Any) -> int:
        """Register and unfence a broker. Returns its epoch."""
        epoch = self.register(broker_id, incarnation, **fields)
        assert not self.heartbeat(broker_id).is_fenced
        return epoch

    def broker(self, broker_id: int = 1) -> BrokerRegistration:
        return self.image.cluster.brokers[broker_id]

    def register_controller(self, controller_id: int, **features: tuple[int, int]) -> None:
        """Register a controller with a listener CONTROLLER; feature names have '_' for '.'."""
        ranges = {name.replace("_", "."): levels for name, levels in features.items()} or {
            **FEATURES,
            "metadata.version": (7, 33),
        }
        self.apply(
            controller_registration.ControllerRegistrationRequest(
                controller_id=controller_id,
                incarnation_id=UUID(int=controller_id),
                zk_migration_ready=False,
                listeners=(
                    controller_registration.Listener(
                        name="CONTROLLER", host=f"c{controller_id}", port=9093, security_protocol=0
                    ),
                ),
                features=tuple(
                    controller_registration.Feature(
                        name=name, min_supported_version=low, max_supported_version=high
                    )
                    for name, (low, high) in ranges.items()
                ),
            )
        )

    def add_topic(self, name: str, *replicas: int, leader: int | None = None) -> UUID:
        """Put a topic of one partition into the log; all replicas are in sync, the first one leads."""
        topic_id = UUID(int=1_000_000 + len(self.image.topics.by_id))
        self.replay(
            TopicRecord(name=name, topic_id=topic_id),
            PartitionRecord(
                partition_id=0,
                topic_id=topic_id,
                replicas=replicas,
                isr=replicas,
                removing_replicas=(),
                adding_replicas=(),
                leader=replicas[0] if leader is None else leader,
                leader_epoch=0,
                partition_epoch=0,
                directories=tuple(self.broker(replica).directories[0] for replica in replicas),
            ),
        )
        return topic_id


@pytest.fixture
def harness() -> Harness:
    """A cluster at the newest production metadata.version, without brokers; eligible leader replicas are
    off.
    """
    return Harness()


@pytest.fixture(name="new_harness")
def harness_type() -> type[Harness]:
    """For clusters with other levels or settings."""
    return Harness


LATEST = 30


class Cluster:
    """An image with the managers that decide on it."""

    def __init__(self, metadata_version: int = LATEST, seed: int = 0, **config: object) -> None:
        self.image = MetadataImage()
        self.config = ControlConfig(node_id=NODE_ID, cluster_id="cluster", **config)
        effective = EffectiveConfigs(NODE_ID, self.image, {})
        loggers = LoggerManager(NODE_ID, FakeLoggers())
        self.configs = ConfigManager(self.image, effective, FakeQuorum(), loggers)
        self.topics = TopicManager(self.config, self.image, self.configs, Random(seed))
        self.partitions = PartitionManager(self.image, self.configs)
        self.reassignments = ReassignmentManager(self.image, self.configs)
        self.elections = Elections(self.image, self.configs)
        self.transitions = PartitionTransitions(self.image, self.configs)
        self.replay(FeatureLevelRecord(name="metadata.version", feature_level=metadata_version))

    def replay(self, *records: object) -> None:
        """Replay records as a log gives them back: encoded in the version of the cluster, and decoded."""
        version = self.image.metadata_version or LATEST
        read_back = [
            decode_record(encode_record(record, record_version_for(type(record), version)))
            for record in records
        ]
        if read_back:
            self.image.replay_batch(read_back, base_offset=self.image.end_offset, epoch=1, timestamp_ms=0)

    def apply(self, decision: ControlResult | Iterable[object]) -> object:
        """Replay what was decided. Returns the response, if there is one."""
        if isinstance(decision, ControlResult):
            return response_of(decision, lambda records: self.replay(*records))
        self.replay(*decision)
        return None

    def configure(self, topic_name: str, name: str, value: str) -> None:
        """Give a topic, which need not be there yet, a dynamic config."""
        self.replay(
            ConfigRecord(
                resource_type=ConfigResourceType.TOPIC, resource_name=topic_name, name=name, value=value
            )
        )

    def enable_elr(self, level: int = 1) -> None:
        self.replay(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=level))

    def context(self, api_version: int = 7) -> RequestContext:
        return RequestContext(now_ms=0, next_offset=self.image.end_offset, api_version=api_version)

    def add_broker(
        self,
        broker_id: int,
        *,
        rack: str | None = None,
        fenced: bool = False,
        shutting_down: bool = False,
        directories: int = 1,
    ) -> None:
        """Register a broker of epoch 1000 + its id, and with directories as :meth:`directory` gives them."""
        has_directories = self.image.metadata_version >= 17
        self.replay(
            RegisterBrokerRecord(
                broker_id=broker_id,
                broker_epoch=1000 + broker_id,
                incarnation_id=UUID(int=2000 + broker_id),
                end_points=(),
                features=(),
                rack=rack,
                fenced=fenced,
                in_controlled_shutdown=shutting_down,
                log_dirs=tuple(self.directory(broker_id, n) for n in range(directories))
                if has_directories
                else (),
            )
        )

    def add_brokers(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.add_broker(broker_id)

    @staticmethod
    def directory(broker_id: int, number: int = 0) -> UUID:
        return UUID(int=(broker_id + 1) * 10_000 + number)

    def broker(self, broker_id: int) -> BrokerRegistration:
        return self.image.cluster.brokers[broker_id]

    def mark(self, broker_id: int, *, fenced: bool | None = None, shutting_down: bool = False) -> None:
        """Change a broker alone, not its partitions."""
        self.replay(
            BrokerRegistrationChangeRecord(
                broker_id=broker_id,
                broker_epoch=self.broker(broker_id).epoch,
                fenced={None: 0, True: 1, False: -1}[fenced],
                in_controlled_shutdown=int(shutting_down),
            )
        )

    def fence(self, broker_id: int) -> list[object]:
        """Fence a broker as a lost session does. Returns the records about partitions."""
        records = list(self.transitions.on_broker_fenced(broker_id))
        self.apply(records)
        self.mark(broker_id, fenced=True)
        return records

    def unfence(self, broker_id: int) -> list[object]:
        """Unfence a broker. Returns the records about partitions."""
        records = list(self.transitions.on_broker_unfenced(broker_id))
        self.mark(broker_id, fenced=False)
        self.apply(records)
        return records

    def add_topic(self, name: str, *partitions: PartitionRecord) -> UUID:
        """Put a topic there as :func:`partition` describes its partitions."""
        topic_id = UUID(int=0x7000_0000 + len(self.image.topics.by_id))
        has_directories = self.image.metadata_version >= 17
        self.replay(
            TopicRecord(name=name, topic_id=topic_id),
            *(
                replace(
                    given,
                    partition_id=number,
                    topic_id=topic_id,
                    directories=self._directories(given) if has_directories else (),
                )
                for number, given in enumerate(partitions)
            ),
        )
        return topic_id

    def _directories(self, given: PartitionRecord) -> tuple[UUID | None, ...]:
        return given.directories or tuple(self.directory(broker_id) for broker_id in given.replicas)

    def partition(self, name: str, partition_id: int = 0) -> PartitionRegistration:
        return self.image.topics.by_name[name].partitions[partition_id]


def partition(*replicas: int, **fields: object) -> PartitionRecord:
    """A partition in leader epoch 5 and partition epoch 10, led by the first of its ISR (default: all)."""
    isr = fields.pop("isr", replicas)
    given = {
        "isr": isr,
        "leader": isr[0] if isr else -1,
        "leader_epoch": 5,
        "partition_epoch": 10,
        "removing_replicas": (),
        "adding_replicas": (),
        **fields,
    }
    return PartitionRecord(topic_id=None, replicas=replicas, **given)


@pytest.fixture
def make_cluster() -> type[Cluster]:
    """Make a cluster without brokers: ``make_cluster(metadata_version=30)``."""
    return Cluster


@pytest.fixture
def make_partition():
    """Describe a partition for ``Cluster.add_topic``: ``make_partition(1, 2, 3, isr=(1, 2))``."""
    return partition


@pytest.fixture
def cluster() -> Cluster:
    """Brokers 1, 2 and 3, active, with one directory each, at the latest metadata.version, ELR off."""
    made = Cluster()
    made.add_brokers(1, 2, 3)
    return made
