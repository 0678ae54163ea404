"""Operations on topics against a cluster that answers what the test says."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from kit.fake_cluster import HANG_UP, SILENCE, FakeCluster, nested, response_to
from quorate_admin.client import AdminClient
from quorate_admin.errors import (
    ConnectionFailedError,
    RequestTimeoutError,
    ServerError,
    UnsupportedEndpointError,
)
from quorate_admin.operations.base import ThrottlingQuotaExceededError
from quorate_admin.types.topics import NewPartitions, NewTopic, TopicListing
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import AclOperation, ConfigSource
from quorate_protocol.wire.server import Request

TOPIC_ID = uuid.UUID(int=77)
OTHER_ID = uuid.UUID(int=78)
DESCRIBE_TOPIC_PARTITIONS = 75


def created(name: str, code: ErrorCode = ErrorCode.none, message: str | None = None, **fields: Any) -> Any:
    """A result of CreateTopics."""
    return nested(
        "CreateTopics",
        "CreatableTopicResult",
        **{"topic_id": TOPIC_ID, "num_partitions": 3, "replication_factor": 1, "configs": (), **fields},
        name=name,
        error_code=code,
        error_message=message,
    )


def throttled(name: str) -> Any:
    """A result of CreateTopics for a client that does too much."""
    return created(name, ErrorCode.throttling_quota_exceeded, "too much")


class Script:
    """Returns its responses in order, the last one for all later requests, and records the requests."""

    def __init__(self, *responses: Any) -> None:
        self._responses = list(responses)
        self.bodies: list[Any] = []

    def __call__(self, request: Request) -> Any:
        self.bodies.append(request.body)
        return self._responses.pop(0) if len(self._responses) > 1 else self._responses[0]


async def test_a_topic_is_created_as_it_was_described() -> None:
    config = nested(
        "CreateTopics",
        "CreatableTopicConfigs",
        name="retention.ms",
        value="5",
        config_source=1,
        read_only=True,
    )
    async with FakeCluster() as cluster:
        cluster.handle(
            "CreateTopics",
            lambda _: response_to("CreateTopics", topics=(created("a", configs=(config,)), created("b"))),
        )
        async with AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
            results = await admin.create_topics(
                [
                    NewTopic(name="a", partitions=3, replication_factor=1, configs={"retention.ms": "5"}),
                    NewTopic(name="b", assignments={0: [1, 2], 1: (2, 1)}),
                ],
                validate_only=True,
            )
        (request,) = cluster.received("CreateTopics")
    first, second = request.body.topics
    assert request.body.validate_only
    assert (first.name, first.num_partitions, first.replication_factor) == ("a", 3, 1)
    assert [(config.name, config.value) for config in first.configs] == [("retention.ms", "5")]
    assert (second.num_partitions, second.replication_factor) == (-1, -1)
    assert [(assignment.partition_index, assignment.broker_ids) for assignment in second.assignments] == [
        (0, (1, 2)),
        (1, (2, 1)),
    ]
    topic = results["a"]
    assert (topic.topic_id, topic.partitions, topic.replication_factor) == (TOPIC_ID, 3, 1)
    assert topic.configs is not None
    (entry,) = topic.configs
    assert (entry.name, entry.value, entry.source) == ("retention.ms", "5", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert entry.is_read_only
    assert not entry.is_default
    assert not results.errors


async def test_configs_without_permission_are_none() -> None:
    refused = created("a", topic_config_error_code=29, configs=None, num_partitions=-1, replication_factor=-1)
    async with FakeCluster() as cluster:
        cluster.handle("CreateTopics", lambda _: response_to("CreateTopics", topics=(refused,)))
        async with AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
            topic = (await admin.create_topics([NewTopic(name="a")]))["a"]
    assert topic.configs is None
    assert topic.configs_error is not None
    assert topic.configs_error.error_code is ErrorCode.topic_authorization_failed


async def test_each_topic_has_its_own_error() -> None:
    """One refusal is not the other's, and a missing topic is an error."""
    results = (created("a"), created("b", ErrorCode.topic_already_exists, "Topic 'b' already exists."))
    async with FakeCluster() as cluster:
        cluster.handle("CreateTopics", lambda _: response_to("CreateTopics", topics=results))
        async with AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
            given = await admin.create_topics(
                [NewTopic(name="a"), NewTopic(name="b"), NewTopic(name="c"), NewTopic(name="a", partitions=9)]
            )
        (request,) = cluster.received("CreateTopics")
    assert [(topic.name, topic.num_partitions) for topic in request.body.topics] == [
        ("a", -1),
        ("b", -1),
        ("c", -1),
    ]
    assert set(given.values) == {"a"}
    with pytest.raises(ServerError, match=r"TOPIC_ALREADY_EXISTS: Topic 'b' already exists\."):
        given["b"]
    assert given.errors["c"].error_code is ErrorCode.unknown_server_error


async def test_throttled_topics_alone_are_asked_for_again() -> None:
    """KIP-599."""
    script = Script(
        response_to(
            "CreateTopics",
            topics=(created("a"), throttled("b")),
            throttle_time=timedelta(milliseconds=20),
        ),
        response_to("CreateTopics", topics=(created("b"),)),
    )
    async with (
        FakeCluster(handlers={"CreateTopics": script}) as cluster,
        AdminClient(bootstrap_servers=cluster.bootstrap, retry_backoff_ms=1) as admin,
    ):
        results = await admin.create_topics([NewTopic(name="a"), NewTopic(name="b")])
    assert [[topic.name for topic in body.topics] for body in script.bodies] == [["a", "b"], ["b"]]
    assert set(results.values) == {"a", "b"}
    assert not results.errors


async def test_a_throttled_topic_is_an_error_if_time_or_patience_ends() -> None:
    slow = response_to("CreateTopics", topics=(throttled("a"),), throttle_time=timedelta(minutes=5))
    quick = response_to("CreateTopics", topics=(throttled("a"),), throttle_time=timedelta(milliseconds=1))
    for script, patience, asked in (
        (Script(slow), {"retry_on_quota_violation": False}, 1),
        (Script(slow), {"timeout_ms": 60_000}, 1),
        (Script(quick, HANG_UP), {}, 2),
    ):
        async with (
            FakeCluster(handlers={"CreateTopics": script}) as cluster,
            AdminClient(bootstrap_servers=cluster.bootstrap, retry_backoff_ms=1, retries=0) as admin,
        ):
            results = await admin.create_topics([NewTopic(name="a")], **patience)
        error = results.errors["a"]
        assert isinstance(error, ThrottlingQuotaExceededError)
        assert error.throttle_time_ms in {300_000, 1}
        assert len(script.bodies) >= asked
        assert (len(script.bodies) == 1) == (asked == 1)


async def test_topics_that_found_no_controller_are_asked_for_again() -> None:
    script = Script(
        response_to("CreateTopics", topics=tuple(created(name, ErrorCode.not_controller) for name in "ab")),
        response_to("CreateTopics", topics=(created("a"), created("b", ErrorCode.not_controller))),
        response_to("CreateTopics", topics=(created("b"),)),
    )
    async with (
        FakeCluster(handlers={"CreateTopics": script}) as cluster,
        AdminClient(bootstrap_servers=cluster.bootstrap, retry_backoff_ms=1, retry_backoff_max_ms=2) as admin,
    ):
        results = await admin.create_topics([NewTopic(name="a"), NewTopic(name="b")])
    assert [[topic.name for topic in body.topics] for body in script.bodies] == [
        ["a", "b"],
        ["a", "b"],
        ["b"],
    ]
    assert set(results.values) == {"a", "b"}


async def test_no_answer_at_all_is_raised() -> None:
    script = Script(response_to("CreateTopics", topics=(created("a"),)), SILENCE)
    async with (
        FakeCluster(handlers={"CreateTopics": script}) as cluster,
        AdminClient(bootstrap_servers=cluster.bootstrap) as admin,
    ):
        await admin.create_topics([NewTopic(name="a")])
        with pytest.raises(RequestTimeoutError):
            await admin.create_topics([NewTopic(name="a")], timeout_ms=100)


async def test_nothing_to_do_asks_nobody() -> None:
    async with AdminClient(bootstrap_servers=["127.0.0.1:1"]) as admin:
        for results in (
            await admin.create_topics([]),
            await admin.delete_topics([]),
            await admin.describe_topics([]),
            await admin.create_partitions({}),
        ):
            assert not results.values
            assert not results.errors


async def test_topics_are_deleted_by_name_and_by_id() -> None:
    def deleted(**fields: Any) -> Any:
        return nested("DeleteTopics", "DeletableTopicResult", **fields)

    responses = (
        deleted(name="a", topic_id=OTHER_ID),
        deleted(name=None, topic_id=uuid.UUID(int=9), error_code=ErrorCode.unknown_topic_id),
        deleted(name="of-the-id", topic_id=TOPIC_ID),
    )
    async with FakeCluster() as cluster:
        cluster.handle("DeleteTopics", lambda _: response_to("DeleteTopics", responses=responses))
        async with AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
            results = await admin.delete_topics(["a", uuid.UUID(int=9), TOPIC_ID])
        (request,) = cluster.received("DeleteTopics")
    assert [(topic.name, topic.topic_id) for topic in request.body.topics] == [
        ("a", None),
        (None, uuid.UUID(int=9)),
        (None, TOPIC_ID),
    ]
    assert set(results.values) == {"a", TOPIC_ID}
    assert results.errors[uuid.UUID(int=9)].error_code is ErrorCode.unknown_topic_id


async def test_partitions_are_added_where_they_are_placed() -> None:
    def result(name: str, code: ErrorCode) -> Any:
        return nested("CreatePartitions", "CreatePartitionsTopicResult", name=name, error_code=code)

    results = (result("a", ErrorCode.none), result("b", ErrorCode.invalid_partitions))
    async with FakeCluster() as cluster:
        cluster.handle("CreatePartitions", lambda _: response_to("CreatePartitions", results=results))
        async with AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
            results = await admin.create_partitions(
                {
                    "a": NewPartitions(total_count=4),
                    "b": NewPartitions(total_count=2, assignments=[[2, 1], [1, 2]]),
                },
                validate_only=True,
            )
        (request,) = cluster.received("CreatePartitions")
    first, second = request.body.topics
    assert request.body.validate_only
    assert (first.count, first.assignments) == (4, None)
    assert [assignment.broker_ids for assignment in second.assignments] == [(2, 1), (1, 2)]
    assert results["a"] is None
    assert results.errors["b"].error_code is ErrorCode.invalid_partitions


def metadata_topic(name: str | None, topic_id: uuid.UUID | None = TOPIC_ID, **fields: Any) -> Any:
    """A topic of a Metadata response."""
    return nested("Metadata", "MetadataResponseTopic", name=name, topic_id=topic_id, **fields)


async def test_internal_topics_are_listed_on_demand() -> None:
    topics = (metadata_topic("a"), metadata_topic("__consumer_offsets", OTHER_ID, is_internal=True))
    async with FakeCluster(
        handlers={"Metadata": lambda _: response_to("Metadata", topics=topics)}
    ) as cluster:
        async with AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
            few = await admin.list_topics()
            all_of_them = await admin.list_topics(list_internal=True)
        request, _ = cluster.received("Metadata")
    assert request.body.topics is None
    assert not request.body.allow_auto_topic_creation
    assert few == {"a": TopicListing(name="a", topic_id=TOPIC_ID, is_internal=False)}
    assert set(all_of_them) == {"a", "__consumer_offsets"}


class Paging:
    """A broker's DescribeTopicPartitions over topics with these numbers of partitions, one page at a time."""

    def __init__(self, sizes: dict[str, int], page: int) -> None:
        self.sizes = sizes
        self.page = page
        self.bodies: list[Any] = []

    def __call__(self, request: Request) -> Any:
        self.bodies.append(request.body)
        cursor = request.body.cursor
        first = ("", 0) if cursor is None else (cursor.topic_name, cursor.partition_index)
        room = min(self.page, request.body.response_partition_limit)
        topics = []
        for name in sorted(topic.name for topic in request.body.topics):
            if name < first[0]:
                continue
            if name not in self.sizes:
                code = ErrorCode.unknown_topic_or_partition
                topics.append(self._topic(name, error_code=code))
                continue
            if not room:
                return self._response(topics, name, 0)
            begin = first[1] if name == first[0] else 0
            numbers = range(begin, min(begin + room, self.sizes[name]))
            topics.append(
                self._topic(name, partitions=tuple(map(self._partition, numbers)), topic_id=TOPIC_ID)
            )
            room -= len(numbers)
            if numbers.stop < self.sizes[name]:
                return self._response(topics, name, numbers.stop)
        return response_to("DescribeTopicPartitions", topics=tuple(topics))

    @staticmethod
    def _topic(name: str, **fields: Any) -> Any:
        return nested(
            "DescribeTopicPartitions",
            "DescribeTopicPartitionsResponseTopic",
            **{"topic_authorized_operations": 1 << 8 | 1 << 3, **fields},
            name=name,
        )

    @staticmethod
    def _partition(number: int) -> Any:
        return nested(
            "DescribeTopicPartitions",
            "DescribeTopicPartitionsResponsePartition",
            partition_index=number,
            leader_id=-1 if number == 1 else 5,
            leader_epoch=2,
            replica_nodes=(5, 6),
            isr_nodes=(5,),
            eligible_leader_replicas=(6,),
            last_known_elr=(),
            offline_replicas=(6,),
        )

    @staticmethod
    def _response(topics: list[Any], name: str, partition: int) -> Any:
        cursor = nested("DescribeTopicPartitions", "Cursor", topic_name=name, partition_index=partition)
        return response_to("DescribeTopicPartitions", topics=tuple(topics), next_cursor=cursor)


@pytest.mark.parametrize("page", [1, 2, 3, 4, 5, 7, 100])
async def test_topics_are_put_together_from_pages(page: int) -> None:
    sizes = {"a": 3, "b": 1, "c": 7, "e": 2}
    paging = Paging(sizes, page)
    async with (
        FakeCluster(handlers={"DescribeTopicPartitions": paging}) as cluster,
        AdminClient(bootstrap_servers=cluster.bootstrap) as admin,
    ):
        results = await admin.describe_topics(["e", "c", "missing", "a", "b"])
    assert list(results.values) == ["e", "c", "a", "b"]
    for name, size in sizes.items():
        assert [partition.partition for partition in results[name].partitions] == list(range(size))
    assert results.errors["missing"].error_code is ErrorCode.unknown_topic_or_partition
    assert len(paging.bodies) >= sum(sizes.values()) / page
    leaderless = results["a"].partitions[1]
    assert (leaderless.leader, leaderless.leader_epoch) == (None, 2)
    assert (leaderless.replicas, leaderless.isr, leaderless.offline_replicas) == ((5, 6), (5,), (6,))
    assert (leaderless.eligible_leader_replicas, leaderless.last_known_elr) == ((6,), ())
    assert results["a"].authorized_operations is None


async def test_a_page_has_no_more_partitions_than_wanted() -> None:
    paging = Paging({"a": 5}, 100)
    async with (
        FakeCluster(handlers={"DescribeTopicPartitions": paging}) as cluster,
        AdminClient(bootstrap_servers=cluster.bootstrap) as admin,
    ):
        results = await admin.describe_topics(
            ["a"], partitions_per_response=2, include_authorized_operations=True
        )
    assert [body.response_partition_limit for body in paging.bodies] == [2, 2, 2]
    assert len(results["a"].partitions) == 5
    assert results["a"].authorized_operations == {AclOperation.READ, AclOperation.DESCRIBE}


async def test_a_topic_deleted_between_pages_is_an_error() -> None:
    paging = Paging({"a": 4, "b": 1}, 2)

    def forget(request: Request) -> Any:
        response = paging(request)
        paging.sizes.pop("a", None)
        return response

    async with (
        FakeCluster(handlers={"DescribeTopicPartitions": forget}) as cluster,
        AdminClient(bootstrap_servers=cluster.bootstrap) as admin,
    ):
        results = await admin.describe_topics(["a", "b"])
    assert set(results.values) == {"b"}
    assert results.errors["a"].error_code is ErrorCode.unknown_topic_or_partition


async def test_a_cursor_that_leads_nowhere_is_an_error() -> None:
    for name, partition in (("a", 0), ("elsewhere", 3)):
        cursor = nested("DescribeTopicPartitions", "Cursor", topic_name=name, partition_index=partition)
        response = response_to("DescribeTopicPartitions", next_cursor=cursor)
        handlers = {"DescribeTopicPartitions": lambda _, response=response: response}
        async with (
            FakeCluster(handlers=handlers) as cluster,
            AdminClient(bootstrap_servers=cluster.bootstrap) as admin,
        ):
            with pytest.raises(ConnectionFailedError, match="the cursor of the response, partition"):
                await admin.describe_topics(["a", "b"])


async def test_old_servers_describe_topics_with_metadata() -> None:
    partition = nested(
        "Metadata", "MetadataResponsePartition", leader_id=1, replica_nodes=(1, 2), isr_nodes=(1,)
    )
    topics = (
        metadata_topic("a", partitions=(partition,)),
        metadata_topic("b", None, error_code=ErrorCode.unknown_topic_or_partition),
    )
    async with FakeCluster(
        handlers={"Metadata": lambda _: response_to("Metadata", topics=topics)}
    ) as cluster:
        for node in cluster.nodes.values():
            del node.apis[DESCRIBE_TOPIC_PARTITIONS]
        async with AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
            results = await admin.describe_topics(["a", "b", "c"])
    assert results["a"].partitions[0].replicas == (1, 2)
    assert results["a"].partitions[0].eligible_leader_replicas is None
    assert {key: error.error_code for key, error in results.errors.items()} == dict.fromkeys(
        ("b", "c"), ErrorCode.unknown_topic_or_partition
    )


async def test_topics_are_described_by_id() -> None:
    topics = (
        metadata_topic("a"),
        metadata_topic(None, OTHER_ID, error_code=ErrorCode.unknown_topic_id),
    )
    handlers = {
        "Metadata": lambda _: response_to("Metadata", topics=topics),
        "DescribeTopicPartitions": Paging({"b": 1}, 10),
    }
    async with FakeCluster(handlers=handlers) as cluster:
        async with AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
            results = await admin.describe_topics([TOPIC_ID, "b", OTHER_ID])
        (request,) = cluster.received("Metadata")
    assert [(topic.name, topic.topic_id) for topic in request.body.topics] == [
        (None, TOPIC_ID),
        (None, OTHER_ID),
    ]
    assert (results[TOPIC_ID].name, results["b"].name) == ("a", "b")
    assert results.errors[OTHER_ID].error_code is ErrorCode.unknown_topic_id


async def test_topics_are_not_changed_at_controllers() -> None:
    """KIP-919's table."""
    async with AdminClient(bootstrap_controllers=["127.0.0.1:1"]) as admin:
        for operation in (
            admin.create_topics([NewTopic(name="a")]),
            admin.delete_topics(["a"]),
            admin.create_partitions({"a": NewPartitions(total_count=2)}),
        ):
            with pytest.raises(UnsupportedEndpointError, match=r"bootstrap\.controllers"):
                await operation
