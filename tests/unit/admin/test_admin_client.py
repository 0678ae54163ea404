"""The AdminClient against servers that answer what the test says, over real sockets."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.create_topics.v7 import response as create_topics
from kio.schema.describe_cluster.v2 import response as describe_cluster
from kio.schema.describe_quorum.v2 import response as describe_quorum
from quorate_admin import client as client_module
from quorate_admin.client import AdminClient
from quorate_admin.connection import Address, Connection
from quorate_admin.errors import (
    ConnectionFailedError,
    RequestTimeoutError,
    ServerError,
    UnreachableError,
    UnsupportedByServerError,
)
from quorate_admin.results import NewTopic
from quorate_protocol.errors import ErrorCode
from quorate_protocol.wire.api import API_VERSIONS, APIS, api_of, find_api
from quorate_protocol.wire.frames import FrameDecoder
from quorate_protocol.wire.generated import api_versions_response
from quorate_protocol.wire.server import Request, parse_request, serialize_response

NO_TIME = timedelta()
VOTER_ID = uuid.UUID(int=7)

Answer = Callable[[Request], Any]


def versions_of(*apis: tuple[int, int, int]) -> Any:
    """An ApiVersions answer with these rows, or with all that we speak."""
    rows = apis or tuple((api.key, api.version_min, api.version_max) for api in APIS.values())
    return api_versions_response.ApiVersionsResponse(
        error_code=ErrorCode.none,
        api_keys=tuple(
            api_versions_response.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, low, high in rows
        ),
        throttle_time=NO_TIME,
        finalized_features_epoch=5,
        finalized_features=(
            api_versions_response.FinalizedFeatureKey(
                name="kraft.version", max_version_level=1, min_version_level=1
            ),
        ),
    )


class Server:
    """A node that answers; `None` for an answer means silence."""

    def __init__(self, answer: Answer, versions: Any = None) -> None:
        self._answer = answer
        self._versions = versions or versions_of()
        self.requests: list[Request] = []
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def connections(self) -> int:
        """How many were made."""
        return len(self._writers)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """The address while it listens."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with server:
            yield f"{host}:{port}"
        for writer in self._writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        frames = FrameDecoder()
        try:
            while data := await reader.read(65536):
                for frame in frames.feed(data):
                    request = parse_request(frame, APIS)
                    if request.api.key == API_VERSIONS:
                        answer = self._versions
                    else:
                        self.requests.append(request)
                        answer = self._answer(request)
                    if answer is None:
                        continue
                    writer.write(
                        serialize_response(request.api, request.version, request.correlation_id, answer)
                    )
        except ConnectionError:
            pass
        finally:
            writer.close()


def quorum_answer(
    error: ErrorCode = ErrorCode.none, leader_id: int = 3000, directory_id: uuid.UUID | None = VOTER_ID
) -> describe_quorum.DescribeQuorumResponse:
    """A DescribeQuorum response with one voter."""
    voter = describe_quorum.ReplicaState(
        replica_id=leader_id,
        replica_directory_id=directory_id,
        log_end_offset=12,
        last_caught_up_timestamp=99,
    )
    partition = describe_quorum.PartitionData(
        partition_index=0,
        error_code=error,
        error_message=None,
        leader_id=leader_id,
        leader_epoch=4,
        high_watermark=11,
        current_voters=(voter,),
        observers=(),
    )
    topic = describe_quorum.TopicData(topic_name="__cluster_metadata", partitions=(partition,))
    return describe_quorum.DescribeQuorumResponse(
        error_code=ErrorCode.none, error_message=None, topics=(topic,), nodes=()
    )


async def test_describe_quorum_tells_what_the_leader_says() -> None:
    """Goal: every field arrives. Method: one voter, whose last fetch is unknown."""
    server = Server(lambda _: quorum_answer())
    async with server.listening() as address, AdminClient(bootstrap_controllers=[address]) as client:
        quorum = await client.describe_quorum()
    assert (quorum.leader_id, quorum.leader_epoch, quorum.high_watermark) == (3000, 4, 11)
    (voter,) = quorum.voters
    assert (voter.directory_id, voter.log_end_offset) == (VOTER_ID, 12)
    assert (voter.last_fetch_ms, voter.last_caught_up_ms) == (None, 99)


async def test_a_follower_sends_us_on_and_the_leader_is_asked_first_from_then() -> None:
    """Goal: any controller may be named. Method: a follower before the leader, asked twice."""
    follower = Server(lambda _: quorum_answer(ErrorCode.not_leader_or_follower))
    leader = Server(lambda _: quorum_answer(leader_id=3001))
    async with (
        follower.listening() as first,
        leader.listening() as second,
        AdminClient(bootstrap_controllers=[first, second]) as client,
    ):
        assert (await client.describe_quorum()).leader_id == 3001
        assert (await client.describe_quorum()).leader_id == 3001
    assert (len(follower.requests), len(leader.requests)) == (1, 2)
    assert (follower.connections, leader.connections) == (1, 1)


async def test_without_a_leader_every_reason_is_told() -> None:
    """Goal: an error that helps. Method: a follower, and an address where nobody listens."""
    follower = Server(lambda _: quorum_answer(ErrorCode.not_leader_or_follower))
    async with follower.listening() as address, Server(lambda _: None).listening() as gone:
        pass
    async with follower.listening() as address, AdminClient(bootstrap_controllers=[address, gone]) as client:
        with pytest.raises(UnreachableError) as failed:
            await client.describe_quorum()
    assert failed.value.reasons[address] == "NOT_LEADER_OR_FOLLOWER"
    assert failed.value.reasons[gone].startswith(f"no connection to {gone}")


async def test_other_errors_are_the_servers_word() -> None:
    """Goal: no asking around after a refusal. Method: the first server refuses."""
    server = Server(lambda _: quorum_answer(ErrorCode.cluster_authorization_failed))
    async with server.listening() as address, AdminClient(bootstrap_controllers=[address] * 2) as client:
        with pytest.raises(ServerError, match=r"^CLUSTER_AUTHORIZATION_FAILED$") as refused:
            await client.describe_quorum()
    assert refused.value.error_code is ErrorCode.cluster_authorization_failed
    assert len(server.requests) == 1


@pytest.mark.parametrize(("kind", "endpoint_type"), [("bootstrap_servers", 1), ("bootstrap_controllers", 2)])
async def test_describe_cluster_asks_for_the_kind_of_node(kind: str, endpoint_type: int) -> None:
    """Goal: brokers through brokers, controllers through controllers. Method: look at the request."""
    node = describe_cluster.DescribeClusterBroker(broker_id=1, host="h", port=9092, is_fenced=False)
    server = Server(
        lambda _: describe_cluster.DescribeClusterResponse(
            throttle_time=NO_TIME, error_code=ErrorCode.none, cluster_id="c", controller_id=1, brokers=(node,)
        )
    )
    async with server.listening() as address, AdminClient(**{kind: [address]}) as client:  # type: ignore[arg-type]
        cluster = await client.describe_cluster()
    assert server.requests[0].body.endpoint_type == endpoint_type
    assert [(one.node_id, one.host, one.port, one.fenced) for one in cluster.nodes] == [(1, "h", 9092, False)]


async def test_features_come_fresh_from_api_versions() -> None:
    """Goal: finalized levels. Method: the server's table has one."""
    async with (
        Server(lambda _: None).listening() as address,
        AdminClient(bootstrap_servers=[address]) as client,
    ):
        features = await client.describe_features()
    assert (dict(features.finalized), features.finalized_epoch) == ({"kraft.version": 1}, 5)


async def test_create_topics_has_a_result_for_each() -> None:
    """Goal: one topic's error is not the other's. Method: two topics, the second exists."""

    def answer(request: Request) -> Any:
        results = (
            create_topics.CreatableTopicResult(
                name=topic.name,
                topic_id=VOTER_ID,
                error_code=ErrorCode.none if topic.name == "a" else ErrorCode.topic_already_exists,
                error_message=None,
                num_partitions=topic.num_partitions,
                configs=(),
            )
            for topic in request.body.topics
        )
        return create_topics.CreateTopicsResponse(throttle_time=NO_TIME, topics=tuple(results))

    server = Server(answer)
    async with server.listening() as address, AdminClient(bootstrap_controllers=[address]) as client:
        made, refused = await client.create_topics(
            [NewTopic(name="a", partitions=3, configs={"k": "v"}), NewTopic(name="b")], validate_only=True
        )
    assert (made.error_code, made.partitions, made.topic_id) == (ErrorCode.none, 3, VOTER_ID)
    assert refused.error_code is ErrorCode.topic_already_exists
    sent = server.requests[0].body
    assert sent.validate_only
    assert [(config.name, config.value) for config in sent.topics[0].configs] == [("k", "v")]


async def test_the_highest_common_version_is_spoken() -> None:
    """Goal: old servers work. Method: a server that knows DescribeQuorum up to version 1."""
    answer = quorum_answer(directory_id=None)  # which version 1 has no field for
    server = Server(lambda _: answer, versions_of((API_VERSIONS, 0, 4), (55, 0, 1)))
    async with server.listening() as address, AdminClient(bootstrap_controllers=[address]) as client:
        await client.describe_quorum()
        assert server.requests[0].version == 1
        with pytest.raises(UnreachableError, match="has no version of CreateTopics"):
            await client.create_topics([NewTopic(name="a")])


async def test_silence_is_a_timeout_and_costs_the_connection() -> None:
    """Goal: no waiting for ever, and no late answer for the next request. Method: a server that is silent."""
    server = Server(lambda _: None)
    async with server.listening() as address:
        connection = await Connection.open(Address.parse(address), client_id="t", timeout_ms=5000)
        request = find_api(60).canonical_request(
            include_cluster_authorized_operations=False, include_fenced_brokers=False
        )
        with pytest.raises(RequestTimeoutError, match=r"no answer from .* in 20 ms"):
            await connection.request(request, 20)
        assert not connection.is_open
        with pytest.raises(ConnectionFailedError):
            await connection.request(request, 20)
        await connection.close()


async def test_a_connection_that_ends_fails_what_is_under_way() -> None:
    """Goal: errors, not hangs. Method: a server that closes instead of answering, and one that sends garbage."""

    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"\x00\x00\x00\x04\xff\xff\xff\xff" * 2)
        await reader.read()  # until the client has had enough
        writer.close()

    for behaviour in (close, garbage):
        server = await asyncio.start_server(behaviour, "127.0.0.1", 0)
        async with server:
            host, port = server.sockets[0].getsockname()
            with pytest.raises(ConnectionFailedError):
                await Connection.open(Address(host, port), client_id="t", timeout_ms=5000)


async def test_overlapping_requests_get_their_own_answers() -> None:
    """Goal: one connection serves several tasks. Method: many at once, answers told apart by the request."""

    def answer(request: Request) -> Any:
        (topic,) = request.body.topics
        result = create_topics.CreatableTopicResult(
            name=topic.name, topic_id=None, error_code=ErrorCode.none, error_message=None, configs=()
        )
        return create_topics.CreateTopicsResponse(throttle_time=NO_TIME, topics=(result,))

    server = Server(answer)
    async with server.listening() as address, AdminClient(bootstrap_controllers=[address]) as client:
        names = [f"t{number}" for number in range(200)]
        results = await asyncio.gather(*(client.create_topics([NewTopic(name=name)]) for name in names))
    assert [result[0].name for result in results] == names
    assert server.connections == 1


def test_requests_are_of_the_canonical_classes() -> None:
    """Goal: the highest version is spoken after an upgrade of the protocol, too. Method: compare the classes."""
    for name in ("CreateTopicsRequest", "DescribeClusterRequest", "DescribeQuorumRequest"):
        found = getattr(client_module, name)
        assert found is APIS[found.__api_key__].canonical_request
    assert api_of(quorum_answer()).name == "DescribeQuorum"


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:0", "host:65536", "host:x"])
def test_wrong_addresses_are_refused(text: str) -> None:
    """Goal: a wrong option is told at once. Method: texts that are no host:port."""
    with pytest.raises(ValueError, match="is not host:port"):
        AdminClient(bootstrap_servers=[text])


def test_addresses_read_as_they_are_written() -> None:
    """Goal: IPv6 too. Method: there and back."""
    for text in ("h:1", "127.0.0.1:9092", "[::1]:9092"):
        assert str(Address.parse(text)) == text


def test_one_kind_of_bootstrap_is_needed() -> None:
    """Goal: no doubt whom to ask. Method: none and both."""
    for arguments in ({}, {"bootstrap_servers": ["h:1"], "bootstrap_controllers": ["h:1"]}):
        with pytest.raises(ValueError, match="either"):
            AdminClient(**arguments)
    assert issubclass(UnsupportedByServerError, Exception)
