"""Throttles of reassignments: on the replicas of topics, and on brokers (KIP-73)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from quorate_admin.types.configs import AlterConfigOp, ConfigResource
from quorate_admin.types.partitions import PartitionReassignment, TopicPartition
from quorate_protocol.kafka.enums import ConfigOpType, ConfigResourceType
from quorate_protocol.plain_data import dataclass

from quorate.tools.reassign_partitions.files import Assignment

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"

ConfigChanges = dict[ConfigResource, Sequence[AlterConfigOp]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The source and target brokers of a partition's data."""

    sources: frozenset[int]
    destinations: frozenset[int]


Moves = Mapping[TopicPartition, Move]


def moves_of(
    under_way: Mapping[TopicPartition, PartitionReassignment], proposed: Assignment, current: Assignment
) -> dict[TopicPartition, Move]:
    """The moves in progress and the proposed ones.

    The sources of a partition with a reassignment in progress are its replicas before it.
    """
    moves = {
        partition: Move(
            sources=frozenset(moving.replicas) - frozenset(moving.adding_replicas),
            destinations=frozenset(moving.adding_replicas),
        )
        for partition, moving in under_way.items()
    }
    for partition, replicas in proposed.items():
        sources = moves[partition].sources if partition in moves else frozenset(current[partition])
        moves[partition] = Move(sources=sources, destinations=frozenset(replicas) - sources)
    return moves


def throttle_topics(moves: Moves) -> ConfigChanges:
    """The throttled replicas by topic: sources as leaders, targets as followers."""
    leaders: dict[str, set[str]] = defaultdict(set)
    followers: dict[str, set[str]] = defaultdict(set)
    for partition, move in moves.items():
        leaders[partition.topic] |= {f"{partition.partition}:{broker}" for broker in move.sources}
        followers[partition.topic] |= {
            f"{partition.partition}:{broker}" for broker in move.destinations - move.sources
        }
    return {
        ConfigResource(ConfigResourceType.TOPIC, topic): [
            AlterConfigOp(name=LEADER_REPLICAS, value=",".join(sorted(leaders[topic]))),
            AlterConfigOp(name=FOLLOWER_REPLICAS, value=",".join(sorted(followers[topic]))),
        ]
        for topic in leaders
    }


def throttle_brokers(moves: Moves, bytes_per_second: int) -> ConfigChanges:
    """Set the rate of all brokers that take part in the moves."""
    brokers = {broker for move in moves.values() for broker in move.sources | move.destinations}
    return _brokers(brokers, {LEADER_RATE: bytes_per_second, FOLLOWER_RATE: bytes_per_second})


def throttle_log_dirs(brokers: Iterable[int], bytes_per_second: int) -> ConfigChanges:
    """Set the rate at which brokers move replicas between their log directories."""
    return _brokers(brokers, {LOG_DIRS_RATE: bytes_per_second})


def _brokers(brokers: Iterable[int], values: Mapping[str, int]) -> ConfigChanges:
    return {
        ConfigResource(ConfigResourceType.BROKER, str(broker)): [
            AlterConfigOp(name=name, value=str(value)) for name, value in values.items()
        ]
        for broker in sorted(set(brokers))
    }


def clear_brokers(brokers: Iterable[int]) -> ConfigChanges:
    """Remove the throttles of brokers."""
    return {
        ConfigResource(ConfigResourceType.BROKER, str(broker)): _deletions(
            (LEADER_RATE, FOLLOWER_RATE, LOG_DIRS_RATE)
        )
        for broker in sorted(set(brokers))
    }


def clear_topics(topics: Iterable[str]) -> ConfigChanges:
    """Remove the throttled replicas of topics."""
    return {
        ConfigResource(ConfigResourceType.TOPIC, topic): _deletions((LEADER_REPLICAS, FOLLOWER_REPLICAS))
        for topic in topics
    }


def _deletions(names: Iterable[str]) -> list[AlterConfigOp]:
    return [AlterConfigOp(name=name, operation=ConfigOpType.DELETE) for name in names]
