"""A large cluster as an image, for work that must not grow with it. It takes seconds to build: share it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final
from uuid import UUID

from quorate_protocol.image import MetadataImage
from quorate_protocol.kafka.enums import (
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
    ScramMechanism,
)
from quorate_protocol.records.generated import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerFeature,
    ClientQuotaRecord,
    ConfigRecord,
    ControllerFeature,
    DelegationTokenRecord,
    EntityData,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quorate_protocol.records.framing import MetadataRecord

METADATA_VERSION: Final = 33
REPLICAS: Final = 3
LARGE: Final = "large"
"""The topic that has half of all partitions; the others have the same number each."""
SENDER: Final = "User:alice"
"""The principal of the ACLs that allow everything: each lookup of a resource searches all of them."""
RECORDS_AT_ONCE: Final = 10_000
_TOPIC: Final = 2


@dataclass(frozen=True, slots=True)
class Size:
    """How many of each there are."""

    brokers: int = 1_000
    topics: int = 50_000
    partitions: int = 200_000
    acls: int = 100_000
    tokens: int = 50_000
    users: int = 50_000

    def times(self, share: float) -> Size:
        """A share of it; brokers keep the number of their replicas."""
        return Size(
            *(max(1, int(number * share)) for number in (self.brokers, self.topics, self.partitions)),
            *(max(1, int(number * share)) for number in (self.acls, self.tokens, self.users)),
        )


def topic_id(number: int) -> UUID:
    """The id of the topic with this number; 0 is the large one."""
    return UUID(int=(1 << 64) + number)


def topic_name(number: int) -> str:
    """Its name."""
    return f"topic-{number}" if number else LARGE


def directory(broker_id: int) -> UUID:
    """The only log directory of a broker."""
    return UUID(int=(1 << 65) + broker_id)


def acl_id(number: int) -> UUID:
    """The id of an ACL."""
    return UUID(int=(1 << 66) + number)


def build(size: Size) -> MetadataImage:
    """Make the image by replay, as a controller does."""
    image = MetadataImage()
    records = _records(size)
    while some := tuple(islice(records, RECORDS_AT_ONCE)):
        image.replay_all(some, base_offset=image.end_offset)
        image.advance(end_offset=image.end_offset, epoch=1, timestamp_ms=1)
        image.commit(image.end_offset)
    return image


def _records(size: Size) -> Iterator[MetadataRecord]:
    yield FeatureLevelRecord(name="metadata.version", feature_level=METADATA_VERSION)
    yield FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)
    yield from _nodes(size)
    yield from _topics(size)
    yield from _security(size)
    yield ProducerIdsRecord(broker_id=0, next_producer_id=1_000)


def _nodes(size: Size) -> Iterator[MetadataRecord]:
    for broker_id in range(size.brokers):
        yield RegisterBrokerRecord(
            broker_id=broker_id,
            broker_epoch=1_000 + broker_id,
            incarnation_id=UUID(int=(1 << 67) + broker_id),
            end_points=(BrokerEndpoint(name="PLAINTEXT", host="b", port=9092, security_protocol=0),),
            features=(
                BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=33),
            ),
            rack=f"rack-{broker_id % 3}",
            fenced=False,
            log_dirs=(directory(broker_id),),
        )
    for controller_id in (3000, 3001, 3002):
        yield RegisterControllerRecord(
            controller_id=controller_id,
            incarnation_id=UUID(int=controller_id),
            zk_migration_ready=False,
            end_points=(),
            features=(
                ControllerFeature(name="metadata.version", min_supported_version=7, max_supported_version=33),
            ),
        )


def _topics(size: Size) -> Iterator[MetadataRecord]:
    of_large = size.partitions // 2
    of_others = max(1, (size.partitions - of_large) // size.topics)
    placed = 0
    for number in range(size.topics):
        yield TopicRecord(name=topic_name(number), topic_id=topic_id(number))
        for partition_id in range(of_others if number else of_large):
            yield _partition(size, number, partition_id, placed)
            placed += 1
        if number % 10 == 1:
            yield ConfigRecord(
                resource_type=_TOPIC, resource_name=topic_name(number), name="retention.ms", value="5"
            )


def _partition(size: Size, number: int, partition_id: int, placed: int) -> PartitionRecord:
    """Every twentieth partition is not led by its preferred replica."""
    replicas = tuple((placed + step * (1 + placed % 7)) % size.brokers for step in range(REPLICAS))
    if len(set(replicas)) < REPLICAS:
        replicas = tuple((placed + step) % size.brokers for step in range(REPLICAS))
    return PartitionRecord(
        partition_id=partition_id,
        topic_id=topic_id(number),
        replicas=replicas,
        isr=replicas,
        removing_replicas=(),
        adding_replicas=(),
        leader=replicas[placed % 20 == 0],
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(map(directory, replicas)),
    )


def _security(size: Size) -> Iterator[MetadataRecord]:
    for number in range(size.acls):
        yield AccessControlEntryRecord(
            id=acl_id(number),
            resource_type=ResourceType.TOPIC,
            resource_name=topic_name(number % size.topics),
            pattern_type=PatternType.LITERAL,
            principal=f"User:user-{number % size.users}",
            host="*",
            operation=AclOperation.READ,
            permission_type=AclPermissionType.ALLOW,
        )
    for number, resource_type in enumerate(ResourceType):
        if resource_type > ResourceType.ANY:
            name = "kafka-cluster" if resource_type is ResourceType.CLUSTER else "*"
            yield AccessControlEntryRecord(
                id=UUID(int=number + 1),
                resource_type=resource_type,
                resource_name=name,
                pattern_type=PatternType.LITERAL,
                principal=SENDER,
                host="*",
                operation=AclOperation.ALL,
                permission_type=AclPermissionType.ALLOW,
            )
    for number in range(size.tokens):
        yield DelegationTokenRecord(
            owner=SENDER,
            requester=SENDER,
            renewers=(),
            issue_timestamp=0,
            max_timestamp=1 << 40,
            expiration_timestamp=1 << 40,
            token_id=f"token-{number}",
        )
    for number in range(size.users):
        yield UserScramCredentialRecord(
            name=f"user-{number}",
            mechanism=ScramMechanism.SCRAM_SHA_256,
            salt=b"salt",
            stored_key=b"key",
            server_key=b"key",
            iterations=4096,
        )
        user = EntityData(entity_type="user", entity_name=f"user-{number}")
        yield ClientQuotaRecord(entity=(user,), key="producer_byte_rate", value=1.0, remove=False)
