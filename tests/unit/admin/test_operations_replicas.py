"""Operations on reassignments, elections and log directories, against a cluster of the test's answers."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.fake_cluster import FakeCluster, nested, response_to
from quorate_admin.client import AdminClient
from quorate_admin.config import Address
from quorate_admin.errors import AdminError, ServerError, UnsupportedEndpointError
from quorate_admin.types.partitions import (
    PartitionReassignment,
    ReplicaInfo,
    ReplicaLogDirInfo,
    TopicPartition,
    TopicPartitionReplica,
    partitions_by_topic,
)
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import ElectionType
from quorate_protocol.wire.server import Request

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
TOPICS = st.text(alphabet="ab-_.09", min_size=1)


@given(TOPICS, st.integers(0, 2**31 - 1))
def test_partitions_are_written_and_read(topic: str, number: int) -> None:
    partition = TopicPartition(topic, number)
    assert TopicPartition.parse(str(partition)) == partition


@pytest.mark.parametrize("text", ["", "a", "a-", "-1", "a-b", "a--1 ", "a-\u0661"])
def test_what_is_no_partition_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not topic-partition"):
        TopicPartition.parse(text)


@given(st.lists(st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 5))))
def test_partitions_are_grouped(partitions: list[TopicPartition]) -> None:
    groups = partitions_by_topic(partitions)
    assert [
        TopicPartition(topic, number) for topic, numbers in groups.items() for number in numbers
    ] == sorted(set(partitions))


def reassigned(*results: tuple[str, int, ErrorCode]) -> Any:
    """An answer of AlterPartitionReassignments."""
    return response_to(
        "AlterPartitionReassignments",
        responses=tuple(
            nested(
                "AlterPartitionReassignments",
                "ReassignableTopicResponse",
                name=topic,
                partitions=(
                    nested(
                        "AlterPartitionReassignments",
                        "ReassignablePartitionResponse",
                        partition_index=partition,
                        error_code=code,
                        error_message="why",
                    ),
                ),
            )
            for topic, partition, code in results
        ),
    )


@pytest.mark.parametrize("is_controllers", [False, True])
async def test_partitions_are_moved(is_controllers: bool) -> None:
    """Targets and cancellations arrive, results come back."""
    response = reassigned(
        ("a", 0, ErrorCode.none), ("a", 1, ErrorCode.no_reassignment_in_progress), ("b", 0, ErrorCode.none)
    )
    async with FakeCluster(is_controllers=is_controllers) as cluster:
        cluster.handle("AlterPartitionReassignments", lambda _: response)
        addresses = {"bootstrap_controllers" if is_controllers else "bootstrap_servers": cluster.bootstrap}
        async with AdminClient(**addresses) as admin:
            results = await admin.alter_partition_reassignments(
                {B0: [3, 1], A1: None, A0: (1, 2)}, allow_replication_factor_change=False
            )
        (request,) = cluster.received("AlterPartitionReassignments")
    assert not request.body.allow_replication_factor_change
    assert [
        (topic.name, [(partition.partition_index, partition.replicas) for partition in topic.partitions])
        for topic in request.body.topics
    ] == [("a", [(0, (1, 2)), (1, None)]), ("b", [(0, (3, 1))])]
    assert set(results.values) == {A0, B0}
    with pytest.raises(ServerError, match="NO_REASSIGNMENT_IN_PROGRESS: why"):
        results.raise_any()


async def test_moves_under_way_are_listed() -> None:
    ongoing = nested(
        "ListPartitionReassignments",
        "OngoingPartitionReassignment",
        partition_index=1,
        replicas=(1, 2, 3),
        adding_replicas=(3,),
        removing_replicas=(1,),
    )
    topic = nested("ListPartitionReassignments", "OngoingTopicReassignment", name="a", partitions=(ongoing,))
    async with FakeCluster() as cluster:
        cluster.handle(
            "ListPartitionReassignments", lambda _: response_to("ListPartitionReassignments", topics=(topic,))
        )
        async with AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
            found = await admin.list_partition_reassignments()
            await admin.list_partition_reassignments([B0, A1, A0])
        of_all, some = (request.body for request in cluster.received("ListPartitionReassignments"))
    assert found == {
        A1: PartitionReassignment(replicas=(1, 2, 3), adding_replicas=(3,), removing_replicas=(1,))
    }
    assert of_all.topics is None
    assert [(topic.name, topic.partition_indexes) for topic in some.topics] == [("a", (0, 1)), ("b", (0,))]


async def test_a_refusal_of_the_whole_is_raised() -> None:
    """An error outside of the list is no result of a key."""
    codes = {"error_code": ErrorCode.cluster_authorization_failed, "error_message": "no"}
    names = ("AlterPartitionReassignments", "ListPartitionReassignments")
    handlers = {name: lambda _, name=name: response_to(name, **codes) for name in names}
    async with (
        FakeCluster(handlers=handlers) as cluster,
        AdminClient(bootstrap_servers=cluster.bootstrap) as admin,
    ):
        for operation in (
            admin.alter_partition_reassignments({A0: [1]}),
            admin.list_partition_reassignments(),
        ):
            with pytest.raises(ServerError, match="CLUSTER_AUTHORIZATION_FAILED: no"):
                await operation


def elected(*results: tuple[int, ErrorCode]) -> Any:
    """An answer of ElectLeaders about partitions of topic a."""
    partitions = tuple(
        nested("ElectLeaders", "PartitionResult", partition_id=partition, error_code=code)
        for partition, code in results
    )
    topic = nested("ElectLeaders", "ReplicaElectionResult", topic="a", partition_result=partitions)
    return response_to("ElectLeaders", replica_election_results=(topic,))


@pytest.mark.parametrize("is_controllers", [False, True])
async def test_leaders_are_elected(is_controllers: bool) -> None:
    response = elected((0, ErrorCode.none), (1, ErrorCode.election_not_needed))
    async with FakeCluster(is_controllers=is_controllers) as cluster:
        cluster.handle("ElectLeaders", lambda _: response)
        addresses = {"bootstrap_controllers" if is_controllers else "bootstrap_servers": cluster.bootstrap}
        async with AdminClient(**addresses) as admin:
            named = await admin.elect_leaders(ElectionType.UNCLEAN, [A1, A0])
            of_all = await admin.elect_leaders(ElectionType.PREFERRED)
        first, second = (request.body for request in cluster.received("ElectLeaders"))
    assert (first.election_type, second.election_type) == (1, 0)
    assert [
        (topic_partition.topic, topic_partition.partitions) for topic_partition in first.topic_partitions
    ] == [("a", (0, 1))]
    assert second.topic_partitions is None
    for results in (named, of_all):
        assert set(results.values) == {A0}
        assert results.errors[A1].error_code is ErrorCode.election_not_needed


def log_dirs(*described: Any) -> Any:
    """An answer of DescribeLogDirs."""
    return response_to("DescribeLogDirs", results=described)


def log_dir(path: str, *replicas: tuple[str, int, int, int, bool], **fields: Any) -> Any:
    """A directory with replicas: topic, partition, size, lag, whether future."""
    return nested(
        "DescribeLogDirs",
        "DescribeLogDirsResult",
        **{"total_bytes": 100, "usable_bytes": 40, **fields},
        log_dir=path,
        topics=tuple(
            nested(
                "DescribeLogDirs",
                "DescribeLogDirsTopic",
                name=topic,
                partitions=(
                    nested(
                        "DescribeLogDirs",
                        "DescribeLogDirsPartition",
                        partition_index=partition,
                        partition_size=size,
                        offset_lag=lag,
                        is_future_key=is_future,
                    ),
                ),
            )
            for topic, partition, size, lag, is_future in replicas
        ),
    )


async def test_brokers_are_asked_about_their_directories() -> None:
    offline = log_dir(
        "/2", error_code=ErrorCode.kafka_storage_error, total_bytes=-1, usable_bytes=-1, is_cordoned=True
    )
    async with FakeCluster((1, 2, 3, 4)) as cluster:
        responses = {1: log_dirs(log_dir("/1", ("a", 0, 7, 2, False))), 2: log_dirs(offline), 3: log_dirs()}
        for node_id, response in responses.items():
            cluster.nodes[node_id].handlers["DescribeLogDirs"] = lambda _, response=response: response
        async with AdminClient(bootstrap_servers=cluster.bootstrap, retries=0) as admin:
            results = await admin.describe_log_dirs([1, 2, 3, 4])
            some = await admin.describe_log_dirs([1], partitions=[A1, A0])
        whole, part = (request.body for request in cluster.nodes[1].received("DescribeLogDirs"))
    assert whole.topics is None
    assert [(topic.topic, topic.partitions) for topic in part.topics] == [("a", (0, 1))]
    described = results[1]["/1"]
    assert described == some[1]["/1"]
    assert described.replicas == {A0: ReplicaInfo(size_bytes=7, offset_lag=2, is_future=False)}
    assert (described.error, described.total_bytes, described.usable_bytes) == (None, 100, 40)
    broken = results[2]["/2"]
    assert broken.error is not None
    assert broken.error.error_code is ErrorCode.kafka_storage_error
    assert (broken.total_bytes, broken.usable_bytes, broken.is_cordoned) == (None, None, True)
    assert results.errors[3].error_code is ErrorCode.cluster_authorization_failed
    assert results.errors[4].error_code is ErrorCode.request_timed_out


async def test_an_address_is_asked_whoever_is_there() -> None:
    """Directories of brokers whose names lead nowhere."""
    async with FakeCluster((1, 2)) as cluster:
        for node_id in (1, 2):
            held = log_dirs(log_dir(f"/{node_id}", ("a", 0, node_id, 0, False)))
            cluster.nodes[node_id].handlers["DescribeLogDirs"] = lambda _, held=held: held
        second = Address.parse(cluster.bootstrap[1])
        async with AdminClient(
            bootstrap_servers=cluster.bootstrap, follow_advertised=False, retries=0
        ) as admin:
            described = await admin.describe_log_dirs_at(second)
        assert not cluster.nodes[1].received("DescribeLogDirs")
    assert list(described) == ["/2"]


async def test_replicas_are_found_in_directories() -> None:
    response = log_dirs(
        log_dir("/1", ("a", 0, 7, 0, False), ("a", 1, 7, 3, False)), log_dir("/2", ("a", 0, 5, 9, True))
    )
    moving, staying, missing = (
        TopicPartitionReplica(*fields) for fields in (("a", 0, 1), ("a", 1, 1), ("b", 0, 1))
    )
    async with (
        FakeCluster(handlers={"DescribeLogDirs": lambda _: response}) as cluster,
        AdminClient(bootstrap_servers=cluster.bootstrap) as admin,
    ):
        results = await admin.describe_replica_log_dirs([moving, staying, missing])
    assert results[moving] == ReplicaLogDirInfo(
        current_log_dir="/1", current_offset_lag=0, future_log_dir="/2", future_offset_lag=9
    )
    assert results[staying] == ReplicaLogDirInfo(current_log_dir="/1", current_offset_lag=3)
    assert results[missing] == ReplicaLogDirInfo()


async def test_replicas_are_moved_between_directories() -> None:
    def move(request: Request) -> Any:
        return response_to(
            "AlterReplicaLogDirs",
            results=tuple(
                nested(
                    "AlterReplicaLogDirs",
                    "AlterReplicaLogDirTopicResult",
                    topic_name=topic.name,
                    partitions=tuple(
                        nested(
                            "AlterReplicaLogDirs",
                            "AlterReplicaLogDirPartitionResult",
                            partition_index=partition,
                            error_code=ErrorCode.log_dir_not_found if path == "/none" else ErrorCode.none,
                        )
                        for partition in topic.partitions
                    ),
                )
                for path, topic in (
                    (directory.path, topic) for directory in request.body.dirs for topic in directory.topics
                )
            ),
        )

    first, second, third, other = (
        TopicPartitionReplica(*fields) for fields in (("a", 0, 1), ("a", 1, 1), ("b", 0, 1), ("a", 0, 2))
    )
    async with FakeCluster((1, 2), handlers={"AlterReplicaLogDirs": move}) as cluster:
        async with AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
            results = await admin.alter_replica_log_dirs(
                {first: "/1", second: "/1", third: "/none", other: "/1"}
            )
        address = Address.parse(cluster.bootstrap[1])
        async with AdminClient(
            bootstrap_servers=cluster.bootstrap, follow_advertised=False, retries=0
        ) as admin:
            at_address = await admin.alter_replica_log_dirs_at(address, {other: "/2"})
        reported = {
            node.node_id: [
                (directory.path, topic.name, topic.partitions)
                for request in node.received("AlterReplicaLogDirs")
                for directory in request.body.dirs
                for topic in directory.topics
            ]
            for node in cluster.nodes.values()
        }
    assert reported == {
        1: [("/1", "a", (0, 1)), ("/none", "b", (0,))],
        2: [("/1", "a", (0,)), ("/2", "a", (0,))],
    }
    assert set(at_address.values) == {other}
    assert set(results.values) == {first, second, other}
    assert results.errors[third].error_code is ErrorCode.log_dir_not_found


async def test_directories_are_no_matter_of_controllers() -> None:
    replica = TopicPartitionReplica("a", 0, 1)
    async with AdminClient(bootstrap_controllers=["127.0.0.1:1"]) as admin:
        for operation in (
            admin.describe_log_dirs([1]),
            admin.describe_replica_log_dirs([replica]),
            admin.alter_replica_log_dirs({replica: "/1"}),
            admin.alter_replica_log_dirs_at(Address("127.0.0.1", 1), {replica: "/1"}),
        ):
            with pytest.raises(UnsupportedEndpointError):
                await operation


async def test_if_no_broker_answers_that_is_raised() -> None:
    async with (
        FakeCluster((1, 2)) as cluster,
        AdminClient(bootstrap_servers=cluster.bootstrap, retries=0) as admin,
    ):
        with pytest.raises(AdminError):
            await admin.describe_log_dirs([1, 2])
