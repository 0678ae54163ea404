"""Operators come and go, at any instant: the next one goes on."""

import urllib.request
from contextlib import suppress

import pytest
from operated import CONTROLLERS_FIRST, SMALL_FILES, Operated, OperatorProcess
from support.waiting import eventually

FIRST, SECOND, THIRD, FOURTH = range(CONTROLLERS_FIRST, CONTROLLERS_FIRST + 4)
STEP_TIMEOUT_S = 60
KILLS_MIN = 12
# Each operator takes seconds to start where others use the processors.
TIMEOUT_S = 900


@pytest.mark.timeout(TIMEOUT_S)
def test_killed_after_each_step_the_result_is_the_same(operated: Operated) -> None:
    """Goal: no step leaves anything that the next operator can't go on from.

    Method: SIGKILL whenever the log says that a step is begun, or is done, in turn; a new operator each time,
    through creation, a decommission, in which another node takes the place of the one that leaves, and a roll.
    """
    operated.create()
    kills = _kill_after_each_step(operated, FIRST, SECOND, THIRD)
    operated.patch(decommission=[SECOND])
    kills += _kill_after_each_step(operated, FIRST, THIRD, FOURTH)
    operated.patch(config={**SMALL_FILES, "metadata.log.max.snapshot.interval.ms": "3000000"})
    kills += _kill_after_each_step(operated, FIRST, THIRD, FOURTH)
    assert kills >= KILLS_MIN
    assert len(operated.claims()) == 4


def test_another_replica_takes_over(operated: Operated) -> None:
    """Goal: one of two replicas works, and the other goes on when it dies. Method: kill the one that leads."""
    first = operated.start_operator("--identity=first", "--lease-duration=10")
    eventually(lambda: "ready" in first.events(), STEP_TIMEOUT_S, "the first to lead", first.events)
    second = operated.start_operator("--identity=second", "--lease-duration=10")
    eventually(lambda: _gauge(second, "quorate_leader") == 0, STEP_TIMEOUT_S, "the second to be up")
    operated.create(hibernated=True)
    operated.wait(lambda: operated.condition("Ready").get("reason") == "Hibernated", "the first to reconcile")
    assert _gauge(first, "quorate_leader") == 1
    assert not any("leads" in event for event in second.events())
    first.kill()
    operated.patch(hibernated=False)
    operated.wait_settled(FIRST, SECOND, THIRD)
    assert any("leads" in event for event in second.events())
    assert second.terminate() == 0


def _kill_after_each_step(operated: Operated, *node_ids: int) -> int:
    """Operators, one after the other, until one finds nothing to do; how many were killed."""
    kills = 0
    while True:
        operator = operated.start_operator()
        seen = "done: " if kills % 2 else ": "

        def has_stepped(operator: OperatorProcess = operator, seen: str = seen) -> bool:
            return any(seen in event and "quorum" in event for event in operator.events())

        operated.wait(lambda: has_stepped() or operated.settled(*node_ids), "a step, or nothing left to do")
        is_idle = not has_stepped()
        operator.kill()
        if is_idle:
            return kills
        kills += 1


def _gauge(operator: OperatorProcess, name: str) -> float | None:
    """A metric without labels; None while nobody answers."""
    with (
        suppress(OSError),
        urllib.request.urlopen(f"http://127.0.0.1:{operator.port}/metrics", timeout=5) as answer,
    ):
        for line in answer.read().decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
    return None
