"""Who gives way when memory is short, and how much time a request may save up."""

from typing import TYPE_CHECKING

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


class Connection:
    """Notes what happens to it."""

    def __init__(self, name: str) -> None:
        self.address = name
        self.is_granted = self.is_closed = False

    def memory_granted(self) -> None:
        self.is_granted = True

    def abort(self) -> None:
        self.is_closed = True


def test_the_request_that_lacks_least_never_gives_way() -> None:
    now_s = 100.0
    timers: list[Callable[[], None]] = []
    memory = RequestMemory(0, RequestCounters(), lambda _delay_s, call: timers.append(call), lambda: now_s)
    missing_bytes = {Connection("least"): 10, Connection("second"): 1_000, Connection("third"): 1_000}
    for size_bytes in (1, BYTES_MAX // 2, BYTES_MAX // 2):
        for connection, missing in missing_bytes.items():
            memory.hold(connection, ServiceClass.STRANGERS, UNCOUNTED_REQUEST_BYTES_MAX + size_bytes, missing)
            now_s += 0.01
    least, second, _ = missing_bytes
    now_s += ARRIVING_S_MIN
    timers.pop()()
    assert (least.is_closed, second.is_closed) == (False, True)
    assert least.is_granted


def test_a_request_saves_up_bounded_time() -> None:
    """A connection that stops is closed soon, whatever it has sent."""
    arrival = Arrival()
    arrival.arrived(1, 100.0, is_new=True)
    assert arrival.due_s == 100.0 + CREDIT_S_MAX
    arrival.arrived(LEAST_BYTES_PER_S, 105.0, is_new=False)
    assert arrival.due_s == 101.0 + CREDIT_S_MAX
    arrival.arrived(1_000 * LEAST_BYTES_PER_S, 106.0, is_new=False)
    assert arrival.due_s == 106.0 + CREDIT_S_MAX
