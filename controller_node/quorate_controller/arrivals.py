"""Queues events for the node's turns: those of Raft and of the cluster's nodes first, then clients in rotation.

A long turn delays fetches and heartbeats, and may cost the leadership. So the requests of clients in one turn have a
time limit; their number is estimated from the last turns. A turn takes them from one connection after the other, so
that a client with thousands of requests delays only itself. Kafka has the same effect, because it reads one request
of a connection at a time.

Pure: times are parameters.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

from quorate_protocol.kafka.apis import ApiKey
from quorate_protocol.kafka.extensions.controller_heartbeat_request import ControllerHeartbeatRequest

from quorate_controller.node.events import ControlRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from quorate_controller.node.events import NodeEvent

EVENTS_PER_TURN_MAX: Final = 256
"""The maximum events of Raft and of nodes per turn. The others wait, so that a burst does not starve the timers."""
REQUESTS_PER_TURN_MAX: Final = 128
"""The maximum requests of clients per turn. It applies even if the last ones were fast: the next may be slower."""
TURN_MS_MAX: Final = 50.0
"""The target duration of a turn, including writing its answers. Timeouts of heartbeats and fetches are far longer."""

OF_NODES: Final = frozenset(
    {
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ControllerHeartbeatRequest.__api_key__,
    }
)
"""Requests that only nodes of the cluster send (CLUSTER_ACTION)."""
LONG_READS: Final = frozenset(
    {
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
    }
)
"""Reads that may take several turns, and decisions that begin with one: see `node/long_reads.py`."""
_READS: Final = (LONG_READS | {ApiKey.DESCRIBE_CLUSTER}) - {ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS}


class Arrivals:
    """Events in the order in which turns take them."""

    def __init__(self) -> None:
        self._first: deque[NodeEvent] = deque()
        self._by_connection: OrderedDict[Hashable, deque[ControlRequest]] = OrderedDict()
        self._requests_max = REQUESTS_PER_TURN_MAX
        self._taken = 0

    def __bool__(self) -> bool:
        return bool(self._first or self._by_connection)

    def put(self, event: NodeEvent) -> None:
        """Add an event. Requests of one connection keep their order."""
        if not isinstance(event, ControlRequest):
            self._first.append(event)
            return
        waiting = self._by_connection.get(event.caller.connection)
        if waiting is not None:
            waiting.append(event)
        elif event.request.__api_key__ in OF_NODES:
            self._first.append(event)
        else:
            self._by_connection[event.caller.connection] = deque([event])

    def take(
        self, is_waited_for: Callable[[ControlRequest], bool], *, begins_reads: bool = True
    ) -> list[NodeEvent]:
        """Return the events of the next turn. Reads that nobody waits for any more are left out.

        Without `begins_reads`, long ones stay, and so does what came behind them on their connection.
        """
        events = [self._first.popleft() for _ in range(min(len(self._first), EVENTS_PER_TURN_MAX))]
        self._taken = 0
        kept: OrderedDict[Hashable, deque[ControlRequest]] = OrderedDict()
        while self._by_connection and self._taken < self._requests_max:
            connection, waiting = self._by_connection.popitem(last=False)
            key = waiting[0].request.__api_key__
            is_wanted = key not in _READS or is_waited_for(waiting[0])
            if is_wanted and key in LONG_READS and not begins_reads:
                kept[connection] = waiting
                continue
            event = waiting.popleft()
            if waiting:
                self._by_connection[connection] = waiting
            if is_wanted:
                self._taken += 1
                events.append(event)
        if kept:  # they come first in the next turn
            kept.update(self._by_connection)
            self._by_connection = kept
        return events

    def took(self, elapsed_ms: float) -> None:
        """Note the duration of the last turn in milliseconds, including its answers."""
        if not self._taken:
            return
        if elapsed_ms > TURN_MS_MAX:
            self._requests_max = max(1, int(self._taken * TURN_MS_MAX / elapsed_ms))
        elif self._taken >= self._requests_max and elapsed_ms < TURN_MS_MAX / 2:
            self._requests_max = min(self._requests_max * 2, REQUESTS_PER_TURN_MAX)
