"""What a rebalance asks brokers for, and what it requests of them."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import pytest
from kit.balance_model import rebalance
from kit.scripted_admin import ScriptedAdmin
from quorate_admin.config import Address as AdminAddress
from quorate_admin.errors import ErrorCode, ServerError, UnreachableError
from quorate_admin.results import Results
from quorate_admin.types.cluster import ClusterDescription, NodeDescription
from quorate_admin.types.configs import ConfigEntry, ConfigResource
from quorate_admin.types.partitions import (
    LogDirDescription,
    PartitionReassignment,
    ReplicaInfo,
    TopicPartition,
    TopicPartitionReplica,
)
from quorate_admin.types.topics import PartitionDescription, TopicDescription, TopicListing
from quorate_operator.entities.balance_facts import (
    CancelMoves,
    ElectLeaders,
    MoveReplicas,
    MoveToDirectories,
    ObservedBalance,
    SetRates,
    StoredRebalance,
)
from quorate_operator.entities.plan import ObservedKafka
from quorate_operator.entities.topics import ObservedTopic
from quorate_operator.gateway.rebalances import DEFAULTS, change_rebalance, observe_rebalance
from quorate_operator.gateway.topics import observe_assignment, observe_topics
from quorate_operator.placement.assignment import Assignment
from quorate_operator.placement.cluster import Broker, PartitionId
from quorate_operator.placement.goals import Move
from quorate_operator.planning.cluster import Address
from quorate_operator.planning.throttles import LEADER_RATE, LEADER_REPLICAS
from quorate_protocol.kafka.enums import ConfigOpType, ConfigSource

ADDRESSES = {number: Address(f"10.0.0.{number}", 9092) for number in (1, 2)}
KAFKA = ObservedKafka(cluster_id="c", brokers=(), decommissioned=frozenset({2}), addresses=ADDRESSES)
A0, A1, B0 = PartitionId("a", 0), PartitionId("a", 1), PartitionId("b", 0)
GIB = 1024**3


def topic(name: str, *replicas: tuple[int, ...]) -> TopicDescription:
    """A topic with these replicas, all in sync."""
    partitions = tuple(
        PartitionDescription(
            partition=number,
            leader=replica[0],
            leader_epoch=1,
            replicas=replica,
            isr=replica,
            offline_replicas=(),
            eligible_leader_replicas=None,
            last_known_elr=None,
        )
        for number, replica in enumerate(replicas)
    )
    return TopicDescription(
        name=name, topic_id=None, is_internal=False, partitions=partitions, authorized_operations=None
    )


def directory(usable_bytes: int | None, is_cordoned: bool = False, **sizes: int) -> LogDirDescription:
    """A directory of a disk with 100 GiB, and the sizes of partitions of `a`."""
    return LogDirDescription(
        error=None,
        replicas={
            TopicPartition("a", int(number.removeprefix("p"))): ReplicaInfo(
                size_bytes=size, offset_lag=0, is_future=False
            )
            for number, size in sizes.items()
        },
        total_bytes=None if usable_bytes is None else 100 * GIB,
        usable_bytes=usable_bytes,
        is_cordoned=is_cordoned,
    )


def entry(name: str, value: str, source: ConfigSource) -> ConfigEntry:
    """A config."""
    return ConfigEntry(name=name, value=value, source=source, is_sensitive=False, is_read_only=False)


def configs(resources: Iterable[ConfigResource]) -> Results[ConfigResource, tuple[ConfigEntry, ...]]:
    """A rate of the defaults and one of the file; throttled replicas of topics, and another config of theirs."""
    of_defaults = (
        entry(LEADER_RATE, "5", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        entry("log.retention.ms", "5", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
    )
    of_topic = (
        entry(LEADER_REPLICAS, "0:1", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        entry("retention.ms", "5", ConfigSource.DYNAMIC_TOPIC_CONFIG),
    )
    return Results({resource: of_topic if resource.name else of_defaults for resource in resources})


@pytest.fixture
def admin() -> ScriptedAdmin:
    """A cluster of three brokers, of which the third is fenced; one partition is being moved."""
    made = ScriptedAdmin()
    topics = {"a": topic("a", (1, 2), (2, 1, 3)), "b": topic("b", (1,))}
    disks: dict[AdminAddress, Any] = {
        AdminAddress("10.0.0.1", 9092): {"/1": directory(60 * GIB, p0=7), "/2": directory(30 * GIB, p1=3)},
        AdminAddress("10.0.0.2", 9092): UnreachableError({"10.0.0.2:9092": "refused"}),
    }

    def log_dirs(address: AdminAddress) -> object:
        if isinstance(disks[address], Exception):
            raise disks[address]
        return disks[address]

    made.responses = {
        "list_partition_reassignments": {
            TopicPartition("a", 1): PartitionReassignment(
                replicas=(3, 2, 1), adding_replicas=(3,), removing_replicas=(1,)
            )
        },
        "describe_cluster": ClusterDescription(
            cluster_id="c",
            controller_id=1,
            nodes=tuple(
                NodeDescription(node_id=number, host="h", port=1, rack=f"r{number}", fenced=number == 3)
                for number in (1, 2, 3)
            ),
        ),
        "describe_configs": configs,
        "list_topics": lambda **_: {
            name: TopicListing(name=name, topic_id=None, is_internal=False) for name in topics
        },
        "describe_topics": lambda names: Results({name: topics[name] for name in names}),
        "describe_log_dirs_at": log_dirs,
    }
    return made


async def observed(admin: ScriptedAdmin, stored: StoredRebalance) -> ObservedBalance:
    """What a look sees."""
    return await observe_rebalance(cast("Any", admin), rebalance(), stored, KAFKA)


async def test_a_proposal_needs_everything(admin: ScriptedAdmin) -> None:
    """Sizes, room, moves under way and brokers are those of the cluster."""
    seen = await observed(admin, StoredRebalance())
    assert seen.brokers == (
        Broker(broker_id=1, rack="r1", room_bytes=20 * GIB),
        Broker(broker_id=2, rack="r2", is_decommissioned=True),
        Broker(broker_id=3, rack="r3", is_in_service=False),
    )
    assert {
        key: (partition.replicas, partition.assigned, partition.size_bytes)
        for key, partition in seen.partitions.items()
    } == {
        A0: ((1, 2), (1, 2), 7),
        A1: ((3, 2, 1), (3, 2), 3),
        B0: ((1,), (1,), None),
    }
    assert (seen.partitions[A1].adding, seen.partitions[A1].removing) == ((3,), (1,))
    assert seen.rates == {LEADER_RATE: "5"}
    assert seen.directories[1]["/1"].replicas == {A0: 7}
    assert seen.addresses == {1: ADDRESSES[1]}
    assert admin.calls_of("list_topics")[0].kwargs == {"list_internal": True}


async def test_a_slice_under_way_needs_its_topics_alone(admin: ScriptedAdmin) -> None:
    stored = StoredRebalance(slice=(Move(partition=A0, replicas=(1, 2), target=(1, 3), size_bytes=7),))
    seen = await observed(admin, stored)
    assert seen.partitions.keys() == {A0, A1}
    assert seen.throttled == {"a": {LEADER_REPLICAS: "0:1"}}
    assert not admin.calls_of("list_topics")
    assert not admin.calls_of("describe_log_dirs_at")


async def assignment_of_b(admin: ScriptedAdmin, *broker_ids: int) -> Assignment:
    """The assignment in which the factor of topic `b` is changed."""
    admin.responses["describe_configs"] = lambda resources: Results(dict.fromkeys(resources, ()))
    client = cast("Any", admin)
    under_way = await client.list_partition_reassignments()
    (observed,) = (await observe_topics(client, ["b"], under_way)).values()
    assert isinstance(observed, ObservedTopic)
    brokers = tuple(Broker(broker_id=number) for number in broker_ids)
    return await observe_assignment(client, [observed], replace(KAFKA, brokers=brokers), under_way)


async def test_factors_change_with_the_room_of_brokers_and_with_moves_under_way(admin: ScriptedAdmin) -> None:
    """Sizes, numbers of replicas and moves under way are those that brokers report."""
    assignment = await assignment_of_b(admin, 1)
    keys = [partition.partition for partition in assignment.partitions]
    assert keys == [B0, A1]
    assert (assignment.in_flight.partitions, assignment.in_flight.size_bytes) == (1, 3)
    assert assignment.counts[1] == 2


async def test_a_broker_that_describes_no_directories_attracts_no_replicas(admin: ScriptedAdmin) -> None:
    """Broker 2 does not answer: the counts are then those of the known partitions, for all brokers alike."""
    assignment = await assignment_of_b(admin, 1, 2)
    assert assignment.counts == {1: 1, 2: 1, 3: 1}
    assert assignment.has_room(0, 2)


async def test_each_broker_is_asked_for_its_directories_alone(admin: ScriptedAdmin) -> None:
    """Replicas move at brokers whose names lead nowhere."""
    key = TopicPartitionReplica("a", 0, 1)
    move = MoveToDirectories(targets={1: {A0: "/2"}}, addresses={1: ADDRESSES[1]}, size_bytes=7)
    codes = [ErrorCode.unknown_topic_or_partition, ErrorCode.kafka_storage_error]
    admin.responses["alter_replica_log_dirs_at"] = lambda *_: Results({}, {key: ServerError(codes.pop(0))})
    await change_rebalance(cast("Any", admin), move)
    (asked,) = admin.calls_of("alter_replica_log_dirs_at")
    assert asked.args == (AdminAddress("10.0.0.1", 9092), {key: "/2"})
    with pytest.raises(ServerError):
        await change_rebalance(cast("Any", admin), move)


async def test_changes_are_requests(admin: ScriptedAdmin) -> None:
    client = cast("Any", admin)
    key = TopicPartition("a", 0)
    over = Results({}, {key: ServerError(ErrorCode.no_reassignment_in_progress)})
    admin.responses |= {
        "alter_partition_reassignments": lambda *_, **__: over,
        "elect_leaders": lambda *_: Results({}, {key: ServerError(ErrorCode.election_not_needed)}),
        "incremental_alter_configs": lambda _: Results({}),
    }
    await change_rebalance(client, CancelMoves(partitions=(A0,)))
    await change_rebalance(client, ElectLeaders(partitions=(A0,)))
    with pytest.raises(ServerError):
        await change_rebalance(client, MoveReplicas(targets={A0: (1, 3)}, size_bytes=7))
    cancelled, moved = admin.calls_of("alter_partition_reassignments")
    assert cancelled.args == ({key: None},)
    assert moved.args == ({key: (1, 3)},)
    assert moved.kwargs == {"allow_replication_factor_change": False}
    await change_rebalance(client, SetRates(rates={LEADER_RATE: "5", "other": None}))
    (configured,) = admin.calls_of("incremental_alter_configs")
    ((resource, operations),) = configured.args[0].items()
    assert resource == DEFAULTS
    assert [(operation.name, operation.value, operation.operation) for operation in operations] == [
        (LEADER_RATE, "5", ConfigOpType.SET),
        ("other", None, ConfigOpType.DELETE),
    ]
