"""Outbound connections on real sockets: negotiation, lanes, failures, and the hints that speed up failover."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.controller_registration.v0.request import ControllerRegistrationRequest
from kio.schema.controller_registration.v0.response import ControllerRegistrationResponse
from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse, DescribeConfigsResult
from kio.schema.errors import ErrorCode
from kit.waiting import HANG_S, turn_until
from quorate_controller.node.events import OwnRequest
from quorate_controller.raft import messages as m
from quorate_controller.raft.messages import ConnectionLost, FailureReason, RequestFailed, ResponseReceived
from quorate_controller.raft.model import ReplicaKey, VersionRange
from quorate_controller.server import examining, peers
from quorate_controller.server.counters import RequestCounters
from quorate_controller.server.peer_lane import LaneLimits
from quorate_controller.server.peers import PeerConnections
from quorate_controller.server.raft_wire import response_to_wire
from quorate_protocol.errors import UnsupportedVersion
from quorate_protocol.kafka.apis import CONTROLLER_APIS
from quorate_protocol.kafka.extensions.controller_heartbeat_request import ControllerHeartbeatRequest
from quorate_protocol.kafka.generated.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from quorate_protocol.wire.frames import FrameDecoder
from quorate_protocol.wire.server import Request, parse_request, serialize_response

VOTE_GRANTED = m.VoteResponse(leader_epoch=5, vote_granted=True)


def vote(*, pre_vote: bool = False) -> m.VoteRequest:
    return m.VoteRequest(
        cluster_id="c",
        voter=ReplicaKey(node_id=2),
        replica=ReplicaKey(node_id=1),
        replica_epoch=5,
        last_offset=0,
        last_offset_epoch=0,
        pre_vote=pre_vote,
    )


FETCH = m.FetchRequest(
    cluster_id="c",
    replica=ReplicaKey(node_id=1),
    current_leader_epoch=5,
    fetch_offset=0,
    last_fetched_epoch=0,
    max_wait_ms=500,
)


UPDATE_VOTER = m.UpdateRaftVoterRequest(
    cluster_id="c",
    current_leader_epoch=5,
    voter=ReplicaKey(node_id=1),
    endpoints=(),
    kraft_versions=VersionRange(lowest=0, highest=1),
)


class FakePeer:
    """A controller that speaks the versions it is told to, and answers what it is told to."""

    def __init__(self) -> None:
        self.ranges = {key: (api.version_min, api.version_max) for key, api in CONTROLLER_APIS.items()}
        self.answers: dict[int, Callable[[Any], Any]] = {52: lambda _body: response_to_wire(VOTE_GRANTED)}
        self.requests: list[Request] = []
        self.transports: list[asyncio.Transport] = []
        self.closed: list[asyncio.Transport] = []
        self.raw_answer: bytes | None = None
        self.node_id = 2
        self._server: asyncio.Server | None = None

    async def start(self, port: int = 0) -> int:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _PeerConnection(self), "127.0.0.1", port)
        return int(self._server.sockets[0].getsockname()[1])

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for transport in self.transports:
            transport.abort()

    def seen(self, key: int) -> list[int]:
        """The versions of the requests of one API that came."""
        return [request.version for request in self.requests if request.api.key == key]

    def take(self, transport: asyncio.Transport, frame: bytes) -> None:
        request = parse_request(frame)
        self.requests.append(request)
        if self.raw_answer is not None:
            transport.write(self.raw_answer)
        elif request.api.key == 18:
            self.answer_versions(transport, request)
        elif request.api.key in self.answers:
            body = self.answers[request.api.key](request.body)
            answer = serialize_response(request.api, request.version, request.correlation_id, body)
            transport.write(answer)

    def answer_versions(self, transport: asyncio.Transport, request: Request) -> None:
        lowest, highest = self.ranges[18]
        if not lowest <= request.version <= highest:
            body = ApiVersionsResponse(
                error_code=ErrorCode.unsupported_version,
                api_keys=(ApiVersion(api_key=18, min_version=lowest, max_version=highest),),
            )
            transport.write(serialize_response(request.api, 0, request.correlation_id, body))
            return
        is_meant = request.body.node_id in (-1, self.node_id)
        body = ApiVersionsResponse(
            error_code=ErrorCode.none if is_meant else ErrorCode.rebootstrap_required,
            api_keys=tuple(
                ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in self.ranges.items()
            ),
            supported_features=(SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1),)
            if request.version >= 4
            else (),
        )
        transport.write(serialize_response(request.api, request.version, request.correlation_id, body))


class _PeerConnection(asyncio.Protocol):
    def __init__(self, peer: FakePeer) -> None:
        self._peer = peer
        self._frames = FrameDecoder()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._peer.transports.append(transport)

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            self._peer.take(self._transport, frame)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's interface
        self._peer.closed.append(self._transport)


class Bench:
    """Peer connections under test, the fake peer, and the raft events that came."""

    def __init__(self) -> None:
        self.peer = FakePeer()
        self.port = 0
        self.events: list[Any] = []
        self.counters = RequestCounters()
        self.connections: PeerConnections
        self._next_id = 0

    async def start(self, **limits: Any) -> None:
        self.port = await self.peer.start()
        self.open(**limits)

    def open(self, **limits: Any) -> None:
        self.connections = PeerConnections(
            client_id="controller-1",
            cluster_id="c",
            counters=self.counters,
            rng=random.Random(1),
            on_raft_event=self.events.append,
            limits=LaneLimits(
                **{"setup_timeout_s": HANG_S, "backoff_s": 0.001, "backoff_s_max": 0.004, **limits}
            ),
        )

    def send(
        self, request: Any, *, timeout_ms: int = HANG_S * 1000, node_id: int = 2, port: int | None = None
    ) -> int:
        """Send to the fake peer; gives the request id."""
        self._next_id += 1
        destination = m.Destination(node_id=node_id, host="127.0.0.1", port=port or self.port)
        self.connections.send(
            m.Send(request_id=self._next_id, destination=destination, request=request, timeout_ms=timeout_ms)
        )
        return self._next_id

    async def wait_events(self, count: int) -> list[Any]:
        """All events so far, once there are so many."""
        await turn_until(lambda: len(self.events) >= count)
        return self.events

    async def wait_request(self, key: int, count: int = 1) -> None:
        """Return when the peer has so many requests of an API."""
        await turn_until(lambda: len(self.peer.seen(key)) >= count)


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """Peer connections and a fake peer."""
    monkeypatch.setattr(peers, "OWN_REQUEST_TIMEOUT_MS", HANG_S * 1000)
    built = Bench()
    yield built
    await built.connections.close()
    built.peer.stop()
    await asyncio.sleep(0)


async def test_a_request_is_answered(bench: Bench) -> None:
    """Goal: votes work. Method: two votes over one connection, negotiated once."""
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
async def test_the_highest_common_version_is_used(bench: Bench, highest: int, sent_as: int) -> None:
    """Goal: old and newer peers. Method: peers of several ranges of Vote."""
    bench.peer.ranges[52] = (0, highest)
    bench.peer.answers[52] = lambda _body: response_to_wire(VOTE_GRANTED)
    await bench.start()
    bench.send(vote())
    await bench.wait_events(1)
    assert bench.peer.seen(52) == [sent_as]


@pytest.mark.parametrize("vote_range", [(0, 1), (3, 9), None])
async def test_a_request_that_the_peer_cannot_take_fails(
    bench: Bench, vote_range: tuple[int, int] | None
) -> None:
    """Goal: raft may elect without pre-vote. Method: pre-vote to Vote 0-1, to 3-9, to a peer without Vote."""
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


async def test_an_old_peer_is_asked_again_in_its_own_version(bench: Bench) -> None:
    """Goal: KIP-511's fallback. Method: a peer with ApiVersions 0-3 refuses ours in version 0."""
    bench.peer.ranges[18] = (0, 3)
    await bench.start()
    bench.send(vote())
    assert isinstance((await bench.wait_events(1))[0], ResponseReceived)
    assert bench.peer.seen(18)[-1] == 3


@pytest.mark.parametrize(
    ("node_id", "highest", "meant"),
    [(2, 5, ("c", 2)), (-2, 5, (None, -1)), (2, 4, (None, -1))],
    ids=["a voter", "a bootstrap server", "a voter of Kafka 4.3"],
)
async def test_a_peer_is_told_whom_we_mean(
    bench: Bench, node_id: int, highest: int, meant: tuple[str | None, int]
) -> None:
    """Goal: KIP-1242 between controllers. Method: ApiVersions as it arrives, where the id is known, where it is
    not, and where the version has no place for it.
    """
    bench.peer.ranges[18] = (0, highest)
    await bench.start()
    bench.send(vote(), node_id=node_id)
    assert isinstance((await bench.wait_events(1))[0], ResponseReceived)
    asked = [request for request in bench.peer.requests if request.api.key == 18]
    assert (asked[-1].body.cluster_id, asked[-1].body.node_id) == meant
    assert asked[-1].version == highest


async def test_a_peer_that_is_somebody_else_is_left(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Goal: KIP-1242 protects quorums from wrong addresses. Method: a peer with another node id: the requests
    fail as misrouted, the connection ends, it is counted and told; the node's new address works at once.
    """
    bench.peer.node_id = 3
    await bench.start()
    first, second = bench.send(vote()), bench.send(vote())
    assert await bench.wait_events(2) == [
        RequestFailed(request_id=one, reason=FailureReason.MISROUTED) for one in (first, second)
    ]
    assert bench.counters.misrouted_peer_connections == 1
    assert bench.peer.seen(52) == []
    (told,) = [record for record in caplog.records if record.message == "peer_misrouted"]
    assert told.facts["peer"] == f"2 (127.0.0.1:{bench.port})"  # type: ignore[attr-defined]
    moved = FakePeer()
    new_port = await moved.start()
    voted = bench.send(vote(), port=new_port)
    assert (await bench.wait_events(3))[-1] == ResponseReceived(request_id=voted, response=VOTE_GRANTED)
    moved.stop()


def not_leader(_body: Any) -> Any:
    response = m.FetchResponse(error_code=ErrorCode.not_leader_or_follower, leader_id=2, leader_epoch=5)
    return response_to_wire(response)


def who_answers(node_id: int, cluster_id: str = "c") -> dict[int, Callable[[Any], Any]]:
    """The answers to DescribeCluster and DescribeConfigs of a Java controller, which checks no identity."""

    def describe_cluster(_body: Any) -> Any:
        nodes = tuple(
            DescribeClusterBroker(broker_id=one, host="h", port=1, rack=None, is_fenced=False)
            for one in (2, node_id)
        )
        return DescribeClusterResponse(
            throttle_time=timedelta(), error_code=ErrorCode.none, cluster_id=cluster_id, brokers=nodes
        )

    def describe_configs(body: Any) -> Any:
        results = tuple(
            DescribeConfigsResult(
                error_code=ErrorCode.none if one.resource_name == str(node_id) else ErrorCode.invalid_request,
                error_message=None,
                resource_type=one.resource_type,
                resource_name=one.resource_name,
                configs=(),
            )
            for one in body.resources
        )
        return DescribeConfigsResponse(throttle_time=timedelta(), results=results)

    return {60: describe_cluster, 32: describe_configs}


async def test_a_java_controller_behind_the_address_of_another_is_named(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: a peer that never checks whom we mean is found out by what it answers. Method: node 3 answers a Fetch
    that is meant for the leader, node 2, and says that 2 leads; it does so again. Then the leader is there.
    """
    caplog.set_level(logging.INFO)
    bench.peer.answers |= {1: not_leader, **who_answers(3)}
    await bench.start()
    for count in (1, 2):
        bench.send(FETCH)
        await bench.wait_events(count)
        await turn_until(lambda: bench.counters.misrouted_peer_connections == 1)
    assert len(bench.peer.seen(60)) == 1
    (told,) = [record for record in caplog.records if record.message == "peer_misrouted"]
    assert told.facts == {  # type: ignore[attr-defined]
        "peer": f"2 (127.0.0.1:{bench.port})",
        "meant": "node",
        "cluster_id": "c",
        "found_cluster_id": "c",
        "found_node_id": 3,
    }
    bench.peer.answers[1] = lambda _body: response_to_wire(m.FetchResponse(leader_id=2, leader_epoch=5))
    bench.send(FETCH)
    await bench.wait_events(3)
    assert [record for record in caplog.records if record.message == "peer_reached_again"]


@pytest.mark.parametrize(
    ("answers", "counted"),
    [(who_answers(2), 0), (who_answers(3, "other"), 1), ({}, 0)],
    ids=["a leader that has resigned", "a node of another cluster", "nobody that says who it is"],
)
async def test_who_answers_is_asked_before_a_node_is_called_misrouted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, answers: dict[int, Any], counted: int
) -> None:
    """Goal: no false alarm. Method: a peer that does not lead, and is the one that is meant, or not, or silent."""
    monkeypatch.setattr(examining, "TIMEOUT_S", 30.0 if answers else 0.05)
    bench.peer.answers |= {1: not_leader, **answers}
    await bench.start()
    bench.send(FETCH)
    await bench.wait_request(60)
    await turn_until(lambda: len(bench.peer.closed) == 1)
    assert bench.counters.misrouted_peer_connections == counted


async def test_a_waiting_fetch_does_not_hold_back_a_vote(bench: Bench) -> None:
    """Goal: lanes are independent. Method: a Fetch without answer, then a vote to the same peer."""
    await bench.start()
    bench.send(FETCH)
    await bench.wait_request(1)
    voted = bench.send(vote())
    assert await bench.wait_events(1) == [ResponseReceived(request_id=voted, response=VOTE_GRANTED)]
    assert len(bench.peer.transports) == 2


async def test_a_broken_connection_fails_its_requests_at_once(bench: Bench) -> None:
    """Goal: elections start when the leader dies. Method: the peer goes away with a Fetch in flight, and does
    not take the connection of the next Fetch.
    """
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


async def test_a_peer_that_broke_a_connection_is_connected_again_at_once(bench: Bench) -> None:
    """Goal: a broken connection is no dead peer. Method: the peer closes the connection of a Fetch in flight
    and takes the next one; the backoff of an hour would be noticed.
    """
    await bench.start(backoff_s=3600.0, backoff_s_max=3600.0)
    fetch = bench.send(FETCH)
    await bench.wait_request(1)
    bench.peer.transports[0].abort()
    assert await bench.wait_events(1) == [
        RequestFailed(request_id=fetch, reason=FailureReason.DISCONNECTED),
    ]
    bench.peer.answers[1] = lambda _body: response_to_wire(m.FetchResponse(leader_id=2, leader_epoch=5))
    again = bench.send(FETCH)
    assert (await bench.wait_events(2))[1].request_id == again
    assert isinstance(bench.events[1], ResponseReceived)


async def test_only_the_connection_for_votes_is_reported_as_lost(bench: Bench) -> None:
    """Goal: a leader that shuts down learns that a voter is gone; nobody else is misled by connections that
    are idle. Method: the peer closes the idle connections of a Fetch, of an UpdateRaftVoter and, last, of a vote.
    """
    await bench.start()
    bench.peer.answers[1] = lambda _body: response_to_wire(m.FetchResponse(leader_id=2, leader_epoch=5))
    bench.peer.answers[82] = lambda _body: response_to_wire(
        m.UpdateRaftVoterResponse(leader_id=2, leader_epoch=5)
    )
    for number, request in enumerate((FETCH, UPDATE_VOTER, vote()), start=1):
        bench.send(request)
        await bench.wait_events(number)
    assert len(bench.peer.transports) == 3
    for transport in bench.peer.transports:
        transport.abort()
    assert (await bench.wait_events(4))[3:] == [ConnectionLost(node_id=2)]


async def test_a_bootstrap_server_has_no_node_to_lose(bench: Bench) -> None:
    """Goal: events name nodes only. Method: the connection for votes of a server without a known id."""
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


async def test_a_timeout_gives_the_connection_up(bench: Bench) -> None:
    """Goal: a stuck peer is not waited for. Method: an answer, then none in 20 ms; the next one connects again."""
    bench.peer.answers[1] = lambda _body: response_to_wire(m.FetchResponse(leader_id=2, leader_epoch=5))
    await bench.start()
    bench.send(FETCH)
    await bench.wait_events(1)
    fetched = bench.peer.answers.pop(1)
    slow = bench.send(FETCH, timeout_ms=20)
    events = await bench.wait_events(2)
    assert events[1] == RequestFailed(request_id=slow, reason=FailureReason.TIMED_OUT)
    bench.peer.answers[1] = fetched
    answered = bench.send(FETCH)
    events = await bench.wait_events(3)
    assert (events[2].request_id, len(bench.peer.transports)) == (answered, 2)


async def test_a_peer_that_is_down_is_tried_again_with_backoff(bench: Bench) -> None:
    """Goal: a restarted peer is found. Method: refused connections, then the peer on that port."""
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


async def test_a_peer_that_does_not_negotiate_is_given_up(bench: Bench) -> None:
    """Goal: no lane hangs. Method: ApiVersions stays unanswered; the set-up timeout is 20 ms."""
    await bench.start(setup_timeout_s=0.02)
    bench.peer.raw_answer = b""
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
    bench: Bench, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: a stranger on the peer's port does no harm. Method: raw bytes as answer to ApiVersions."""
    await bench.start()
    bench.peer.raw_answer = garbage
    failed = bench.send(vote())
    assert await bench.wait_events(1) == [RequestFailed(request_id=failed, reason=FailureReason.UNREACHABLE)]
    assert "peer_sent_garbage" in [record.message for record in caplog.records]


async def test_an_answer_about_another_partition_fails_the_request(bench: Bench) -> None:
    """Goal: nonsense never reaches raft. Method: a vote response without topics."""
    await bench.start()
    vote_response = CONTROLLER_APIS[52].canonical_response
    bench.peer.answers[52] = lambda _body: vote_response(error_code=ErrorCode.none, topics=())
    failed = bench.send(vote())
    assert await bench.wait_events(1) == [RequestFailed(request_id=failed, reason=FailureReason.DISCONNECTED)]


async def test_a_peer_that_moved_is_followed(bench: Bench) -> None:
    """Goal: addresses change. Method: the same node id at another port; what was in flight fails."""
    await bench.start()
    moved = FakePeer()
    new_port = await moved.start()
    waiting = bench.send(FETCH)
    await bench.wait_request(1)
    moved.answers[1] = lambda _body: response_to_wire(m.FetchResponse(leader_id=2, leader_epoch=5))
    answered = bench.send(FETCH, port=new_port)
    events = await bench.wait_events(2)
    assert events[0] == RequestFailed(request_id=waiting, reason=FailureReason.DISCONNECTED)
    assert events[1].request_id == answered
    assert moved.seen(1) == [18]
    moved.stop()


async def test_waiting_requests_are_bounded(bench: Bench) -> None:
    """Goal: no queue grows without end. Method: 10 requests where 5 in flight and 2 waiting fit."""
    await bench.start(waiting_max=7, in_flight_max=5)
    ids = [bench.send(FETCH) for _ in range(10)]
    assert await bench.wait_events(3) == [
        RequestFailed(request_id=request_id, reason=FailureReason.DISCONNECTED) for request_id in ids[7:]
    ]
    await bench.wait_request(1, 5)


async def test_close_is_silent(bench: Bench) -> None:
    """Goal: a stop tells raft nothing. Method: close with requests in flight and waiting."""
    await bench.start()
    bench.send(FETCH)
    await bench.wait_request(1)
    bench.send(vote(), port=1)
    await bench.connections.close()
    (transport, *_) = bench.peer.transports
    await turn_until(transport.is_closing)
    assert bench.events == []


async def test_idle_connections_are_closed_without_a_hint(bench: Bench) -> None:
    """Goal: idleness is no failure. Method: a vote, then 20 ms of silence; the next vote connects again."""
    await bench.start(idle_timeout_s=0.02)
    bench.send(vote())
    await bench.wait_events(1)
    (transport,) = bench.peer.transports
    await turn_until(transport.is_closing)
    bench.send(vote())
    assert [type(event) for event in await bench.wait_events(2)] == [ResponseReceived, ResponseReceived]


async def test_a_probe_asks_for_the_range_of_kraft_version(bench: Bench) -> None:
    """Goal: AddRaftVoter checks the new voter. Method: the probe is an ApiVersions request."""
    bench.peer.answers |= who_answers(2)
    await bench.start()
    probe = bench.send(m.ApiVersionsProbe())
    assert await bench.wait_events(1) == [
        ResponseReceived(
            request_id=probe,
            response=m.ApiVersionsProbeResponse(kraft_versions=VersionRange(lowest=0, highest=1)),
        )
    ]


@pytest.mark.parametrize(
    ("answers", "is_refused"),
    [(who_answers(3), True), (who_answers(2, "other"), True), ({}, False)],
    ids=["another node", "a node of another cluster", "nobody that says who it is"],
)
async def test_a_probe_finds_out_whose_the_address_of_a_new_voter_is(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, answers: dict[int, Any], is_refused: bool
) -> None:
    """Goal: no voter is added with the address of another Java controller, which accepts any identity. Method: a peer
    that says that it is another one, or does not say who it is.
    """
    monkeypatch.setattr(examining, "TIMEOUT_S", 30.0 if answers else 0.05)
    bench.peer.answers |= answers
    await bench.start()
    probe = bench.send(m.ApiVersionsProbe())
    (event,) = await bench.wait_events(1)
    if is_refused:
        assert event == RequestFailed(request_id=probe, reason=FailureReason.MISROUTED)
    else:
        assert isinstance(event, ResponseReceived)
    assert bench.counters.misrouted_peer_connections == is_refused


def registration(port: int) -> OwnRequest:
    return OwnRequest(
        destination=m.Destination(node_id=2, host="127.0.0.1", port=port),
        request=ControllerRegistrationRequest(
            controller_id=1, incarnation_id=None, zk_migration_ready=False, listeners=(), features=()
        ),
    )


async def test_a_registration_is_answered_by_its_future(bench: Bench) -> None:
    """Goal: controllers register. Method: a registration and the peer's answer."""
    answer = ControllerRegistrationResponse(
        throttle_time=timedelta(), error_code=ErrorCode.none, error_message=None
    )
    bench.peer.answers[70] = lambda _body: answer
    await bench.start()
    assert await bench.connections.ask(registration(bench.port)) == answer


async def test_a_registration_fails_with_its_connection(bench: Bench) -> None:
    """Goal: the node tries again. Method: the peer dies with the registration in flight."""
    await bench.start()
    future = bench.connections.ask(registration(bench.port))
    await bench.wait_request(70)
    bench.peer.stop()
    with pytest.raises(ConnectionError):
        await future


async def test_a_peer_without_an_api_of_ours_is_told_from_a_broken_connection(bench: Bench) -> None:
    """Goal: controllers of Java are not asked again and again for what they do not have. Method: a heartbeat to a
    peer with Kafka's APIs; a registration passes on the same connection.
    """
    bench.peer.answers[70] = lambda _body: ControllerRegistrationResponse(
        throttle_time=timedelta(), error_code=ErrorCode.none, error_message=None
    )
    await bench.start()
    heartbeat = ControllerHeartbeatRequest(controller_id=1, last_snapshot_offset=-1, snapshot_state=0)
    own = registration(bench.port)
    with pytest.raises(UnsupportedVersion):
        await bench.connections.ask(OwnRequest(destination=own.destination, request=heartbeat))
    await bench.connections.ask(own)


async def test_a_name_that_cannot_be_resolved_is_a_failed_connection(bench: Bench) -> None:
    """Goal: DNS trouble is retried. Method: names that no resolver accepts."""
    bench.open()
    for number, host in enumerate(("a" * 64 + ".invalid", "..")):
        destination = m.Destination(node_id=3 + number, host=host, port=9)
        bench.connections.send(
            m.Send(request_id=number, destination=destination, request=vote(), timeout_ms=HANG_S * 1000)
        )
    events = await bench.wait_events(2)
    assert {event.reason for event in events} == {FailureReason.UNREACHABLE}
