"""A connection does not save up the time in which it had no work."""

import asyncio

import pytest
from quorate_controller import scheduler as scheduler_module
from quorate_controller.scheduler import PASS_S_MAX, Account, Scheduler, ServiceClass, StepResult


class Clock:
    """Stands in for the module `time`: it runs on while work is done."""

    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


class Endless:
    """A connection that asks all the time; each step takes a pass."""

    service_class = ServiceClass.CLIENTS

    def __init__(self, clock: Clock) -> None:
        self.account = Account()
        self.steps = 0
        self._clock = clock

    def step(self) -> StepResult:
        self.steps += 1
        self._clock.now_s += PASS_S_MAX
        return StepResult.MORE


async def passes(count: int) -> None:
    """Let the event loop turn, which is at most one pass of the scheduler each time."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_connection_that_was_idle_gets_no_more_than_others(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(scheduler_module, "time", clock)
    scheduler, early, late = Scheduler(), Endless(clock), Endless(clock)
    scheduler.add(early)
    await passes(100)
    scheduler.add(late)
    before = early.steps
    assert before > 50
    await passes(40)
    assert late.steps == pytest.approx(early.steps - before, abs=2)
    assert late.steps > 10
