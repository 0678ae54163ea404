"""Requests under way to other replicas: at most one per node, with a pause after a failure.

A role change forgets all of them: a later response belongs to a role that is over.
"""

from typing import TYPE_CHECKING

from quorate_protocol.plain_data import dataclass

from quorate_controller.raft.messages import Destination, RaftRequest
from quorate_controller.raft.safety import RaftSafetyError

if TYPE_CHECKING:
    from quorate_controller.raft.effects import Effects

NEVER_MS = 1 << 62
"""A deadline that never comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """A request that waits for its response until `deadline_ms`."""

    request_id: int
    destination: Destination
    request: RaftRequest
    deadline_ms: int


class Peers:
    """The state of the requests to each node, by node id; its size is bounded by that of the quorum."""

    __slots__ = (
        "_backoff_until_ms",
        "_in_flight",
        "_next_request_id",
        "_request_timeout_ms",
        "_retry_backoff_ms",
    )

    def __init__(self, *, request_timeout_ms: int, retry_backoff_ms: int) -> None:
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._next_request_id = 0
        self._in_flight: dict[int, InFlight] = {}
        self._backoff_until_ms: dict[int, int] = {}

    def send(self, effects: "Effects", destination: Destination, request: RaftRequest, now_ms: int) -> None:
        """Send a request to a node that is ready for one."""
        node_id = destination.node_id
        if not self.is_ready(node_id, now_ms):
            raise RaftSafetyError(f"node {node_id} is busy with an earlier request")
        request_id = self._next_request_id
        self._next_request_id += 1
        self._backoff_until_ms.pop(node_id, None)
        self._in_flight[node_id] = InFlight(
            request_id=request_id,
            destination=destination,
            request=request,
            deadline_ms=now_ms + self._request_timeout_ms,
        )
        effects.send(request_id, destination, request, self._request_timeout_ms)

    def complete(self, request_id: int) -> InFlight | None:
        """Take the request out that was answered; None when it had been forgotten."""
        for node_id, in_flight in self._in_flight.items():
            if in_flight.request_id == request_id:
                return self._in_flight.pop(node_id)
        return None

    def back_off(self, node_id: int, now_ms: int) -> None:
        """Leave that node alone for the retry backoff."""
        self._backoff_until_ms[node_id] = now_ms + self._retry_backoff_ms

    def forget(self, node_id: int) -> None:
        """Make that node ready, whatever is under way."""
        self._in_flight.pop(node_id, None)
        self._backoff_until_ms.pop(node_id, None)

    def forget_all(self) -> None:
        self._in_flight.clear()
        self._backoff_until_ms.clear()

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        in_flight = self._in_flight.get(node_id)
        if in_flight is not None and now_ms < in_flight.deadline_ms:
            return False
        return not self.is_backing_off(node_id, now_ms)

    def is_backing_off(self, node_id: int, now_ms: int) -> bool:
        return now_ms < self._backoff_until_ms.get(node_id, now_ms)

    def has_timed_out(self, node_id: int, now_ms: int) -> bool:
        in_flight = self._in_flight.get(node_id)
        return in_flight is not None and now_ms >= in_flight.deadline_ms

    def has_any_in_flight(self, now_ms: int) -> bool:
        """Whether any request waits for its response: a follower fetches from one node at a time."""
        return any(now_ms < in_flight.deadline_ms for in_flight in self._in_flight.values())

    def wake_ms(self, now_ms: int) -> int:
        """When the next node becomes ready that is not ready now."""
        times = [in_flight.deadline_ms for in_flight in self._in_flight.values()]
        times.extend(self._backoff_until_ms.values())
        return min((time for time in times if time > now_ms), default=NEVER_MS)
