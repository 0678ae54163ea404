"""The connection that gives way when memory is short, and the credit of a request."""

from typing import TYPE_CHECKING

from kit.noted_places import NotedPlace
from quorate_controller.scheduler import ServiceClass
from quorate_controller.server.connection_memory import (
    ARRIVING_S_MIN,
    CREDIT_S_MAX,
    LEAST_BYTES_PER_S,
    RESERVED_BYTES,
    UNCOUNTED_REQUEST_BYTES_MAX,
    Arrival,
    RequestMemory,
)
from quorate_controller.server.counters import RequestCounters

if TYPE_CHECKING:
    from collections.abc import Callable

BYTES_MAX = RESERVED_BYTES[ServiceClass.STRANGERS]


def test_the_request_that_lacks_least_never_gives_way() -> None:
    now_s = 100.0
    timers: list[Callable[[], None]] = []
    memory = RequestMemory(0, RequestCounters(), lambda _delay_s, call: timers.append(call), lambda: now_s)
    missing_bytes = {NotedPlace("least"): 10, NotedPlace("second"): 1_000, NotedPlace("third"): 1_000}
    for size_bytes in (1, BYTES_MAX // 2, BYTES_MAX // 2):
        for place, missing in missing_bytes.items():
            memory.hold(place, ServiceClass.STRANGERS, UNCOUNTED_REQUEST_BYTES_MAX + size_bytes, missing)
            now_s += 0.01
    least, second, _ = missing_bytes
    now_s += ARRIVING_S_MIN
    timers.pop()()
    assert (least.events, second.events) == (["granted"], ["closed"])


def test_a_request_saves_up_bounded_time() -> None:
    """A connection that stops is closed soon, whatever it has sent."""
    arrival = Arrival()
    arrival.arrived(1, 100.0, is_new=True)
    assert arrival.due_s == 100.0 + CREDIT_S_MAX
    arrival.arrived(LEAST_BYTES_PER_S, 105.0, is_new=False)
    assert arrival.due_s == 101.0 + CREDIT_S_MAX
    arrival.arrived(1_000 * LEAST_BYTES_PER_S, 106.0, is_new=False)
    assert arrival.due_s == 106.0 + CREDIT_S_MAX
