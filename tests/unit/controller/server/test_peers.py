"""Outbound connections on real sockets: negotiation, lanes, failures, and the hints that speed up failover."""

import asyncio
from datetime import timedelta

import pytest
from kit.peer_connections import FETCH, VOTE_GRANTED, FakePeer, PeerBench, vote
from kit.waiting import HANG_S, turn_until
from quorate_controller.node.events import OwnRequest
from quorate_controller.raft import messages as m
from quorate_controller.raft.events import (
    ConnectionLost,
    Destination,
    FailureReason,
    RequestFailed,
    ResponseReceived,
    Send,
)
from quorate_controller.raft.model import ReplicaKey, VersionRange
from quorate_controller.server.raft_wire import response_to_wire
from quorate_protocol.errors import ErrorCode, UnsupportedVersion
from quorate_protocol.kafka.apis import CONTROLLER_APIS
from quorate_protocol.kafka.extensions.controller_heartbeat_request import ControllerHeartbeatRequest
from quorate_protocol.kafka.generated.controller_registration_request import ControllerRegistrationRequest
from quorate_protocol.kafka.generated.controller_registration_response import ControllerRegistrationResponse

UPDATE_VOTER = m.UpdateRaftVoterRequest(
    cluster_id="c",
    current_leader_epoch=5,
    voter=ReplicaKey(node_id=1),
    endpoints=(),
    kraft_versions=VersionRange(lowest=0, highest=1),
)


async def test_a_request_is_answered(bench: PeerBench) -> None:
    await bench.start()
    first, second = bench.send(vote()), bench.send(vote())
    assert await bench.wait_events(2) == [
        ResponseReceived(request_id=first, response=VOTE_GRANTED),
        ResponseReceived(request_id=second, response=VOTE_GRANTED),
    ]
    assert [request.api.key for request in bench.peer.requests] == [18, 52, 52]
    assert bench.peer.requests[1].client_id == "controller-1"
    assert len(bench.peer.transports) == 1


@pytest.mark.parametrize(("highest", "sent_as"), [(0, 0), (1, 1), (2, 2), (7, 2)])
async def test_the_highest_common_version_is_used(bench: PeerBench, highest: int, sent_as: int) -> None:
    bench.peer.ranges[52] = (0, highest)
    bench.peer.responses[52] = lambda _body: response_to_wire(VOTE_GRANTED)
    await bench.start()
    bench.send(vote())
    await bench.wait_events(1)
    assert bench.peer.seen(52) == [sent_as]


@pytest.mark.parametrize("vote_range", [(0, 1), (3, 9), None])
async def test_a_request_that_the_peer_cannot_take_fails(
    bench: PeerBench, vote_range: tuple[int, int] | None
) -> None:
    if vote_range is None:
        del bench.peer.ranges[52]
    else:
        bench.peer.ranges[52] = vote_range
    await bench.start()
    failed = bench.send(vote(pre_vote=True))
    assert await bench.wait_events(1) == [
        RequestFailed(request_id=failed, reason=FailureReason.UNSUPPORTED_VERSION)
    ]
    assert bench.peer.seen(52) == []


async def test_an_old_peer_is_asked_again_in_its_own_version(bench: PeerBench) -> None:
    """KIP-511's fallback."""
    bench.peer.ranges[18] = (0, 3)
    await bench.start()
    bench.send(vote())
    assert isinstance((await bench.wait_events(1))[0], ResponseReceived)
    assert bench.peer.seen(18)[-1] == 3


async def test_a_waiting_fetch_does_not_hold_back_a_vote(bench: PeerBench) -> None:
    await bench.start()
    bench.send(FETCH)
    await bench.wait_request(1)
    voted = bench.send(vote())
    assert await bench.wait_events(1) == [ResponseReceived(request_id=voted, response=VOTE_GRANTED)]
    assert len(bench.peer.transports) == 2


async def test_a_broken_connection_fails_its_requests_at_once(bench: PeerBench) -> None:
    await bench.start()
    fetch = bench.send(FETCH)
    await bench.wait_request(1)
    bench.peer.stop()
    assert await bench.wait_events(1) == [
        RequestFailed(request_id=fetch, reason=FailureReason.DISCONNECTED),
    ]
    again = bench.send(FETCH)
    assert (await bench.wait_events(2))[1:] == [
        RequestFailed(request_id=again, reason=FailureReason.UNREACHABLE),
    ]


async def test_a_peer_that_broke_a_connection_is_connected_again_at_once(bench: PeerBench) -> None:
    await bench.start(backoff_s=3600.0, backoff_s_max=3600.0)
    fetch = bench.send(FETCH)
    await bench.wait_request(1)
    bench.peer.transports[0].abort()
    assert await bench.wait_events(1) == [
        RequestFailed(request_id=fetch, reason=FailureReason.DISCONNECTED),
    ]
    bench.peer.responses[1] = lambda _body: response_to_wire(m.FetchResponse(leader_id=2, leader_epoch=5))
    again = bench.send(FETCH)
    assert (await bench.wait_events(2))[1].request_id == again
    assert isinstance(bench.events[1], ResponseReceived)


async def test_only_the_connection_for_votes_is_reported_as_lost(bench: PeerBench) -> None:
    """A leader that shuts down learns that a voter is gone; no other node is misled by connections that are
    idle.
    """
    await bench.start()
    bench.peer.responses[1] = lambda _body: response_to_wire(m.FetchResponse(leader_id=2, leader_epoch=5))
    bench.peer.responses[82] = lambda _body: response_to_wire(
        m.UpdateRaftVoterResponse(leader_id=2, leader_epoch=5)
    )
    for number, request in enumerate((FETCH, UPDATE_VOTER, vote()), start=1):
        bench.send(request)
        await bench.wait_events(number)
    assert len(bench.peer.transports) == 3
    for transport in bench.peer.transports:
        transport.abort()
    assert (await bench.wait_events(4))[3:] == [ConnectionLost(node_id=2)]


async def test_a_bootstrap_server_has_no_node_to_lose(bench: PeerBench) -> None:
    await bench.start()
    voted = bench.send(vote(), node_id=-2)
    await bench.wait_events(1)
    bench.peer.stop()
    await turn_until(lambda: all(transport.is_closing() for transport in bench.peer.transports))
    refused = bench.send(vote(), node_id=-3)
    assert await bench.wait_events(2) == [
        ResponseReceived(request_id=voted, response=VOTE_GRANTED),
        RequestFailed(request_id=refused, reason=FailureReason.UNREACHABLE),
    ]


async def test_a_timeout_gives_the_connection_up(bench: PeerBench) -> None:
    bench.peer.responses[1] = lambda _body: response_to_wire(m.FetchResponse(leader_id=2, leader_epoch=5))
    await bench.start()
    bench.send(FETCH)
    await bench.wait_events(1)
    fetched = bench.peer.responses.pop(1)
    slow = bench.send(FETCH, timeout_ms=20)
    events = await bench.wait_events(2)
    assert events[1] == RequestFailed(request_id=slow, reason=FailureReason.TIMED_OUT)
    bench.peer.responses[1] = fetched
    responses = bench.send(FETCH)
    events = await bench.wait_events(3)
    assert (events[2].request_id, len(bench.peer.transports)) == (responses, 2)


async def test_a_peer_that_is_down_is_tried_again_with_backoff(bench: PeerBench) -> None:
    port = await bench.peer.start()
    bench.peer.stop()
    await asyncio.sleep(0)
    bench.port = port
    bench.open()
    for number in range(1, 6):
        failed = bench.send(vote())
        assert (await bench.wait_events(number))[-1] == RequestFailed(
            request_id=failed, reason=FailureReason.UNREACHABLE
        )
    await bench.peer.start(port)
    voted = bench.send(vote())
    assert (await bench.wait_events(6))[-1] == ResponseReceived(request_id=voted, response=VOTE_GRANTED)


async def test_a_peer_that_does_not_negotiate_is_given_up(bench: PeerBench) -> None:
    await bench.start(setup_timeout_s=0.02)
    bench.peer.raw_response = b""
    failed = bench.send(vote())
    assert await bench.wait_events(1) == [RequestFailed(request_id=failed, reason=FailureReason.UNREACHABLE)]


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\x00\x00\x04\x00\x00\x00\x63",
        b"\x00\x00\x00\x02\x00\x00",
        b"\x00\x00\x00\x0a\x00\x00\x00\x00\x00\x00\x7f\xff\xff\xff",
    ],
    ids=["http", "wrong correlation", "short", "huge array"],
)
async def test_garbage_from_a_peer_ends_the_connection(
    bench: PeerBench, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.start()
    bench.peer.raw_response = garbage
    failed = bench.send(vote())
    assert await bench.wait_events(1) == [RequestFailed(request_id=failed, reason=FailureReason.UNREACHABLE)]
    assert "peer_sent_garbage" in [record.message for record in caplog.records]


async def test_an_answer_about_another_partition_fails_the_request(bench: PeerBench) -> None:
    await bench.start()
    vote_response = CONTROLLER_APIS[52].canonical_response
    bench.peer.responses[52] = lambda _body: vote_response(error_code=ErrorCode.none, topics=())
    failed = bench.send(vote())
    assert await bench.wait_events(1) == [RequestFailed(request_id=failed, reason=FailureReason.DISCONNECTED)]


async def test_a_peer_that_moved_is_followed(bench: PeerBench) -> None:
    await bench.start()
    moved = FakePeer()
    new_port = await moved.start()
    waiting = bench.send(FETCH)
    await bench.wait_request(1)
    moved.responses[1] = lambda _body: response_to_wire(m.FetchResponse(leader_id=2, leader_epoch=5))
    responses = bench.send(FETCH, port=new_port)
    events = await bench.wait_events(2)
    assert events[0] == RequestFailed(request_id=waiting, reason=FailureReason.DISCONNECTED)
    assert events[1].request_id == responses
    assert moved.seen(1) == [18]
    moved.stop()


async def test_waiting_requests_are_bounded(bench: PeerBench) -> None:
    await bench.start(waiting_max=7, in_flight_max=5)
    ids = [bench.send(FETCH) for _ in range(10)]
    assert await bench.wait_events(3) == [
        RequestFailed(request_id=request_id, reason=FailureReason.DISCONNECTED) for request_id in ids[7:]
    ]
    await bench.wait_request(1, 5)


async def test_close_is_silent(bench: PeerBench) -> None:
    await bench.start()
    bench.send(FETCH)
    await bench.wait_request(1)
    bench.send(vote(), port=1)
    await bench.connections.close()
    (transport, *_) = bench.peer.transports
    await turn_until(transport.is_closing)
    assert bench.events == []


async def test_idle_connections_are_closed_without_a_hint(bench: PeerBench) -> None:
    await bench.start(idle_timeout_s=0.02)
    bench.send(vote())
    await bench.wait_events(1)
    (transport,) = bench.peer.transports
    await turn_until(transport.is_closing)
    bench.send(vote())
    assert [type(event) for event in await bench.wait_events(2)] == [ResponseReceived, ResponseReceived]


def registration(port: int) -> OwnRequest:
    return OwnRequest(
        destination=Destination(node_id=2, host="127.0.0.1", port=port),
        request=ControllerRegistrationRequest(
            controller_id=1, incarnation_id=None, zk_migration_ready=False, listeners=(), features=()
        ),
    )


async def test_a_registration_is_answered_by_its_future(bench: PeerBench) -> None:
    response = ControllerRegistrationResponse(
        throttle_time=timedelta(), error_code=ErrorCode.none, error_message=None
    )
    bench.peer.responses[70] = lambda _body: response
    await bench.start()
    assert await bench.connections.ask(registration(bench.port)) == response


async def test_a_registration_fails_with_its_connection(bench: PeerBench) -> None:
    await bench.start()
    future = bench.connections.ask(registration(bench.port))
    await bench.wait_request(70)
    bench.peer.stop()
    with pytest.raises(ConnectionError):
        await future


async def test_a_peer_without_an_api_of_ours_is_told_from_a_broken_connection(bench: PeerBench) -> None:
    bench.peer.responses[70] = lambda _body: ControllerRegistrationResponse(
        throttle_time=timedelta(), error_code=ErrorCode.none, error_message=None
    )
    await bench.start()
    heartbeat = ControllerHeartbeatRequest(controller_id=1, last_snapshot_offset=-1, snapshot_state=0)
    own = registration(bench.port)
    with pytest.raises(UnsupportedVersion):
        await bench.connections.ask(OwnRequest(destination=own.destination, request=heartbeat))
    await bench.connections.ask(own)


async def test_a_name_that_cannot_be_resolved_is_a_failed_connection(bench: PeerBench) -> None:
    bench.open()
    for number, host in enumerate(("a" * 64 + ".invalid", "..")):
        destination = Destination(node_id=3 + number, host=host, port=9)
        bench.connections.send(
            Send(request_id=number, destination=destination, request=vote(), timeout_ms=HANG_S * 1000)
        )
    events = await bench.wait_events(2)
    assert {event.reason for event in events} == {FailureReason.UNREACHABLE}
