"""When the metrics of brokers are read, and that no observation waits for it."""

import asyncio
from collections.abc import Sequence

import pytest
from kit.waiting import HANG_S
from quorate_admin.diagnosis import ClientFacts, ConnectedClient
from quorate_operator.gateway.client_watch import INTERVAL_MS, SHORT_INTERVAL_MS, ClientWatch
from quorate_protocol.security.oauth_properties import AllowedUrl

URLS = {"brokers": ("http://10.0.0.1:9404/metrics",), "plain": ()}
CLIENT = ConnectedClient(name="kgo", version="v1.21.6", listener="CLIENTS", connections=1)


class Brokers:
    """Metrics, and the time."""

    def __init__(self) -> None:
        self.asked: list[tuple[AllowedUrl, ...]] = []
        self.facts = ClientFacts(clients=(CLIENT,))
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.now_ms = 0
        self.watch = ClientWatch(self.read, lambda: self.now_ms)

    async def read(self, urls: Sequence[AllowedUrl]) -> ClientFacts:
        self.asked.append(tuple(urls))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return self.facts

    async def at(self, now_ms: int, *, hosts_change: bool = False, urls: object = URLS) -> int:
        """The number of readings after an observation at this time, and after what it has begun."""
        assert isinstance(urls, dict)
        self.now_ms = now_ms
        self.watch.latest(urls, hosts_change=hosts_change)
        begun = asyncio.all_tasks() - {asyncio.current_task()}
        if begun:
            _, left = await asyncio.wait(begun, timeout=HANG_S)
            assert not left
        return len(self.asked)


async def test_metrics_are_read_at_intervals() -> None:
    brokers = Brokers()
    assert await brokers.at(0) == 1
    assert brokers.asked == [(AllowedUrl(URLS["brokers"][0]),)]
    assert brokers.watch.latest(URLS, hosts_change=False) == {"brokers": brokers.facts}
    assert await brokers.at(INTERVAL_MS - 1) == 1
    assert await brokers.at(INTERVAL_MS) == 2
    assert await brokers.at(INTERVAL_MS + SHORT_INTERVAL_MS) == 2
    assert await brokers.at(INTERVAL_MS + SHORT_INTERVAL_MS, hosts_change=True) == 3


async def test_what_was_not_read_and_other_pods_are_read_sooner() -> None:
    brokers = Brokers()
    brokers.facts = ClientFacts(problems={"http://10.0.0.1:9404/metrics": "refused"})
    assert await brokers.at(0) == 1
    assert await brokers.at(SHORT_INTERVAL_MS) == 2
    brokers.facts = ClientFacts()
    assert await brokers.at(2 * SHORT_INTERVAL_MS) == 3
    assert await brokers.at(3 * SHORT_INTERVAL_MS) == 3
    other = {"brokers": ("http://10.0.0.2:9404/metrics",)}
    assert await brokers.at(3 * SHORT_INTERVAL_MS, urls=other) == 4


async def test_an_observation_does_not_wait_and_one_reading_is_under_way() -> None:
    brokers = Brokers()
    brokers.gate.clear()
    assert brokers.watch.latest(URLS, hosts_change=False) == {}
    await asyncio.sleep(0)
    brokers.now_ms = INTERVAL_MS
    assert brokers.watch.latest(URLS, hosts_change=False) == {}
    await asyncio.sleep(0)
    assert len(brokers.asked) == 1
    await brokers.watch.close()


async def test_nothing_is_read_where_no_broker_exposes_metrics() -> None:
    brokers = Brokers()
    assert await brokers.at(0, urls={"plain": ()}) == 0
    assert await brokers.at(0) == 1
    assert brokers.watch.latest({}, hosts_change=False) == {}


async def test_a_failure_is_logged_and_what_was_read_stays(caplog: pytest.LogCaptureFixture) -> None:
    brokers = Brokers()
    await brokers.at(0)
    brokers.error = RuntimeError("a defect")
    await brokers.at(INTERVAL_MS)
    assert "the metrics of brokers were not read" in caplog.text
    assert brokers.watch.latest(URLS, hosts_change=False) == {"brokers": brokers.facts}
