"""A metadata image that a test fills."""

from collections.abc import Mapping
from uuid import UUID

import pytest
from quorate_protocol.image import MetadataImage
from quorate_protocol.records.generated import (
    BrokerEndpoint,
    BrokerFeature,
    ConfigRecord,
    ControllerEndpoint,
    ControllerFeature,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
)

TOPIC, BROKER = 2, 4


class Metadata:
    """An image, and short words for what is in it."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.replay(FeatureLevelRecord(name="metadata.version", feature_level=30))

    def replay(self, *records: object) -> None:
        """Replay as one batch."""
        self.image.replay_batch(records, base_offset=self.image.end_offset, epoch=1, timestamp_ms=0)

    def broker(self, node_id: int, *, fenced: bool = False, rack: str | None = None) -> None:
        """Register a broker, of the epoch 100 + its id."""
        self.replay(
            RegisterBrokerRecord(
                broker_id=node_id,
                broker_epoch=100 + node_id,
                incarnation_id=UUID(int=1000 + node_id),
                end_points=(
                    BrokerEndpoint(name="PLAINTEXT", host=f"b{node_id}", port=9092, security_protocol=0),
                ),
                features=(
                    BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30),
                ),
                rack=rack,
                fenced=fenced,
                in_controlled_shutdown=False,
                log_dirs=(UUID(int=5000 + node_id),),
            )
        )

    def controller(self, node_id: int) -> None:
        """Register a controller."""
        self.replay(
            RegisterControllerRecord(
                controller_id=node_id,
                incarnation_id=UUID(int=1000 + node_id),
                zk_migration_ready=False,
                end_points=(
                    ControllerEndpoint(name="CONTROLLER", host=f"c{node_id}", port=9093, security_protocol=0),
                ),
                features=(
                    ControllerFeature(
                        name="metadata.version", min_supported_version=7, max_supported_version=33
                    ),
                ),
            )
        )

    def topic(
        self, name: str, *partitions: tuple[tuple[int, ...], tuple[int, ...]], **fields: object
    ) -> None:
        """A topic whose partitions have these replicas and ISRs, led by the first of the ISR."""
        topic_id = UUID(int=7000 + len(self.image.topics.by_id))
        self.replay(
            TopicRecord(name=name, topic_id=topic_id),
            *(
                PartitionRecord(
                    partition_id=number,
                    topic_id=topic_id,
                    replicas=replicas,
                    isr=isr,
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=tuple(UUID(int=5000 + replica) for replica in replicas),
                    **{
                        "leader": isr[0] if isr else -1,
                        "removing_replicas": (),
                        "adding_replicas": (),
                        **fields,
                    },
                )
                for number, (replicas, isr) in enumerate(partitions)
            ),
        )

    def config(self, kind: int, name: str, configs: Mapping[str, str]) -> None:
        """Dynamic configs."""
        self.replay(
            *(
                ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
                for key, value in configs.items()
            )
        )


@pytest.fixture
def metadata() -> Metadata:
    """An image of metadata.version 30 with nothing else in it."""
    return Metadata()
