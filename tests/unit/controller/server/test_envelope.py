"""Forwarded requests: what is in an envelope, what comes back in one, and what is wrong with one."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import quorate_protocol.kafka.generated.create_topics_request as create
import quorate_protocol.kafka.generated.create_topics_response as created
import quorate_protocol.kafka.generated.describe_quorum_request as describe_quorum
from kit.controller_parts import heartbeat
from quorate_controller.control.api import ControlError
from quorate_controller.node.events import ResponseWithData
from quorate_controller.raft import messages as m
from quorate_controller.raft.events import QuorumDescription
from quorate_controller.scheduler import ServiceClass
from quorate_controller.server.connection_memory import ELEMENTS_MAX
from quorate_controller.server.counters import Limit
from quorate_controller.server.dispatch import PARSED_BYTES_MAX
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.apis import APIS
from quorate_protocol.kafka.generated.default_principal_data import DefaultPrincipalData
from quorate_protocol.kafka.generated.envelope_request import EnvelopeRequest
from quorate_protocol.kafka.generated.remove_raft_voter_request import RemoveRaftVoterRequest
from quorate_protocol.kafka.generated.unregister_controller_request import UnregisterControllerRequest
from quorate_protocol.wire.client import ClientConnection, encode_request
from quorate_protocol.wire.codec import decode, encode
from quorate_protocol.wire.headers import read_response_header
from quorate_protocol.wire.schema import STRING_SIZE_BYTES_MAX

CREATE_TOPICS = create.CreateTopicsRequest(
    topics=(
        create.CreatableTopic(name="a", num_partitions=1, replication_factor=1, assignments=(), configs=()),
    ),
    timeout=timedelta(seconds=30),
)


def principal(name: str = "alice", *, token_authenticated: bool = False) -> bytes:
    data = DefaultPrincipalData(type_="User", name=name, token_authenticated=token_authenticated)
    return b"\x00\x00" + encode(data)


def envelope(
    inner: Any = CREATE_TOPICS, version: int = 7, *, raw: bytes | None = None, **changes: Any
) -> EnvelopeRequest:
    api = APIS[inner.__api_key__]
    fields = {
        "request_data": encode_request(api, version, 42, "inner", inner) if raw is None else raw,
        "request_principal": principal(),
        "client_host_address": bytes([10, 1, 2, 3]),
    }
    return EnvelopeRequest(**(fields | changes))


def inner_response(response: Any, key: int, version: int) -> tuple[int, Any]:
    """Correlation id and body of what came back in an envelope."""
    api = APIS[key]
    correlation_id, offset = read_response_header(
        response.response_data, api.response_header_version(version)
    )
    return correlation_id, decode(api.response_class(version), response.response_data, offset)


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


async def test_a_huge_request_in_an_envelope_does_not_wait_for_itself(rig: Any) -> None:
    name = "t" * STRING_SIZE_BYTES_MAX
    topics = CREATE_TOPICS.topics * (PARSED_BYTES_MAX // len(name) + 1)
    huge = replace(CREATE_TOPICS, topics=tuple(replace(topic, name=name) for topic in topics))
    rig.node.decide = topics_created
    await rig.listen()
    response = await (await rig.connect()).ask(envelope(huge), 0)
    _, created_topics = inner_response(response, huge.__api_key__, 7)
    assert len(created_topics.topics) == len(topics)


async def test_elements_of_a_forwarded_request_are_bounded(rig: Any) -> None:
    await rig.listen()
    broker = await rig.connect()
    count = ELEMENTS_MAX[ServiceClass.CLIENTS] + 1
    topics = tuple(replace(CREATE_TOPICS.topics[0], name="") for _ in range(count))
    response = await broker.ask(envelope(replace(CREATE_TOPICS, topics=topics)), 0)
    assert response.error_code is ErrorCode.unsupported_version
    assert rig.counters.limited == {Limit.REQUEST_ELEMENTS: 1}
    assert (await broker.ask(envelope(raw=b""), 0)).error_code is ErrorCode.unsupported_version
    assert rig.counters.limited == {Limit.REQUEST_ELEMENTS: 1}


@pytest.mark.parametrize("version", [2, 5, 7])
async def test_a_forwarded_request_is_decided_for_its_client(rig: Any, version: int) -> None:
    rig.node.decide = topics_created
    await rig.listen()
    broker = await rig.connect()
    response = await broker.ask(envelope(version=version), 0)
    assert response.error_code is ErrorCode.none
    correlation_id, body = inner_response(response, 19, version)
    assert (correlation_id, body.topics[0].name) == (42, "a")
    ((_, caller, _),) = rig.node.controls
    assert (caller.principal.name, caller.principal.token_authenticated) == ("alice", False)
    assert (caller.client_host, caller.client_id) == ("10.1.2.3", "inner")
    assert (caller.forwarded, caller.api_version, caller.listener) == (True, version, "CONTROLLER")
    assert rig.counters.requests == {58: 1, 19: 1}


@pytest.mark.parametrize(
    ("client_id", "broker_id"),
    [("7", 7), ("rdkafka", None), ("-1", None), ("\u0667", None), ("9" * 11, None)],
)
async def test_the_forwarding_broker_is_known_by_its_client_id(
    rig: Any, client_id: str, broker_id: int | None
) -> None:
    rig.node.decide = topics_created
    await rig.listen()
    broker = await rig.connect()
    broker.codec = ClientConnection(client_id)
    await broker.ask(envelope(), 0)
    ((_, caller, _),) = rig.node.controls
    assert caller.broker_id == broker_id


@pytest.mark.parametrize("is_active", [True, False])
async def test_unregister_controller_may_be_forwarded(rig: Any, is_active: bool) -> None:
    """Brokers of 4.4 pass UnregisterController on (KIP-1312)."""
    rig.node.is_active = is_active
    rig.node.decide = lambda _request, _caller: ControlError(
        ErrorCode.controller_id_not_registered, "no such id"
    )
    await rig.listen()
    broker = await rig.connect()
    response = await broker.ask(envelope(UnregisterControllerRequest(controller_id=3003), 0), 0)
    if not is_active:
        assert response.error_code is ErrorCode.not_controller
        return
    assert response.error_code is ErrorCode.none
    _, body = inner_response(response, 94, 0)
    assert (int(body.error_code), body.error_message) == (136, "no such id")
    ((request, caller, _),) = rig.node.controls
    assert (request.controller_id, caller.forwarded, caller.principal.name) == (3003, True, "alice")


async def test_a_voter_change_that_reached_a_follower_is_forwarded_again(rig: Any) -> None:
    """Kafka-metadata-quorum works through brokers while leadership moves."""
    not_leader = m.RemoveRaftVoterResponse(error_code=ErrorCode.not_leader_or_follower)
    rig.node.respond = lambda _request: ResponseWithData(response=not_leader)
    await rig.listen()
    broker = await rig.connect()
    request = RemoveRaftVoterRequest(cluster_id=None, voter_id=1, voter_directory_id=UUID(int=1))
    response = await broker.ask(envelope(request, 0), 0)
    assert response.error_code is ErrorCode.not_controller


async def test_ipv6_clients_and_token_principals(rig: Any) -> None:
    rig.node.decide = topics_created
    await rig.listen()
    broker = await rig.connect()
    address = bytes(15) + b"\x01"
    await broker.ask(
        envelope(client_host_address=address, request_principal=principal("t", token_authenticated=True)), 0
    )
    ((_, caller, _),) = rig.node.controls
    assert caller.client_host == "::1"
    assert caller.principal.token_authenticated


@pytest.mark.parametrize("is_lost_later", [False, True])
async def test_not_controller_is_told_on_the_envelope(rig: Any, is_lost_later: bool) -> None:
    rig.node.is_active = is_lost_later
    rig.node.decide = lambda _request, _caller: ControlError(ErrorCode.not_controller, "moved")
    await rig.listen()
    broker = await rig.connect()
    response = await broker.ask(envelope(), 0)
    assert (response.error_code, response.response_data) == (ErrorCode.not_controller, None)


async def test_other_errors_stay_inside(rig: Any) -> None:
    rig.node.decide = lambda _request, _caller: ControlError(ErrorCode.policy_violation, "no")
    await rig.listen()
    broker = await rig.connect()
    response = await broker.ask(envelope(), 0)
    assert response.error_code is ErrorCode.none
    _, body = inner_response(response, 19, 7)
    assert body.topics[0].error_code is ErrorCode.policy_violation


async def test_describe_quorum_of_a_follower_sends_the_broker_on(rig: Any) -> None:
    rig.node.quorum = QuorumDescription(error_code=ErrorCode.not_leader_or_follower)
    question = describe_quorum.DescribeQuorumRequest(
        topics=(
            describe_quorum.TopicData(
                topic_name="__cluster_metadata",
                partitions=(describe_quorum.PartitionData(partition_index=0),),
            ),
        )
    )
    await rig.listen()
    broker = await rig.connect()
    response = await broker.ask(envelope(question, 2), 0)
    assert (response.error_code, response.response_data) == (ErrorCode.not_controller, None)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (envelope(request_principal=None), "principal_deserialization_failure"),
        (envelope(request_principal=b""), "principal_deserialization_failure"),
        (envelope(request_principal=b"\x00\x01" + principal()[2:]), "principal_deserialization_failure"),
        (envelope(request_principal=principal()[:-3]), "principal_deserialization_failure"),
        (envelope(client_host_address=b"\x01\x02\x03"), "invalid_request"),
        (envelope(client_host_address=b""), "invalid_request"),
        (envelope(heartbeat(), 1), "invalid_request"),
        (envelope(envelope(), 0), "invalid_request"),
        (envelope(raw=b""), "unsupported_version"),
        (envelope(raw=b"\x00\x13\x00\x63\x00\x00\x00\x01\xff\xff\x00"), "unsupported_version"),
        (envelope(raw=b"\x7f\x13\x00\x00\x00\x00\x00\x01\xff\xff\x00"), "unsupported_version"),
        (envelope(raw=b"\x00\x13\x00\x07\x00\x00\x00\x01\xff\xff\x00\x7f"), "unsupported_version"),
    ],
    ids=[
        "no principal",
        "empty principal",
        "newer principal",
        "short principal",
        "short address",
        "no address",
        "not forwardable",
        "envelope in envelope",
        "no request",
        "unknown version",
        "unknown api",
        "garbage",
    ],
)
async def test_bad_envelopes_are_refused_with_kafkas_codes(
    rig: Any, request_: EnvelopeRequest, expected: str
) -> None:
    rig.node.decide = topics_created
    await rig.listen()
    broker = await rig.connect()
    response = await broker.ask(request_, 0)
    assert (response.error_code, response.response_data) == (ErrorCode[expected], None)
    assert rig.node.controls == []
    assert (await broker.ask(envelope(), 0)).error_code is ErrorCode.none
