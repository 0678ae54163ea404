"""Leaders that raft deposes in the middle of a decision, and steps that raft refuses to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from quorate_controller.control.api import (
    RECORDS_PER_BATCH_MAX,
    ControlError,
    ControlResult,
    KRaftVersionUpgrade,
)
from quorate_controller.raft.events import Role
from quorate_controller.raft.model import RaftSafetyError
from quorate_controller.storage.controller_storage import ControllerStorage
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image.snapshot import image_to_records
from quorate_protocol.records.generated import TopicRecord


def topics(count: int, name_chars: int = 200) -> tuple[TopicRecord, ...]:
    return tuple(TopicRecord(name=f"{i:0{name_chars}}", topic_id=UUID(int=100 + i)) for i in range(count))


SEVERAL_BATCHES = ControlResult(records=topics(2 * RECORDS_PER_BATCH_MAX + 1), response="done", atomic=False)
WITH_KRAFT_VERSION = ControlResult(
    records=topics(1), response="done", kraft_version=KRaftVersionUpgrade(level=1)
)
"""The level is what it is already: raft has nothing to write, and only looks after its role."""


def depose_at_next_step(bench: Any) -> None:
    """Raft resigns in its next step, as it does when the time that it may lead without a majority has run out."""
    bench.node.raft._replica.state.is_resigning = True


@pytest.mark.parametrize("result", [SEVERAL_BATCHES, WITH_KRAFT_VERSION], ids=["batches", "kraft.version"])
def test_a_leader_deposed_within_a_decision_proposes_nothing_more(
    bench: Any, monkeypatch: pytest.MonkeyPatch, result: ControlResult
) -> None:
    node = bench.node
    before, end_offset = list(image_to_records(node.metadata.image)), node.storage.log.end_offset
    bench.decide_next(monkeypatch, result)
    depose_at_next_step(bench)
    result, effects = bench.ask()
    assert isinstance(result, ControlError)
    assert result.error_code is ErrorCode.not_controller
    assert node.raft.role is Role.RESIGNED
    assert not [note for note in effects.notes if note.exception]
    assert list(image_to_records(node.metadata.image)) == before
    assert node.metadata.pending_count == 0
    appended = node.storage.log.end_offset - end_offset
    assert 0 < appended <= RECORDS_PER_BATCH_MAX
    bench.wait_until_active()
    assert len(node.metadata.image.topics.by_name) == appended
    bench.assert_serves()


def test_a_leader_deposed_by_the_upgrade_of_kraft_version_promises_nothing(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.decide_next(monkeypatch, replace(WITH_KRAFT_VERSION, records=()))
    depose_at_next_step(bench)
    result, _ = bench.ask()
    assert isinstance(result, ControlError)
    assert result.error_code is ErrorCode.not_controller
    bench.wait_until_active()
    bench.assert_serves()


def test_a_leader_deposed_by_its_own_timer_resigns_without_a_fault(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.now_ms = bench.node.deadline_ms
    monkeypatch.setattr(bench.node.metadata.control, "tick", lambda _now_ms: SEVERAL_BATCHES)
    depose_at_next_step(bench)
    effects = bench.node.turn([], bench.now_ms)
    assert bench.node.raft.role is Role.RESIGNED
    assert not [note for note in effects.notes if note.exception]
    monkeypatch.undo()
    bench.wait_until_active()
    bench.assert_serves()


def test_a_deposed_leader_keeps_no_time_of_its_proposals(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.decide_next(monkeypatch, SEVERAL_BATCHES)
    depose_at_next_step(bench)
    bench.ask()
    assert not bench.node._proposals._proposed


@pytest.mark.parametrize("where", ["in the decision", "in the proposal"])
def test_a_breach_of_safety_ends_the_node_and_leaves_nothing(
    bench: Any, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A node whose raft found a mistake of ours stops, and nothing of the turn leaves it."""
    node, end_offset = bench.node, bench.node.storage.log.end_offset
    monkeypatch.setattr(ControllerStorage, "save_hard_state", None)
    if where == "in the decision":
        bench.decide_next(monkeypatch, RaftSafetyError("ours"))
    else:
        bench.decide_next(monkeypatch, ControlResult(records=topics(1), response="done"))
        pop_batch = node.metadata.pop_batch
        monkeypatch.setattr(node.metadata, "pop_batch", lambda epoch, now_ms: pop_batch(epoch - 1, now_ms))
    with pytest.raises(RaftSafetyError):
        bench.ask()
    assert node.storage.log.end_offset == end_offset
