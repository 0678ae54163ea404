"""A cluster's metadata image and the description of its quorum as the planner's facts. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from quorate_admin.diagnosis import LeaderView
from quorate_admin.types.cluster import QuorumDescription, RaftVoterEndpoint, ReplicaDescription
from quorate_admin.types.partitions import LogDirDescription
from quorate_protocol.image import MetadataImage, PartitionRegistration
from quorate_protocol.image.registrations import Listener, VersionRange
from quorate_protocol.image.views import partitions_of_broker
from quorate_protocol.kafka.enums import ConfigResourceType
from quorate_protocol.uuids import uuid_to_text

from quorate_operator.placement.cluster import (
    ObservedDirectory,
    ObservedPartition,
    PartitionId,
    broker_room_bytes,
    directory_room_bytes,
)
from quorate_operator.placement.directories import Directories
from quorate_operator.planning.cluster import (
    Address,
    BrokerLoad,
    ObservedQuorum,
    ObservedRegistration,
    ObservedVoter,
    Role,
)
from quorate_operator.planning.steps import NAMED_MAX
from quorate_operator.planning.throttles import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS

CORDONED_LOG_DIRS = "cordoned.log.dirs"

LogDirs = Mapping[str, LogDirDescription]
"""The log directories of a broker by path, as the broker describes them."""


def observed_quorum(
    described: QuorumDescription,
    kraft_version: int,
    brokers: Iterable[int],
    now_ms: int,
    leader_since_ms: int | None = None,
) -> ObservedQuorum:
    """Return the quorum as its leader described it at `now_ms`, without the `brokers`, which are observers too.

    The leader was elected at `leader_since_ms` or before, by its clock; None if that is unknown. Times in the result
    are converted from the leader's clock to that of `now_ms`.
    """
    leader = next((voter for voter in described.voters if voter.node_id == described.leader_id), None)
    view = LeaderView.of(described, leader_since_ms)
    ahead_ms = view.now_ms - now_ms
    others = frozenset(brokers)

    def observed(replica: ReplicaDescription) -> ObservedVoter:
        is_leader = replica.node_id == described.leader_id and replica is leader
        return ObservedVoter(
            node_id=replica.node_id,
            directory_id=None if replica.directory_id is None else uuid_to_text(replica.directory_id),
            log_end_offset=replica.log_end_offset,
            last_fetch_ms=now_ms if is_leader else _shifted(replica.last_fetch_ms, ahead_ms),
            last_caught_up_ms=_shifted(replica.last_caught_up_ms, ahead_ms),
            follows=view.follows(replica),
            caught_up=view.is_caught_up(replica),
            endpoints=_voter_endpoints(described.nodes.get(replica.node_id, ())),
        )

    voters = {replica.node_id: observed(replica) for replica in described.voters}
    return ObservedQuorum(
        leader_id=described.leader_id,
        leader_epoch=described.leader_epoch,
        high_watermark=described.high_watermark,
        kraft_version=kraft_version,
        is_leader_new=view.is_new,
        voters=voters,
        observers=tuple(
            observed(observer) for observer in described.observers if observer.node_id not in others
        ),
    )


def registrations(image: MetadataImage) -> dict[int, ObservedRegistration]:
    """Return every registration by node id."""
    brokers = {
        broker.broker_id: ObservedRegistration(
            node_id=broker.broker_id,
            role=Role.BROKER,
            endpoints=_endpoints(broker.listeners.values()),
            features=_features(broker.supported_features),
            fenced=broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
            rack=broker.rack,
            epoch=broker.epoch,
        )
        for broker in image.cluster.brokers.values()
    }
    controllers = {
        controller.controller_id: ObservedRegistration(
            node_id=controller.controller_id,
            role=Role.CONTROLLER,
            endpoints=_endpoints(controller.listeners.values()),
            features=_features(controller.supported_features),
        )
        for controller in image.cluster.controllers.values()
    }
    return {**brokers, **controllers}


def partitions_to_watch(
    image: MetadataImage, draining: Iterable[int], log_dirs: Mapping[int, LogDirs]
) -> tuple[ObservedPartition, ...]:
    """Return partitions with a replica on a draining broker, and those under reassignment, by topic and number.

    The size is that of the largest replica among those in `log_dirs`.
    """
    found: dict[PartitionId, PartitionRegistration] = {}
    for broker_id in draining:
        for topic, number, partition in partitions_of_broker(image, broker_id):
            found[PartitionId(topic.name, number)] = partition
    for topic_id, number in image.index.reassigning:
        topic = image.topics.by_id[topic_id]
        found[PartitionId(topic.name, number)] = topic.partitions[number]
    sizes = _sizes(log_dirs, found) if found else {}
    return tuple(
        ObservedPartition(
            partition=key,
            replicas=partition.replicas,
            isr=partition.isr,
            leader=None if partition.leader < 0 else partition.leader,
            adding=partition.adding_replicas,
            removing=partition.removing_replicas,
            size_bytes=sizes.get(key),
        )
        for key, partition in sorted(found.items())
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Partitions counted by broker."""

    replicas: Mapping[int, int] = field(default_factory=dict)
    leaders: Mapping[int, int] = field(default_factory=dict)
    fragile: Mapping[int, int] = field(default_factory=dict)
    fragile_first: Mapping[int, Sequence[PartitionId]] = field(default_factory=dict)
    sole: Mapping[int, int] = field(default_factory=dict)
    sole_first: Mapping[int, Sequence[PartitionId]] = field(default_factory=dict)
    awaited: Mapping[int, int] = field(default_factory=dict)
    unpreferred: Mapping[int, int] = field(default_factory=dict)
    lagging: Mapping[int, int] = field(default_factory=dict)


def count_partitions(image: MetadataImage, general: int, own: Mapping[str, int]) -> Counts:
    """Count every partition once. `general` and `own` are what `views.min_insync_replicas` returns.

    A partition that needs all its replicas in sync can't keep them while a broker restarts: it counts as fragile only
    while it has fewer in sync than it would have then. One without a leader can't get worse: it waits for the brokers
    that may lead it.
    """
    replicas: Counter[int] = Counter()
    leaders: Counter[int] = Counter()
    fragile: Counter[int] = Counter()
    fragile_first: dict[int, list[PartitionId]] = {}
    sole: Counter[int] = Counter()
    sole_first: dict[int, list[PartitionId]] = {}
    awaited: Counter[int] = Counter()
    lagging: Counter[int] = Counter()
    for topic in image.topics.by_id.values():
        needed = own.get(topic.name, general)
        for number, partition in topic.partitions.items():
            replicas.update(partition.replicas)
            leaders[partition.leader] += 1
            size = len(partition.replicas)
            if not partition.has_leader:
                awaited.update(partition.isr or partition.elr)
            elif size > 1 and len(partition.isr) - 1 < max(1, min(needed, size - 1)):
                fragile.update(partition.isr)
                for broker_id in partition.isr:
                    _name(fragile_first, broker_id, PartitionId(topic.name, number))
            # Without any of these, none is known to have all: each may be the only one.
            complete = partition.isr or partition.elr
            for broker_id in complete or partition.replicas if len(complete) <= 1 else ():
                sole[broker_id] += 1
                _name(sole_first, broker_id, PartitionId(topic.name, number))
            if size > len(partition.isr):
                moving = (*partition.adding_replicas, *partition.removing_replicas)
                lagging.update({*partition.replicas}.difference(partition.isr, moving))
    return Counts(
        replicas=replicas,
        leaders=leaders,
        fragile=fragile,
        fragile_first=fragile_first,
        sole=sole,
        sole_first=sole_first,
        awaited=awaited,
        unpreferred=Counter(_unpreferred(image)),
        lagging=lagging,
    )


def _name(named: dict[int, list[PartitionId]], broker_id: int, partition: PartitionId) -> None:
    first = named.setdefault(broker_id, [])
    if len(first) < NAMED_MAX:
        first.append(partition)


def loads(
    image: MetadataImage,
    counts: Counts,
    log_dirs: Mapping[int, LogDirs],
    directories: Mapping[int, Directories],
) -> dict[int, BrokerLoad]:
    """Return the load of each registered broker, and of each that is gone and still has replicas."""
    return {
        broker_id: BrokerLoad(
            replicas=counts.replicas.get(broker_id, 0),
            leaders=counts.leaders.get(broker_id, 0),
            used_bytes=_used_bytes(log_dirs.get(broker_id)),
            free_bytes=_free_bytes(log_dirs.get(broker_id)),
            room_bytes=broker_room_bytes(directories[broker_id]) if broker_id in directories else None,
            fragile=counts.fragile.get(broker_id, 0),
            fragile_first=tuple(counts.fragile_first.get(broker_id, ())),
            sole=counts.sole.get(broker_id, 0),
            sole_first=tuple(counts.sole_first.get(broker_id, ())),
            awaited=counts.awaited.get(broker_id, 0),
            unpreferred=counts.unpreferred.get(broker_id, 0),
            lagging=counts.lagging.get(broker_id, 0),
        )
        for broker_id in sorted({*image.cluster.brokers, *counts.replicas})
    }


def observed_directories(directories: LogDirs) -> dict[str, ObservedDirectory]:
    """Return the log directories of a broker by path, with their room."""
    return {path: _observed_directory(directory) for path, directory in directories.items()}


def _observed_directory(described: LogDirDescription) -> ObservedDirectory:
    replicas: dict[PartitionId, int] = {}
    incoming: set[PartitionId] = set()
    for partition, replica in described.replicas.items():
        key = PartitionId(partition.topic, partition.partition)
        if replica.is_future:
            incoming.add(key)
        else:
            replicas[key] = replica.size_bytes
    return ObservedDirectory(
        replicas=replicas,
        incoming=frozenset(incoming),
        room_bytes=directory_room_bytes(described.usable_bytes, described.total_bytes),
        is_cordoned=described.is_cordoned,
        error=None if described.error is None else str(described.error),
    )


def cordoned_directories(image: MetadataImage) -> dict[int, tuple[str, ...]]:
    """Return the dynamic `cordoned.log.dirs` by broker."""
    return {
        int(name): tuple(path.strip() for path in configs[CORDONED_LOG_DIRS].split(",") if path.strip())
        for (kind, name), configs in image.configs.items()
        if kind == ConfigResourceType.BROKER and name.isdecimal() and CORDONED_LOG_DIRS in configs
    }


def replication_rates(image: MetadataImage) -> dict[int, dict[str, str]]:
    """Return the throttles of replication that single brokers have, by broker."""
    return {
        int(name): rates
        for (kind, name), configs in image.configs.items()
        if kind == ConfigResourceType.BROKER
        and name.isdecimal()
        and (rates := {key: configs[key] for key in (LEADER_RATE, FOLLOWER_RATE) if key in configs})
    }


def throttled_replicas(image: MetadataImage) -> dict[str, dict[str, str]]:
    """Return the lists of throttled replicas by topic."""
    return {
        name: lists
        for (kind, name), configs in image.configs.items()
        if kind == ConfigResourceType.TOPIC
        and (lists := {key: configs[key] for key in (LEADER_REPLICAS, FOLLOWER_REPLICAS) if key in configs})
    }


def unpreferred_partitions(image: MetadataImage) -> Iterator[PartitionId]:
    """Yield partitions that their preferred leader does not lead, though it is in sync and in service."""
    for topic_id, number in image.index.imbalanced:
        topic = image.topics.by_id[topic_id]
        partition = topic.partitions[number]
        broker = image.cluster.brokers.get(partition.preferred_leader)
        if broker is not None and broker.is_active and broker.broker_id in partition.isr:
            yield PartitionId(topic.name, number)


def _unpreferred(image: MetadataImage) -> Iterator[int]:
    for topic, number in unpreferred_partitions(image):
        yield image.topics.by_name[topic].partitions[number].preferred_leader


def _shifted(time_ms: int | None, ahead_ms: int) -> int | None:
    return None if time_ms is None else time_ms - ahead_ms


def _voter_endpoints(endpoints: Iterable[RaftVoterEndpoint]) -> dict[str, Address]:
    return {endpoint.name: Address(endpoint.host, endpoint.port) for endpoint in endpoints}


def _endpoints(listeners: Iterable[Listener]) -> dict[str, Address]:
    return {listener.name: Address(listener.host, listener.port) for listener in listeners}


def _features(supported: Mapping[str, VersionRange]) -> dict[str, tuple[int, int]]:
    return {name: (levels.min_level, levels.max_level) for name, levels in supported.items()}


def _sizes(log_dirs: Mapping[int, LogDirs], wanted: Mapping[PartitionId, object]) -> dict[PartitionId, int]:
    sizes: dict[PartitionId, int] = {}
    for directories in log_dirs.values():
        for directory in directories.values():
            for partition, replica in directory.replicas.items():
                key = PartitionId(partition.topic, partition.partition)
                if key in wanted and not replica.is_future:
                    sizes[key] = max(sizes.get(key, 0), replica.size_bytes)
    return sizes


def _used_bytes(directories: LogDirs | None) -> int | None:
    if directories is None:
        return None
    return sum(
        replica.size_bytes for directory in directories.values() for replica in directory.replicas.values()
    )


def _free_bytes(directories: LogDirs | None) -> int | None:
    """Return the usable bytes of all directories; None if a broker does not report them, as before Kafka 3.3."""
    if directories is None:
        return None
    free = [
        directory.usable_bytes
        for directory in directories.values()
        if directory.error is None and not directory.is_cordoned
    ]
    known = [size_bytes for size_bytes in free if size_bytes is not None]
    return sum(known) if known and len(known) == len(free) else None
