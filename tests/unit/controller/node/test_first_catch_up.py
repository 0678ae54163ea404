"""Requests to a node that has just started: no client sees a part of what it replays."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from kit.controller_parts import caller
from kit.turn_parts import EPOCH, NOW_MS, ScriptedRequest, TurnBench
from quorate_controller.control.api import ControlError, ControlResult
from quorate_controller.node.consistency import NO_LEADER_WAIT_MS
from quorate_controller.node.events import ControlRequest
from quorate_protocol.errors import ErrorCode
from quorate_protocol.records.batch import build_batch
from quorate_protocol.records.framing import encode_record
from quorate_protocol.records.generated import TopicRecord

DEADLINE_MS = NOW_MS + 30_000


@pytest.fixture
def bench() -> TurnBench:
    """A standby with a leader, which has fetched a part of what it missed."""
    bench = TurnBench()
    bench.raft.has_caught_up = False
    bench.raft.high_watermark = -1
    return bench


def request(token: int) -> ControlRequest:
    question: Any = ScriptedRequest(f"which topics? {token}")
    return ControlRequest(token=token, request=question, caller=caller(), deadline_ms=DEADLINE_MS)


def topic_batch(offset: int) -> bytes:
    record = TopicRecord(name=f"t{offset}", topic_id=UUID(int=offset + 1))
    return build_batch([encode_record(record, 0)], offset, EPOCH, timestamp_ms=1)


def respond_with_topics(bench: TurnBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the control answer with the topics that the image has at that moment."""

    def decide(_request: object, _context: object) -> ControlResult:
        return ControlResult(response=sorted(bench.metadata.image.topics.by_name))  # type: ignore[arg-type]

    monkeypatch.setattr(bench.control, "decide", decide)


def results(effects: Any) -> list[Any]:
    return [
        (
            control_response.token,
            control_response.result.error_code
            if isinstance(control_response.result, ControlError)
            else control_response.result,
        )
        for control_response in effects.control_responses
    ]


def test_nobody_sees_a_part_of_what_is_replayed(bench: TurnBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that has seen later states elsewhere does not see an earlier one at a node that starts."""
    respond_with_topics(bench, monkeypatch)
    assert results(bench.node.turn([request(0)], NOW_MS)) == []
    bench.raft.high_watermark = bench.disk.log.end_offset = 1
    bench.disk.log.read = lambda *_: topic_batch(0)
    assert results(bench.node.turn([request(1)], NOW_MS)) == []
    assert "t0" in bench.metadata.image.topics.by_name
    bench.raft.high_watermark = bench.disk.log.end_offset = 2
    bench.raft.has_caught_up = True
    bench.disk.log.read = lambda *_: topic_batch(1)
    assert results(bench.node.turn([], NOW_MS)) == [(0, ["t0", "t1"]), (1, ["t0", "t1"])]
    bench.disk.log.end_offset = 3
    assert results(bench.node.turn([request(2)], NOW_MS)) == [(2, ["t0", "t1"])]


def test_a_node_without_a_leader_answers_after_a_while(
    bench: TurnBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    respond_with_topics(bench, monkeypatch)
    bench.raft.is_led = False
    assert results(bench.node.turn([request(0)], NOW_MS)) == []
    assert bench.node.deadline_ms == NOW_MS + NO_LEADER_WAIT_MS
    assert results(bench.node.turn([], NOW_MS + NO_LEADER_WAIT_MS - 1)) == []
    assert results(bench.node.turn([], NOW_MS + NO_LEADER_WAIT_MS)) == [(0, [])]
    assert results(bench.node.turn([request(1)], NOW_MS + NO_LEADER_WAIT_MS)) == [(1, [])]


def test_no_request_waits_for_longer_than_its_timeout(bench: TurnBench) -> None:
    patient = replace(request(1), deadline_ms=DEADLINE_MS + 10)
    bench.node.turn([request(0), patient], NOW_MS)
    assert bench.node.deadline_ms == DEADLINE_MS + 1
    assert results(bench.node.turn([], DEADLINE_MS)) == []
    assert results(bench.node.turn([], DEADLINE_MS + 1)) == [(0, ErrorCode.request_timed_out)]
    assert bench.node.deadline_ms == patient.deadline_ms + 1
    assert "decide" not in bench.done()
