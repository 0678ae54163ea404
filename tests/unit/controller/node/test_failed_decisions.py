"""A decision that fails in a way that nobody foresaw: its sender is answered, and the node goes on."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from quorate_controller.control.api import ControlError, ControlResult
from quorate_controller.storage.errors import StorageError
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
    """Goal: one request cannot end a controller. Method: a decision raises; the answer is Kafka's for errors of
    ours, the note has the exception, and the next request is served.
    """
    end_offset = bench.node.storage.log.end_offset
    bench.decide_next(monkeypatch, error)
    outcome, effects = bench.ask()
    assert isinstance(outcome, ControlError)
    assert outcome.error_code is ErrorCode.unknown_server_error
    assert outcome.message == "The server experienced an unexpected error when processing the request."
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
    """Goal: nothing of it is half applied. Method: a topic and a partition that fit, and a record that does not:
    the image and the log are as before, and the next request is served.
    """
    image, log = bench.node.metadata.image, bench.node.storage.log
    before = image.end_offset, list(image_to_records(image)), log.end_offset
    bench.decide_next(monkeypatch, ControlResult(records=records))
    outcome, effects = bench.ask()
    assert isinstance(outcome, ControlError)
    assert outcome.error_code is ErrorCode.unknown_server_error
    assert [note.event for note in effects.notes if note.exception] == ["decision_failed"]
    assert (image.end_offset, list(image_to_records(image)), log.end_offset) == before
    assert not image.topics.by_name
    assert bench.node.metadata.pending_count == 0
    bench.assert_serves()


def test_a_disk_error_still_ends_the_node(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: what is not the decision's fault is not answered. Method: the disk refuses the decision's record."""

    def append(_data: bytes) -> None:
        raise StorageError(Path("data"), "no space left")

    monkeypatch.setattr(bench.node.storage, "append", append)
    with pytest.raises(StorageError):
        bench.ask()
