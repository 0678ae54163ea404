"""Reads from time to time which clients are connected, from the metrics of brokers that expose them.

An observation gets what was read last, and does not wait: metrics that can't be reached would hold it up for seconds.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from quorate_admin.diagnosis import ClientFacts
from quorate_protocol.security.oauth_properties import AllowedUrl

from quorate_operator import clock

INTERVAL_MS = 300_000
"""The time between two readings of the metrics of a cluster."""
SHORT_INTERVAL_MS = 60_000
"""The same while hosts are about to change, after metrics could not be read, and for other pods than before."""

log = logging.getLogger(__name__)

Read = Callable[[Sequence[AllowedUrl]], Awaitable[ClientFacts]]
Urls = Mapping[str, Sequence[str]]
"""The URLs of brokers' metrics, by pool."""


class ClientWatch:
    """The clients of one cluster's brokers, by pool. Close it."""

    def __init__(self, read: Read, now_ms: Callable[[], int] = clock.now_ms) -> None:
        self._read = read
        self._now_ms = now_ms
        self._found: Mapping[str, ClientFacts] = {}
        self._asked: Urls = {}
        self._begun_ms: int | None = None
        self._reading: asyncio.Task[None] | None = None

    def latest(self, urls: Urls, *, hosts_change: bool) -> Mapping[str, ClientFacts]:
        """Return what was read last of these pools, and begin to read again if that is due.

        Needs a running event loop.
        """
        now_ms = self._now_ms()
        exposed = {pool: tuple(of_pool) for pool, of_pool in urls.items() if of_pool}
        is_incomplete = exposed != self._asked or any(facts.problems for facts in self._found.values())
        interval_ms = SHORT_INTERVAL_MS if hosts_change or is_incomplete else INTERVAL_MS
        is_idle = self._reading is None or self._reading.done()
        is_due = self._begun_ms is None or now_ms - self._begun_ms >= interval_ms
        if exposed and is_idle and is_due:
            self._begun_ms, self._asked = now_ms, exposed
            self._reading = asyncio.create_task(self._read_all(exposed))
        return {pool: facts for pool, facts in self._found.items() if pool in exposed}

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read_all(self, urls: Urls) -> None:
        found = {}
        try:
            for pool, of_pool in urls.items():
                found[pool] = await self._read(tuple(map(AllowedUrl, of_pool)))
        except Exception:
            # The condition stays as it is: it is advice, which no reconcile depends on.
            log.exception("the metrics of brokers were not read")
            return
        self._found = found
