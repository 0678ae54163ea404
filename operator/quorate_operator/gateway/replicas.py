"""Replicas and their room, as brokers describe them: partitions with reassignments, disks.

Any broker may be asked, except for log directories: each broker describes its own.
"""

import asyncio
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

from quorate_admin.client import AdminClient
from quorate_admin.errors import AdminError
from quorate_admin.types.cluster import ClusterDescription
from quorate_admin.types.partitions import PartitionReassignment, TopicPartition
from quorate_admin.types.topics import TopicDescription

from quorate_operator.entities.plan import ObservedKafka
from quorate_operator.gateway.facts import observed_directories
from quorate_operator.gateway.node_clients import admin_address
from quorate_operator.placement.cluster import (
    Broker,
    ObservedDirectory,
    ObservedPartition,
    PartitionId,
    broker_room_bytes,
)

Reassignments = Mapping[TopicPartition, PartitionReassignment]
"""Those under way, listed before the topics are described: one that completes in between counts as under way."""


@dataclass(slots=True)
class Disks:
    """Sizes of partitions, and log directories by broker."""

    sizes: dict[PartitionId, int] = field(default_factory=dict)
    replicas: Counter[int] = field(default_factory=Counter)
    """Number of replicas by broker."""
    directories: dict[int, Mapping[str, ObservedDirectory]] = field(default_factory=dict)

    def with_room(self, broker: Broker) -> Broker:
        """Return a broker with its room, if it described its directories."""
        directories = self.directories.get(broker.broker_id)
        return broker if directories is None else replace(broker, room_bytes=broker_room_bytes(directories))


def brokers_of(described: ClusterDescription, decommissioned: Container[int]) -> tuple[Broker, ...]:
    """Return the brokers of a cluster, without their room."""
    return tuple(
        Broker(
            broker_id=node.node_id,
            rack=node.rack,
            is_in_service=not node.fenced,
            is_decommissioned=node.node_id in decommissioned,
        )
        for node in described.nodes
    )


def observed_partitions(
    topics: Iterable[TopicDescription], reassignments: Reassignments, sizes: Mapping[PartitionId, int]
) -> dict[PartitionId, ObservedPartition]:
    """Return the partitions of topics, with the replicas that reassignments add and remove."""
    found = {}
    for topic in topics:
        for partition in topic.partitions:
            moves = reassignments.get(TopicPartition(topic.name, partition.partition))
            key = PartitionId(topic.name, partition.partition)
            found[key] = ObservedPartition(
                partition=key,
                replicas=partition.replicas if moves is None else moves.replicas,
                isr=partition.isr,
                leader=partition.leader,
                adding=moves.adding_replicas if moves is not None else (),
                removing=moves.removing_replicas if moves is not None else (),
                size_bytes=sizes.get(key),
            )
    return found


async def observe_disks(client: AdminClient, kafka: ObservedKafka) -> Disks:
    """Ask each broker whose address is known. A broker that does not answer is treated as one without an address."""
    broker_ids = {admin_address(address): broker_id for broker_id, address in kafka.addresses.items()}
    responses = await asyncio.gather(
        *(client.describe_log_dirs_at(address) for address in broker_ids), return_exceptions=True
    )
    disks = Disks()
    for broker_id, response in zip(broker_ids.values(), responses, strict=True):
        if isinstance(response, AdminError):
            continue
        if isinstance(response, BaseException):
            raise response
        disks.directories[broker_id] = observed_directories(response)
        for directory in disks.directories[broker_id].values():
            disks.replicas[broker_id] += len(directory.replicas)
            for key, size_bytes in directory.replicas.items():
                disks.sizes[key] = max(disks.sizes.get(key, 0), size_bytes)
    return disks
