"""The order of work, when there is more than can be done at once."""

import asyncio
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest
from quorate_controller import scheduler as scheduler_module
from quorate_controller.scheduler import (
    PASS_S_MAX,
    REQUESTS_PER_TURN_MAX,
    TURN_MS_MAX,
    Account,
    Budget,
    Scheduler,
    ServiceClass,
    StepResult,
    Steps,
)

CLIENTS, NODES, STRANGERS = ServiceClass.CLIENTS, ServiceClass.NODES, ServiceClass.STRANGERS
SLOW_S = PASS_S_MAX * 0.6
"""Two of these take longer than a pass."""


class Clock:
    """Stands in for the module `time`: it runs on while work is done."""

    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


class Asking:
    """A connection with some requests, each of which takes `takes_s`."""

    def __init__(
        self,
        name: str,
        order: list[str],
        clock: Clock,
        takes_s: float = SLOW_S,
        *,
        requests: int = 0,
        service_class: ServiceClass = CLIENTS,
    ) -> None:
        self.name = name
        self.service_class = service_class
        self.requests = requests
        self.account = Account()
        self._order = order
        self._clock = clock
        self._takes_s = takes_s

    def step(self) -> StepResult:
        self._order.append(self.name)
        self._clock.now_s += self._takes_s
        self.requests -= 1
        return StepResult.MORE if self.requests > 0 else StepResult.DONE


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(scheduler_module, "time", clock)
    return clock


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_who_asks_rarely_is_served_next(clock: Clock) -> None:
    order: list[str] = []
    scheduler = Scheduler()
    for number in range(200):
        takes_s = SLOW_S * (1 + number / 1_000)
        scheduler.add(Asking(f"busy-{number}", order, clock, takes_s, requests=1_000))
    await turns(150)
    rare = Asking("rare", order, clock, SLOW_S / 1_000)
    for _ in range(3):
        asked = len(order)
        rare.requests = 1
        scheduler.add(rare)
        await turns(2)
        assert "rare" in order[asked : asked + 2]
        await turns(10)


async def test_clients_get_the_same_time(clock: Clock) -> None:
    """Requests that take long are served less often."""
    order: list[str] = []
    scheduler = Scheduler()
    for name, takes_s in (("slow", SLOW_S), ("fast", SLOW_S / 10)):
        scheduler.add(Asking(name, order, clock, takes_s, requests=10_000))
    await turns(200)
    assert order.count("fast") == pytest.approx(10 * order.count("slow"), rel=0.1)


async def test_classes_are_served_in_order_and_none_is_starved(clock: Clock) -> None:
    """Heartbeats and fetches wait for no client, clients for no stranger; a busy client stops no other."""
    order: list[str] = []
    scheduler = Scheduler()
    for service_class in reversed(ServiceClass):
        for _ in range(5):
            scheduler.add(
                Asking(service_class.value, order, clock, requests=1_000, service_class=service_class)
            )
    await turns(1)
    assert order == ["quorum", "quorum", "nodes", "clients", "strangers"]
    await turns(20)
    assert order.count("quorum") > 20
    assert min(order.count(each.value) for each in ServiceClass) >= 20


async def test_what_one_class_has_used_is_no_debt_in_another(clock: Clock) -> None:
    order: list[str] = []
    scheduler = Scheduler()
    node = Asking("node", order, clock, requests=500, service_class=NODES)
    scheduler.add(node)
    await turns(300)
    scheduler.add(Asking("busy", order, clock, requests=1_000))
    await turns(5)
    node.requests, node.service_class = 1, CLIENTS
    asked = len(order)
    scheduler.add(node)
    await turns(2)
    assert "node" in order[asked : asked + 3]


async def test_work_waits_for_futures_and_later_passes() -> None:
    done: list[str] = []
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def waiting(name: str) -> Generator[Any, None, None]:
        try:
            done.append(f"{name} begins")
            yield future
            done.append(f"{name} goes on")
            yield StepResult.LATER
            done.append(f"{name} ends")
        finally:
            done.append(f"{name} is closed")

    scheduler = Scheduler()
    first, second = Steps(waiting("first"), CLIENTS), Steps(waiting("second"), NODES)
    for work in (first, second):
        scheduler.add(work)
    await turns(5)
    assert done == ["second begins", "first begins"]
    assert scheduler.is_idle
    second.abandon()
    future.set_result(None)
    await turns(2)
    assert done[2:] == ["second is closed", "first goes on"]
    await turns(2)
    assert done[4:] == ["first ends", "first is closed"]
    assert scheduler.is_idle


async def test_a_mistake_ends_the_work_that_makes_it(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    order: list[str] = []

    def failing() -> Generator[Any, None, None]:
        yield StepResult.MORE
        raise ZeroDivisionError

    scheduler = Scheduler()
    scheduler.add(Steps(failing(), NODES))
    scheduler.add(Asking("client", order, clock, requests=3))
    await turns(10)
    assert order == ["client"] * 3
    assert [record.message for record in caplog.records] == ["work_failed"]


async def test_a_budget_lets_the_first_go_on() -> None:
    budget = Budget(10)
    assert budget.has_room("first", 100)
    budget.hold("first", 100)
    assert budget.has_room("first", 200)
    assert not budget.has_room("second", 1)
    freed = budget.freed()
    assert budget.freed() is freed
    budget.release("first")
    assert freed.done()
    budget.hold("second", 6)
    assert budget.has_room("third", 4)
    assert not budget.has_room("third", 5)
    budget.hold("third", 4)
    budget.hold("third", 1)
    assert budget.has_room("fourth", 3)
    budget.release("fourth")


@pytest.mark.parametrize("cost_ms", [0.1, 2.0, 30.0, 400.0])
async def test_turns_are_as_long_as_they_may_be(clock: Clock, cost_ms: float) -> None:
    """Costly requests do not hold up heartbeats, cheap ones share a flush."""
    scheduler = Scheduler()
    counts: list[int] = []
    passed = 0

    class PassingOn(Asking):
        def step(self) -> StepResult:
            nonlocal passed
            passed += 1
            scheduler.passed_on()
            return StepResult.MORE

    scheduler.add(PassingOn("client", [], clock))
    for _ in range(12):
        # The clock stands still: passes end at the limit.
        while passed < REQUESTS_PER_TURN_MAX:
            before = passed
            await turns(1)
            if passed == before:
                break
        counts.append(passed)
        scheduler.turn_begins()
        scheduler.turn_took(passed * cost_ms)
        passed = 0
    assert counts[0] == REQUESTS_PER_TURN_MAX
    allowed = min(REQUESTS_PER_TURN_MAX, max(1, int(TURN_MS_MAX / cost_ms)))
    assert allowed / 2 <= counts[-1] <= allowed
    order: list[str] = []
    for _ in range(REQUESTS_PER_TURN_MAX):
        scheduler.passed_on()
    assert not scheduler.is_idle
    scheduler.add(Asking("node", order, clock, requests=2, service_class=NODES))
    scheduler.add(Asking("stranger", order, clock, requests=2, service_class=STRANGERS))
    await turns(3)
    assert order == ["node", "node"]


async def test_fast_requests_come_back_to_full_turns() -> None:
    scheduler = Scheduler()

    def turn(took_ms: float) -> int:
        """Pass on as many as may be, and note what the turn took."""
        passed = 0
        while scheduler.is_idle:
            scheduler.passed_on()
            passed += 1
        scheduler.turn_begins()
        scheduler.turn_took(took_ms)
        return passed

    assert turn(1_000.0) == REQUESTS_PER_TURN_MAX
    counts = [turn(1.0) for _ in range(8)]
    assert counts[0] < 10
    assert counts[-1] == REQUESTS_PER_TURN_MAX


async def test_what_a_turn_leaves_over_counts_for_the_next() -> None:
    """The node never holds more undecided requests than a turn may take."""
    scheduler = Scheduler()
    for _ in range(REQUESTS_PER_TURN_MAX):
        scheduler.passed_on()
    for left in (REQUESTS_PER_TURN_MAX, 1):
        scheduler.turn_begins()
        scheduler.left_over(left)
        assert scheduler.is_idle is (left == 1)
        scheduler.turn_took(TURN_MS_MAX)
    for passed in range(1, REQUESTS_PER_TURN_MAX):
        assert scheduler.is_idle, passed
        scheduler.passed_on()
    assert not scheduler.is_idle


async def test_a_connection_that_was_idle_gets_no_more_than_others(clock: Clock) -> None:
    """A connection does not save up the time in which it had no work."""
    order: list[str] = []
    scheduler = Scheduler()
    scheduler.add(Asking("early", order, clock, PASS_S_MAX, requests=1_000))
    await turns(100)
    before = len(order)
    assert before > 50
    scheduler.add(Asking("late", order, clock, PASS_S_MAX, requests=1_000))
    await turns(40)
    steps = Counter(order[before:])
    assert steps["late"] == pytest.approx(steps["early"], abs=2)
    assert steps["late"] > 10
