"""Decisions that fail unforeseen: the sender gets an error, or the leader resigns; the node continues."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from quorate_controller.control.api import RECORDS_PER_BATCH_MAX, ControlError, ControlResult
from quorate_controller.node.turn import ACTIVATION_PAUSE_MS
from quorate_controller.raft.events import Resign, Role
from quorate_controller.storage.errors import StorageError
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image.snapshot import image_to_records
from quorate_protocol.records.generated import PartitionRecord, TopicRecord

TOPIC = TopicRecord(name="t", topic_id=UUID(int=7))


def partition(topic_id: int, partition_id: int = 0) -> PartitionRecord:
    return PartitionRecord(
        partition_id=partition_id,
        topic_id=UUID(int=topic_id),
        replicas=(1,),
        isr=(1,),
        removing_replicas=(),
        adding_replicas=(),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=(UUID(int=1),),
    )


@pytest.mark.parametrize("error", [OverflowError("too large"), RecursionError(), AssertionError("ours")])
def test_an_exception_is_answered_and_logged(
    bench: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    end_offset = bench.node.storage.log.end_offset
    bench.decide_next(monkeypatch, error)
    result, effects = bench.ask()
    assert isinstance(result, ControlError)
    assert result.error_code is ErrorCode.unknown_server_error
    assert result.message == "The server experienced an unexpected error when processing the request."
    (note,) = [note for note in effects.notes if note.event == "decision_failed"]
    assert note.exception is error
    assert note.facts == {"request": "IncrementalAlterConfigsRequest", "error": type(error).__name__}
    assert bench.node.storage.log.end_offset == end_offset
    bench.assert_serves()


@pytest.mark.parametrize(
    "records",
    [
        (TOPIC, partition(7), partition(8)),
        (TOPIC, partition(7), partition(7, partition_id=1 << 40)),
        (TOPIC, "not a record"),
    ],
    ids=["cannot be replayed", "cannot be encoded", "is no record"],
)
def test_a_decision_that_cannot_be_replayed_leaves_nothing(
    bench: Any, monkeypatch: pytest.MonkeyPatch, records: tuple[Any, ...]
) -> None:
    image, log = bench.node.metadata.image, bench.node.storage.log
    before = image.end_offset, list(image_to_records(image)), log.end_offset
    bench.decide_next(monkeypatch, ControlResult(records=records))
    result, effects = bench.ask()
    assert isinstance(result, ControlError)
    assert result.error_code is ErrorCode.unknown_server_error
    assert [note.event for note in effects.notes if note.exception] == ["decision_failed"]
    assert (image.end_offset, list(image_to_records(image)), log.end_offset) == before
    assert not image.topics.by_name
    assert bench.node.metadata.pending_count == 0
    bench.assert_serves()


def failing(error: Exception) -> Callable[[int], ControlResult]:
    """A stand-in for `tick` or `activate` that raises."""

    def fail(_now_ms: int) -> ControlResult:
        raise error

    return fail


@pytest.mark.parametrize("fails", ["decision", "replay"])
def test_a_failed_timer_resigns_leadership(bench: Any, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    """A fault in a decision of the controller itself hands leadership over, and the process continues."""
    node, control = bench.node, bench.node.metadata.control
    before = list(image_to_records(node.metadata.image))
    error = OverflowError("too large")
    bad = ControlResult(records=(TOPIC, partition(7), partition(8)))
    monkeypatch.setattr(control, "tick", failing(error) if fails == "decision" else lambda _now_ms: bad)
    failed_at_ms = bench.now_ms = node.deadline_ms
    result, effects = bench.ask()
    (note,) = [note for note in effects.notes if note.exception]
    assert note.event == "decision_failed"
    assert note.facts == {"task": "timer", "error": "OverflowError" if fails == "decision" else "ReplayError"}
    assert (note.exception is error) == (fails == "decision")
    assert isinstance(result, ControlError)
    assert result.error_code is ErrorCode.not_controller
    assert node.raft.role is Role.RESIGNED
    assert not node.is_active
    monkeypatch.undo()
    bench.wait_until_active()
    assert bench.now_ms == failed_at_ms + ACTIVATION_PAUSE_MS
    assert list(image_to_records(node.metadata.image)) == before
    bench.assert_serves()


@pytest.mark.parametrize("method", ["activate", "tick"])
def test_a_fault_that_persists_is_not_repeated_without_a_pause(
    bench: Any, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    control = bench.node.metadata.control
    monkeypatch.setattr(control, method, failing(RecursionError()))
    if method == "activate":
        bench.node.turn([Resign(epoch=bench.node.raft.epoch)], bench.now_ms)
    end_ms = bench.now_ms + 60_000
    turns = failures = 0
    while bench.now_ms < end_ms:
        effects = bench.turn_when_due()
        turns += 1
        failures += sum(note.event == "decision_failed" for note in effects.notes)
    assert 10 <= failures <= 60_000 // ACTIVATION_PAUSE_MS + 1
    assert turns <= 10 * failures
    monkeypatch.undo()
    bench.wait_until_active()
    bench.assert_serves()


def test_a_disk_error_during_a_timer_ends_the_node(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.now_ms = bench.node.deadline_ms
    monkeypatch.setattr(bench.node.storage, "append", failing_append)
    with pytest.raises(StorageError):
        bench.node.turn([], bench.now_ms)


def failing_append(_data: bytes) -> None:
    raise StorageError(Path("data"), "no space left")


def test_a_disk_error_still_ends_the_node(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.node.storage, "append", failing_append)
    with pytest.raises(StorageError):
        bench.ask()


def test_a_disk_error_between_the_batches_of_a_decision_ends_the_node(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = RECORDS_PER_BATCH_MAX + 1
    topics = tuple(TopicRecord(name=f"{i:0200}", topic_id=UUID(int=100 + i)) for i in range(count))
    bench.decide_next(monkeypatch, ControlResult(records=topics, atomic=False))
    monkeypatch.setattr(bench.node.storage, "append", failing_append)
    with pytest.raises(StorageError):
        bench.ask()


def test_a_request_that_waited_too_long_is_not_decided(bench: Any) -> None:
    """A request that has timed out does not happen later (Kafka: the deadline of a
    ControllerRequestContext).
    """
    end_offset = bench.node.storage.log.end_offset
    result, _ = bench.ask(deadline_ms=bench.now_ms - 1)
    assert isinstance(result, ControlError)
    assert result.error_code is ErrorCode.request_timed_out
    assert bench.node.storage.log.end_offset == end_offset
    result, _ = bench.ask(deadline_ms=bench.now_ms)
    assert not isinstance(result, ControlError)
    assert bench.node.storage.log.end_offset == end_offset + 1
