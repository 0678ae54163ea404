"""The event loop around a node: deadlines of requests, a process that stood still, failures."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from kit.controller_parts import caller
from quorate_controller.driver import TURN_INTERVAL_MS_MAX, Clock, Driver
from quorate_controller.node import ControlRequest, Effects

NOW_MS = 1_000_000
CALLER = caller(request_timeout_ms=700)


class SetClock(Clock):
    """Time stands still until it is set."""

    def __init__(self) -> None:
        self.time_ms = NOW_MS

    def now_ms(self) -> int:
        return self.time_ms


class FakeNode:
    """Notes what the driver asks of it."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.effects = Effects()
        self.turned = asyncio.Event()
        self.raft = SimpleNamespace(is_shut_down=False)
        self.metadata = SimpleNamespace(control=SimpleNamespace(excuse_silence=self.calls.append))
        self.deadline_ms = 1 << 62

    def start(self, _now_ms: int) -> Effects:
        return Effects()

    def turn(self, events: list[Any], now_ms: int) -> Effects:
        self.calls.append((events, now_ms))
        self.turned.set()
        return self.effects

    def close(self) -> None:
        """Nothing is open."""


def new_driver(node: FakeNode, clock: Clock, failures: list[Exception]) -> Driver:
    driver = Driver(
        node,  # type: ignore[arg-type]
        clock=clock,
        node_id=1,
        cluster_id="c",
        supported_features={},
        on_failure=failures.append,
        on_loaded=lambda: node.calls.append("loaded"),
    )

    def send(_request: object) -> None:
        raise OverflowError("cannot be encoded")

    driver.start(SimpleNamespace(send=send))  # type: ignore[arg-type]
    return driver


async def test_requests_have_a_deadline() -> None:
    """Goal: what timed out in the queue can be recognized. Method: a request with a timeout of 700 ms."""
    node = FakeNode()
    driver = new_driver(node, SetClock(), [])
    driver.control("a request", CALLER)  # type: ignore[arg-type]
    await node.turned.wait()
    (((event,), _),) = node.calls
    assert isinstance(event, ControlRequest)
    assert event.deadline_ms == NOW_MS + 700
    driver.stop()


@pytest.mark.parametrize(("gap_ms", "stall_ms"), [(TURN_INTERVAL_MS_MAX, None), (20_000, 19_000)])
async def test_time_without_turns_is_excused(gap_ms: int, stall_ms: int | None) -> None:
    """Goal: a process that stood still fences nobody for heartbeats that it did not read. Method: turns are at most a
    second apart, so a longer gap is reported, before the turn that would expire sessions.
    """
    node, clock = FakeNode(), SetClock()
    driver = new_driver(node, clock, [])
    clock.time_ms += gap_ms
    driver.raft_event("an event")  # type: ignore[arg-type]
    await node.turned.wait()
    turn = (["an event"], NOW_MS + gap_ms)
    assert node.calls == ([turn] if stall_ms is None else [stall_ms, turn])
    driver.stop()


async def test_effects_that_cannot_be_carried_out_end_the_driver_once() -> None:
    """Goal: no loop that fails again and again, and no process that looks alive. Method: a message that cannot be
    sent, then one more event.
    """
    node, failures = FakeNode(), list[Exception]()
    node.effects = Effects(sends=["a message"])  # type: ignore[list-item]
    driver = new_driver(node, SetClock(), failures)
    for _ in range(2):
        driver.raft_event("an event")  # type: ignore[arg-type]
        await asyncio.sleep(0)
    assert [str(failure) for failure in failures] == ["cannot be encoded"]
    assert len(node.calls) == 1
    driver.stop()


async def test_what_a_snapshot_brought_is_reported() -> None:
    """Goal: the process can exclude a loaded image from garbage collection. Method: a turn that loads, one not."""
    node = FakeNode()
    driver = new_driver(node, SetClock(), [])
    for has_loaded in (True, False):
        node.effects = Effects(has_loaded=has_loaded)
        node.turned.clear()
        driver.raft_event("an event")  # type: ignore[arg-type]
        await node.turned.wait()
    assert node.calls.count("loaded") == 1
    driver.stop()
