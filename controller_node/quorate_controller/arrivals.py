"""What has arrived for the node and waits for its turn: Raft and the cluster's nodes first, then all clients alike.

A turn that takes long delays fetches and heartbeats, and in the end costs the leadership. So a turn takes only as
many requests of clients as fit into a time, by what the last ones took, and takes them from one connection after the
other: who sends thousands of requests waits for them longer, and others do not. Kafka has that from reading one
request of a connection at a time.

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
"""Events of Raft and of nodes that one turn takes. The rest waits, so that a burst cannot starve the timers."""
REQUESTS_PER_TURN_MAX: Final = 128
"""Requests of clients that one turn takes, however fast the last ones were: the next may be slower."""
TURN_MS_MAX: Final = 50.0
"""What a turn may take until its answers are written: small beside a heartbeat's or a fetch's timeout."""

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
        if kept:  # their turn comes first
            kept.update(self._by_connection)
            self._by_connection = kept
        return events

    def took(self, elapsed_ms: float) -> None:
        """Learn what the last turn took, its answers included."""
        if not self._taken:
            return
        if elapsed_ms > TURN_MS_MAX:
            self._requests_max = max(1, int(self._taken * TURN_MS_MAX / elapsed_ms))
        elif self._taken >= self._requests_max and elapsed_ms < TURN_MS_MAX / 2:
            self._requests_max = min(self._requests_max * 2, REQUESTS_PER_TURN_MAX)
