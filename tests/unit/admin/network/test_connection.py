"""One connection: versions, identity, timeouts, and servers that behave badly."""

import asyncio
from datetime import timedelta

import pytest
from kit.fake_cluster import CLUSTER_ID, SILENCE, FakeCluster, response_to
from kit.waiting import HANG_S
from quorate_admin.config import Address
from quorate_admin.errors import (
    ConnectionFailedError,
    RebootstrapRequiredError,
    RequestTimeoutError,
    ServerError,
    UnsupportedByServerError,
)
from quorate_admin.network.connection import Connection, Identity
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.apis import ApiKey, find_api
from quorate_protocol.kafka.generated.delete_topics_request import DeleteTopicsRequest, DeleteTopicState

DESCRIBE_CLUSTER = find_api(60)


async def connect(cluster: FakeCluster, identity: Identity | None = None) -> Connection:
    """A connection to the cluster's first node."""
    address = Address.parse(cluster.bootstrap[0])
    return await Connection.open(address, client_id="t", timeout_ms=HANG_S * 1000, identity=identity)


def describe_cluster() -> object:
    """A request that each node answers."""
    return DESCRIBE_CLUSTER.canonical_request(
        include_cluster_authorized_operations=False, include_fenced_brokers=False
    )


@pytest.mark.parametrize(
    ("api_versions_max", "asked"), [(5, [5]), (4, [5, 4]), (3, [5, 3]), (2, [5, 2]), (0, [5, 0])]
)
async def test_versions_are_agreed_with_servers_of_any_age(api_versions_max: int, asked: list[int]) -> None:
    """KIP-511's way down."""
    async with FakeCluster(api_versions_max=api_versions_max) as cluster:
        connection = await connect(cluster, Identity(CLUSTER_ID, 1))
        described = await connection.request(describe_cluster(), 5000)
        await connection.close()
        requests = cluster.received("ApiVersions")
    assert described.cluster_id == CLUSTER_ID
    assert (requests[0].unsupported_version or requests[0].version) == asked[0]
    assert requests[-1].version == asked[-1]
    assert len(requests) == len(asked)


async def test_the_server_gets_the_expected_identity() -> None:
    """KIP-1242's request."""
    async with FakeCluster() as cluster:
        for identity in (Identity(CLUSTER_ID, 1), None):
            await (await connect(cluster, identity)).close()
        reported, untold = (request.body for request in cluster.received("ApiVersions"))
    assert (reported.cluster_id, reported.node_id) == (CLUSTER_ID, 1)
    assert (untold.cluster_id, untold.node_id) == (None, -1)


@pytest.mark.parametrize("meant", [Identity("other-cluster", 1), Identity(CLUSTER_ID, 2)])
async def test_a_server_that_is_another_says_so(meant: Identity) -> None:
    async with FakeCluster() as cluster:
        with pytest.raises(RebootstrapRequiredError, match="not the expected node"):
            await connect(cluster, meant)


async def test_an_open_connection_can_be_checked_later() -> None:
    async with FakeCluster() as cluster:
        connection = await connect(cluster)
        await connection.verify(Identity(CLUSTER_ID, 1), 5000)
        await connection.verify(Identity(CLUSTER_ID, 1), 5000)
        assert len(cluster.received("ApiVersions")) == 2
        with pytest.raises(RebootstrapRequiredError):
            await connection.verify(Identity(CLUSTER_ID, 2), 5000)
        await connection.close()


async def test_old_servers_are_not_asked_to_check() -> None:
    async with FakeCluster(api_versions_max=4) as cluster:
        connection = await connect(cluster, Identity("other-cluster", 9))
        await connection.verify(Identity(CLUSTER_ID, 1), 5000)
        assert connection.identity is None
        await connection.close()


async def test_an_error_in_api_versions_is_reported() -> None:
    async with FakeCluster() as cluster:
        cluster.handle(
            "ApiVersions", lambda _: response_to("ApiVersions", error_code=ErrorCode.invalid_request)
        )
        with pytest.raises(ServerError, match=r"^INVALID_REQUEST: This most likely occurs"):
            await connect(cluster)


async def test_the_highest_common_version_is_spoken() -> None:
    """Old servers work, and what they lack is an error."""
    async with FakeCluster() as cluster:
        cluster.nodes[1].apis = {ApiKey.API_VERSIONS: (0, 5), DESCRIBE_CLUSTER.key: (0, 1)}
        connection = await connect(cluster)
        await connection.request(describe_cluster(), 5000)
        assert cluster.received("DescribeCluster")[0].version == 1
        with pytest.raises(UnsupportedByServerError, match="supports no version of UnregisterBroker"):
            await connection.request(find_api(64).canonical_request(broker_id=1), 5000)
        await connection.close()


async def test_a_string_that_no_version_can_express_is_refused() -> None:
    topic = DeleteTopicState(name="n" * 40_000, topic_id=None)
    request = DeleteTopicsRequest(topics=(topic,), timeout=timedelta(seconds=1))
    async with FakeCluster() as cluster:
        connection = await connect(cluster)
        with pytest.raises(UnsupportedByServerError, match="name has 40000 bytes, at most 32767 are allowed"):
            await connection.request(request, 5000)
        await connection.request(describe_cluster(), 5000)
        await connection.close()


async def test_whoever_closes_a_connection_can_be_cancelled() -> None:
    async with FakeCluster() as cluster:
        connection = await connect(cluster)
        closing = asyncio.create_task(connection.close())
        await asyncio.sleep(0)  # it has begun
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert not connection.is_open
        await connection.close()


async def test_silence_is_a_timeout_and_costs_the_connection() -> None:
    """No waiting for ever, and no late answer for the next request."""
    async with FakeCluster() as cluster:
        cluster.handle("DescribeCluster", lambda _: SILENCE)
        connection = await connect(cluster)
        with pytest.raises(RequestTimeoutError, match=r"no response from .* in 20 ms"):
            await connection.request(describe_cluster(), 20)
        assert not connection.is_open
        with pytest.raises(ConnectionFailedError):
            await connection.request(describe_cluster(), 20)
        await connection.close()


@pytest.mark.parametrize(
    ("garbage", "said"),
    [
        (b"", "closed the connection"),
        (b"\x00\x00\x00\x04\xff\xff\xff\xff" * 2, "where 2570 was due"),
        (b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "security.protocol must be SSL"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it speaks HTTP, not Kafka's protocol"),
    ],
)
async def test_servers_that_answer_nonsense_cost_the_connection(garbage: bytes, said: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(garbage)
        if garbage:
            await reader.read()  # until the client has had enough
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        with pytest.raises(ConnectionFailedError, match=said):
            await Connection.open(Address(host, port), client_id="t", timeout_ms=HANG_S * 1000)


async def test_overlapping_requests_get_their_own_answers() -> None:
    """One connection serves many tasks, more than fit in flight."""
    async with FakeCluster() as cluster:
        cluster.handle(
            "DescribeCluster",
            lambda _: response_to("DescribeCluster", controller_id=len(cluster.received("DescribeCluster"))),
        )
        connection = await connect(cluster)
        responses = await asyncio.gather(*(connection.request(describe_cluster(), 5000) for _ in range(250)))
        await connection.close()
        assert cluster.nodes[1].connections == 1
    assert [response.controller_id for response in responses] == list(range(1, 251))


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:0", "host:65536", "host:x", "host:²"])
def test_wrong_addresses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        Address.parse(text)


def test_addresses_read_as_they_are_written() -> None:
    for text in ("h:1", "127.0.0.1:9092", "[::1]:9092"):
        assert str(Address.parse(text)) == text
