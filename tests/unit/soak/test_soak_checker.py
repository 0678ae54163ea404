"""The checker of a soak: each violation is planted in a history that is well."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from kit.soak.checker import check
from kit.soak.history import Event, What, numbers_of, ranges


def status(at_s: float, node: int, epoch: int, leader: int, high_watermark: int, **facts: Any) -> Event:
    """What a controller said about itself."""
    reported = {"process": node, "disk": 0, "state": "follower", "source": "quorum", **facts}
    return Event(
        at_s,
        What.STATUS,
        {"node": node, "epoch": epoch, "leader": leader, "high_watermark": high_watermark, **reported},
    )


def operation(at_s: float, key: str, action: str, **facts: Any) -> Event:
    """An operation of a second that succeeded."""
    kind = "config" if action in {"set", "read"} else "topic"
    reported = {"client": "a", "result": "ok", "written": None, "observed": None, **facts}
    return Event(
        at_s + 1,
        What.OPERATION,
        {"kind": kind, "key": key, "action": action, "invoked_s": at_s, "returned_s": at_s + 1, **reported},
    )


def final(topic: Mapping[str, str] | None = None, config: Mapping[str, str] | None = None) -> Event:
    """What was there at the end."""
    return Event(100, What.FINAL, {"topic": topic or {}, "config": config or {}})


def records(acknowledged: Sequence[int], consumed: Sequence[int]) -> list[Event]:
    """Return the records of a partition that were acknowledged, and those that were there at the end."""
    return [
        Event(90, What.PRODUCED, {"partition": 0, "ranges": ranges(acknowledged)}),
        Event(91, What.CONSUMED, {"partition": 0, "ranges": ranges(consumed)}),
    ]


def resources(**facts: float) -> Event:
    """What a controller used at the end."""
    return Event(92, What.RESOURCES, {"node": 3000, "cpu_share": 0.02, "memory_mb": 90, **facts})


SOUND = [
    status(1, 3000, 1, 3000, 10),
    status(1.1, 3001, 1, 3000, 8, source="page"),
    status(1.9, 3001, 2, 3001, 9, source="page"),  # elected, and has committed nothing yet
    status(2, 3001, 2, 3001, 12),
    status(2.1, 3000, 1, 3000, 10),  # deposed, and does not know it yet
    status(3, 3000, 2, 3001, 12, source="page"),
    status(4, 3000, 2, 3001, 3, process=7, source="page"),  # restarted: it has the state of the leader
    status(5, 3001, 0, -1, -1, process=8, disk=1, source="page"),  # begins with an empty disk
    Event(6, What.LEADER, {"leader": 3001, "epoch": 2}),
    operation(10, "t", "create", observed="id-1"),
    operation(12, "t", "delete"),
    operation(14, "t", "create", result="request_timed_out"),
    operation(16, "u", "create", observed="id-2"),
    operation(10, "c", "set", written="1"),
    operation(12, "c", "set", written="2", result="not_controller"),
    operation(14, "c", "read", observed="1"),
    operation(16, "c", "read", observed="2"),
    Event(20, What.VOTERS, {"wanted": [3000, 3001], "seen": [3001, 3000]}),
    *records([0, 1, 2, 5], [0, 1, 1, 2, 3, 4, 5]),
    resources(),
    final({"t": "id-9", "u": "id-2"}, {"c": "2"}),
]
"""A history with all that may happen: lost answers, a deposed leader, a restart, a disk that was replaced."""


def test_a_sound_history_has_no_violation() -> None:
    assert check(SOUND) == []


@pytest.mark.parametrize(
    ("planted", "rule"),
    [
        pytest.param(
            [Event(1, What.BROKEN, {"rule": "ended by itself", "text": "3000 with 1"})],
            "ended by itself",
            id="what the runner saw",
        ),
        pytest.param([status(7, 3002, 2, 3002, 12)], "two leaders", id="a second leader, by itself"),
        pytest.param([Event(7, What.LEADER, {"leader": 3000, "epoch": 2})], "two leaders", id="by a log"),
        pytest.param(
            [status(7, 3000, 1, 3000, 12, process=9)], "epoch went back", id="an epoch after a restart"
        ),
        pytest.param(
            [status(7, 3000, 2, 3001, 2, process=7, source="page")],
            "high watermark went back",
            id="of a process",
        ),
        pytest.param([status(7, 3002, 3, 3002, 11)], "high watermark went back", id="of a new leader"),
        pytest.param([*records([0, 1], [0])], "records lost", id="a record is gone"),
        pytest.param(records([0], [0])[:1], "records lost", id="a partition was not read"),
        pytest.param([*records([0, 1], [1, 0])], "records out of order", id="records out of order"),
        pytest.param(
            [operation(20, "x", "create", observed="id-5")], "not linearizable", id="a topic is lost"
        ),
        pytest.param([operation(20, "x", "delete")], "not linearizable", id="deleted, and never was there"),
        pytest.param(
            [operation(20, "u", "create", observed="id-6")], "not linearizable", id="created, and was there"
        ),
        pytest.param([operation(20, "c", "set", written="7")], "not linearizable", id="a config is lost"),
        pytest.param(
            [operation(20, "c", "read", observed="1")], "not linearizable", id="an old config is read"
        ),
        pytest.param(
            [Event(21, What.VOTERS, {"wanted": [3000], "seen": [3000, 3001]})], "voters", id="a voter stays"
        ),
        pytest.param([resources(cpu_share=0.9)], "processor", id="busy when idle"),
        pytest.param([resources(memory_mb=900)], "memory", id="large at the end"),
    ],
)
def test_a_planted_violation_is_found(planted: list[Event], rule: str) -> None:
    replaced = {event.what for event in planted} & {What.PRODUCED, What.CONSUMED}
    history = [event for event in SOUND if not replaced or event.what not in {What.PRODUCED, What.CONSUMED}]
    found = check(sorted([*history, *planted], key=lambda event: event.at_s))
    assert {violation.rule for violation in found} == {rule}, found


def test_an_event_is_read_as_it_was_written() -> None:
    assert [Event.parse(event.line()) for event in SOUND] == SOUND


def test_ranges_keep_order_and_gaps() -> None:
    numbers = [0, 1, 2, 5, 6, 3, 3, 4]
    assert ranges(numbers) == [[0, 2], [5, 6], [3, 3], [3, 4]]
    assert list(numbers_of(ranges(numbers))) == numbers
