"""What a turn takes of what has arrived: nodes first, clients in turn, and not for too long."""

from dataclasses import replace
from typing import Any

import pytest
from kio.schema.create_acls.v3.request import CreateAclsRequest
from kio.schema.delete_acls.v3.request import DeleteAclsRequest
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest
from kit.controller_parts import caller, heartbeat
from quorate_controller.arrivals import EVENTS_PER_TURN_MAX, REQUESTS_PER_TURN_MAX, TURN_MS_MAX, Arrivals
from quorate_controller.node.events import ControlRequest
from quorate_protocol.kafka.generated.api_versions_request import ApiVersionsRequest

READ = DescribeConfigsRequest(resources=())
SLICED_CHANGES = (CreateAclsRequest(creations=()), DeleteAclsRequest(filters=()))
CHANGE = ApiVersionsRequest(client_software_name="stands for", client_software_version="any change")


def request(body: Any, connection: str, token: int = 0) -> ControlRequest:
    """A request that came on a connection."""
    return ControlRequest(
        token=token, request=body, caller=replace(caller(), connection=connection), deadline_ms=0
    )


def tokens(arrivals: Arrivals) -> list[int]:
    """What the next turn takes."""
    return [event.token for event in arrivals.take(lambda _event: True)]  # type: ignore[union-attr]


def test_connections_take_turns() -> None:
    """Goal: who sends much waits longer, others do not. Method: 300 of one before one of another."""
    arrivals = Arrivals()
    for number in range(300):
        arrivals.put(request(READ, "hostile", number))
    arrivals.put(request(READ, "other", 1_000))
    first = tokens(arrivals)
    assert first[:3] == [0, 1_000, 1]
    assert len(first) == REQUESTS_PER_TURN_MAX
    rest = [*first, *tokens(arrivals), *tokens(arrivals)]
    assert [one for one in rest if one < 1_000] == list(range(300))
    assert not arrivals


def test_nodes_come_first() -> None:
    """Goal: heartbeats do not wait for clients. Method: one behind many requests, and one of their connection.

    That one keeps its place: requests of one connection are taken in order.
    """
    arrivals = Arrivals()
    for number in range(REQUESTS_PER_TURN_MAX):
        arrivals.put(request(READ, "client", number))
    arrivals.put(request(heartbeat(), "client", 2_000))
    arrivals.put(request(heartbeat(), "broker", 3_000))
    assert tokens(arrivals)[:2] == [3_000, 0]
    assert tokens(arrivals) == [2_000]


def test_a_burst_of_nodes_is_bounded() -> None:
    """Goal: timers run in between. Method: one event more than a turn takes."""
    arrivals = Arrivals()
    for number in range(EVENTS_PER_TURN_MAX + 1):
        arrivals.put(request(heartbeat(), f"broker {number}", number))
    assert len(tokens(arrivals)) == EVENTS_PER_TURN_MAX
    assert tokens(arrivals) == [EVENTS_PER_TURN_MAX]


@pytest.mark.parametrize("cost_ms", [0.1, 2.0, 30.0, 400.0])
def test_turns_are_as_long_as_they_may_be(cost_ms: float) -> None:
    """Goal: costly requests do not hold up heartbeats, cheap ones share a flush. Method: requests of one cost."""
    arrivals = Arrivals()
    counts = []
    for _ in range(12):
        for number in range(200):
            arrivals.put(request(READ, f"client {number}"))
        counts.append(len(tokens(arrivals)))
        arrivals.took(counts[-1] * cost_ms)
    assert counts[0] == REQUESTS_PER_TURN_MAX
    allowed = min(REQUESTS_PER_TURN_MAX, max(1, int(TURN_MS_MAX / cost_ms)))
    assert allowed / 2 <= counts[-1] <= allowed


def test_fast_requests_come_back_to_full_turns() -> None:
    """Goal: one slow request is forgotten. Method: a turn of a second, then fast ones."""
    arrivals = Arrivals()
    for number in range(2_000):
        arrivals.put(request(READ, f"client {number}"))
    tokens(arrivals)
    arrivals.took(1_000.0)
    counts = []
    for _ in range(8):
        counts.append(len(tokens(arrivals)))
        arrivals.took(1.0)
    assert counts[0] < 10
    assert counts[-1] == REQUESTS_PER_TURN_MAX


@pytest.mark.parametrize("change", [CHANGE, *SLICED_CHANGES], ids=lambda one: type(one).__name__)
def test_reads_that_nobody_waits_for_are_left_out(change: Any) -> None:
    """Goal: no work for clients that have left; what they wanted changed is done. Method: a read and a change, also
    one that is decided in slices.
    """
    arrivals = Arrivals()
    arrivals.put(request(READ, "gone", 1))
    arrivals.put(request(change, "gone", 2))
    assert [event.token for event in arrivals.take(lambda _event: False)] == [2]  # type: ignore[union-attr]


@pytest.mark.parametrize("long", [READ, *SLICED_CHANGES], ids=lambda one: type(one).__name__)
def test_what_takes_slices_waits_for_one_that_is_under_way(long: Any) -> None:
    """Goal: one is under way at a time, and nobody loses its turn: what a connection sent is done in its order.
    Method: two connections, one with a change behind it; a change and a heartbeat of others.
    """
    arrivals = Arrivals()
    arrivals.put(request(long, "one", 1))
    arrivals.put(request(CHANGE, "one", 2))
    arrivals.put(request(CHANGE, "other", 3))
    arrivals.put(request(heartbeat(), "broker", 4))
    arrivals.put(request(READ, "two", 5))

    def taken(*, begins_reads: bool) -> list[int]:
        events = arrivals.take(lambda _event: True, begins_reads=begins_reads)
        return [event.token for event in events]  # type: ignore[union-attr]

    assert taken(begins_reads=False) == [4, 3]
    arrivals.put(request(CHANGE, "third", 6))
    assert taken(begins_reads=True) == [1, 5, 6, 2]
    assert not arrivals
