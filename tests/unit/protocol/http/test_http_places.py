"""Which connections an HTTP server keeps."""

import random

import pytest
from quorate_protocol.bounded_http.places import (
    ADDRESSES_MAX,
    HttpBounds,
    HttpLimit,
    HttpPlaces,
    Place,
    State,
)
from quorate_protocol.bounded_http.server import CACHED_S, CachedPage

SCRAPER = "10.0.0.1"


class Places:
    """The places of a server, a clock that the test moves, and what was ended."""

    def __init__(self, **bounds: float) -> None:
        self.limits: list[HttpLimit] = []
        self.closed: list[str] = []
        self.places = HttpPlaces(HttpBounds(**bounds), lambda limit, _: self.limits.append(limit))  # type: ignore[arg-type]
        self.now_s = 100.0

    def admit(self, host: str, name: str = "") -> Place | None:
        """A new connection, a millisecond after the one before."""
        self.now_s += 0.001
        return self.places.admit(host, name, lambda: self.closed.append(name), self.now_s)

    def admitted(self, host: str, name: str = "") -> Place:
        """The same, where there is a place."""
        place = self.admit(host, name)
        assert place is not None
        return place

    def enter(self, place: Place, state: State) -> None:
        """The connection waits for something else."""
        self.places.enter(place, state, self.now_s)


def test_an_address_displaces_only_itself() -> None:
    places = Places(connections_of_address_max=2)
    places.admitted(SCRAPER, "scraper")
    for name in "abc":
        places.admitted("10.0.0.2", name)
    assert places.closed == ["a"]
    assert places.limits == [HttpLimit.CONNECTIONS_OF_ADDRESS]


def test_the_address_with_the_most_connections_gives_way_to_newcomers() -> None:
    places = Places(connections_max=4)
    places.admitted(SCRAPER, "scraper")
    for name in "abc":
        places.admitted("10.0.0.2", name)
    places.admitted("10.0.0.3", "newcomer")
    assert places.closed == ["a"]


@pytest.mark.parametrize("state", [State.HANDLING, State.RESPONDING, State.STREAMING])
def test_a_request_that_is_served_does_not_give_way(state: State) -> None:
    places = Places(connections_max=2)
    for name in "ab":
        places.enter(places.admitted(SCRAPER, name), state)
    assert places.admit("10.0.0.2") is None
    assert (places.closed, places.limits) == ([], [HttpLimit.CONNECTIONS])


def test_a_request_that_waits_for_its_rate_gives_way() -> None:
    places = Places(connections_max=3)
    for name in "abc":
        places.enter(places.admitted("10.0.0.2", name), State.WAITING)
    places.admitted(SCRAPER, "scraper")
    assert places.closed == ["a"]


@pytest.mark.parametrize(
    ("state", "limit", "may_last_s"),
    [
        (State.ARRIVING, HttpLimit.REQUEST_TIME, 5.0),
        (State.WAITING, HttpLimit.HANDLING_TIME, 60.0),
        (State.HANDLING, HttpLimit.HANDLING_TIME, 60.0),
        (State.RESPONDING, HttpLimit.RESPONSE_TIME, 5.0),
    ],
)
def test_each_wait_ends(state: State, limit: HttpLimit, may_last_s: float) -> None:
    places = Places()
    place = places.admitted(SCRAPER, "slow")
    places.now_s += 3
    places.enter(place, state)
    places.places.end_late(places.now_s + may_last_s - 0.01)
    assert places.closed == []
    places.places.end_late(places.now_s + may_last_s)
    assert (places.closed, places.limits, len(places.places)) == (["slow"], [limit], 0)


def test_a_stream_lasts() -> None:
    places = Places()
    places.enter(places.admitted(SCRAPER), State.STREAMING)
    places.places.end_late(places.now_s + 10_000)
    assert places.closed == []


def test_requests_of_an_address_wait_for_their_rate() -> None:
    places = Places(requests_of_address_per_s_max=10.0)
    hungry, modest = places.admitted("10.0.0.2"), places.admitted(SCRAPER)
    delays = [places.places.delay_s(hungry, places.now_s) for _ in range(13)]
    assert delays[:11] == [0.0] * 11
    assert delays[11:] == pytest.approx([0.1, 0.2])
    assert places.places.delay_s(modest, places.now_s) == 0.0
    assert places.places.delay_s(hungry, places.now_s + 10) == 0.0
    assert set(places.limits) == {HttpLimit.REQUEST_RATE}


def test_requests_of_clients_that_left_are_forgotten() -> None:
    places = Places(requests_of_address_per_s_max=10.0, connections_of_address_max=5)
    place = places.admitted("10.0.0.2")
    delays = [places.places.delay_s(place, places.now_s) for _ in range(1_000)]
    assert max(delays) == pytest.approx(0.5)
    assert places.places.delay_s(place, places.now_s + 1.5) == 0.0


def test_addresses_do_not_fill_the_memory() -> None:
    places = Places()
    for number in range(ADDRESSES_MAX + 50):
        place = places.admitted(f"10.1.{number // 256}.{number % 256}")
        places.places.delay_s(place, places.now_s)
        places.places.leave(place)
    assert len(places.places._due_s) == ADDRESSES_MAX


def test_counts_are_right_after_any_history() -> None:
    chance = random.Random(5)
    places = Places(connections_max=20, connections_of_address_max=6)
    known: list[Place] = []
    for _ in range(5_000):
        kind = chance.random()
        if kind < 0.5 or not known:
            place = places.admit(f"10.0.0.{chance.randrange(6)}")
            known.extend([] if place is None else [place])
        elif kind < 0.8:
            places.enter(chance.choice(known), chance.choice(list(State)))
        elif kind < 0.9:
            places.places.leave(known.pop(chance.randrange(len(known))))
        else:
            places.now_s += 3
            places.places.end_late(places.now_s)
        holding = [place for place in known if place.is_taken]
        assert len(places.places) == len(holding) <= 20
        counts = {
            place.address: sum(other.address == place.address for other in holding) for place in holding
        }
        assert places.places._of_address == counts
        assert all(count <= 6 for count in counts.values())
    assert places.closed


def test_a_page_is_rendered_once_a_second() -> None:
    now_s, count = 0.0, 0

    def render() -> bytes:
        nonlocal count
        count += 1
        return b"%d" % count

    page = CachedPage(render, lambda: now_s)
    assert [page.get() for _ in range(3)] == [b"1"] * 3
    now_s += CACHED_S
    assert page.get() == b"2"
