"""The planner's facts from an image and the description of a quorum."""

from collections.abc import Mapping
from uuid import UUID

import pytest
from quorate_admin.errors import ErrorCode, ServerError
from quorate_admin.types.cluster import QuorumDescription, RaftVoterEndpoint, ReplicaDescription
from quorate_admin.types.partitions import LogDirDescription, ReplicaInfo, TopicPartition
from quorate_operator.gateway import facts
from quorate_operator.placement.cluster import ObservedDirectory, PartitionId
from quorate_operator.planning.cluster import Address, BrokerLoad, Role
from quorate_protocol.image import MetadataImage
from quorate_protocol.image.views import min_insync_replicas
from quorate_protocol.kafka.enums import ConfigResourceType
from quorate_protocol.uuids import uuid_to_text

NOW_MS = 1_000_000
LEADER_MS = NOW_MS + 30_000
"""The leader's clock goes fast."""
DISK = UUID(int=77)


def replica(
    node_id: int, end: int = 10, age_ms: int | None = 0, caught_up_age_ms: int | None = 0
) -> ReplicaDescription:
    """A replica with the age of its last fetch and of its last catch-up, by the leader's clock; None: never."""
    return ReplicaDescription(
        node_id=node_id,
        directory_id=DISK,
        log_end_offset=end,
        last_fetch_ms=None if age_ms is None else LEADER_MS - age_ms,
        last_caught_up_ms=None if caught_up_age_ms is None else LEADER_MS - caught_up_age_ms,
    )


def test_the_quorum_in_our_clock_and_without_brokers() -> None:
    described = QuorumDescription(
        leader_id=3000,
        leader_epoch=4,
        high_watermark=10,
        voters=(
            replica(3000),
            replica(3001, age_ms=400),
            replica(3002, end=9, age_ms=100, caught_up_age_ms=5_000),
            replica(3003, end=2, age_ms=100, caught_up_age_ms=60_000),
            replica(3004, age_ms=6_000, caught_up_age_ms=6_000),
            replica(3005, end=-1, age_ms=None, caught_up_age_ms=None),
        ),
        observers=(replica(3006), replica(0), replica(3001, end=0, caught_up_age_ms=None)),
        nodes={3001: (RaftVoterEndpoint(name="CONTROLLER", host="c1", port=9093),)},
    )
    quorum = facts.observed_quorum(described, 1, brokers=(0,), now_ms=NOW_MS)
    assert (quorum.leader_id, quorum.leader_epoch, quorum.high_watermark, quorum.kraft_version) == (
        3000,
        4,
        10,
        1,
    )
    assert {node_id for node_id, voter in quorum.voters.items() if voter.caught_up} == {3000, 3001, 3002}
    assert [(observer.node_id, observer.caught_up) for observer in quorum.observers] == [
        (3006, True),
        (3001, False),
    ]
    voter = quorum.voters[3001]
    assert voter.directory_id == uuid_to_text(DISK)
    assert voter.last_fetch_ms == NOW_MS - 400
    assert voter.endpoints == {"CONTROLLER": Address("c1", 9093)}
    assert quorum.voters[3000].last_fetch_ms == NOW_MS
    assert quorum.voters[3005].last_fetch_ms is None


@pytest.mark.parametrize(
    ("since_ms", "is_new"), [(None, True), (LEADER_MS - 5_000, True), (LEADER_MS - 5_001, False)]
)
def test_a_leader_is_new_until_every_live_replica_has_fetched(since_ms: int | None, is_new: bool) -> None:
    described = QuorumDescription(
        leader_id=3000, leader_epoch=4, high_watermark=10, voters=(replica(3000),), observers=()
    )
    quorum = facts.observed_quorum(described, 1, brokers=(), now_ms=NOW_MS, leader_since_ms=since_ms)
    assert quorum.is_leader_new is is_new


def test_registrations_of_both_roles(metadata) -> None:
    metadata.broker(1, fenced=True, rack="r")
    metadata.controller(3000)
    found = facts.registrations(metadata.image)
    broker, controller = found[1], found[3000]
    assert (broker.role, broker.fenced, broker.rack, broker.epoch) == (Role.BROKER, True, "r", 101)
    assert broker.endpoints == {"PLAINTEXT": Address("b1", 9092)}
    assert broker.features == {"metadata.version": (7, 30)}
    assert (controller.role, controller.epoch) == (Role.CONTROLLER, -1)
    assert controller.endpoints == {"CONTROLLER": Address("c3000", 9093)}
    assert controller.features == {"metadata.version": (7, 33)}


def log_dir(
    sizes: dict[TopicPartition, int], usable_bytes: int | None, **fields: object
) -> LogDirDescription:
    """A directory with replicas of these sizes."""
    return LogDirDescription(
        error=None,
        replicas={
            path: ReplicaInfo(size_bytes=size, offset_lag=0, is_future=False) for path, size in sizes.items()
        },
        total_bytes=None,
        usable_bytes=usable_bytes,
        **{"is_cordoned": False, **fields},
    )


def loads(image: MetadataImage, log_dirs: Mapping[int, facts.LogDirs]) -> dict[int, BrokerLoad]:
    """The loads of brokers with these log directories."""
    directories = {broker_id: facts.observed_directories(own) for broker_id, own in log_dirs.items()}
    return facts.loads(image, facts.count_partitions(image, 1, {}), log_dirs, directories)


def test_partitions_of_who_leaves_and_of_who_moves(metadata) -> None:
    for node_id in (1, 2, 3):
        metadata.broker(node_id)
    metadata.topic("b", ((1, 2), (1, 2)), ((2, 3), (2,)))
    metadata.topic("a", ((3, 2), (2,)), adding_replicas=(3,), removing_replicas=(2,))
    dirs = {
        2: {"/1": log_dir({TopicPartition("b", 0): 7}, 100), "/2": log_dir({TopicPartition("x", 0): 1}, 50)},
        1: {"/1": log_dir({TopicPartition("b", 0): 9}, None)},
    }
    watched = facts.partitions_to_watch(metadata.image, frozenset({1}), dirs)
    assert [
        (partition.partition, partition.replicas, partition.isr, partition.leader, partition.size_bytes)
        for partition in watched
    ] == [
        (PartitionId("a", 0), (3, 2), (2,), 2, None),
        (PartitionId("b", 0), (1, 2), (1, 2), 1, 9),
    ]
    assert (watched[0].adding, watched[0].removing) == ((3,), (2,))
    found = loads(metadata.image, dirs)
    assert (found[2].used_bytes, found[2].free_bytes, found[2].room_bytes) == (8, 150, 50)
    assert (found[1].used_bytes, found[1].free_bytes) == (9, None), "it does not tell its free space"
    assert (found[3].used_bytes, found[3].free_bytes) == (None, None), "it was not asked"


def test_a_cordoned_directory_has_no_room(metadata) -> None:
    metadata.broker(1)
    dirs = {1: {"/1": log_dir({}, 100), "/2": log_dir({}, 50, is_cordoned=True)}}
    found = loads(metadata.image, dirs)
    assert (found[1].free_bytes, found[1].room_bytes) == (100, 100)


def test_loads_are_counted_by_broker(metadata) -> None:
    metadata.broker(1)
    metadata.broker(2)
    metadata.broker(3, fenced=True)
    metadata.topic("a", ((1, 2, 9), (2, 1)), ((2, 1), (2, 1)), ((3, 2), (2,)), ((9,), ()))
    found = loads(metadata.image, {})
    assert found == {
        1: BrokerLoad(replicas=2, leaders=0, unpreferred=1),
        2: BrokerLoad(
            replicas=3,
            leaders=3,
            fragile=1,
            fragile_first=(PartitionId("a", 2),),
            sole=1,
            sole_first=(PartitionId("a", 2),),
        ),
        3: BrokerLoad(replicas=1, lagging=1),
        9: BrokerLoad(replicas=2, lagging=2, sole=1, sole_first=(PartitionId("a", 3),)),
    }
    assert list(facts.unpreferred_partitions(metadata.image)) == [PartitionId("a", 0)]


def test_replicas_on_the_move_do_not_lag(metadata) -> None:
    metadata.topic("a", ((1, 2, 3, 4), (4,)), adding_replicas=(1,), removing_replicas=(2,))
    assert facts.count_partitions(metadata.image, 1, {}).lagging == {3: 1}


@pytest.mark.parametrize(
    ("replicas", "isr", "min_insync", "fragile"),
    [
        ((1, 2, 3), (1, 2, 3), 2, ()),
        ((1, 2, 3), (1, 2), 2, (1, 2)),
        ((1, 2, 3), (1, 2), 1, ()),
        ((1, 2, 3), (1,), 1, (1,)),
        ((1, 2), (1, 2), 2, ()),
        ((1, 2), (1,), 2, (1,)),
        ((1, 2, 3), (1, 2, 3), 5, ()),
        ((1,), (1,), 1, ()),
        ((1, 2), (), 1, ()),
    ],
)
def test_fragile_partitions(
    metadata, replicas: tuple[int, ...], isr: tuple[int, ...], min_insync: int, fragile: tuple[int, ...]
) -> None:
    metadata.topic("a", (replicas, isr))
    counts = facts.count_partitions(metadata.image, min_insync, {})
    assert tuple(sorted(counts.fragile)) == fragile


def test_a_partition_without_a_leader_is_awaited_and_not_fragile(metadata) -> None:
    metadata.topic("a", ((1, 2), (1,)), leader=-1)
    metadata.topic("b", ((1, 2), ()), leader=-1, eligible_leader_replicas=(2,))
    found = facts.loads(metadata.image, facts.count_partitions(metadata.image, 1, {}), {}, {})
    assert {broker_id: (load.fragile, load.awaited) for broker_id, load in found.items()} == {
        1: (0, 1),
        2: (0, 1),
    }


@pytest.mark.parametrize(
    ("isr", "elr", "sole"),
    [((1, 2), (), set()), ((1,), (2,), {1}), ((), (2,), {2}), ((), (1, 2), set()), ((), (), {1, 2})],
)
def test_what_only_one_broker_has_is_counted(
    metadata, isr: tuple[int, ...], elr: tuple[int, ...], sole: set[int]
) -> None:
    metadata.topic("a", ((1, 2), isr), eligible_leader_replicas=elr)
    counts = facts.count_partitions(metadata.image, 1, {})
    assert set(counts.sole) == set(counts.sole_first) == sole


def test_some_fragile_partitions_are_named(metadata) -> None:
    metadata.topic("a", *(((1, 2), (1,)) for _ in range(7)))
    found = facts.loads(metadata.image, facts.count_partitions(metadata.image, 1, {}), {}, {})
    assert (found[1].fragile, found[1].fragile_first) == (7, tuple(PartitionId("a", n) for n in range(5)))


def test_min_insync_replicas_by_level(metadata) -> None:
    """The topic's, else the cluster's, else the brokers' own."""
    assert min_insync_replicas(metadata.image, 3) == (3, {})
    metadata.config(2, "a", {"min.insync.replicas": "2", "retention.ms": "1"})
    metadata.config(2, "b", {"retention.ms": "1"})
    assert min_insync_replicas(metadata.image, 3) == (3, {"a": 2})
    metadata.config(4, "", {"min.insync.replicas": "4"})
    metadata.config(2, "a", {"min.insync.replicas": "nonsense"})
    assert min_insync_replicas(metadata.image, 3) == (4, {"a": 4})


def test_what_a_directory_holds_and_gets() -> None:
    described = {
        "/one": LogDirDescription(
            error=None,
            replicas={
                TopicPartition("a", 0): ReplicaInfo(size_bytes=5, offset_lag=0, is_future=False),
                TopicPartition("b", 1): ReplicaInfo(size_bytes=2, offset_lag=9, is_future=True),
            },
            total_bytes=100,
            usable_bytes=60,
            is_cordoned=True,
        ),
        "/two": LogDirDescription(
            error=ServerError(ErrorCode.kafka_storage_error),
            replicas={},
            total_bytes=None,
            usable_bytes=None,
            is_cordoned=False,
        ),
    }
    found = facts.observed_directories(described)
    assert found["/one"] == ObservedDirectory(
        replicas={PartitionId("a", 0): 5},
        incoming=frozenset({PartitionId("b", 1)}),
        room_bytes=50,
        is_cordoned=True,
    )
    assert found["/two"].room_bytes is None
    assert "KAFKA_STORAGE_ERROR" in (found["/two"].error or "").upper()


def test_cordons_are_read_from_the_metadata(metadata) -> None:
    name = facts.CORDONED_LOG_DIRS
    metadata.config(ConfigResourceType.BROKER, "1", {name: "/one, /two"})
    metadata.config(ConfigResourceType.BROKER, "", {name: "/three"})
    assert facts.cordoned_directories(metadata.image) == {1: ("/one", "/two")}


def test_throttles_are_read_from_the_metadata(metadata) -> None:
    """Those of single brokers: defaults are a rebalance's."""
    rate, replicas = "leader.replication.throttled.rate", "follower.replication.throttled.replicas"
    metadata.config(ConfigResourceType.BROKER, "1", {rate: "5", "other": "6"})
    metadata.config(ConfigResourceType.BROKER, "2", {"other": "6"})
    metadata.config(ConfigResourceType.BROKER, "", {rate: "7"})
    metadata.config(ConfigResourceType.TOPIC, "orders", {replicas: "0:1", "retention.ms": "1"})
    metadata.config(ConfigResourceType.TOPIC, "others", {"retention.ms": "1"})
    assert facts.replication_rates(metadata.image) == {1: {rate: "5"}}
    assert facts.throttled_replicas(metadata.image) == {"orders": {replicas: "0:1"}}
