"""Topics as brokers describe them, and the requests that change them. All requests go to brokers (KIP-919)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from quorate_admin.client import AdminClient
from quorate_admin.config import Address as AdminAddress
from quorate_admin.errors import ErrorCode, ServerError
from quorate_admin.types.configs import AlterConfigOp, ConfigResource
from quorate_admin.types.partitions import TopicPartition
from quorate_admin.types.topics import NewPartitions, NewTopic
from quorate_protocol.kafka.enums import ConfigOpType, ConfigResourceType, ConfigSource

from quorate_operator.entities.plan import ObservedKafka
from quorate_operator.entities.topics import (
    AddPartitions,
    AlterConfig,
    CreateTopic,
    DeleteTopic,
    ObservedTopic,
    ReassignReplicas,
)
from quorate_operator.gateway.batches import Errors, Request, first_error, make_changes
from quorate_operator.gateway.replicas import Reassignments, brokers_of, observe_disks, observed_partitions
from quorate_operator.placement.assignment import Assignment
from quorate_operator.placement.cluster import ObservedPartition, PartitionId
from quorate_operator.planning.cluster import Address

TOPICS_PER_REQUEST_MAX = 200
TopicChange = CreateTopic | AddPartitions | AlterConfig | ReassignReplicas | DeleteTopic
_MISSING = frozenset({ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id})


async def observe_kafka(
    client: AdminClient,
    *,
    decommissioned: Collection[int] = (),
    reserved: frozenset[str] = frozenset(),
    addresses: Mapping[int, Address] | None = None,
    servers: Collection[AdminAddress] = (),
) -> ObservedKafka:
    """Return cluster id and brokers; those in `decommissioned` get no replicas. Raises AdminError.

    Without `addresses`, a broker's address is known if it advertises one of `servers`.
    """
    described = await client.describe_cluster()
    return ObservedKafka(
        cluster_id=described.cluster_id,
        brokers=brokers_of(described, decommissioned),
        reserved=reserved,
        decommissioned=frozenset(decommissioned),
        addresses=addresses
        or {
            node.node_id: Address(node.host, node.port)
            for node in described.nodes
            if AdminAddress(node.host, node.port) in servers
        },
    )


async def observe_topics(
    client: AdminClient, names: Iterable[str], under_way: Reassignments
) -> Mapping[str, ObservedTopic | ServerError | None]:
    """Return topics by name: None for one that does not exist, the error for one that can't be described.

    `under_way` was listed before.

    Raises:
        AdminError: no broker answered.
    """
    left = iter(dict.fromkeys(names))
    found: dict[str, ObservedTopic | ServerError | None] = {}
    while some := list(islice(left, TOPICS_PER_REQUEST_MAX)):
        found |= await _observe_some(client, some, under_way)
    return found


async def _observe_some(
    client: AdminClient, names: Sequence[str], under_way: Reassignments
) -> Mapping[str, ObservedTopic | ServerError | None]:
    described = await client.describe_topics(names)
    there = {value.name: value for value in described.values.values()}
    found: dict[str, ObservedTopic | ServerError | None] = {
        str(name): _error_or_missing(error) for name, error in described.errors.items()
    }
    if not there:
        return found
    resources = {name: ConfigResource(ConfigResourceType.TOPIC, name) for name in there}
    configs = await client.describe_configs(resources.values())
    for name, resource in resources.items():
        if resource in configs.errors:
            found[name] = _error_or_missing(configs.errors[resource])
            continue
        partitions = observed_partitions([there[name]], under_way, {})
        found[name] = ObservedTopic(
            topic_id=there[name].topic_id,
            partitions={key.number: partition for key, partition in partitions.items()},
            config={
                entry.name: entry.value or ""
                for entry in configs.values[resource]
                if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
            },
        )
    return found


async def observe_assignment(
    client: AdminClient, topics: Iterable[ObservedTopic], kafka: ObservedKafka, under_way: Reassignments
) -> Assignment:
    """Return the assignment in which replication factors of topics are changed, with the room of brokers.

    Brokers are compared by all their replicas if each one that may get more describes its directories, else by those
    of the known partitions.

    Raises:
        AdminError: no broker answered.
    """
    disks = await observe_disks(client, kafka)
    partitions = {
        partition.partition: replace(partition, size_bytes=disks.sizes.get(partition.partition))
        for topic in topics
        for partition in topic.partitions.values()
    }
    for key, moves in under_way.items():
        other = PartitionId(key.topic, key.partition)
        if other not in partitions:
            partitions[other] = ObservedPartition(
                partition=other,
                replicas=moves.replicas,
                isr=(),
                adding=moves.adding_replicas,
                removing=moves.removing_replicas,
                size_bytes=disks.sizes.get(other),
            )
    brokers = tuple(map(disks.with_room, kafka.brokers))
    if all(broker.broker_id in disks.directories for broker in brokers if broker.takes_replicas):
        brokers = tuple(replace(broker, replicas=disks.replicas.get(broker.broker_id)) for broker in brokers)
    return Assignment(brokers, tuple(partitions.values()))


def _error_or_missing(error: ServerError) -> ServerError | None:
    return None if error.error_code in _MISSING else error


async def change_topics(client: AdminClient, changes: Sequence[TopicChange]) -> Errors:
    """Make changes of different topics; one that was made already is no error."""
    return await make_changes(client, changes, _REQUESTS)


async def _create(client: AdminClient, changes: Sequence[CreateTopic]) -> Errors:
    new = [
        NewTopic(
            name=change.topic,
            partitions=-1 if change.partitions is None else change.partitions,
            replication_factor=-1 if change.replication_factor is None else change.replication_factor,
            configs=change.config,
        )
        for change in changes
    ]
    created = await client.create_topics(new)
    return [created.error_of(change.topic, {ErrorCode.topic_already_exists}) for change in changes]


async def _add_partitions(client: AdminClient, changes: Sequence[AddPartitions]) -> Errors:
    counts = {change.topic: NewPartitions(total_count=change.count) for change in changes}
    added = await client.create_partitions(counts)
    return [added.error_of(change.topic) for change in changes]


async def _alter_configs(client: AdminClient, changes: Sequence[AlterConfig]) -> Errors:
    resources = [ConfigResource(ConfigResourceType.TOPIC, change.topic) for change in changes]
    altered = await client.incremental_alter_configs(
        {resource: _operations(change) for resource, change in zip(resources, changes, strict=True)}
    )
    return [altered.error_of(resource) for resource in resources]


def _operations(change: AlterConfig) -> list[AlterConfigOp]:
    return [
        *(AlterConfigOp(name=name, value=value) for name, value in change.values.items()),
        *(AlterConfigOp(name=name, operation=ConfigOpType.DELETE) for name in change.resets),
    ]


async def _reassign(client: AdminClient, changes: Sequence[ReassignReplicas]) -> Errors:
    replicas = {
        TopicPartition(change.topic, number): brokers
        for change in changes
        for number, brokers in change.replicas.items()
    }
    reassigned = await client.alter_partition_reassignments(replicas)
    return [
        first_error(reassigned.error_of(TopicPartition(change.topic, number)) for number in change.replicas)
        for change in changes
    ]


async def _delete(client: AdminClient, changes: Sequence[DeleteTopic]) -> Errors:
    keys = [change.topic if change.topic_id is None else change.topic_id for change in changes]
    deleted = await client.delete_topics(keys)
    return [deleted.error_of(key, _MISSING) for key in keys]


_REQUESTS = {
    CreateTopic: Request(_create, lambda change: change.partitions or 1),
    AddPartitions: Request(_add_partitions, lambda change: change.count - change.present),
    AlterConfig: Request(_alter_configs),
    ReassignReplicas: Request(_reassign, lambda change: len(change.replicas)),
    DeleteTopic: Request(_delete),
}
