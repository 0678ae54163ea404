"""Places of connections: several listeners, the protected one, rates. Those of one listener: `test_listener.py`."""

import random

import pytest
from quorate_controller.server.connection_quotas import (
    IDLE_S_MIN,
    ConnectionLimits,
    ConnectionQuotas,
    Place,
    SampledRate,
    Stage,
)
from quorate_controller.server.counters import Limit, RequestCounters

NODES, CLIENTS, OTHERS = "CONTROLLER", "CLIENTS", "OTHERS"


class Quotas:
    """Places of three listeners, of which the first is protected."""

    def __init__(self, **limits: object) -> None:
        self.counters = RequestCounters()
        self.now_s = 100.0
        self.quotas = ConnectionQuotas(
            ConnectionLimits(protected_listener=NODES, **limits),  # type: ignore[arg-type]
            [NODES, CLIENTS, OTHERS],
            self.counters,
        )
        self.closed: list[Place] = []

    def enter(self, listener: str, stage: Stage = Stage.STRANGER, host: str = "h") -> Place | None:
        """A new connection, a second after the one before."""
        self.now_s += 1
        place = self.quotas.enter(listener, host, f"{host}:1", stage, self.now_s)
        if place is not None:
            place.close = lambda: self.closed.append(place)
        return place

    def taken(self, listener: str, stage: Stage = Stage.STRANGER) -> Place:
        """The same, where there is a place."""
        place = self.enter(listener, stage)
        assert place is not None
        return place

    def served(self, listener: str) -> Place:
        """A connection whose client was just served."""
        place = self.taken(listener)
        self.quotas.served(place, self.now_s)
        return place


def test_the_limit_is_for_all_listeners_together() -> None:
    quotas = Quotas(total_max=3)
    first = quotas.taken(OTHERS)
    quotas.served(CLIENTS)
    quotas.served(CLIENTS)
    assert quotas.enter(CLIENTS) is not None
    assert quotas.closed == [first]
    assert (quotas.quotas.count_of(OTHERS), quotas.quotas.count_of(CLIENTS)) == (0, 3)


def test_a_listener_may_have_a_limit_of_its_own() -> None:
    quotas = Quotas(total_max=10, of_listener={CLIENTS: 1})
    other = quotas.taken(OTHERS)
    first = quotas.taken(CLIENTS)
    quotas.served(CLIENTS)
    assert quotas.closed == [first]
    assert quotas.enter(CLIENTS) is None
    assert other.is_taken


def test_nodes_get_in_beyond_the_limit_and_others_give_way() -> None:
    """Controllers reach each other, as Kafka's brokers do."""
    quotas = Quotas(total_max=2)
    clients = [quotas.served(CLIENTS) for _ in range(2)]
    assert quotas.enter(CLIENTS) is None
    assert quotas.enter(NODES) is not None
    assert quotas.quotas.count == 3
    quotas.now_s += IDLE_S_MIN
    assert quotas.enter(NODES) is not None
    assert quotas.closed == clients[:1]


def test_nodes_never_take_the_files_of_the_log() -> None:
    quotas = Quotas(total_max=2, files_max=3)
    clients = [quotas.served(CLIENTS) for _ in range(2)]
    node = quotas.taken(NODES)
    other = quotas.served(NODES)
    assert quotas.closed == [node]
    assert quotas.enter(NODES) is not None
    assert (quotas.closed, quotas.quotas.count) == ([node, clients[0]], 3)
    assert other.is_taken


def test_a_listener_that_is_alone_is_not_protected() -> None:
    quotas = ConnectionQuotas(
        ConnectionLimits(total_max=1, protected_listener=NODES), [NODES], RequestCounters()
    )
    place = quotas.enter(NODES, "h", "h:1", Stage.STRANGER, 0.0)
    assert place is not None
    quotas.served(place, 0.0)
    assert quotas.enter(NODES, "h", "h:2", Stage.STRANGER, 1.0) is None


def test_who_gives_way() -> None:
    """Handshakes first, then strangers, then the client idle for longest; no client that was just served."""
    quotas = Quotas(total_max=5)
    silent = quotas.taken(CLIENTS, Stage.SILENT)
    long_idle, idle = quotas.served(CLIENTS), quotas.served(CLIENTS)
    stranger, shaking = quotas.taken(CLIENTS), quotas.taken(CLIENTS, Stage.HANDSHAKE)
    quotas.now_s += IDLE_S_MIN
    quotas.quotas.served(long_idle, quotas.now_s - 1)
    for _ in range(4):
        quotas.served(CLIENTS)
    assert quotas.closed == [silent, shaking, stranger, idle]
    assert quotas.enter(CLIENTS) is None
    assert long_idle.is_taken


def test_counts_are_right_after_any_history() -> None:
    chance = random.Random(5)
    quotas = Quotas(total_max=20, of_listener={OTHERS: 5}, per_host_max=8)
    known: list[Place] = []
    for _ in range(5_000):
        kind = chance.random()
        if kind < 0.5 or not known:
            host = chance.choice("abcd")
            listener, stage = (
                chance.choice((CLIENTS, OTHERS)),
                chance.choice((Stage.HANDSHAKE, Stage.STRANGER)),
            )
            place = quotas.enter(listener, stage, host)
            known.extend([] if place is None else [place])
        elif kind < 0.7:
            quotas.quotas.shook_hands(chance.choice(known), quotas.now_s)
        elif kind < 0.85:
            quotas.quotas.served(chance.choice(known), quotas.now_s)
        else:
            quotas.quotas.leave(known.pop(chance.randrange(len(known))))
        holding = [place for place in known if place.is_taken]
        assert quotas.quotas.count == len(holding) <= 20
        for listener in (CLIENTS, OTHERS):
            assert quotas.quotas.count_of(listener) == sum(place.listener == listener for place in holding)
    assert quotas.closed
    assert quotas.counters.limited[Limit.CONNECTIONS_OF_HOST] > 0
    for place in known:
        quotas.quotas.leave(place)
    assert (quotas.quotas.count, quotas.quotas._of_host) == (0, {})


def test_a_rate_may_be_exceeded_once_by_what_the_windows_hold() -> None:
    rate = SampledRate(5, windows=11, window_s=1.0)
    assert [rate.record(0.0) for _ in range(50)] == [0.0] * 50
    assert rate.record(0.0) == pytest.approx(0.2)
    assert rate.record(0.0) == pytest.approx(0.4)
    assert max(rate.record(0.0) for _ in range(100)) == 1.0
    assert rate.record(30.0) == 0.0


def test_a_rate_of_nothing_delays_each_by_a_window() -> None:
    rate = SampledRate(0, windows=11, window_s=1.0)
    assert [rate.record(0.0), rate.record(1.0)] == [1.0, 1.0]


def test_nodes_are_not_delayed_by_the_rate_of_clients() -> None:
    quotas = Quotas(rate_max=1, rate_of_listener={NODES: 100}, windows=2)
    delays = [quotas.quotas.delay_s(CLIENTS, 0.0) for _ in range(5)]
    assert delays[0] == 0.0
    assert delays[-1] == 1.0
    assert quotas.quotas.delay_s(NODES, 0.0) == 0.0
    assert quotas.quotas.delay_s(OTHERS, 0.0) > 0.0
