"""A read of thousands of things takes several turns, with events of others in between."""

from collections.abc import Generator
from typing import Any
from uuid import UUID

import pytest
from kit.controller_parts import caller
from quorate_controller.control.api import ControlError, ControlResult
from quorate_controller.control.describe import TOPICS_PER_STEP
from quorate_controller.node import ControlRequest
from quorate_controller.node.events import Requester
from quorate_controller.node.request_processor import OF_BROKERS, READS, LongRead, LongReads
from quorate_controller.node.slices import STEPS_PER_SLICE_MAX
from quorate_controller.raft.events import Resign
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import ConfigResourceType
from quorate_protocol.kafka.generated.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from quorate_protocol.records.generated import ConfigRecord, TopicRecord

NAMES = tuple(f"t{number}" for number in range(3 * TOPICS_PER_STEP * STEPS_PER_SLICE_MAX))
READ, OTHER = 1, 2


def asked(token: int, request: Any, deadline_ms: int = 1 << 62) -> ControlRequest:
    return ControlRequest(token=token, request=request, caller=caller(), deadline_ms=deadline_ms)


def describe(*names: str) -> DescribeConfigsRequest:
    resources = tuple(
        DescribeConfigsResource(
            resource_type=ConfigResourceType.TOPIC, resource_name=name, configuration_keys=("retention.ms",)
        )
        for name in names
    )
    return DescribeConfigsRequest(resources=resources)


@pytest.fixture
def topics(bench: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The bench, with topics whose configs take several slices."""
    records = tuple(
        TopicRecord(name=name, topic_id=UUID(int=number)) for number, name in enumerate(NAMES, 100)
    )
    bench.decide_next(monkeypatch, ControlResult(records=records))
    bench.ask()
    return bench


def results(bench: Any, *events: Any) -> dict[int, Any]:
    """What one turn answers, by token."""
    effects = bench.node.turn(list(events), bench.now_ms)
    return {response.token: response.result for response in effects.control_responses}


def read_to_the_end(bench: Any) -> tuple[Any, int]:
    """The result of the read, and the turns that it took after the first one."""
    for turns in range(1, 100):
        assert bench.node.is_reading
        assert bench.node.deadline_ms == bench.now_ms
        if READ in (found := results(bench)):
            return found[READ], turns
    raise AssertionError("the read has no end")


def test_others_are_served_while_thousands_of_topics_are_described(
    topics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert results(topics, asked(READ, describe(*NAMES))) == {}
    changed = ControlResult(
        records=(
            ConfigRecord(resource_type=2, resource_name=NAMES[-1], name="retention.ms", value="77"),
            ConfigRecord(resource_type=2, resource_name=NAMES[0], name="retention.ms", value="78"),
        ),
        response="done",
    )
    topics.decide_next(monkeypatch, changed)
    assert results(topics, asked(OTHER, describe())) == {OTHER: "done"}
    response, _ = read_to_the_end(topics)
    assert [result.resource_name for result in response.results] == list(NAMES)
    values = [result.configs[0].value for result in response.results]
    assert (values[0], values[-1]) == ("604800000", "77"), "each value is one of a moment of the read"
    assert not topics.node.is_reading
    assert topics.node.deadline_ms > topics.now_ms


def test_short_reads_share_a_turn(topics: Any) -> None:
    tokens = range(10, 20)
    found = results(topics, *(asked(token, describe(NAMES[token])) for token in tokens))
    assert {token: result.results[0].resource_name for token, result in found.items()} == {
        token: NAMES[token] for token in tokens
    }


def test_reads_come_one_after_the_other(topics: Any) -> None:
    assert results(topics, asked(READ, describe(*NAMES)), asked(OTHER, describe(NAMES[0]))) == {}
    responses: list[int] = []
    while topics.node.is_reading:
        responses += results(topics)
    assert responses == [READ, OTHER]


def test_a_read_that_nobody_waits_for_ends(topics: Any) -> None:
    assert results(topics, asked(READ, describe(*NAMES), deadline_ms=topics.now_ms)) == {}
    topics.now_ms += 1
    result = results(topics)[READ]
    assert isinstance(result, ControlError)
    assert result.error_code is ErrorCode.request_timed_out
    assert not topics.node.is_reading


def test_a_read_of_a_deposed_leader_is_refused(topics: Any) -> None:
    assert results(topics, asked(READ, describe(*NAMES))) == {}
    result = results(topics, Resign(epoch=topics.node.raft.epoch))[READ]
    assert isinstance(result, ControlError)
    assert result.error_code is ErrorCode.not_controller


@pytest.mark.parametrize(
    ("error", "error_code"),
    [
        (ControlError(ErrorCode.policy_violation, "no"), ErrorCode.policy_violation),
        (OverflowError("of the test"), ErrorCode.unknown_server_error),
    ],
)
def test_a_step_that_fails_is_answered(
    bench: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, error_code: ErrorCode
) -> None:
    def steps() -> Generator[None, None, Any]:
        yield
        raise error

    bench.decide_next(monkeypatch, ControlResult(steps=steps()))
    result, effects = bench.ask()
    assert isinstance(result, ControlError)
    assert result.error_code is error_code
    assert [note.event for note in effects.notes if note.exception] == (
        [] if isinstance(error, ControlError) else ["decision_failed"]
    )
    bench.assert_serves()


def test_a_decision_that_reads_first_is_taken_by_its_last_step(
    topics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long decision delays no other client, and its records are one batch, written before the response."""

    def steps() -> Generator[None, None, ControlResult]:
        for _ in range(2 * STEPS_PER_SLICE_MAX):
            yield
        records = tuple(TopicRecord(name=f"late-{number}", topic_id=UUID(int=number)) for number in (7, 8))
        return ControlResult(records=records, response="deleted")

    before = topics.node.raft.log_end_offset
    topics.decide_next(monkeypatch, ControlResult(steps=steps()))
    assert results(topics, asked(READ, describe())) == {}
    assert topics.node.raft.log_end_offset == before
    assert READ not in results(topics)
    assert results(topics) == {READ: "deleted"}
    assert topics.node.raft.log_end_offset == before + 2
    assert "late-8" in topics.node.metadata.image.topics.by_name
    assert not topics.node.is_reading


def topic_record(number: int) -> TopicRecord:
    return TopicRecord(name=f"part-{number}", topic_id=UUID(int=number))


def in_parts(*numbers: int) -> Generator[ControlResult | None, None, ControlResult]:
    """A decision that creates a topic in each of its steps."""
    for number in numbers[:-1]:
        yield ControlResult(records=(topic_record(number),))
    return ControlResult(records=(topic_record(numbers[-1]),), response="created")


def part_names(bench: Any) -> set[str]:
    return {name for name in bench.node.metadata.image.topics.by_name if name.startswith("part-")}


def test_a_decision_in_parts_writes_one_in_a_turn(topics: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others decide between the parts, on what was written, and the response follows the last part."""
    before = topics.node.raft.high_watermark
    first = ControlResult(records=(topic_record(1),), steps=in_parts(2, 3, 4))
    topics.decide_next(monkeypatch, first)
    assert results(topics, asked(READ, describe())) == {}
    assert part_names(topics) == {"part-1", "part-2"}
    other = ControlResult(records=(topic_record(9),), response="other")
    topics.decide_next(monkeypatch, other)
    assert results(topics, asked(OTHER, describe())) == {OTHER: "other"}
    assert part_names(topics) == {"part-1", "part-2", "part-3", "part-9"}
    assert results(topics) == {READ: "created"}
    assert part_names(topics) == {"part-1", "part-2", "part-3", "part-4", "part-9"}
    assert topics.node.raft.high_watermark == before + 5


def test_a_decision_goes_on_once_a_part_is_written(topics: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No half of a request because its client has given up."""
    topics.decide_next(monkeypatch, ControlResult(steps=in_parts(2, 3, 4)))
    assert results(topics, asked(READ, describe(), deadline_ms=topics.now_ms)) == {}
    topics.now_ms += 1
    assert results(topics) == {}
    assert results(topics) == {READ: "created"}


def test_a_part_that_cannot_be_written_ends_the_decision(
    topics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.decide_next(monkeypatch, ControlResult(steps=in_parts(2, 2, 3)))
    assert results(topics, asked(READ, describe())) == {}
    result = results(topics)[READ]
    assert result.error_code is ErrorCode.unknown_server_error
    assert part_names(topics) == {"part-2"}
    assert not topics.node.is_reading
    topics.assert_serves()


def test_a_deposed_leader_ends_a_decision_in_parts(topics: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    topics.decide_next(monkeypatch, ControlResult(steps=in_parts(2, 3, 4)))
    assert results(topics, asked(READ, describe())) == {}
    result = results(topics, Resign(epoch=topics.node.raft.epoch))[READ]
    assert result.error_code is ErrorCode.not_controller
    assert part_names(topics) == {"part-2"}
    assert not topics.node.is_reading


def test_reports_of_brokers_come_before_clients() -> None:
    reads = LongReads(lambda: 0)
    for token, client in enumerate((READS, OF_BROKERS, OF_BROKERS, READS)):
        steps = in_parts(token + 1)
        reads.begin(
            LongRead(token=token, request="r", steps=steps, requester=Requester(None, 1 << 62), client=client)
        )
    ended = [read.token for read, _ in reads.run_slice(0)]
    assert ended == [1, 2, 0, 3]


def test_decisions_that_have_begun_do_not_hold_reads_back() -> None:
    """A client that creates topics without end does not keep others from reading."""
    reads = LongReads(lambda: 0)
    requester = Requester(None, 1 << 62)
    reads.begin(LongRead(token=1, request="r", steps=in_parts(1), requester=requester, client="client"))
    assert reads
    assert not reads.has_reads
    reads.begin(LongRead(token=2, request="r", steps=in_parts(2), requester=requester, client=READS))
    assert reads.has_reads


def endless() -> Generator[None, None, Any]:
    while True:
        yield


def read(token: int) -> LongRead:
    return LongRead(
        token=token, request="r", steps=endless(), requester=Requester(None, 1 << 62), client=None
    )


def test_only_the_read_itself_is_given_up() -> None:
    reads = LongReads(lambda: 0)
    former, later = read(1), read(2)
    reads.begin(former)
    assert reads.pop_all() == [1]
    assert not reads.give_up(former)
    reads.begin(later)
    assert not reads.give_up(former)
    assert reads.pop_all() == [2]
    reads.begin(later)
    reads.begin(former)
    assert reads.give_up(later)
    assert reads.pop_all() == [1]
