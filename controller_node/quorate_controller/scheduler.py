"""Decides what a controller does next for its connections: one scheduler for a process.

Work has a class: that of the quorum is done first, then that of nodes, of clients, and of strangers. Each pass of the
event loop spends `PASS_S_MAX` on it, and does at least one step of each class. Within a class, the connection that
has taken least time is next: start-time fair queueing (Goyal, Vin, Cheng: SIGCOMM 1996). So a client with few
requests does not wait for a round over hundreds of busy ones, and a client whose requests take long is served less
often.

A step is short: a few requests are parsed and passed on, a piece of a long response is written. What takes longer is
a generator, `Steps`. It may wait for a future, such as a thread that parses, or for room in a `Budget`.

What is passed on to the node is decided in its next turn. A turn should take `TURN_MS_MAX`: a long one delays fetches
and heartbeats, and may cost the leadership. So the requests of clients that are passed on in between have a limit,
which follows from the last turns.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from enum import Enum
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final, Protocol

from quorate_protocol.kafka.apis import ApiKey

from quorate_controller.node.request_queue import OF_NODES

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Generator, Iterable

log = logging.getLogger(__name__)

PASS_S_MAX: Final = 0.004
"""How long work is done before the event loop polls sockets and timers again."""
STEP_S_MAX: Final = 0.001
"""How long one step of a generator should take."""
REQUESTS_PER_TURN_MAX: Final = 128
"""The maximum requests of clients per turn, even if the last ones were fast: the next may be slower."""
TURN_MS_MAX: Final = 50.0
"""The target duration of a turn, including writing its responses. Timeouts of heartbeats and fetches are far longer.
"""

LONG_RESPONSES_BYTES_MAX: Final = 128 * 1024 * 1024
"""If the long responses that are being written have more bytes, only the first of them is continued."""

_OF_QUORUM: Final = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.UPDATE_RAFT_VOTER,
    }
)


class ServiceClass(Enum):
    """The origin of work, in the order in which it is done. Each class has its own budget of memory."""

    QUORUM = "quorum"
    """Controllers, and observers of the log."""
    NODES = "nodes"
    """Brokers and controllers that register, send heartbeats or change partitions."""
    CLIENTS = "clients"
    """Connections that have authenticated, or that were served before where no authentication is required."""
    STRANGERS = "strangers"
    """Other connections."""

    __hash__ = object.__hash__
    """`Enum.__hash__` runs Python code, for each step of work several times."""


def _first_bytes(keys: Iterable[int]) -> frozenset[bytes]:
    return frozenset(int(key).to_bytes(2, "big") for key in keys)


_NODES: Final = _first_bytes(OF_NODES)
_QUORUM: Final = _first_bytes(_OF_QUORUM)


def class_of(key: bytes) -> ServiceClass:
    """Return the class of a request of a known client by its first two bytes, without parsing it."""
    if key in _NODES:
        return ServiceClass.NODES
    return ServiceClass.QUORUM if key in _QUORUM else ServiceClass.CLIENTS


class Account(dict[ServiceClass, float]):
    """The time that the work of one connection has taken: the virtual time up to which it is used, by class.

    Virtual time passes while the work of a class is done.
    """


class StepResult(Enum):
    """What follows a step."""

    DONE = "done"
    MORE = "more"
    LATER = "more, not in this pass"


class Work(Protocol):
    """Work in steps. It is added again after a step that leaves more of it."""

    account: Account

    @property
    def service_class(self) -> ServiceClass:
        """The class of the next step."""

    def step(self) -> StepResult | Future[Any]:
        """Do some of it. A future: there is more when that is done."""


class Steps:
    """Work that a generator does; it yields what `Work.step` returns."""

    __slots__ = ("_is_abandoned", "_steps", "account", "service_class")

    def __init__(
        self,
        steps: Generator[StepResult | Future[Any], None, None],
        service_class: ServiceClass,
        account: Account | None = None,
    ) -> None:
        self.service_class = service_class
        self.account = account or Account()
        self._steps = steps
        self._is_abandoned = False

    def step(self) -> StepResult | Future[Any]:
        """See `Work`."""
        if self._is_abandoned:
            self._steps.close()
        return next(self._steps, StepResult.DONE)

    def abandon(self) -> None:
        """The client has gone: the next step ends the work."""
        self._is_abandoned = True


class Budget:
    """Bytes that work may hold together. The first holder may have more: it always continues."""

    def __init__(self, size_bytes_max: int) -> None:
        self._size_bytes_max = size_bytes_max
        self._held: dict[object, int] = {}
        self._used_bytes = 0
        self._freed: Future[None] | None = None

    def __contains__(self, holder: object) -> bool:
        return holder in self._held

    def has_room(self, holder: object, size_bytes: int) -> bool:
        """Whether a holder may have `size_bytes` and continue."""
        others_bytes = self._used_bytes - self._held.get(holder, 0)
        if not others_bytes or others_bytes + size_bytes <= self._size_bytes_max:
            return True
        return next(iter(self._held)) is holder

    def hold(self, holder: object, size_bytes: int) -> None:
        """Note the bytes of a holder."""
        self._used_bytes += size_bytes - self._held.get(holder, 0)
        self._held[holder] = size_bytes

    def release(self, holder: object) -> None:
        """The holder has none any more. Without effect if it had none."""
        self._used_bytes -= self._held.pop(holder, 0)
        if self._freed is not None:
            self._freed.set_result(None)
            self._freed = None

    def freed(self) -> Future[None]:
        """A future that is done when a holder has released its bytes."""
        if self._freed is None:
            self._freed = asyncio.get_running_loop().create_future()
        return self._freed


class Scheduler:
    """Does the work of all connections."""

    def __init__(self) -> None:
        self._waiting: dict[ServiceClass, list[tuple[float, int, Work]]] = {each: [] for each in ServiceClass}
        """Heaps by the virtual time at which the next step begins."""
        self._spent_s = dict.fromkeys(ServiceClass, 0.0)
        """The virtual times at which the last steps began."""
        self.long_responses = Budget(LONG_RESPONSES_BYTES_MAX)
        """Those that are being written."""
        self._later: list[Work] = []
        self._numbers = itertools.count()
        self._loop = asyncio.get_running_loop()
        self._is_scheduled = False
        self._requests_max = REQUESTS_PER_TURN_MAX
        self._passed_on = 0
        """Requests of clients for the next turn."""
        self._taken = 0
        """Requests of clients in the last turn."""

    @property
    def is_idle(self) -> bool:
        """Whether a request can be served at once: no other work waits."""
        return not self._is_scheduled and self._passed_on < self._requests_max

    def add(self, work: Work) -> None:
        """Do work when its time comes."""
        service_class = work.service_class
        # An account does not save up the time in which there was no work.
        begins_s = max(work.account.get(service_class, 0.0), self._spent_s[service_class])
        heappush(self._waiting[service_class], (begins_s, next(self._numbers), work))
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._pass)

    def _pass(self) -> None:
        later, self._later = self._later, []
        for work in later:
            self.add(work)
        now_s = time.monotonic()
        ends_s = now_s + PASS_S_MAX
        for service_class, waiting in self._waiting.items():
            is_of_node = service_class in (ServiceClass.QUORUM, ServiceClass.NODES)
            while waiting and (is_of_node or self._passed_on < self._requests_max):
                now_s = self._step(service_class, now_s)
                if now_s >= ends_s:
                    break
        self._is_scheduled = False
        if self._later or any(self._waiting.values()):
            self._schedule()

    def _step(self, service_class: ServiceClass, began_s: float) -> float:
        """Do a step of the work that is next. Returns the time."""
        spent_s, _, work = heappop(self._waiting[service_class])
        self._spent_s[service_class] = spent_s
        try:
            result = work.step()
        except Exception:
            log.exception("work_failed")
            result = StepResult.DONE
        now_s = time.monotonic()
        work.account[service_class] = spent_s + now_s - began_s
        if result is StepResult.MORE:
            self.add(work)
        elif result is StepResult.LATER:
            self._later.append(work)
        elif result is not StepResult.DONE:
            result.add_done_callback(lambda _: self.add(work))
        return now_s

    # ------------------------------------------------------------------------------------ turns of the node

    def passed_on(self) -> None:
        """A request of a client is decided in the next turn."""
        self._passed_on += 1

    def turn_begins(self) -> None:
        """What was passed on is decided now."""
        self._taken, self._passed_on = self._passed_on, 0

    def left_over(self, requests: int) -> None:
        """Requests of clients that the turn did not begin count for the next one."""
        self._passed_on += requests
        self._taken = max(0, self._taken - requests)

    def turn_took(self, elapsed_ms: float) -> None:
        """Note the duration of the last turn in milliseconds, including its responses."""
        if not self._taken:
            return
        if elapsed_ms > TURN_MS_MAX:
            self._requests_max = max(1, int(self._taken * TURN_MS_MAX / elapsed_ms))
        elif self._taken >= self._requests_max and elapsed_ms < TURN_MS_MAX / 2:
            self._requests_max = min(self._requests_max * 2, REQUESTS_PER_TURN_MAX)
