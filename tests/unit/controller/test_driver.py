"""The event loop around a node: deadlines of requests, a process that stood still, failures."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.controller_parts import caller, heartbeat
from kit.waiting import HANG_S, turn_until
from quorate_controller import driver as driver_module
from quorate_controller.control.api import ControlError
from quorate_controller.driver import (
    EVENTS_PER_TURN_MAX,
    OBSERVERS_AT_ONCE,
    STALL_LOGGED_MS_MIN,
    TURN_INTERVAL_MS_MAX,
    UNAWAITED_TIMEOUT_MS,
    Clock,
    Driver,
)
from quorate_controller.node import ControlRequest, Effects
from quorate_controller.node.events import ControlResponse, OutgoingRaftResponse, ResponseWithData
from quorate_controller.raft.events import Shutdown
from quorate_controller.raft.messages import VoteResponse
from quorate_controller.scheduler import REQUESTS_PER_TURN_MAX
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
)
from quorate_protocol.kafka.generated.create_acls_request import CreateAclsRequest
from quorate_protocol.kafka.generated.delete_acls_request import DeleteAclsRequest
from quorate_protocol.kafka.generated.describe_configs_request import DescribeConfigsRequest

NOW_MS = 1_000_000
CALLER = caller(request_timeout_ms=700)
READ = DescribeConfigsRequest(resources=())
SLICED_CHANGES = (CreateAclsRequest(creations=()), DeleteAclsRequest(filters=()))


class SetClock(Clock):
    """Time stands still until it is set."""

    def __init__(self) -> None:
        self.time_ms = NOW_MS

    def now_ms(self) -> int:
        return self.time_ms

    def unix_ms_of(self, now_ms: int) -> int:
        return now_ms


class FakeNode:
    """Notes what the driver asks of it."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.effects = Effects()
        self.turned = asyncio.Event()
        self.raft = SimpleNamespace(is_shut_down=False)
        self.metadata = SimpleNamespace(control=SimpleNamespace(excuse_silence=self.calls.append))
        self.deadline_ms = 1 << 62
        self.is_reading = False
        self.waiting_count = 0
        self.closed = 0

    def start(self, _now_ms: int) -> Effects:
        return Effects()

    def turn(self, events: list[Any], now_ms: int) -> Effects:
        self.calls.append((events, now_ms))
        self.turned.set()
        return self.effects

    def close(self) -> None:
        self.closed += 1


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


@pytest.mark.parametrize(("timeout_ms", "due_ms"), [(700, 700), (0, UNAWAITED_TIMEOUT_MS)])
async def test_requests_have_a_deadline(timeout_ms: int, due_ms: int) -> None:
    """What timed out in the queue can be recognized; a request with a timeout of 0 is decided (KIP-4)."""
    node = FakeNode()
    driver = new_driver(node, SetClock(), [])
    driver.control(heartbeat(), caller(request_timeout_ms=timeout_ms))
    await node.turned.wait()
    (((event,), _),) = node.calls
    assert isinstance(event, ControlRequest)
    assert event.deadline_ms == NOW_MS + due_ms
    driver.stop()


@pytest.mark.parametrize(("gap_ms", "stall_ms"), [(TURN_INTERVAL_MS_MAX, None), (20_000, 19_000)])
async def test_time_without_turns_is_excused(gap_ms: int, stall_ms: int | None) -> None:
    """A process that stood still fences no broker for heartbeats that it did not read."""
    node, clock = FakeNode(), SetClock()
    driver = new_driver(node, clock, [])
    clock.time_ms += gap_ms
    driver.raft_event("an event")  # type: ignore[arg-type]
    await node.turned.wait()
    turn = (["an event"], NOW_MS + gap_ms)
    assert node.calls == ([turn] if stall_ms is None else [stall_ms, turn])
    driver.stop()


@pytest.mark.parametrize(("late_ms", "is_logged"), [(2, False), (STALL_LOGGED_MS_MIN, True)])
async def test_a_timer_that_is_a_little_late_is_no_stall_to_warn_of(
    late_ms: int, is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    node, clock = FakeNode(), SetClock()
    driver = new_driver(node, clock, [])
    clock.time_ms += TURN_INTERVAL_MS_MAX + late_ms
    driver.raft_event("an event")  # type: ignore[arg-type]
    await node.turned.wait()
    assert node.calls[0] == late_ms
    assert ("stalled" in caplog.messages) == is_logged
    driver.stop()


async def test_effects_that_cannot_be_carried_out_end_the_driver_once() -> None:
    """No loop that fails again and again, and no process that looks alive."""
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
    """The process can exclude a loaded image from garbage collection."""
    node = FakeNode()
    driver = new_driver(node, SetClock(), [])
    for has_loaded in (True, False):
        node.effects = Effects(has_loaded=has_loaded)
        node.turned.clear()
        driver.raft_event("an event")  # type: ignore[arg-type]
        await node.turned.wait()
    assert node.calls.count("loaded") == 1
    driver.stop()


async def test_each_answer_reaches_who_asked() -> None:
    node, failures = FakeNode(), list[Exception]()
    driver = new_driver(node, SetClock(), failures)
    first, second, gone = (driver.control(heartbeat(), CALLER) for _ in range(3))
    voted = driver.raft("a vote", "CONTROLLER")  # type: ignore[arg-type]
    gone.cancel()
    tokens = [event.token for event in driver._events]  # type: ignore[union-attr]
    response = ResponseWithData(response=VoteResponse(vote_granted=True))
    refusal = ControlError(ErrorCode.not_controller, "no")
    node.effects = Effects(
        raft_responses=[OutgoingRaftResponse(token=tokens[3], response=response)],
        control_responses=[
            ControlResponse(token=tokens[1], result=refusal),
            ControlResponse(token=tokens[2], result="late"),  # type: ignore[arg-type]
            ControlResponse(token=tokens[0], result="done"),  # type: ignore[arg-type]
            ControlResponse(token=999, result="nobody's"),  # type: ignore[arg-type]
        ],
    )
    assert await first == "done"
    assert second.exception() is refusal
    assert voted.result() is response
    assert gone.cancelled()
    assert not failures
    driver.stop()


async def test_observers_are_answered_behind_voters_and_clients() -> None:
    node, failures = FakeNode(), list[Exception]()
    driver = new_driver(node, SetClock(), failures)
    loop, written, done = asyncio.get_running_loop(), list[str](), asyncio.Event()
    futures = {
        "observer": driver.raft("a fetch", "CONTROLLER"),  # type: ignore[arg-type]
        "client": driver.control(heartbeat(), CALLER),
        "voter": driver.raft("a fetch", "CONTROLLER"),  # type: ignore[arg-type]
    }
    observer, client, voter = (event.token for event in driver._events)  # type: ignore[union-attr]
    for name, future in futures.items():
        future.add_done_callback(lambda _, name=name: loop.call_soon(written.append, f"{name} written"))
        future.add_done_callback(lambda _, name=name: written.append(f"{name} encoded"))
    futures["observer"].add_done_callback(lambda _: loop.call_soon(done.set))
    response = ResponseWithData(response=VoteResponse())
    node.effects = Effects(
        raft_responses=[
            OutgoingRaftResponse(token=observer, response=response, is_for_observer=True),
            OutgoingRaftResponse(token=voter, response=response),
        ],
        control_responses=[ControlResponse(token=client, result="done")],  # type: ignore[arg-type]
    )
    await done.wait()
    assert written == [
        "voter encoded",
        "client encoded",
        "voter written",
        "client written",
        "observer encoded",
        "observer written",
    ]
    assert not failures
    driver.stop()


async def test_hundreds_of_observers_leave_room_for_others() -> None:
    node, failures = FakeNode(), list[Exception]()
    driver = new_driver(node, SetClock(), failures)
    count = 2 * OBSERVERS_AT_ONCE + 1
    futures = [driver.raft("a fetch", "CONTROLLER") for _ in range(count)]  # type: ignore[arg-type]
    response = ResponseWithData(response=VoteResponse())
    node.effects = Effects(
        raft_responses=[
            OutgoingRaftResponse(token=event.token, response=response, is_for_observer=True)  # type: ignore[union-attr]
            for event in driver._events
        ]
    )
    responses = [0]
    async with asyncio.timeout(HANG_S):
        while responses[-1] < count:
            await asyncio.sleep(0)
            done = sum(future.done() for future in futures)
            if done > responses[-1]:
                responses.append(done)
    assert responses == [0, OBSERVERS_AT_ONCE, 2 * OBSERVERS_AT_ONCE, count]
    assert not failures
    driver.stop()


async def test_a_burst_leaves_room_for_timers() -> None:
    node = FakeNode()
    driver = new_driver(node, SetClock(), [])
    for number in range(EVENTS_PER_TURN_MAX + 1):
        driver.raft_event(number)  # type: ignore[arg-type]
    await turn_until(lambda: len(node.calls) > 1)
    assert [events for events, _ in node.calls] == [
        list(range(EVENTS_PER_TURN_MAX)),
        [EVENTS_PER_TURN_MAX],
    ]
    driver.stop()


def bodies(node: FakeNode) -> list[Any]:
    """The requests of each turn since the last time."""
    found = [[event.request for event in events] for events, _ in node.calls]
    node.calls.clear()
    return [batch for batch in found if batch]


@pytest.mark.parametrize("long", [READ, *SLICED_CHANGES], ids=lambda request: type(request).__name__)
async def test_long_reads_wait_for_those_under_way(long: Any) -> None:
    node = FakeNode()
    driver = new_driver(node, SetClock(), [])
    node.is_reading = True
    for connection in ("one", "one", "other"):
        driver.control(long, replace(CALLER, connection=connection))
    driver.control(heartbeat(), CALLER)
    await turn_until(lambda: bool(node.calls))
    assert bodies(node) == [[heartbeat()]]
    node.is_reading = False
    driver.control(heartbeat(), CALLER)
    await turn_until(lambda: len(node.calls) > 1)
    assert bodies(node) == [[heartbeat(), long, long], [long]]
    driver.stop()


@pytest.mark.parametrize("change", SLICED_CHANGES, ids=lambda request: type(request).__name__)
async def test_reads_that_nobody_waits_for_are_left_out(change: Any) -> None:
    """No work for clients that have left; what they wanted changed is done."""
    node = FakeNode()
    driver = new_driver(node, SetClock(), [])
    for request, connection in ((READ, "one"), (change, "other")):
        driver.control(request, replace(CALLER, connection=connection)).cancel()
    await turn_until(lambda: bool(node.calls))
    assert bodies(node) == [[change]]
    driver.stop()


async def test_turns_bound_what_clients_pass_on() -> None:
    node = FakeNode()
    driver = new_driver(node, SetClock(), [])
    for _ in range(REQUESTS_PER_TURN_MAX):
        driver.control(heartbeat(), CALLER)
    assert driver.scheduler.is_idle
    for number in range(REQUESTS_PER_TURN_MAX):
        driver.control(READ, replace(CALLER, connection=number))
    assert not driver.scheduler.is_idle
    node.waiting_count = REQUESTS_PER_TURN_MAX
    await turn_until(lambda: bool(node.calls))
    assert not driver.scheduler.is_idle, "the node has not begun them"
    node.waiting_count = 0
    driver.control(heartbeat(), CALLER)
    await turn_until(lambda: len(node.calls) > 1)
    assert driver.scheduler.is_idle
    driver.stop()


async def test_stopping_cancels_what_waits_and_releases_the_disk_once() -> None:
    """No caller waits for a node that has ended, and no turn follows."""
    node = FakeNode()
    driver = new_driver(node, SetClock(), [])
    waiting = [driver.control(heartbeat(), CALLER), driver.raft("a vote", "CONTROLLER")]  # type: ignore[arg-type]
    await node.turned.wait()
    waiting.append(driver.control(heartbeat(), CALLER))
    driver.stop()
    driver.stop()
    driver.raft_event("an event")  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert all(future.cancelled() for future in waiting)
    assert len(node.calls) == 1
    assert node.closed == 1


@pytest.mark.parametrize("has_response", [True, False], ids=["successor", "nobody"])
async def test_shutting_down_waits_for_raft_within_a_bound(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, has_response: bool
) -> None:
    """Leadership is handed over before the process ends, and the process ends in any case."""
    monkeypatch.setattr(driver_module, "SHUTDOWN_TIMEOUT_MS", -990)  # a second is added
    node = FakeNode()
    driver = new_driver(node, SetClock(), [])
    ending = asyncio.create_task(driver.shut_down())
    await node.turned.wait()
    (((event,), _),) = node.calls
    assert isinstance(event, Shutdown)
    assert not ending.done()
    assert node.closed == 0
    if has_response:
        node.raft.is_shut_down = True
        driver.raft_event("a response")  # type: ignore[arg-type]
    await ending
    assert node.closed == 1
    assert [record.msg for record in caplog.records] == ([] if has_response else ["shutdown_timed_out"])


async def test_host_names_of_quotas_are_looked_up_before_the_turn() -> None:
    def quotas(*names: str) -> AlterClientQuotasRequest:
        return AlterClientQuotasRequest(
            entries=tuple(
                EntryData(entity=(EntityData(entity_type="ip", entity_name=name),), ops=()) for name in names
            ),
            validate_only=False,
        )

    node, failures = FakeNode(), list[Exception]()
    driver = new_driver(node, SetClock(), failures)
    given_up = driver.control(quotas("localhost"), CALLER)
    given_up.cancel()
    waiting = driver.control(quotas("not a host", "nul\0", "10.0.0.1", "localhost", "[::1]"), CALLER)
    async with asyncio.timeout(30):
        await node.turned.wait()
    (event,) = (event for events, _ in node.calls for event in events)
    assert event.unresolved_hosts >= {"not a host", "nul\0"}
    assert not event.unresolved_hosts & {"10.0.0.1", "localhost"}
    assert event.token == 1
    assert not waiting.done()
    assert list(driver._control_futures) == [1]
    driver.stop()
