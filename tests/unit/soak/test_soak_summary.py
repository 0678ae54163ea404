"""The summary of a soak."""

from kit.soak.checker import Violation
from kit.soak.history import Event, What
from kit.soak.summary import (
    at_once,
    elections,
    longest_between_changes_s,
    longest_without_leader_s,
    markdown,
    text,
)


def _status(at_s: float, node: int, epoch: int) -> Event:
    return Event(at_s, What.STATUS, {"node": node, "leader": node, "epoch": epoch, "high_watermark": 1})


def _operation(returned_s: float, action: str, result: str = "ok") -> Event:
    facts = {"kind": "topic", "action": action, "result": result, "returned_s": returned_s}
    return Event(returned_s, What.OPERATION, facts)


HISTORY = [
    Event(0, What.RUN, {"seed": 7, "minutes": 5.0}),
    _status(1, 3000, 1),
    _operation(2, "create"),
    Event(3, What.FAULT, {"kind": "controller killed", "number": 1}),
    Event(3, What.FAULT, {"kind": "disk full", "number": 2}),
    _operation(4, "delete", "request_timed_out"),
    _status(9, 3001, 3),
    _status(10, 3000, 1),  # deposed
    _operation(11.5, "create"),
    _operation(12, "read"),
    _status(12, 3001, 3),
    Event(13, What.FAULT_ENDED, {"kind": "disk full", "number": 2, "outcome": "went on"}),
    Event(13, What.REFUSED, {"kind": "disk lost", "number": 3, "reason": "not now"}),
    Event(14, What.CALM),
    Event(15, What.CONSUMED, {"partition": 0, "ranges": [[0, 4], [4, 6]]}),
    _status(90, 3001, 3),
]


def test_times_without_a_leader_and_without_changes() -> None:
    assert longest_without_leader_s(HISTORY) == 8
    assert longest_between_changes_s(HISTORY) == 9.5
    assert elections(HISTORY) == 2


def test_faults_at_the_same_time_are_counted() -> None:
    assert at_once(HISTORY) == (2, 1.0)
    ended = Event(8, What.FAULT_ENDED, {"kind": "controller killed", "number": 1, "outcome": None})
    assert at_once([*HISTORY[:6], ended, *HISTORY[6:]]) == (2, 0.5)
    assert at_once([]) == (0, 0.0)


def test_the_summary_tells_faults_results_and_violations() -> None:
    shown = text(HISTORY, [Violation("two leaders", "epoch 3")])
    lines = {
        line.split("  ")[0].strip(): line.rsplit("  ", 1)[1] for line in shown.splitlines() if "  " in line
    }
    assert lines["seed"] == "7"
    assert lines["faults"] == "2"
    assert lines["- disk full"] == "1 (went on 1)"
    assert lines["faults left out"] == "not now 1"
    assert lines["create topic"] == "ok 2"
    assert lines["delete topic"] == "request_timed_out 1"
    assert lines["records sent again by the client"] == "1"
    assert lines["violations"] == "1"
    assert shown.endswith("two leaders: epoch 3")
    assert "| - disk full | 1 (went on 1) |" in markdown(HISTORY, [])
