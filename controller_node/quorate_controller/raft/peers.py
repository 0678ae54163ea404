"""Requests in flight to other replicas: at most one per node, with a pause after a failure.

The pause grows with each failure in a row, so that a node that refuses every request is not asked in a loop. A role
change drops the requests, because a later response belongs to a role that is over, and ends the pauses. It keeps the
number of failures.
"""

from typing import TYPE_CHECKING, Final

from quorate_protocol.plain_data import dataclass

from quorate_controller.raft.events import Destination
from quorate_controller.raft.messages import BeginQuorumEpochRequest, RaftRequest, VoteRequest
from quorate_controller.raft.model import RaftSafetyError

if TYPE_CHECKING:
    from random import Random

    from quorate_controller.raft.effects import Effects

NEVER_MS = 1 << 62
"""A deadline that never comes."""
BACKOFF_MS_MAX: Final = 1_000
"""The longest pause, before jitter, unless the configured retry backoff is longer."""
BACKOFF_JITTER: Final = 0.2
"""As in Kafka's clients."""
FAILURES_MAX: Final = 1_000
"""Nodes whose failures are counted. There are more only if requests name ever new node ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """A request that waits for its response until `deadline_ms`."""

    request_id: int
    destination: Destination
    request: RaftRequest
    deadline_ms: int

    @property
    def is_lookup(self) -> bool:
        """Whether it asks a bootstrap server of unknown id for a voter."""
        return self.destination.node_id < 0 and isinstance(
            self.request, VoteRequest | BeginQuorumEpochRequest
        )


class Peers:
    """The state of the requests to each node, by node id; its size is bounded by that of the quorum."""

    __slots__ = (
        "_backoff_ms_max",
        "_backoff_until_ms",
        "_failures",
        "_in_flight",
        "_next_request_id",
        "_request_timeout_ms",
        "_retry_backoff_ms",
        "_rng",
    )

    def __init__(
        self, *, request_timeout_ms: int, retry_backoff_ms: int, backoff_ms_max: int, rng: "Random"
    ) -> None:
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._backoff_ms_max = max(backoff_ms_max, retry_backoff_ms)
        self._rng = rng
        self._next_request_id = 0
        self._in_flight: dict[int, InFlight] = {}
        self._backoff_until_ms: dict[int, int] = {}
        self._failures: dict[int, int] = {}

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
        """Remove and return the request that got its response; None when it was dropped earlier."""
        for node_id, in_flight in self._in_flight.items():
            if in_flight.request_id == request_id:
                return self._in_flight.pop(node_id)
        return None

    def back_off(self, node_id: int, now_ms: int) -> None:
        """A request failed: leave that node alone for the retry backoff, longer after several failures in a row."""
        failures = self._failures.get(node_id, 0)
        pause_ms = self._retry_backoff_ms
        if failures:
            pause_ms = min(max(1, pause_ms) << min(failures, 16), self._backoff_ms_max)
            pause_ms = round(pause_ms * self._rng.uniform(1 - BACKOFF_JITTER, 1 + BACKOFF_JITTER))
        self._backoff_until_ms[node_id] = now_ms + pause_ms
        if len(self._failures) >= FAILURES_MAX:
            self._failures.clear()
        self._failures[node_id] = failures + 1

    def succeeded(self, node_id: int) -> None:
        """A node responded without an error: the next failure counts as the first."""
        self._failures.pop(node_id, None)

    def end_backoff(self, node_id: int) -> None:
        """A node is running, as its request shows: end the pause after its failures."""
        self._failures.pop(node_id, None)
        self._backoff_until_ms.pop(node_id, None)

    def forget(self, node_id: int) -> None:
        """Make that node ready, whatever is in flight."""
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
