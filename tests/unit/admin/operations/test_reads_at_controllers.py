"""Reads that brokers serve, and of controllers only those of Quorate: the nodes that the client asks, its errors."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
from kit.fake_cluster import FakeCluster, nested, response_to
from quorate_admin.client import AdminClient
from quorate_admin.errors import UnsupportedEndpointError
from quorate_admin.types.topics import TopicListing
from quorate_protocol.errors import ErrorCode
from quorate_protocol.wire.server import Request

READS: Final[dict[str, Callable[[AdminClient], Awaitable[Any]]]] = {
    "DescribeTopicPartitions": lambda admin: admin.list_topics(),
    "DescribeClientQuotas": lambda admin: admin.describe_client_quotas(),
    "DescribeUserScramCredentials": lambda admin: admin.describe_user_scram_credentials(),
    "DescribeDelegationToken": lambda admin: admin.describe_delegation_tokens(),
}
TOPIC_IDS: Final = {"a": uuid.UUID(int=1), "b": uuid.UUID(int=2), "__consumer_offsets": uuid.UUID(int=3)}


def controllers(*of_quorate: int, active: int = 1) -> FakeCluster:
    """Three controllers, some of which are ours."""
    cluster = FakeCluster((1, 2, 3), is_controllers=True)
    cluster.controller_id = active
    for node_id in of_quorate:
        cluster.nodes[node_id].serves_reads = True
    for name in READS:
        cluster.handle(name, lambda _, name=name: response_to(name))
    return cluster


def asked(cluster: FakeCluster, name: str) -> list[int]:
    """The controllers that were sent a request."""
    return [node.node_id for node in cluster.nodes.values() if node.received(name)]


def described(name: str, *partitions: int) -> Any:
    """A topic of a page."""
    return nested(
        "DescribeTopicPartitions",
        "DescribeTopicPartitionsResponseTopic",
        name=name,
        topic_id=TOPIC_IDS[name],
        is_internal=name.startswith("__"),
        partitions=tuple(
            nested(
                "DescribeTopicPartitions",
                "DescribeTopicPartitionsResponsePartition",
                partition_index=number,
                leader_id=-1,
            )
            for number in partitions
        ),
    )


def paged(request: Request) -> Any:
    """Two pages of all topics, whose first ends inside of `a`; or the topics of the request."""
    names = [topic.name for topic in request.body.topics]
    if names:
        return response_to(
            "DescribeTopicPartitions", topics=tuple(described(name, 0) for name in sorted(names))
        )
    if request.body.cursor is not None:
        return response_to("DescribeTopicPartitions", topics=(described("a", 1), described("b", 0)))
    cursor = nested("DescribeTopicPartitions", "Cursor", topic_name="a", partition_index=1)
    first = (described("__consumer_offsets", 0), described("a", 0))
    return response_to("DescribeTopicPartitions", topics=first, next_cursor=cursor)


@pytest.mark.parametrize("name", READS)
async def test_the_active_controller_is_asked_if_it_is_of_quorate(name: str) -> None:
    async with controllers(2, 3, active=3) as cluster:
        async with AdminClient(bootstrap_controllers=cluster.bootstrap) as admin:
            await READS[name](admin)
            await READS[name](admin)
        assert asked(cluster, name) == [3]


@pytest.mark.parametrize("name", READS)
async def test_a_controller_of_quorate_is_found_among_others(name: str) -> None:
    async with controllers(3, active=1) as cluster:
        async with AdminClient(bootstrap_controllers=cluster.bootstrap) as admin:
            await READS[name](admin)
        assert asked(cluster, name) == [3]


@pytest.mark.parametrize("name", READS)
async def test_stock_controllers_are_said_not_to_serve_it(name: str) -> None:
    async with controllers() as cluster:
        async with AdminClient(bootstrap_controllers=cluster.bootstrap) as admin:
            with pytest.raises(UnsupportedEndpointError) as raised:
                await READS[name](admin)
        assert asked(cluster, name) == []
    assert f"no controller of the cluster serves {name}" in str(raised.value)
    assert "--bootstrap-server" in str(raised.value)


@pytest.mark.parametrize("name", READS)
async def test_nobody_waits_for_controllers_that_do_not_run(name: str) -> None:
    async with controllers() as cluster:
        await cluster.nodes[2].stop()
        bootstrap = [cluster.nodes[node_id].address for node_id in (1, 3)]
        async with AdminClient(bootstrap_controllers=bootstrap) as admin:
            with pytest.raises(UnsupportedEndpointError, match=f"no controller that answers serves {name}"):
                await asyncio.wait_for(READS[name](admin), 30)


@pytest.mark.parametrize("active", [1, -1], ids=["the active one is dead", "none is active"])
async def test_others_answer_without_an_active_controller(active: int) -> None:
    async with controllers(1, 2, active=active) as cluster:
        await cluster.nodes[1].stop()
        bootstrap = [cluster.nodes[node_id].address for node_id in (2, 3)]
        async with AdminClient(bootstrap_controllers=bootstrap) as admin:
            await admin.describe_client_quotas()
        assert asked(cluster, "DescribeClientQuotas") == [2]


async def test_brokers_are_asked_as_before() -> None:
    async with FakeCluster((1,)) as cluster:
        cluster.handle("DescribeClientQuotas", lambda _: response_to("DescribeClientQuotas"))
        async with AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
            await admin.describe_client_quotas()
        names = {request.body.client_software_name for request in cluster.received("ApiVersions")}
    assert names == {"quorate"}


async def test_topics_are_listed_and_described_page_by_page() -> None:
    absent = uuid.UUID(int=99)
    async with controllers(1) as cluster:
        cluster.handle("DescribeTopicPartitions", paged)
        async with AdminClient(bootstrap_controllers=cluster.bootstrap) as admin:
            listed = await admin.list_topics(list_internal=True)
            assert set(await admin.list_topics()) == {"a", "b"}
            found = await admin.describe_topics(["b", TOPIC_IDS["a"], absent])
    assert listed == {
        name: TopicListing(name=name, topic_id=topic_id, is_internal=name.startswith("__"))
        for name, topic_id in TOPIC_IDS.items()
    }
    assert {key: topic.name for key, topic in found.values.items()} == {"b": "b", TOPIC_IDS["a"]: "a"}
    assert found.errors[absent].error_code is ErrorCode.unknown_topic_id


async def test_tokens_are_made_by_the_active_controller() -> None:
    """KIP-919's eighth tool."""
    async with controllers(active=2) as cluster:
        for name in ("RenewDelegationToken", "ExpireDelegationToken"):
            cluster.handle(name, lambda _, name=name: response_to(name))
        async with AdminClient(bootstrap_controllers=cluster.bootstrap) as admin:
            await admin.renew_delegation_token(b"hmac")
            await admin.expire_delegation_token(b"hmac")
        assert asked(cluster, "RenewDelegationToken") == asked(cluster, "ExpireDelegationToken") == [2]
