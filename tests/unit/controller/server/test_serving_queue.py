"""Whose requests are read first, when more have come than can be read at once."""

import asyncio
from typing import Any

import pytest
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kit.controller_parts import heartbeat
from kit.waiting import turn_until
from quorate_controller.server import serving_queue
from quorate_controller.server.serving_queue import REQUESTS_AT_ONCE, SERVING_S_MAX, ServingQueue
from quorate_protocol.kafka.apis import APIS
from quorate_protocol.wire.client import encode_request
from quorate_protocol.wire.frames import encode_frame

DESCRIBE_CLUSTER = DescribeClusterRequest(
    include_cluster_authorized_operations=False, endpoint_type=2, include_fenced_brokers=False
)
SLOW_S = SERVING_S_MAX / 2


class Clock:
    """Stands in for the module `time`: it runs on while connections are served."""

    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


class Asking:
    """A connection with so many requests, each of which takes `takes_s`."""

    served_until_s = 0.0

    def __init__(self, name: str, order: list[str], clock: Clock, takes_s: float = SLOW_S) -> None:
        self.name = name
        self.has_request_of_node = False
        self.requests = 0
        self._order = order
        self._clock = clock
        self._takes_s = takes_s

    def serve(self) -> bool:
        self._order.append(self.name)
        self._clock.now_s += self._takes_s
        self.requests -= 1
        return self.requests > 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(serving_queue, "time", clock)
    return clock


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_who_asks_rarely_is_served_next(clock: Clock) -> None:
    """Goal: no client waits for a round over hundreds.

    Method: 200 that ask all the time; one that asks now and then.
    """
    order: list[str] = []
    queue = ServingQueue()
    for number in range(200):
        busy = Asking(f"busy-{number}", order, clock, SLOW_S * (1 + number / 1_000))
        busy.requests = 1_000
        queue.add(busy)
    await turns(150)
    rare = Asking("rare", order, clock, SLOW_S / 1_000)
    for _ in range(3):
        asked = len(order)
        rare.requests = 1
        queue.add(rare)
        await turns(2)
        assert "rare" in order[asked : asked + 2]
        await turns(10)


async def test_clients_get_the_same_time(clock: Clock) -> None:
    """Goal: requests that take long are served less often. Method: two that ask all the time, one of
    them for what takes ten times as long; their times.
    """
    order: list[str] = []
    queue = ServingQueue()
    for name, takes_s in (("slow", SLOW_S), ("fast", SLOW_S / 10)):
        asking = Asking(name, order, clock, takes_s)
        asking.requests = 10_000
        queue.add(asking)
    await turns(200)
    assert order.count("fast") == pytest.approx(10 * order.count("slow"), rel=0.1)


async def test_nodes_come_first_and_do_not_stop_clients(clock: Clock) -> None:
    """Goal: heartbeats and fetches wait for no client; who sends them all the time stops no client either.

    Method: clients that wait; a node that comes later; then nodes with more requests than can be read.
    """
    order: list[str] = []
    queue = ServingQueue()
    for number in range(20):
        client = Asking(f"client-{number}", order, clock)
        client.requests = 100
        queue.add(client)
    await turns(3)
    asked = len(order)
    node = Asking("node", order, clock)
    node.has_request_of_node, node.requests = True, 1_000
    queue.add(node)
    await turns(1)
    assert order[asked] == "node"
    asked = len(order)
    await turns(20)
    assert order.count("node") > 20
    assert len([name for name in order[asked:] if name != "node"]) >= 19


def frame_of(request: Any, version: int, correlation_id: int) -> bytes:
    return encode_frame(encode_request(APIS[request.__api_key__], version, correlation_id, "test", request))


async def test_a_heartbeat_is_read_before_requests_of_clients(rig: Any) -> None:
    """Goal: the wire tells whose request it is. Method: a client pipelines 100 requests, a heartbeat among
    them; then a broker sends one.
    """
    await rig.listen()
    await rig.connect()
    await turn_until(lambda: rig.listener.connection_count == 1)
    (client,) = rig.listener._connections
    await rig.connect()
    await turn_until(lambda: rig.listener.connection_count == 2)
    (broker,) = rig.listener._connections - {client}
    own = [heartbeat(7) if number == 20 else DESCRIBE_CLUSTER for number in range(100)]
    client.data_received(b"".join(frame_of(one, 1, number) for number, one in enumerate(own)))
    broker.data_received(frame_of(heartbeat(8), 1, 0))
    await rig.node.requests(101)
    asked = [request for request, _, _ in rig.node.controls]
    assert asked.index(heartbeat(8)) == REQUESTS_AT_ONCE
    asked.remove(heartbeat(8))
    assert asked == own
