"""Requests over a real socket to a fake node: the part that serves each, the shape of its response, timeouts."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import quorate_protocol.kafka.generated.create_acls_request as create_acls
import quorate_protocol.kafka.generated.create_acls_response as created_acls
import quorate_protocol.kafka.generated.create_topics_request as create
import quorate_protocol.kafka.generated.create_topics_response as created
import quorate_protocol.kafka.generated.describe_configs_request as describe_configs
import quorate_protocol.kafka.generated.describe_configs_response as described_configs
import quorate_protocol.kafka.generated.describe_quorum_request as describe_quorum
import quorate_protocol.kafka.generated.fetch_request as fetch
import quorate_protocol.kafka.generated.vote_request as vote
from kit.controller_parts import heartbeat
from quorate_controller.control.api import ControlError
from quorate_controller.node.events import NotAwaited, ResponseWithData
from quorate_controller.raft import messages as m
from quorate_controller.raft.events import QuorumDescription
from quorate_controller.raft.model import ReplicaKey
from quorate_controller.server import misrouting
from quorate_controller.server.response_frames import encode_response_frame
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.apis import APIS
from quorate_protocol.kafka.generated.api_versions_request import ApiVersionsRequest
from quorate_protocol.kafka.generated.sasl_handshake_request import SaslHandshakeRequest
from quorate_protocol.kafka.generated.unregister_controller_request import UnregisterControllerRequest
from quorate_protocol.wire.server import serialize_response
from quorate_protocol.wire.versions import (
    CONTROLLER_SOFTWARE_NAME,
    api_versions_request,
)


def create_topics(*names: str, timeout_ms: int = 30_000) -> create.CreateTopicsRequest:
    return create.CreateTopicsRequest(
        topics=tuple(
            create.CreatableTopic(
                name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
            )
            for name in names
        ),
        timeout=timedelta(milliseconds=timeout_ms),
    )


def topics_created(request: Any, _caller: Any) -> created.CreateTopicsResponse:
    return created.CreateTopicsResponse(
        topics=tuple(
            created.CreatableTopicResult(
                name=topic.name,
                topic_id=UUID(int=5),
                error_code=ErrorCode.none,
                error_message=None,
                configs=None,
            )
            for topic in request.topics
        ),
        throttle_time=timedelta(),
    )


QUORUM_QUESTION = describe_quorum.DescribeQuorumRequest(
    topics=(
        describe_quorum.TopicData(
            topic_name="__cluster_metadata", partitions=(describe_quorum.PartitionData(partition_index=0),)
        ),
    )
)


@pytest.mark.parametrize("version", [2, 5, 7])
async def test_control_requests_reach_the_node_with_their_circumstances(rig: Any, version: int) -> None:
    rig.node.decide = topics_created
    await rig.listen()
    client = await rig.connect()
    response = await client.ask(create_topics("a", "b", timeout_ms=1234), version)
    assert [topic.name for topic in response.topics] == ["a", "b"]
    assert response.topics[0].topic_id == (UUID(int=5) if version == 7 else None)
    ((request, caller, _),) = rig.node.controls
    assert request == create_topics("a", "b", timeout_ms=1234)
    assert (str(caller.principal), caller.client_host, caller.client_id) == (
        "User:ANONYMOUS",
        "127.0.0.1",
        "test",
    )
    assert (caller.listener, caller.api_version, caller.request_timeout_ms) == ("CONTROLLER", version, 1234)
    assert not caller.forwarded


async def test_a_standby_refuses_writes_in_the_shape_of_each_api(rig: Any) -> None:
    rig.node.is_active = False
    await rig.listen()
    client = await rig.connect()
    response = await client.ask(create_topics("a", "b"), 7)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("a", ErrorCode.not_controller),
        ("b", ErrorCode.not_controller),
    ]
    assert (await client.ask(heartbeat(), 1)).error_code is ErrorCode.not_controller
    unregister = UnregisterControllerRequest(controller_id=3003)
    assert (await client.ask(unregister, 0)).error_code is ErrorCode.not_controller
    assert rig.node.controls == []
    assert rig.counters.errors == {(key, ErrorCode.not_controller): 1 for key in (19, 63, 94)}


async def test_a_standby_answers_reads(rig: Any) -> None:
    rig.node.is_active = False
    rig.node.decide = lambda _request, _caller: described_configs.DescribeConfigsResponse(
        throttle_time=timedelta(), results=()
    )
    await rig.listen()
    client = await rig.connect()
    question = describe_configs.DescribeConfigsRequest(resources=())
    assert (await client.ask(question, 4)).results == ()


async def test_refusals_of_control_go_to_the_client(rig: Any) -> None:
    rig.node.decide = lambda _request, _caller: ControlError(ErrorCode.policy_violation, "no more topics")
    await rig.listen()
    client = await rig.connect()
    (topic,) = (await client.ask(create_topics("a"), 7)).topics
    assert (topic.error_code, topic.error_message) == (ErrorCode.policy_violation, "no more topics")


async def test_a_bug_is_logged_and_hidden(rig: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A failure of ours neither leaks nor hangs."""
    rig.node.decide = lambda _request, _caller: ZeroDivisionError("secret")
    await rig.listen()
    client = await rig.connect()
    (topic,) = (await client.ask(create_topics("a"), 7)).topics
    assert (topic.error_code, topic.error_message) == (ErrorCode.unknown_server_error, None)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_without_a_timeout_errors_of_validation_win(rig: Any, timeout_ms: int) -> None:
    """KIP-4, for clients that do not wait: REQUEST_TIMED_OUT means that the topic is valid, and being
    created.
    """

    def decided(request: Any, caller: Any) -> NotAwaited:
        response = topics_created(request, caller)
        first, *others = response.topics
        refused = replace(first, error_code=ErrorCode.topic_already_exists, error_message="is there")
        return NotAwaited(replace(response, topics=(refused, *others), throttle_time=timedelta(seconds=0)))

    rig.node.decide = decided
    await rig.listen()
    client = await rig.connect()
    topics = (await client.ask(create_topics("a", "b", "c", timeout_ms=timeout_ms), 7)).topics
    assert [(topic.name, topic.error_code, topic.error_message) for topic in topics] == [
        ("a", ErrorCode.topic_already_exists, "is there"),
        ("b", ErrorCode.request_timed_out, None),
        ("c", ErrorCode.request_timed_out, None),
    ]
    assert topics[1].topic_id is None


async def test_requests_time_out(rig: Any) -> None:
    await rig.listen()
    client = await rig.connect()
    (topic,) = (await client.ask(create_topics("a", timeout_ms=10), 7)).topics
    assert topic.error_code is ErrorCode.request_timed_out
    (future,) = await rig.node.requests(1)
    assert future.cancelled()


async def test_raft_requests_reach_raft_with_their_listener(rig: Any) -> None:
    rig.node.respond = lambda _request: ResponseWithData(
        response=m.VoteResponse(
            leader_id=2,
            leader_epoch=8,
            leader_endpoint=m.LeaderEndpoint(node_id=2, host="h", port=9093),
        )
    )
    await rig.listen()
    client = await rig.connect()
    response = await client.ask(vote_request(voter_id=1), 2)
    assert response.topics[0].partitions[0].leader_epoch == 8
    assert response.node_endpoints[0].host == "h"
    ((seen, listener, _),) = rig.node.rafts
    assert listener == "CONTROLLER"
    assert seen == m.VoteRequest(
        cluster_id="cluster",
        voter=ReplicaKey(node_id=1),
        replica=ReplicaKey(node_id=3),
        replica_epoch=8,
        last_offset=10,
        last_offset_epoch=1,
        pre_vote=True,
    )


def vote_request(*, voter_id: int) -> vote.VoteRequest:
    """A pre-vote of node 3 for epoch 8."""
    partition = vote.PartitionData(
        partition_index=0,
        replica_epoch=8,
        replica_id=3,
        replica_directory_id=None,
        voter_directory_id=None,
        last_offset_epoch=1,
        last_offset=10,
        pre_vote=True,
    )
    return vote.VoteRequest(
        cluster_id="cluster",
        voter_id=voter_id,
        topics=(vote.TopicData(topic_name="__cluster_metadata", partitions=(partition,)),),
    )


METADATA_ID = UUID(int=1)


def metadata_fetch(
    topic_id: UUID = METADATA_ID, *, epoch: int = 1, last_fetched_epoch: int = 1
) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=5,
        last_fetched_epoch=last_fetched_epoch,
        partition_max_bytes=0,
    )
    return fetch.FetchRequest(
        max_wait=timedelta(milliseconds=500),
        min_bytes=0,
        replica_state=fetch.ReplicaState(replica_id=7),
        topics=(fetch.FetchTopic(topic_id=topic_id, partitions=(partition,)),),
        forgotten_topics_data=(),
    )


@pytest.mark.parametrize("version", [12, 16, 17, 18])
async def test_fetch_waits_and_carries_the_bytes_of_the_log(rig: Any, version: int) -> None:
    await rig.listen()
    client = await rig.connect()
    client.send(metadata_fetch(), version)
    (future,) = await rig.node.requests(1)
    data = bytes(range(256)) * 4096
    future.set_result(
        ResponseWithData(response=m.FetchResponse(leader_id=1, leader_epoch=1, high_watermark=9), data=data)
    )
    (topic,) = (await client.receive()).responses
    assert topic.partitions[0].records == data
    assert topic.partitions[0].high_watermark == 9


async def test_fetch_of_another_topic_is_an_invalid_request(rig: Any) -> None:
    await rig.listen()
    client = await rig.connect()
    response = await client.ask(metadata_fetch(UUID(int=99)), 18)
    assert (response.error_code, response.responses) == (ErrorCode.invalid_request, ())
    assert rig.node.rafts == []


async def test_an_answer_that_the_version_cannot_carry_closes_the_connection(rig: Any) -> None:
    rig.node.respond = lambda _request: ResponseWithData(
        response=m.FetchResponse(leader_id=1, leader_epoch=4)
    )
    await rig.listen()
    client = await rig.connect()
    client.send(metadata_fetch(last_fetched_epoch=-1), 11)
    assert await client.is_closed()


async def test_describe_quorum_is_answered_from_the_description(rig: Any) -> None:
    rig.node.quorum = QuorumDescription(leader_id=1, leader_epoch=2, high_watermark=3)
    await rig.listen()
    client = await rig.connect()
    (topic,) = (await client.ask(QUORUM_QUESTION, 2)).topics
    assert (topic.partitions[0].leader_id, topic.partitions[0].high_watermark) == (1, 3)
    rig.node.quorum = QuorumDescription(error_code=ErrorCode.not_leader_or_follower)
    (topic,) = (await client.ask(QUORUM_QUESTION, 0)).topics
    assert topic.partitions[0].error_code is ErrorCode.not_leader_or_follower


async def test_sasl_without_authentication_is_an_illegal_state(rig: Any) -> None:
    await rig.listen()
    client = await rig.connect()
    response = await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert response.error_code is ErrorCode.illegal_sasl_state


async def test_each_misrouted_connection_is_counted_and_told_with_both_identities(
    rig: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """An administrator finds the wrong address (KIP-1242)."""
    await rig.listen()
    client = await rig.connect()
    for cluster_id, node_id in (("cluster", 2), ("other", 1), ("cluster", 1), ("cluster", -1)):
        hello = ApiVersionsRequest(
            client_software_name="a", client_software_version="1", cluster_id=cluster_id, node_id=node_id
        )
        await client.ask(hello, 5)
    assert rig.counters.misrouted_connections == {"node": 1, "cluster": 1}
    assert rig.counters.errors == {
        (18, ErrorCode.rebootstrap_required): 2,
        (18, ErrorCode.invalid_request): 1,
    }
    reported = [record for record in caplog.records if record.message == "misrouted_connection"]
    assert len(reported) == 2
    facts = reported[0].facts  # type: ignore[attr-defined]
    assert facts.pop("peer").startswith("127.0.0.1:")
    assert facts == {
        "listener": "CONTROLLER",
        "client_id": "test",
        "meant": "node",
        "software": "a 1",
        "meant_cluster_id": "cluster",
        "meant_node_id": 2,
        "cluster_id": "cluster",
        "node_id": 1,
    }


async def test_a_candidate_that_reaches_another_voter_is_named_once(
    rig: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A Java controller, which does not name the intended node, is found by its votes."""
    rig.node.respond = lambda _request: ResponseWithData(response=m.VoteResponse(leader_epoch=8))
    await rig.listen()
    client = await rig.connect()
    misrouted = vote_request(voter_id=2)
    for _ in range(2):
        await client.ask(misrouted, 2)
    assert rig.counters.misrouted_connections == {"node": 1}
    other = await rig.connect()
    await other.ask(vote_request(voter_id=1), 2)
    assert rig.counters.misrouted_connections == {"node": 1}
    await other.ask(misrouted, 2)
    assert rig.counters.misrouted_connections == {"node": 2}
    first, _ = (record.facts for record in caplog.records if record.message == "misrouted_connection")  # type: ignore[attr-defined]
    assert first.pop("peer").startswith("127.0.0.1:")
    assert first == {
        "listener": "CONTROLLER",
        "client_id": "test",
        "meant": "node",
        "request": "VoteRequest",
        "sender": "3",
        "meant_cluster_id": "cluster",
        "meant_voter": "2",
        "cluster_id": "cluster",
        "node_id": 1,
    }


async def test_a_controller_that_looks_up_voters_is_not_misrouted(rig: Any) -> None:
    """A voter that asks its bootstrap servers for the others (KIP-1347) counts as no wrong address."""
    rig.node.respond = lambda _request: ResponseWithData(
        response=m.VoteResponse(error_code=ErrorCode.invalid_voter_key, leader_epoch=8)
    )
    await rig.listen()
    for meant, counted in (({}, {}), ({"cluster_id": "cluster", "node_id": 1}, {"node": 1})):
        client = await rig.connect()
        hello = ApiVersionsRequest(
            client_software_name=CONTROLLER_SOFTWARE_NAME, client_software_version="1", **meant
        )
        await client.ask(hello, 5)
        await client.ask(vote_request(voter_id=2), 2)
        assert rig.counters.misrouted_connections == counted


@pytest.mark.parametrize(("state", "counted"), [("follower", {"leader": 1}), ("prospective", {})])
async def test_a_replica_that_keeps_fetching_from_a_follower_is_named(
    rig: Any, monkeypatch: pytest.MonkeyPatch, state: str, counted: dict[str, int]
) -> None:
    """A follower whose address of the leader leads here is found."""
    monkeypatch.setattr(misrouting, "LEADER_DOUBTS_SPAN_MS_MIN", 0)
    rig.node.node_status = replace(rig.node.node_status, current_state=state)
    rig.node.respond = lambda _request: ResponseWithData(
        response=m.FetchResponse(error_code=ErrorCode.not_leader_or_follower, leader_id=2, leader_epoch=8)
    )
    await rig.listen()
    client = await rig.connect()
    for _ in range(misrouting.LEADER_DOUBTS_MIN + 1):
        await client.ask(metadata_fetch(epoch=8), 17)
    assert rig.counters.misrouted_connections == counted


def test_answers_are_framed_as_the_protocol_package_does() -> None:
    response = topics_created(create_topics("a"), None)
    for version in (2, 5, 7):
        assert bytes(encode_response_frame(APIS[19], version, 3, response)) == serialize_response(
            APIS[19], version, 3, response
        )


async def test_requests_are_counted(rig: Any) -> None:
    rig.node.decide = topics_created
    await rig.listen()
    client = await rig.connect()
    await client.ask(api_versions_request(), 4)
    await client.ask(create_topics("a"), 7)
    assert rig.counters.requests == {18: 1, 19: 1}
    assert rig.counters.seconds[19].count == 1
    assert rig.counters.errors == {}


async def test_many_clients_pipeline_at_once(rig: Any) -> None:
    rig.node.decide = topics_created
    await rig.listen()
    clients = [await rig.connect() for _ in range(20)]

    async def run(index: int) -> None:
        for number in range(50):
            clients[index].send(create_topics(f"t-{index}-{number}"), 7)
        for number in range(50):
            (topic,) = (await clients[index].receive()).topics
            assert topic.name == f"t-{index}-{number}"

    await asyncio.gather(*(run(index) for index in range(20)))


def about_everything() -> Any:
    """DescribeConfigs, and its response."""
    asking = describe_configs.DescribeConfigsRequest(
        resources=(
            describe_configs.DescribeConfigsResource(
                resource_type=2, resource_name="t", configuration_keys=None
            ),
        )
    )
    return asking, 4, described_configs.DescribeConfigsResponse(throttle_time=timedelta(0), results=())


def sliced_creation() -> Any:
    """CreateAcls, and its response."""
    response = created_acls.CreateAclsResponse(throttle_time=timedelta(0), results=())
    return create_acls.CreateAclsRequest(creations=()), 3, response


@pytest.mark.parametrize("kind", [about_everything, sliced_creation])
async def test_one_request_that_takes_slices_of_a_connection_at_a_time(
    rig: Any, kind: Callable[[], Any]
) -> None:
    """Of pipelined requests that take many slices only one is parsed, until its response is sent:
    they are done in their order.
    """
    asking, version, response = kind()
    await rig.listen()
    client = await rig.connect()
    for _ in range(3):
        client.send(asking, version)
    client.send(heartbeat(), 1)
    for count in (1, 2, 3):
        futures = await rig.node.requests(count)
        await rig.barrier()
        assert len(rig.node.controls) == count
        futures[-1].set_result(response)
        assert await client.receive() == response
    await rig.node.requests(4)
