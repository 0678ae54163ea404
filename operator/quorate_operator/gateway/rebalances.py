"""Rebalances: the brokers, partitions, sizes and throttles of a cluster, and the requests that move replicas.

Any broker may be asked, except for log directories: each broker describes its own.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from quorate_admin.client import AdminClient
from quorate_admin.errors import AdminError, ErrorCode, ServerError
from quorate_admin.types.configs import AlterConfigOp, ConfigResource
from quorate_admin.types.partitions import PartitionReassignment, TopicPartition, TopicPartitionReplica
from quorate_admin.types.topics import TopicDescription
from quorate_protocol.kafka.enums import ConfigOpType, ConfigResourceType, ConfigSource, ElectionType

from quorate_operator.entities.balance import needs_all
from quorate_operator.entities.balance_facts import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    RATES,
    CancelMoves,
    ElectLeaders,
    HadRebalance,
    MoveReplicas,
    MoveToDirectories,
    ObservedBalance,
    Reassignment,
    RebalanceChange,
    SetRates,
    SetThrottled,
)
from quorate_operator.entities.plan import ObservedKafka
from quorate_operator.gateway.facts import observed_directories, room_bytes
from quorate_operator.gateway.node_clients import admin_address
from quorate_operator.gateway.topics import TOPICS_PER_REQUEST_MAX
from quorate_operator.models.rebalances import KafkaRebalance
from quorate_operator.planning.cluster import ObservedDirectory, PartitionId
from quorate_operator.rebalancing.cluster import BrokerState, PartitionState

DEFAULTS = ConfigResource(ConfigResourceType.BROKER, "")
"""The dynamic defaults of all brokers."""
_NOT_NEEDED = frozenset(
    {
        ErrorCode.election_not_needed,
        ErrorCode.preferred_leader_not_available,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.no_reassignment_in_progress,
    }
)
"""Errors of requests that are done already, or became impossible since. The next observation has the result."""


@dataclass(slots=True)
class _Disks:
    """Sizes of partitions, how many bytes may be added to each broker, and log directories."""

    sizes: dict[PartitionId, int] = field(default_factory=dict)
    rooms: dict[int, int] = field(default_factory=dict)
    directories: dict[int, Mapping[str, ObservedDirectory]] = field(default_factory=dict)
    """Of brokers with several."""


async def observe_rebalance(
    client: AdminClient, resource: KafkaRebalance, had: HadRebalance, kafka: ObservedKafka
) -> ObservedBalance:
    """Returns what the next step needs of the cluster: only the slice while one is under way. Raises AdminError."""
    # Reassignments are listed before topics are described: one that completes in between is then seen as complete.
    under_way = await client.list_partition_reassignments()
    described = await client.describe_cluster(include_fenced_brokers=True)
    rates = await _dynamic(client, [DEFAULTS], ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, RATES)
    brokers = tuple(
        BrokerState(
            broker_id=node.node_id,
            rack=node.rack,
            is_in_service=not node.fenced,
            is_leaving=node.node_id in kafka.leaving,
        )
        for node in described.nodes
    )
    is_whole = needs_all(resource, had, brokers)
    disks = _Disks()
    if is_whole:
        disks = await _disks(client, kafka)
        names = sorted(await client.list_topics(list_internal=True))
    else:
        names = sorted({move.partition.topic for move in had.slice})
    topics = await _describe(client, names)
    throttled = await _dynamic(
        client,
        [
            ConfigResource(ConfigResourceType.TOPIC, move.partition.topic)
            for move in had.slice
            if move.partition.topic in topics
        ],
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        (LEADER_REPLICAS, FOLLOWER_REPLICAS),
    )
    return ObservedBalance(
        brokers=tuple(_with_room(broker, disks) for broker in brokers),
        partitions=_partitions(topics.values(), under_way, disks.sizes),
        moving={
            PartitionId(key.topic, key.partition): Reassignment(
                target=frozenset(reassignment.replicas) - frozenset(reassignment.removing_replicas)
            )
            for key, reassignment in under_way.items()
        },
        directories=disks.directories,
        addresses={broker_id: kafka.addresses[broker_id] for broker_id in disks.directories},
        rates=rates.get("", {}),
        throttled=throttled,
    )


def _with_room(broker: BrokerState, disks: _Disks) -> BrokerState:
    return BrokerState(
        broker_id=broker.broker_id,
        rack=broker.rack,
        is_in_service=broker.is_in_service,
        is_leaving=broker.is_leaving,
        room_bytes=disks.rooms.get(broker.broker_id),
    )


def _partitions(
    topics: Iterable[TopicDescription],
    under_way: Mapping[TopicPartition, PartitionReassignment],
    sizes: Mapping[PartitionId, int],
) -> dict[PartitionId, PartitionState]:
    found = {}
    for topic in topics:
        for partition in topic.partitions:
            moves = under_way.get(TopicPartition(topic.name, partition.partition))
            replicas = (
                partition.replicas
                if moves is None
                else tuple(broker for broker in moves.replicas if broker not in moves.removing_replicas)
            )
            key = PartitionId(topic.name, partition.partition)
            found[key] = PartitionState(
                partition=key,
                replicas=replicas,
                isr=partition.isr,
                leader=partition.leader,
                is_moving=moves is not None,
                size_bytes=sizes.get(key, 0),
            )
    return found


async def _describe(client: AdminClient, names: Sequence[str]) -> dict[str, TopicDescription]:
    """Returns the topics that exist, and that may be described."""
    left = iter(names)
    found: dict[str, TopicDescription] = {}
    while some := list(islice(left, TOPICS_PER_REQUEST_MAX)):
        found |= {value.name: value for value in (await client.describe_topics(some)).values.values()}
    return found


async def _dynamic(
    client: AdminClient, resources: Sequence[ConfigResource], source: ConfigSource, names: Sequence[str]
) -> dict[str, dict[str, str]]:
    """Returns configs of these names that were set dynamically, by resource."""
    if not resources:
        return {}
    described = await client.describe_configs(dict.fromkeys(resources))
    return {
        resource.name: {
            entry.name: entry.value or ""
            for entry in entries
            if entry.name in names and entry.source is source
        }
        for resource, entries in described.values.items()
    }


async def _disks(client: AdminClient, kafka: ObservedKafka) -> _Disks:
    """Asks each broker whose address is known. A broker that does not answer is treated as one without an address."""
    whose = {admin_address(address): broker_id for broker_id, address in kafka.addresses.items()}
    responses = await asyncio.gather(
        *(client.describe_log_dirs_at(address) for address in whose), return_exceptions=True
    )
    disks = _Disks()
    for broker_id, response in zip(whose.values(), responses, strict=True):
        if isinstance(response, AdminError):
            continue
        if isinstance(response, BaseException):
            raise response
        if len(response) > 1:
            disks.directories[broker_id] = observed_directories(response)
        directories = [directory for directory in response.values() if directory.error is None]
        for directory in directories:
            for key, replica in directory.replicas.items():
                if not replica.is_future:
                    name = PartitionId(key.topic, key.partition)
                    disks.sizes[name] = max(disks.sizes.get(name, 0), replica.size_bytes)
        usable = [
            directory
            for directory in directories
            if not directory.is_cordoned and directory.usable_bytes is not None
        ]
        if usable:
            # Kafka chooses the directory with the fewest partitions, whatever its free space: so the fullest one is
            # the limit.
            disks.rooms[broker_id] = max(0, min(room_bytes(directory) or 0 for directory in usable))
    return disks


async def change_rebalance(client: AdminClient, change: RebalanceChange) -> None:
    """Makes one change; one that was made already is no error.

    Raises:
        ServerError: it was refused.
        AdminError: no broker answered.
    """
    match change:
        case SetRates():
            await _configure(client, {DEFAULTS: change.rates})
        case SetThrottled():
            await _configure(
                client,
                {
                    ConfigResource(ConfigResourceType.TOPIC, name): values
                    for name, values in change.topics.items()
                },
            )
        case MoveReplicas():
            targets = {TopicPartition(key.topic, key.number): to for key, to in change.targets.items()}
            # The replicas may come from a broker whose metadata was old: the factor must not change by that.
            moved = await client.alter_partition_reassignments(targets, allow_replication_factor_change=False)
            _raise_unless(moved.errors.values(), {ErrorCode.unknown_topic_or_partition})
        case MoveToDirectories():
            await _move_to_directories(client, change)
        case CancelMoves():
            keys = [TopicPartition(key.topic, key.number) for key in change.partitions]
            cancelled = await client.alter_partition_reassignments(dict.fromkeys(keys))
            _raise_unless(cancelled.errors.values(), _NOT_NEEDED)
        case ElectLeaders():
            keys = [TopicPartition(key.topic, key.number) for key in change.partitions]
            elected = await client.elect_leaders(ElectionType.PREFERRED, keys)
            _raise_unless(elected.errors.values(), _NOT_NEEDED)


async def _move_to_directories(client: AdminClient, change: MoveToDirectories) -> None:
    """Asks each broker at its address: any other would not know its directories."""
    for broker_id, targets in change.targets.items():
        moved = await client.alter_replica_log_dirs_at(
            admin_address(change.addresses[broker_id]),
            {TopicPartitionReplica(key.topic, key.number, broker_id): path for key, path in targets.items()},
        )
        # The replica may have been deleted since, or moved to another broker.
        _raise_unless(
            moved.errors.values(), {ErrorCode.unknown_topic_or_partition, ErrorCode.replica_not_available}
        )


async def _configure(client: AdminClient, values: Mapping[ConfigResource, Mapping[str, str | None]]) -> None:
    operations = {
        resource: [
            AlterConfigOp(name=name, operation=ConfigOpType.DELETE)
            if value is None
            else AlterConfigOp(name=name, value=value)
            for name, value in named.items()
        ]
        for resource, named in values.items()
    }
    (await client.incremental_alter_configs(operations)).raise_any()


def _raise_unless(errors: Iterable[ServerError], codes: Iterable[ErrorCode]) -> None:
    allowed = frozenset(codes)
    for error in errors:
        if error.error_code not in allowed:
            raise error
