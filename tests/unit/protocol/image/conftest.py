"""A small log in memory, and shorthands for records, whose schema requires every field."""

from uuid import UUID

import pytest
from quorate_protocol.image import MetadataImage
from quorate_protocol.records import generated as records
from quorate_protocol.records.generated import MetadataRecord


class Log:
    """Appends batches to an image as a node does, one batch per call."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.epoch = 1

    def append(self, *batch: MetadataRecord) -> int:
        """Replay one batch. Returns the offset after it."""
        self.image.replay_batch(
            batch,
            base_offset=self.image.end_offset,
            epoch=self.epoch,
            timestamp_ms=self.image.end_offset * 10,
        )
        return self.image.end_offset

    def commit(self) -> None:
        self.image.commit(self.image.end_offset)


class Shorthand:
    """Records with the fields that a test does not care about filled in."""

    def topic_id(self, number: int) -> UUID:
        return UUID(int=0x1000 + number)

    def feature(self, name: str = "metadata.version", level: int = 30) -> records.FeatureLevelRecord:
        return records.FeatureLevelRecord(name=name, feature_level=level)

    def broker(self, broker_id: int, epoch: int = 0, **fields: object) -> records.RegisterBrokerRecord:
        defaults: dict[str, object] = {
            "incarnation_id": UUID(int=0x2000 + broker_id),
            "end_points": (
                records.BrokerEndpoint(name="PLAIN", host="localhost", port=9092, security_protocol=0),
            ),
            "features": (
                records.BrokerFeature(
                    name="metadata.version", min_supported_version=7, max_supported_version=30
                ),
            ),
            "rack": None,
        }
        return records.RegisterBrokerRecord(
            broker_id=broker_id,
            broker_epoch=epoch,
            **(defaults | fields),  # type: ignore[arg-type]
        )

    def controller(self, controller_id: int, **fields: object) -> records.RegisterControllerRecord:
        defaults: dict[str, object] = {
            "incarnation_id": UUID(int=0x3000 + controller_id),
            "zk_migration_ready": False,
            "end_points": (
                records.ControllerEndpoint(
                    name="CONTROLLER", host="localhost", port=9093, security_protocol=0
                ),
            ),
            "features": (),
        }
        return records.RegisterControllerRecord(
            controller_id=controller_id,
            **(defaults | fields),  # type: ignore[arg-type]
        )

    def topic(self, number: int, name: str = "") -> records.TopicRecord:
        return records.TopicRecord(name=name or f"topic-{number}", topic_id=self.topic_id(number))

    def partition(
        self, topic: int, partition_id: int, replicas: tuple[int, ...] = (1, 2, 3), **fields: object
    ) -> records.PartitionRecord:
        defaults: dict[str, object] = {
            "replicas": replicas,
            "isr": replicas,
            "removing_replicas": (),
            "adding_replicas": (),
            "leader": replicas[0] if replicas else -1,
            "leader_epoch": 0,
            "partition_epoch": 0,
        }
        return records.PartitionRecord(
            partition_id=partition_id,
            topic_id=self.topic_id(topic),
            **(defaults | fields),  # type: ignore[arg-type]
        )

    def change(self, topic: int, partition_id: int, **fields: object) -> records.PartitionChangeRecord:
        return records.PartitionChangeRecord(
            partition_id=partition_id,
            topic_id=self.topic_id(topic),
            **fields,  # type: ignore[arg-type]
        )

    def config(
        self, name: str, value: str | None, resource: tuple[int, str] = (2, "topic-1")
    ) -> records.ConfigRecord:
        return records.ConfigRecord(
            resource_type=resource[0], resource_name=resource[1], name=name, value=value
        )

    def quota(
        self, entity: dict[str, str | None], key: str, value: float, *, remove: bool = False
    ) -> records.ClientQuotaRecord:
        parts = tuple(records.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items())
        return records.ClientQuotaRecord(entity=parts, key=key, value=value, remove=remove)

    def acl(self, number: int, principal: str = "User:alice") -> records.AccessControlEntryRecord:
        return records.AccessControlEntryRecord(
            id=UUID(int=0x4000 + number),
            resource_type=2,
            resource_name="topic-1",
            pattern_type=3,
            principal=principal,
            host="*",
            operation=3,
            permission_type=3,
        )

    def scram(self, user: str, mechanism: int = 1) -> records.UserScramCredentialRecord:
        return records.UserScramCredentialRecord(
            name=user, mechanism=mechanism, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
        )

    def token(self, token_id: str) -> records.DelegationTokenRecord:
        return records.DelegationTokenRecord(
            owner="User:alice",
            requester="User:bob",
            renewers=("User:carol",),
            issue_timestamp=1,
            max_timestamp=3,
            expiration_timestamp=2,
            token_id=token_id,
        )

    def producer_ids(self, next_producer_id: int) -> records.ProducerIdsRecord:
        return records.ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=next_producer_id)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def make() -> Shorthand:
    return Shorthand()
