"""Large requests are parsed in a thread: the event loop runs, and requests keep their order."""

import threading
import tracemalloc
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from kit.authorization import SAMPLES, authorizer_with
from kit.controller_parts import heartbeat, heartbeat_response
from quorate_controller.control.api import ControlError
from quorate_controller.scheduler import ServiceClass
from quorate_controller.server import dispatch
from quorate_controller.server.connection_memory import ELEMENTS_MAX
from quorate_controller.server.counters import Limit
from quorate_controller.server.dispatch import (
    PARSED_AT_ONCE_BYTES_MAX,
    PARSED_BYTES_MAX,
)
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.apis import ApiKey
from quorate_protocol.kafka.generated.alter_partition_request import TopicData
from quorate_protocol.kafka.generated.api_versions_request import ApiVersionsRequest
from quorate_protocol.kafka.generated.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from quorate_protocol.kafka.generated.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from quorate_protocol.kafka.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from quorate_protocol.wire.codec import encode, write_unsigned_varint
from quorate_protocol.wire.frames import encode_frame
from quorate_protocol.wire.headers import encode_request_header
from quorate_protocol.wire.server import parse_request

LARGE = DescribeConfigsRequest(
    resources=tuple(
        DescribeConfigsResource(resource_type=2, resource_name=f"t{number}", configuration_keys=None)
        for number in range(PARSED_AT_ONCE_BYTES_MAX // 5)
    )
)
HUGE = DescribeConfigsRequest(
    resources=(DescribeConfigsResource(resource_type=2, resource_name="t" * 1000, configuration_keys=None),)
    * (PARSED_BYTES_MAX // 2 // 1000 + 1)
)
SMALL = DeleteAclsRequest(
    filters=(
        DeleteAclsFilter(
            resource_type_filter=2,
            resource_name_filter="t",
            pattern_type_filter=3,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        ),
    )
)
NAMELESS = DescribeConfigsResource(resource_type=2, resource_name="", configuration_keys=())
ALTERED = (TopicData(topic_id=UUID(int=1), partitions=()),) * 1_000
VERSIONS = ApiVersionsRequest(client_software_name="a", client_software_version="1")
HANG_S = 10


@pytest.fixture
def gate(rig: Any, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Hold up the parsing of a large request in a thread, until it is set."""
    opened = threading.Event()
    loop_thread = threading.get_ident()

    def parse(frame: bytes, apis: Any, elements_max: int) -> Any:
        if threading.get_ident() != loop_thread:
            assert opened.wait(HANG_S)
        return parse_request(frame, apis, elements_max)

    monkeypatch.setattr(dispatch, "parse_request", parse)
    rig.node.decide = lambda request, _caller: (
        heartbeat_response() if request == heartbeat() else ControlError(ErrorCode.policy_violation)
    )
    return opened


async def test_others_are_served_while_a_large_request_is_parsed(rig: Any, gate: threading.Event) -> None:
    await rig.listen()
    client, broker = await rig.connect(), await rig.connect()
    client.send(LARGE, 4)
    client.send(SMALL, 3)
    assert (await broker.ask(heartbeat(), 1)).error_code is ErrorCode.none
    await rig.barrier()
    assert [request for request, _, _ in rig.node.controls] == [heartbeat()]
    gate.set()
    assert len((await client.receive()).results) == len(LARGE.resources)
    assert (await client.receive()).filter_results[0].error_code is ErrorCode.policy_violation
    assert [type(request) for request, _, _ in rig.node.controls[1:]] == [
        DescribeConfigsRequest,
        DeleteAclsRequest,
    ]


async def test_a_client_that_leaves_is_not_served(rig: Any, gate: threading.Event) -> None:
    await rig.listen()
    leaving, staying = await rig.connect(), await rig.connect()
    leaving.send(LARGE, 4)
    await rig.barrier()
    leaving.writer.transport.abort()
    await rig.barrier()
    gate.set()
    assert len((await staying.ask(LARGE, 4)).results) == len(LARGE.resources)
    assert len(rig.node.controls) == 1


async def test_few_huge_requests_are_parsed_at_a_time(rig: Any) -> None:
    await rig.listen()
    first, leaving, last, large = [await rig.connect() for _ in range(4)]
    for client in (first, leaving, last):
        client.send(HUGE, 4)
        await rig.barrier()
    large.send(LARGE, 4)
    responses, other = await rig.node.requests(2)
    await rig.barrier()
    assert [len(request.resources) for request, _, _ in rig.node.controls] == [
        len(HUGE.resources),
        len(LARGE.resources),
    ]
    other.set_exception(ControlError(ErrorCode.policy_violation))
    assert len((await large.receive()).results) == len(LARGE.resources)
    leaving.writer.transport.abort()
    await rig.barrier()
    assert len(rig.node.controls) == 2
    responses.set_exception(ControlError(ErrorCode.policy_violation))
    assert len((await first.receive()).results) == len(HUGE.resources)
    (*_, responses) = await rig.node.requests(3)
    responses.set_exception(ControlError(ErrorCode.policy_violation))
    assert len((await last.receive()).results) == len(HUGE.resources)
    assert len(rig.node.controls) == 3


async def test_large_garbage_ends_the_connection(rig: Any) -> None:
    await rig.listen()
    client = await rig.connect()
    client.writer.write(
        (PARSED_AT_ONCE_BYTES_MAX + 8).to_bytes(4, "big")
        + b"\0\x20\0\4"
        + bytes(4)
        + b"\xff" * PARSED_AT_ONCE_BYTES_MAX
    )
    assert await client.is_closed()
    assert rig.counters.refused_connections == 1


def many_configs(count: int) -> bytes:
    """The frame of an IncrementalAlterConfigs request with `count` resources of 56 bytes."""
    resource = AlterConfigsResource(
        resource_type=2,
        resource_name="t" * 46,
        configs=(AlterableConfig(name="c", config_operation=0, value="1"),),
    )
    single = encode(IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False))
    array = bytearray()
    write_unsigned_varint(array, count + 1)
    header = encode_request_header(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, 1, "test", 2)
    return encode_frame(header + array + single[1:-2] * count + single[-2:])


async def test_elements_are_bounded(rig: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A request of any sender takes bounded memory."""
    await rig.listen()
    client = await rig.connect()
    await client.ask(VERSIONS, 4)
    sent = many_configs(1_000_000)
    assert len(sent) > 53 * 1024 * 1024
    tracemalloc.start()
    try:
        client.writer.write(sent)
        assert await client.is_closed()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 * len(sent)  # the frame, the buffers from which it is cut, and what is sent
    assert rig.counters.limited == {Limit.REQUEST_ELEMENTS: 1}
    assert "elements, at most" in caplog.records[-1].facts["reason"]  # type: ignore[attr-defined]
    allowed = ELEMENTS_MAX[ServiceClass.STRANGERS]
    for count in (allowed, allowed + 1):
        stranger = await rig.connect()
        stranger.send(DescribeConfigsRequest(resources=(NAMELESS,) * count), 4)
        if count == allowed:
            (future,) = await rig.node.requests(1)
            future.set_exception(ControlError(ErrorCode.policy_violation))
            assert len((await stranger.receive()).results) == allowed
        else:
            assert await stranger.is_closed()


async def test_what_is_denied_is_not_parsed(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large request that is denied takes no memory for its objects, where Kafka's response needs none of
    them.
    """
    parsed: list[int] = []

    def parse(frame: bytes, apis: Any, elements_max: int) -> Any:
        parsed.append(len(frame))
        return parse_request(frame, apis, elements_max)

    monkeypatch.setattr(dispatch, "parse_request", parse)
    rig.node.authorizer = authorizer_with()
    await rig.listen()
    client = await rig.connect()
    padded = {
        ApiKey.ALTER_PARTITION: {"topics": ALTERED},
        ApiKey.ENVELOPE: {"request_data": bytes(PARSED_AT_ONCE_BYTES_MAX)},
    }
    for key, changes in padded.items():
        version, small = SAMPLES[key]
        expected = await client.ask(small, version)
        parsed.clear()
        assert await client.ask(replace(small, **changes), version) == expected
        assert expected.error_code is ErrorCode.cluster_authorization_failed
        assert parsed == []
    assert rig.counters.denied == {"AlterPartition": 2, "Envelope": 2}
    version, small = SAMPLES[ApiKey.CREATE_ACLS]
    response = await client.ask(replace(small, creations=small.creations * 1_000), version)
    assert {result.error_code for result in response.results} == {ErrorCode.cluster_authorization_failed}
    assert len(parsed) == 1
