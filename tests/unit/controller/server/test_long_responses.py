"""Answers with thousands of elements are written in pieces, with others' requests in between."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from random import Random
from typing import Any

import pytest
import quorate_protocol.kafka.generated.create_acls_request as create_acls
import quorate_protocol.kafka.generated.delete_acls_response as deleted_acls
import quorate_protocol.kafka.generated.describe_acls_response as acls
import quorate_protocol.kafka.generated.describe_configs_request as describe
import quorate_protocol.kafka.generated.describe_configs_response as configs
import quorate_protocol.kafka.generated.list_partition_reassignments_response as reassignments
from kit.controller_parts import heartbeat, heartbeat_response
from kit.waiting import turn_until
from quorate_controller import scheduler
from quorate_controller.control.api import ControlError
from quorate_controller.server import call, response_frames
from quorate_controller.server.response_frames import (
    INNER_ELEMENTS_AT_ONCE_MAX,
    encode_response_frame,
    long_arrays,
    response_frame_steps,
)
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.apis import SERVED_APIS, ApiKey, find_api

from tests.property.test_codec_functions import entity_of, result_of

COUNT = 200
INNER = 3 * INNER_ELEMENTS_AT_ONCE_MAX + 1
"""What the first element has of its own: it is written in four pieces."""
QUESTION = describe.DescribeConfigsRequest(
    resources=(describe.DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=None),)
)


def described(count: int = COUNT) -> configs.DescribeConfigsResponse:
    config = configs.DescribeConfigsResourceResult(
        name="retention.ms",
        value="1",
        read_only=False,
        config_source=1,
        is_sensitive=False,
        synonyms=(configs.DescribeConfigsSynonym(name="log.retention.ms", value="2", source=5),),
        config_type=5,
        documentation="How long é",
    )
    results = tuple(
        configs.DescribeConfigsResult(
            error_code=ErrorCode.none,
            error_message="",
            resource_type=2,
            resource_name=f"topic-{number}",
            configs=(config,) * (number % 3 if number else INNER),
        )
        for number in range(count)
    )
    return configs.DescribeConfigsResponse(throttle_time=timedelta(milliseconds=7), results=results)


def acls_described() -> acls.DescribeAclsResponse:
    acl = acls.AclDescription(principal="User:a", host="*", operation=3, permission_type=3)
    resources = tuple(
        acls.DescribeAclsResource(
            resource_type=2,
            resource_name=f"t{number}",
            pattern_type=3,
            acls=(acl,) * (number % 3 if number else INNER),
        )
        for number in range(COUNT)
    )
    return acls.DescribeAclsResponse(
        throttle_time=timedelta(0), error_code=ErrorCode.none, error_message="é", resources=resources
    )


def deleted() -> deleted_acls.DeleteAclsResponse:
    acl = deleted_acls.DeleteAclsMatchingAcl(
        error_code=ErrorCode.none,
        error_message=None,
        resource_type=2,
        resource_name="t",
        pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )
    results = tuple(
        deleted_acls.DeleteAclsFilterResult(
            error_code=ErrorCode.none,
            error_message=None,
            matching_acls=(acl,) * (number % 3 if number else INNER),
        )
        for number in range(COUNT)
    )
    return deleted_acls.DeleteAclsResponse(throttle_time=timedelta(0), filter_results=results)


def listed() -> reassignments.ListPartitionReassignmentsResponse:
    partition = reassignments.OngoingPartitionReassignment(
        partition_index=1, replicas=(1, 2), adding_replicas=(2,), removing_replicas=()
    )
    topics = tuple(
        reassignments.OngoingTopicReassignment(
            name=f"t{number}", partitions=(partition,) * (number % 3 if number else INNER)
        )
        for number in range(COUNT)
    )
    return reassignments.ListPartitionReassignmentsResponse(
        throttle_time=timedelta(0), error_code=ErrorCode.none, error_message=None, topics=topics
    )


@pytest.mark.parametrize(
    ("key", "response"),
    [
        (ApiKey.DESCRIBE_CONFIGS, described()),
        (ApiKey.DESCRIBE_ACLS, acls_described()),
        (ApiKey.DELETE_ACLS, deleted()),
        (ApiKey.LIST_PARTITION_REASSIGNMENTS, listed()),
    ],
    ids=lambda response: type(response).__name__,
)
def test_pieces_make_the_same_bytes(key: ApiKey, response: Any) -> None:
    api, arrays = find_api(key), long_arrays(response)
    assert arrays is not None
    for version in range(api.version_min, api.version_max + 1):
        found: list[bytearray] = []

        def steps(version: int = version, found: list[bytearray] = found) -> Iterator[int]:
            found.append((yield from response_frame_steps(api, version, 77, response, arrays)))

        assert len(list(steps())) == COUNT - 1 + 4
        assert found == [encode_response_frame(api, version, 77, response)]


@pytest.mark.parametrize("key", SERVED_APIS, ids=lambda key: find_api(key).name)
def test_each_long_response_is_written_as_short_ones_are(key: int) -> None:
    api = find_api(key)
    arrays = response_frames._arrays(api.canonical_response)
    if arrays is None:
        return
    rng = Random(key)
    for _ in range(20):
        response = entity_of(api.canonical_response, rng)
        if getattr(response, arrays[0]) is None:
            continue
        for version in range(api.version_min, api.version_max + 1):

            def in_steps(version: int = version, response: Any = response) -> bytes:
                steps = response_frame_steps(api, version, 77, response, arrays)
                while True:
                    try:
                        next(steps)
                    except StopIteration as ended:
                        return bytes(ended.value)

            expected = result_of(lambda: bytes(encode_response_frame(api, version, 77, response)))  # noqa: B023
            found = result_of(in_steps)
            if expected.startswith("<class"):  # of two fields, either may be found first
                found, expected = found.partition(":")[0], expected.partition(":")[0]
            assert found == expected, (version, response)


async def test_many_results_are_written_in_steps(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    take_small_steps(monkeypatch)
    rig.node.decide = lambda request, _caller: (
        heartbeat_response() if request == heartbeat() else ControlError(ErrorCode.policy_violation)
    )
    await rig.listen()
    creating, broker = await rig.connect(), await rig.connect()
    acl = create_acls.AclCreation(
        resource_type=2,
        resource_name="t",
        resource_pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )
    creating.send(create_acls.CreateAclsRequest(creations=(acl,) * 2_000), 3)
    await rig.node.requests(1)
    broker.send(heartbeat(), 1)
    long = asyncio.create_task(creating.receive())
    assert (await broker.receive()).error_code is ErrorCode.none
    assert not long.done()
    assert len((await long).results) == 2_000


def take_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece in each pass of the loop."""
    monkeypatch.setattr(response_frames, "STEP_S_MAX", 0.0)
    monkeypatch.setattr(scheduler, "PASS_S_MAX", 0.0)


async def test_others_are_answered_while_a_long_answer_is_written(
    rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_small_steps(monkeypatch)
    rig.node.decide = lambda request, _caller: (
        heartbeat_response() if request == heartbeat() else described(2_000)
    )
    await rig.listen()
    describing, broker = await rig.connect(), await rig.connect()
    describing.send(QUESTION, 4)
    await rig.node.requests(1)
    broker.send(heartbeat(), 1)
    long = asyncio.create_task(describing.receive())
    assert (await broker.receive()).error_code is ErrorCode.none
    assert not long.done()
    assert (await long).results == described(2_000).results


async def test_an_answer_that_is_too_large_is_refused(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_frames, "RESPONSE_SIZE_BYTES_MAX", 1_000)
    rig.node.decide = lambda request, _caller: heartbeat_response() if request == heartbeat() else described()
    await rig.listen()
    client = await rig.connect()
    client.send(QUESTION, 4)
    client.send(heartbeat(), 1)
    (result,) = (await client.receive()).results
    assert result.error_code is ErrorCode.policy_violation
    assert result.error_message == "The response has more than 1000 bytes: ask for less at once."
    assert (await client.receive()).error_code is ErrorCode.none


async def test_only_one_goes_on_while_much_is_unfinished(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many large answers do not take memory at once."""
    take_small_steps(monkeypatch)
    monkeypatch.setattr(scheduler, "LONG_RESPONSES_BYTES_MAX", 0)
    sizes = iter((3_000, COUNT))
    rig.node.decide = lambda _request, _caller: described(next(sizes))
    await rig.listen()
    first, second = await rig.connect(), await rig.connect()
    first.send(QUESTION, 4)
    await rig.node.requests(1)
    second.send(QUESTION, 4)
    short = asyncio.create_task(second.receive())
    assert len((await first.receive()).results) == 3_000
    assert not short.done()
    assert len((await short).results) == COUNT


async def test_nobody_writes_for_a_client_that_left(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    take_small_steps(monkeypatch)
    begun: list[Any] = []
    original = call.response_frame_steps

    def response_frame_steps(*arguments: Any) -> Any:
        begun.append(original(*arguments))
        return begun[-1]

    monkeypatch.setattr(call, "response_frame_steps", response_frame_steps)
    rig.node.decide = lambda _request, _caller: described(20_000)
    await rig.listen()
    client = await rig.connect()
    client.send(QUESTION, 4)
    await turn_until(lambda: bool(begun))
    client.writer.transport.abort()
    await turn_until(lambda: begun[0].gi_frame is None)
    assert rig.counters.dropped_responses == 0
