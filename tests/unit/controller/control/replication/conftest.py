"""A metadata image to decide on: records put brokers and partitions there, and decisions are replayed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from quorate_controller.control.api import (
    ControlConfig,
    ControlError,
    ControlResult,
    EffectiveConfig,
    RequestContext,
)
from quorate_controller.control.elections import Elections
from quorate_controller.control.partitions import PartitionManager
from quorate_controller.control.reassignments import ReassignmentManager
from quorate_controller.control.topics import TopicManager
from quorate_protocol.image import BrokerRegistration, MetadataImage, PartitionRegistration
from quorate_protocol.records.framing import decode_record, encode_record, record_version_for
from quorate_protocol.records.generated import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

LATEST = 30


@dataclass
class FakeConfigs:
    """Stands in for the config manager: a topic has what the test says, and 'bad' is the one invalid name."""

    min_isr: dict[str, int] = field(default_factory=dict)
    unclean: set[str] = field(default_factory=set)

    def validate_new_topic(self, name: str, configs: Mapping[str, str | None]) -> Sequence[ConfigRecord]:
        if "bad" in configs:
            raise ControlError(ErrorCode.invalid_config, "Unknown topic config name: bad")
        return [
            ConfigRecord(resource_type=2, resource_name=name, name=key, value=value)
            for key, value in configs.items()
        ]

    def describe_new_topic(self, configs: Mapping[str, str | None]) -> Sequence[EffectiveConfig]:
        return [
            EffectiveConfig(name=name, value=value, read_only=False, config_source=1, is_sensitive=False)
            for name, value in sorted(configs.items())
        ]

    def min_insync_replicas(self, topic_name: str) -> int:
        return self.min_isr.get(topic_name, 1)

    def unclean_leader_election(self, topic_name: str) -> bool:
        return topic_name in self.unclean


class Cluster:
    """An image with the managers that decide on it."""

    def __init__(self, metadata_version: int = LATEST, seed: int = 0, **config: object) -> None:
        self.image = MetadataImage()
        self.configs = FakeConfigs()
        self.config = ControlConfig(node_id=3000, cluster_id="cluster", **config)
        self.topics = TopicManager(self.config, self.image, self.configs, Random(seed))
        self.partitions = PartitionManager(self.image, self.configs)
        self.reassignments = ReassignmentManager(self.image, self.configs)
        self.elections = Elections(self.image, self.configs)
        self.replay(FeatureLevelRecord(name="metadata.version", feature_level=metadata_version))

    def replay(self, *records: object) -> None:
        """Replays records as a log gives them back: encoded in the version of the cluster, and decoded."""
        version = self.image.metadata_version or LATEST
        read_back = [
            decode_record(encode_record(record, record_version_for(type(record), version)))
            for record in records
        ]
        if read_back:
            self.image.replay_batch(read_back, base_offset=self.image.end_offset, epoch=1, timestamp_ms=0)

    def apply(self, decision: ControlResult | Iterable[object]) -> object:
        """Replays what was decided; gives the response, if there is one."""
        if isinstance(decision, ControlResult):
            self.replay(*decision.records)
            return decision.response
        self.replay(*decision)
        return None

    def enable_elr(self) -> None:
        self.replay(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))

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
        """Registers a broker of epoch 1000 + its id, and with directories as :meth:`directory` gives them."""
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
        """Changes a broker alone, not its partitions."""
        self.replay(
            BrokerRegistrationChangeRecord(
                broker_id=broker_id,
                broker_epoch=self.broker(broker_id).epoch,
                fenced={None: 0, True: 1, False: -1}[fenced],
                in_controlled_shutdown=int(shutting_down),
            )
        )

    def fence(self, broker_id: int) -> list[object]:
        """Fences a broker as a lost session does; gives the records about partitions."""
        records = list(self.elections.on_broker_fenced(broker_id))
        self.apply(records)
        self.mark(broker_id, fenced=True)
        return records

    def unfence(self, broker_id: int) -> list[object]:
        """Unfences a broker; gives the records about partitions."""
        records = list(self.elections.on_broker_unfenced(broker_id))
        self.mark(broker_id, fenced=False)
        self.apply(records)
        return records

    def add_topic(self, name: str, *partitions: PartitionRecord) -> UUID:
        """Puts a topic there as :func:`partition` describes its partitions."""
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
    """Makes a cluster without brokers: ``make_cluster(metadata_version=30)``."""
    return Cluster


@pytest.fixture
def make_partition():
    """Describes a partition for ``Cluster.add_topic``: ``make_partition(1, 2, 3, isr=(1, 2))``."""
    return partition


@pytest.fixture
def cluster() -> Cluster:
    """Brokers 1, 2 and 3, active, with one directory each, at the latest metadata.version, ELR off."""
    made = Cluster()
    made.add_brokers(1, 2, 3)
    return made
