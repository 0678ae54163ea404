"""Refusals of Fetch, and the Fetch requests that a leader holds until there is something to send."""

from typing import TYPE_CHECKING

from quorate_protocol.errors import ErrorCode
from quorate_protocol.plain_data import dataclass

from quorate_controller.raft.messages import (
    FetchRequest,
    FetchResponse,
    LeaderEndpoint,
)
from quorate_controller.raft.model import find_endpoint
from quorate_controller.raft.peers import NEVER_MS

if TYPE_CHECKING:
    from quorate_controller.raft.replica import Replica


def leader_endpoint(replica: "Replica", listener: str) -> LeaderEndpoint | None:
    """The leader's endpoint on that listener, when both are known."""
    endpoint = find_endpoint(replica.state.leader_endpoints, listener)
    if endpoint is None or not replica.state.has_leader:
        return None
    return LeaderEndpoint(node_id=replica.state.leader_id, host=endpoint.host, port=endpoint.port)


def refuse_fetch(replica: "Replica", error_code: ErrorCode, listener: str) -> FetchResponse:
    """An error for the partition, with the leader to ask instead."""
    return FetchResponse(
        error_code=error_code,
        leader_id=replica.state.leader_id,
        leader_epoch=replica.epoch,
        leader_endpoint=leader_endpoint(replica, listener),
        log_start_offset=replica.log.start_offset,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldFetch:
    """A Fetch from the end of what its sender may read, held until `deadline_ms`."""

    token: int
    request: FetchRequest
    listener: str
    deadline_ms: int

    @property
    def question(self) -> tuple[int, int, int, str]:
        """The fields that determine the answer. Voters with equal ones get the same answer, and so do observers."""
        request = self.request
        return request.fetch_offset, request.last_fetched_epoch, request.max_bytes, self.listener


class HeldFetches:
    """The Fetch requests that wait for records or a new high watermark, in order of arrival.

    `deadline_ms` is when the first of them has waited long enough.
    """

    __slots__ = ("_held", "_held_max", "deadline_ms")

    def __init__(self, held_max: int) -> None:
        self._held: list[HeldFetch] = []
        self._held_max = held_max
        self.deadline_ms = NEVER_MS

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, fetch: HeldFetch) -> bool:
        """Keep the request; False when there are too many, and it has to be answered at once."""
        if len(self._held) >= self._held_max:
            return False
        self._held.append(fetch)
        self.deadline_ms = min(self.deadline_ms, fetch.deadline_ms)
        return True

    def take_all(self) -> list[HeldFetch]:
        """Remove and return all requests."""
        held, self._held = self._held, []
        self.deadline_ms = NEVER_MS
        return held

    def take_expired(self, now_ms: int) -> list[HeldFetch]:
        """Remove and return the requests whose deadline has passed."""
        if now_ms < self.deadline_ms:
            return []
        expired = [fetch for fetch in self._held if fetch.deadline_ms <= now_ms]
        self._held = [fetch for fetch in self._held if fetch.deadline_ms > now_ms]
        self.deadline_ms = min((fetch.deadline_ms for fetch in self._held), default=NEVER_MS)
        return expired
