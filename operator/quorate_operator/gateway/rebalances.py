"""Rebalances: the brokers, partitions, sizes and throttles of a cluster, and the requests that move replicas."""

from collections.abc import Mapping, Sequence
from itertools import islice

from quorate_admin.client import AdminClient
from quorate_admin.errors import ErrorCode
from quorate_admin.types.configs import AlterConfigOp, ConfigResource
from quorate_admin.types.partitions import TopicPartition, TopicPartitionReplica
from quorate_admin.types.topics import TopicDescription
from quorate_protocol.kafka.enums import ConfigOpType, ConfigResourceType, ConfigSource, ElectionType

from quorate_operator.entities.balance import needs_all
from quorate_operator.entities.balance_facts import (
    RATES,
    CancelMoves,
    ElectLeaders,
    MoveReplicas,
    MoveToDirectories,
    ObservedBalance,
    RebalanceChange,
    SetRates,
    SetThrottled,
    StoredRebalance,
)
from quorate_operator.entities.plan import ObservedKafka
from quorate_operator.gateway.node_clients import admin_address
from quorate_operator.gateway.replicas import Disks, brokers_of, observe_disks, observed_partitions
from quorate_operator.gateway.topics import TOPICS_PER_REQUEST_MAX
from quorate_operator.models.rebalances import KafkaRebalance
from quorate_operator.planning.throttles import FOLLOWER_REPLICAS, LEADER_REPLICAS

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


async def observe_rebalance(
    client: AdminClient, resource: KafkaRebalance, stored: StoredRebalance, kafka: ObservedKafka
) -> ObservedBalance:
    """Return what the next step needs of the cluster: only the slice while one is under way. Raises AdminError."""
    under_way = await client.list_partition_reassignments()
    described = await client.describe_cluster(include_fenced_brokers=True)
    rates = await _dynamic(client, [DEFAULTS], ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, RATES)
    brokers = brokers_of(described, kafka.decommissioned)
    is_whole = needs_all(resource, stored, brokers)
    disks = Disks()
    if is_whole:
        disks = await observe_disks(client, kafka)
        names = sorted(await client.list_topics(list_internal=True))
    else:
        names = sorted({move.partition.topic for move in stored.slice})
    topics = await _describe(client, names)
    throttled = await _dynamic(
        client,
        [
            ConfigResource(ConfigResourceType.TOPIC, move.partition.topic)
            for move in stored.slice
            if move.partition.topic in topics
        ],
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        (LEADER_REPLICAS, FOLLOWER_REPLICAS),
    )
    several = {broker_id: own for broker_id, own in disks.directories.items() if len(own) > 1}
    return ObservedBalance(
        brokers=tuple(map(disks.with_room, brokers)),
        partitions=observed_partitions(topics.values(), under_way, disks.sizes),
        directories=several,
        addresses={broker_id: kafka.addresses[broker_id] for broker_id in several},
        rates=rates.get("", {}),
        throttled=throttled,
    )


async def _describe(client: AdminClient, names: Sequence[str]) -> dict[str, TopicDescription]:
    """Return the topics that exist, and that may be described."""
    left = iter(names)
    found: dict[str, TopicDescription] = {}
    while some := list(islice(left, TOPICS_PER_REQUEST_MAX)):
        found |= {value.name: value for value in (await client.describe_topics(some)).values.values()}
    return found


async def _dynamic(
    client: AdminClient, resources: Sequence[ConfigResource], source: ConfigSource, names: Sequence[str]
) -> dict[str, dict[str, str]]:
    """Return configs of these names that were set dynamically, by resource."""
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


async def change_rebalance(client: AdminClient, change: RebalanceChange) -> None:
    """Make one change; one that was made already is no error.

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
            moved.raise_any({ErrorCode.unknown_topic_or_partition})
        case MoveToDirectories():
            await _move_to_directories(client, change)
        case CancelMoves():
            keys = [TopicPartition(key.topic, key.number) for key in change.partitions]
            cancelled = await client.alter_partition_reassignments(dict.fromkeys(keys))
            cancelled.raise_any(_NOT_NEEDED)
        case ElectLeaders():
            keys = [TopicPartition(key.topic, key.number) for key in change.partitions]
            elected = await client.elect_leaders(ElectionType.PREFERRED, keys)
            elected.raise_any(_NOT_NEEDED)


async def _move_to_directories(client: AdminClient, change: MoveToDirectories) -> None:
    """Ask each broker at its address: any other would not know its directories."""
    for broker_id, targets in change.targets.items():
        moved = await client.alter_replica_log_dirs_at(
            admin_address(change.addresses[broker_id]),
            {TopicPartitionReplica(key.topic, key.number, broker_id): path for key, path in targets.items()},
        )
        # The replica may have been deleted since, or moved to another broker.
        moved.raise_any({ErrorCode.unknown_topic_or_partition, ErrorCode.replica_not_available})


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
