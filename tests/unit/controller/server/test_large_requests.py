"""Large requests are parsed in a thread: the event loop goes on, and requests keep their order."""

import threading
from typing import Any

import pytest
from kio.schema.delete_acls.v3.request import DeleteAclsFilter, DeleteAclsRequest
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.errors import ErrorCode
from kit.controller_parts import heartbeat, heartbeat_answer
from quorate_controller.control.api import ControlError
from quorate_controller.server import dispatch
from quorate_controller.server.large_requests import (
    PARSED_AT_ONCE_BYTES_MAX,
    PARSED_BYTES_MAX,
)
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
HANG_S = 10


@pytest.fixture
def gate(rig: Any, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Holds up whoever parses a large request in a thread, until it is set."""
    opened = threading.Event()
    loop_thread = threading.get_ident()

    def parse(frame: bytes, apis: Any) -> Any:
        if threading.get_ident() != loop_thread:
            assert opened.wait(HANG_S)
        return parse_request(frame, apis)

    monkeypatch.setattr(dispatch, "parse_request", parse)
    rig.node.decide = lambda request, _caller: (
        heartbeat_answer() if request == heartbeat() else ControlError(ErrorCode.policy_violation)
    )
    return opened


async def test_others_are_served_while_a_large_request_is_parsed(rig: Any, gate: threading.Event) -> None:
    """Goal: 300,000 resources hold up no heartbeat. Method: a thread that waits; another connection asks
    meanwhile, and what comes behind the large request on its own connection stays behind it.
    """
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
    """Goal: no work for who is gone. Method: the client leaves while its request is parsed; the next is served."""
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
    """Goal: the memory of their objects is bounded. Method: three clients whose requests have more than half of the
    bound each; two are parsed when the one before is answered or gone. A large one does not wait for them.
    """
    await rig.listen()
    first, leaving, last, large = [await rig.connect() for _ in range(4)]
    for client in (first, leaving, last):
        client.send(HUGE, 4)
        await rig.barrier()
    large.send(LARGE, 4)
    answered, other = await rig.node.requests(2)
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
    answered.set_exception(ControlError(ErrorCode.policy_violation))
    assert len((await first.receive()).results) == len(HUGE.resources)
    (*_, answered) = await rig.node.requests(3)
    answered.set_exception(ControlError(ErrorCode.policy_violation))
    assert len((await last.receive()).results) == len(HUGE.resources)
    assert len(rig.node.controls) == 3


async def test_large_garbage_ends_the_connection(rig: Any) -> None:
    """Goal: what does not decode in a thread is refused as everywhere. Method: a frame of zeros behind a header."""
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
