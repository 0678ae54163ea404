"""Responses that can't be made, can't be encoded, or come twice: each exchange ends, and those behind it continue."""

import asyncio
import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import quorate_protocol.kafka.generated.create_topics_request as create
import quorate_protocol.kafka.generated.create_topics_response as created
from kit.controller_parts import heartbeat, heartbeat_response
from quorate_controller.control.api import ControlError
from quorate_controller.server import call as call_module
from quorate_controller.server.call import Call
from quorate_controller.server.connection import Exchange
from quorate_controller.server.counters import Limit
from quorate_protocol.errors import ErrorCode

HEARTBEAT, ANSWER = heartbeat(), heartbeat_response()


def create_topic(name: str, timeout_ms: int = 30_000) -> create.CreateTopicsRequest:
    topic = create.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    return create.CreateTopicsRequest(topics=(topic,), timeout=timedelta(milliseconds=timeout_ms))


def topic_created(name: str, throttle_ms: int = 0) -> created.CreateTopicsResponse:
    topic = created.CreatableTopicResult(
        name=name, topic_id=UUID(int=5), error_code=ErrorCode.none, error_message=None, configs=None
    )
    return created.CreateTopicsResponse(topics=(topic,), throttle_time=timedelta(milliseconds=throttle_ms))


@pytest.mark.parametrize("version", [4, 7])
async def test_a_long_error_text_is_cut(rig: Any, version: int) -> None:
    text = "é" * 40_000
    rig.node.decide = lambda request, _caller: (
        ANSWER if request == HEARTBEAT else ControlError(ErrorCode.invalid_config, text)
    )
    await rig.listen()
    client = await rig.connect()
    client.send(create_topic("a"), version)
    client.send(HEARTBEAT, 1)
    (topic,) = (await client.receive()).topics
    assert topic.error_code is ErrorCode.invalid_config
    assert 32_700 < len(topic.error_message.encode()) <= 32_767
    assert topic.error_message.rstrip(".") == text[: len(topic.error_message.rstrip("."))]
    assert (await client.receive()).error_code is ErrorCode.none


@pytest.mark.parametrize("version", [4, 7])
async def test_an_answer_that_cannot_be_encoded_becomes_an_error(
    rig: Any, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A client gets an error, and what it pipelined behind is served in order."""
    rig.node.decide = lambda request, _caller: ANSWER if request == HEARTBEAT else topic_created("n" * 40_000)
    await rig.listen()
    client = await rig.connect()
    client.send(create_topic("a"), version)
    client.send(HEARTBEAT, 1)
    (topic,) = (await client.receive()).topics
    assert (topic.name, topic.error_code) == ("a", ErrorCode.unknown_server_error)
    assert (await client.receive()).error_code is ErrorCode.none
    (record,) = caplog.records
    assert (record.message, record.levelno) == ("request_failed", logging.ERROR)
    assert record.exc_info is not None
    assert rig.counters.errors == {(19, ErrorCode.unknown_server_error): 1}


async def test_what_cannot_even_be_refused_closes_its_connection(
    rig: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def error_response(*_args: Any, **_options: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(call_module, "error_response", error_response)
    rig.node.decide = lambda request, _caller: ANSWER if request == HEARTBEAT else ValueError("ours")
    await rig.listen()
    client, other = await rig.connect(), await rig.connect()
    client.send(HEARTBEAT, 1)
    client.send(create_topic("a"), 7)
    client.send(HEARTBEAT, 1)
    assert (await client.receive()).error_code is ErrorCode.none
    assert await client.is_closed()
    assert [record.message for record in caplog.records] == ["request_failed", "connection_refused"]
    assert (await other.ask(HEARTBEAT, 1)).error_code is ErrorCode.none


async def test_an_exception_on_the_way_to_the_node_is_answered(
    rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def control(_request: Any, _caller: Any) -> None:
        raise ZeroDivisionError

    await rig.listen()
    client = await rig.connect()
    with monkeypatch.context() as patch:
        patch.setattr(rig.node, "control", control)
        (topic,) = (await client.ask(create_topic("a"), 7)).topics
    assert topic.error_code is ErrorCode.unknown_server_error
    rig.node.decide = lambda _request, _caller: ANSWER
    assert (await client.ask(HEARTBEAT, 1)).error_code is ErrorCode.none


class Failing:
    """Fails in a way that the dispatcher does not foresee."""

    def handle(self, exchange: Exchange) -> None:
        raise ZeroDivisionError(exchange.frame)


async def test_an_exception_of_the_handler_closes_one_connection(
    rig: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.listen()
    handler, rig.listener.context.handler = rig.listener.context.handler, Failing()
    client = await rig.connect()
    client.send(HEARTBEAT, 1)
    assert await client.is_closed()
    assert [record.message for record in caplog.records] == ["request_failed", "connection_refused"]
    rig.listener.context.handler = handler
    rig.node.decide = lambda _request, _caller: ANSWER
    assert (await (await rig.connect()).ask(HEARTBEAT, 1)).error_code is ErrorCode.none


async def test_the_commit_wins_a_race_with_the_timer(
    rig: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Call] = []
    wait_for_control = Call.wait_for_control

    def wait(call: Call, future: asyncio.Future[Any]) -> None:
        calls.append(call)
        wait_for_control(call, future)

    monkeypatch.setattr(Call, "wait_for_control", wait)
    await rig.listen()
    client = await rig.connect()
    client.send(create_topic("a"), 7)
    (future,) = await rig.node.requests(1)
    future.set_result(topic_created("a"))
    calls[0]._timed_out()
    (topic,) = (await client.receive()).topics
    assert topic.error_code is ErrorCode.none
    assert not caplog.records
    assert rig.counters.errors == {}


async def test_a_second_answer_is_dropped_and_counted(rig: Any, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[Call] = []
    await rig.listen()
    original = rig.listener.context.handler._control
    rig.listener.context.handler._handlers[63] = lambda call: (calls.append(call), original(call))
    client = await rig.connect()
    client.send(HEARTBEAT, 1)
    (future,) = await rig.node.requests(1)
    future.set_result(ANSWER)
    assert (await client.receive()).error_code is ErrorCode.none
    calls[0].respond(replace(ANSWER, is_fenced=True))
    calls[0].refuse(ErrorCode.request_timed_out)
    assert rig.counters.dropped_responses == 2
    assert rig.counters.errors == {}
    rig.node.decide = lambda _request, _caller: ANSWER
    assert (await client.ask(HEARTBEAT, 1)) == ANSWER
    assert not caplog.records


async def test_a_client_beyond_its_quota_is_not_read(rig: Any, caplog: pytest.LogCaptureFixture) -> None:
    """KIP-219."""
    caplog.set_level(logging.INFO)
    rig.node.decide = lambda request, _caller: (
        ANSWER if request == HEARTBEAT else topic_created("a", throttle_ms=300)
    )
    await rig.listen()
    client, other = await rig.connect(), await rig.connect()
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    assert (await client.ask(create_topic("a"), 7)).throttle_time == timedelta(milliseconds=300)
    for _ in range(3):
        client.send(HEARTBEAT, 1)
    assert (await other.ask(HEARTBEAT, 1)).error_code is ErrorCode.none
    assert loop.time() - began_s < 0.3
    assert len(rig.node.controls) == 2
    for _ in range(3):
        assert (await client.receive()).error_code is ErrorCode.none
    assert loop.time() - began_s >= 0.29
    (record,) = caplog.records
    assert (record.message, record.facts["throttle_time_ms"]) == ("client_throttled", 300)  # type: ignore[attr-defined]
    assert rig.counters.limited == {Limit.MUTATION_RATE: 1}
