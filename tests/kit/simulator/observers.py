"""How a broker follows the metadata log: it fetches as an observer, applies what is committed, and lags now and then.

invariant              of every response that a broker gets
---------------------  -------------------------------------------------------------------------------------------
ObserverReadsCommitted its high watermark is committed, and so is what it has below that, byte for byte
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kit.simulator.coverage import Happening
from kit.simulator.invariants import InvariantViolation
from quorate_controller.raft.messages import FetchRequest, FetchResponse
from quorate_controller.raft.model import ReplicaKey
from quorate_protocol.errors import ErrorCode
from quorate_protocol.records.batch import scan_batches

if TYPE_CHECKING:
    from kit.simulator.world import World

FETCH_MS: Final = (1, 150)
LAG_MS: Final = (500, 6_000)
LAGS: Final = 0.02
"""The share of fetches before which a broker pauses that long."""
WAIT_MS: Final = 500
TIMEOUT_MS: Final = 2_000
FETCH_BYTES_MAX: Final = 8_192
DIRECTORY: Final = 5 << 76


class MetadataObserver:
    """The metadata log of one broker, which outlives its processes."""

    def __init__(self, world: World, broker_id: int, active_node_id: Any, *, pauses: int) -> None:
        self._world = world
        self._fetch_ms = (FETCH_MS[0] * pauses, FETCH_MS[1] * pauses)
        self._active_node_id = active_node_id
        self._replica = ReplicaKey(node_id=broker_id, directory_id=UUID(int=DIRECTORY + broker_id))
        self._leader_epoch = 0
        self._ends = [(0, 0)]
        """End offset and epoch of what is applied, and of each batch behind it."""
        self._high_watermark = 0
        self._request = 0
        self._is_stopped = False
        self._fetch_in(world.rng.randint(*self._fetch_ms))

    @property
    def applied_offset(self) -> int:
        """The end of what the broker has applied."""
        return self._ends[0][0]

    def stop(self) -> None:
        """Fetch no more."""
        self._is_stopped = True

    def _fetch_in(self, delay_ms: int) -> None:
        request = self._request = self._request + 1

        def fetch() -> None:
            if request == self._request and not self._is_stopped:
                self._fetch(request)

        self._world.schedule(delay_ms, fetch)

    def _fetch(self, request: int) -> None:
        end_offset, epoch = self._ends[-1]

        def on_response(response: FetchResponse) -> None:
            if request == self._request:
                self._handle(response)
                rng = self._world.rng
                self._fetch_in(rng.randint(*(LAG_MS if rng.random() < LAGS else self._fetch_ms)))

        fetch = FetchRequest(
            cluster_id=None,
            replica=self._replica,
            current_leader_epoch=self._leader_epoch,
            fetch_offset=end_offset,
            last_fetched_epoch=epoch,
            max_wait_ms=WAIT_MS,
            max_bytes=FETCH_BYTES_MAX,
            high_watermark=self._high_watermark,
        )
        self._world.network.fetch(self._active_node_id(self._world), fetch, on_response)
        self._world.schedule(TIMEOUT_MS, lambda: request == self._request and self._fetch_in(0))

    def _handle(self, response: FetchResponse) -> None:
        if response.error_code is not ErrorCode.none or response.top_level_error_code is not ErrorCode.none:
            self._leader_epoch = max(self._leader_epoch, response.leader_epoch)
            return
        self._world.coverage.count(Happening.OBSERVER_FETCH)
        if response.diverging_epoch is not None:
            self._truncate(response.diverging_epoch.offset, response.diverging_epoch.epoch)
        elif response.snapshot_id is not None:
            # Its content is checked where it is written.
            self._ends = [(response.snapshot_id.offset, response.snapshot_id.epoch)]
        else:
            self._append(response.records)
        self._apply(response.high_watermark)

    def _truncate(self, end_offset: int, epoch: int) -> None:
        while len(self._ends) > 1 and (self._ends[-1][0] > end_offset or self._ends[-1][1] > epoch):
            self._ends.pop()

    def _append(self, records: bytes) -> None:
        committed = self._world.committed
        for header in scan_batches(records):
            data = records[header.position : header.position + header.size_bytes]
            if committed.batches.get(header.base_offset) != data:
                raise self._violated(f"gets at {header.base_offset} what is not committed there")
            self._ends.append((header.last_offset + 1, header.partition_leader_epoch))

    def _apply(self, high_watermark: int) -> None:
        committed = self._world.committed
        if high_watermark > committed.end_offset:
            raise self._violated(
                f"gets the high watermark {high_watermark}, {committed.end_offset} is committed"
            )
        self._high_watermark = max(self._high_watermark, high_watermark)
        while len(self._ends) > 1 and self._ends[1][0] <= self._high_watermark:
            self._ends.pop(0)

    def _violated(self, what: str) -> InvariantViolation:
        return InvariantViolation("ObserverReadsCommitted", f"broker {self._replica.node_id} {what}")
