"""SASL on real sockets: the order of requests, what is refused and how, sessions that end, and our own logins."""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from kit.controller_parts import heartbeat, heartbeat_response
from kit.waiting import HANG_S, turn_until
from quorate_controller.config.listener_sasl import ListenerSasl, Login
from quorate_controller.control.scram_credentials import credential_record
from quorate_controller.node.credentials import ImageCredentials
from quorate_controller.security import guesses
from quorate_controller.security.bearer import BearerToken, InvalidTokenError
from quorate_controller.server import listener, peer_lane, sasl
from quorate_controller.server.counters import Limit
from quorate_controller.server.peer_lane import Address, LaneLimits, PeerLane
from quorate_controller.server.sasl import SaslGate
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image import MetadataImage
from quorate_protocol.kafka.enums import ScramMechanism
from quorate_protocol.kafka.generated.api_versions_request import ApiVersionsRequest
from quorate_protocol.kafka.generated.sasl_authenticate_request import SaslAuthenticateRequest
from quorate_protocol.kafka.generated.sasl_handshake_request import SaslHandshakeRequest
from quorate_protocol.security.dialogues import BearerDialogue
from quorate_protocol.security.scram import ScramClient
from quorate_protocol.wire.frames import encode_frame

MECHANISMS = ("PLAIN", "SCRAM-SHA-256")
VERSIONS = ApiVersionsRequest(client_software_name="a", client_software_version="1")
ALICE = SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret")
BOB = SaslAuthenticateRequest(auth_bytes=b"\0bob\0bob-secret")
WRONG = SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong-secret")
PLAIN = SaslHandshakeRequest(mechanism="PLAIN")


async def listen(rig: Any, **changes: Any) -> SaslGate:
    """Start a listener with SASL, whose node shows in its response whether alice asks."""
    image = MetadataImage()
    record = credential_record(
        "scram-user", ScramMechanism.SCRAM_SHA_256, salt=b"salt", salted_password=b"x" * 32, iterations=4096
    )
    image.replay_all([record], base_offset=0)
    config = ListenerSasl(
        passwords={"alice": "alice-secret", "bob": "bob-secret"},
        **{"mechanisms": MECHANISMS, "failure_delay_ms": 0, **changes},
    )
    await rig.listen(first_frames_size_bytes_max=config.receive_size_bytes_max)
    gate = SaslGate(rig.listener.context.handler, config, ImageCredentials(image, None), rig.counters)
    rig.listener.context.handler = gate
    rig.node.decide = lambda _, caller: heartbeat_response(is_fenced=str(caller.principal) == "User:alice")
    return gate


async def login(client: Any, message: Any = ALICE, *, version: int = 2) -> Any:
    """Negotiate and authenticate. Returns the last response."""
    assert (await client.ask(VERSIONS, 4)).error_code is ErrorCode.none
    assert (await client.ask(PLAIN, 1)).error_code is ErrorCode.none
    return await client.ask(message, version)


async def test_requests_have_the_principal_that_logged_in(rig: Any) -> None:
    await listen(rig)
    alice, bob = await rig.connect(), await rig.connect()
    for client, message in ((alice, ALICE), (bob, BOB)):
        response = await login(client, message)
        assert (response.error_code, response.session_lifetime) == (ErrorCode.none, timedelta(0))
    assert (await alice.ask(heartbeat(), 1)).is_fenced
    assert not (await bob.ask(heartbeat(), 1)).is_fenced
    assert [str(caller.principal) for _, caller, _ in rig.node.controls] == ["User:alice", "User:bob"]


async def test_a_session_ends_with_the_token_of_oauthbearer(rig: Any) -> None:
    """KIP-368, and Kafka's answers to an invalid token."""
    handshake = SaslHandshakeRequest(mechanism="OAUTHBEARER")

    def validate(token: str) -> BearerToken:
        if token == "wrong":
            raise InvalidTokenError("it is wrong")
        expires_at_ms = int(time.time() * 1000) + (60_000 if token == "good" else -1)
        return BearerToken(name="alice", expires_at_ms=expires_at_ms, scopes=frozenset())

    gate = await listen(rig, mechanisms=("OAUTHBEARER",))
    gate._validate_token = validate

    async def show(token: str) -> tuple[Any, Any]:
        client = await rig.connect()
        assert (await client.ask(VERSIONS, 4)).error_code is ErrorCode.none
        assert (await client.ask(handshake, 1)).error_code is ErrorCode.none
        message = SaslAuthenticateRequest(auth_bytes=BearerDialogue(token).first())
        return client, await client.ask(message, 2)

    client, response = await show("good")
    assert response.error_code is ErrorCode.none
    assert timedelta(seconds=50) < response.session_lifetime <= timedelta(seconds=60)
    assert (await client.ask(heartbeat(), 1)).is_fenced
    client, response = await show("over")
    assert (response.error_code, response.session_lifetime) == (ErrorCode.none, timedelta(0))
    with pytest.raises((ConnectionError, EOFError, asyncio.IncompleteReadError)):
        await client.ask(heartbeat(), 1)
    client, response = await show("wrong")
    assert (response.error_code, response.auth_bytes) == (ErrorCode.none, b'{"status":"invalid_token"}')
    response = await client.ask(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
    assert response.error_code is ErrorCode.sasl_authentication_failed
    assert response.error_message == '{"status":"invalid_token"}'


async def test_an_old_client_sends_bare_tokens(rig: Any) -> None:
    """SaslHandshake version 0, as Kafka serves it."""
    await listen(rig)
    client = await rig.connect()
    assert (await client.ask(PLAIN, 0)).error_code is ErrorCode.none
    client.writer.write(encode_frame(ALICE.auth_bytes))
    assert await asyncio.wait_for(client.reader.readexactly(4), HANG_S) == bytes(4)
    assert (await client.ask(heartbeat(), 1)).is_fenced


async def test_versions_are_asked_again_after_an_error(rig: Any) -> None:
    """As Kafka, which takes a second ApiVersions after an error, and no third."""
    await listen(rig)
    client = await rig.connect()
    nameless = ApiVersionsRequest(client_software_name="", client_software_version="")
    assert (await client.ask(nameless, 4)).error_code is ErrorCode.invalid_request
    assert (await login(client)).error_code is ErrorCode.none
    assert (await client.ask(heartbeat(), 1)).is_fenced


async def test_nothing_else_is_served_before(rig: Any) -> None:
    await listen(rig)
    before: list[list[tuple[Any, int]]] = [
        [],
        [(VERSIONS, 4)],
        [(PLAIN, 1)],
        [(VERSIONS, 4), (PLAIN, 1)],
    ]
    for steps in before:
        refused = (
            [(heartbeat(), 1), (ALICE, 2)]
            if len(steps) < 2 and (PLAIN, 1) not in steps
            else [
                (heartbeat(), 1),
                (VERSIONS, 4),
                (PLAIN, 1),
            ]
        )
        if steps == [(VERSIONS, 4)]:
            refused.append((VERSIONS, 4))
        for request, version in refused:
            client = await rig.connect()
            for step, step_version in steps:
                await client.ask(step, step_version)
            client.send(request, version)
            assert await client.is_closed(), (steps, request)
    assert rig.node.controls == []
    assert rig.counters.failed_authentications == 2 + 3 + 3 + 3


@pytest.mark.parametrize(
    ("message", "reported"),
    [
        (WRONG, "Authentication failed: Invalid username or password"),
        (SaslAuthenticateRequest(auth_bytes=b"?"), "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
    ],
)
async def test_a_wrong_password_ends_the_connection(
    rig: Any, message: Any, reported: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await listen(rig)
    client = await rig.connect()
    await client.ask(VERSIONS, 4)
    await client.ask(PLAIN, 1)
    client.send(message, 2)
    client.send(heartbeat(), 1)
    response = await client.receive()
    assert (response.error_code, response.error_message) == (ErrorCode.sasl_authentication_failed, reported)
    assert await client.is_closed()
    assert rig.node.controls == []
    assert rig.counters.failed_authentications == 1
    assert "secret" not in caplog.text
    assert "authentication_failed" in caplog.text


async def test_scram_answers_nobody_as_it_answers_a_user(rig: Any) -> None:
    await listen(rig)

    async def responses(name: str) -> list[tuple[ErrorCode, str | None]]:
        client = await rig.connect()
        await client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
        scram = ScramClient(mechanism="SCRAM-SHA-256", username=name, password="guess", nonce="n")
        first = await client.ask(SaslAuthenticateRequest(auth_bytes=scram.first_message()), 2)
        message = scram.challenged(first.auth_bytes).message
        last = await client.ask(SaslAuthenticateRequest(auth_bytes=message), 2)
        return [(response.error_code, response.error_message) for response in (first, last)]

    assert await responses("scram-user") == await responses("nobody")
    invalid = "Authentication failed during authentication due to invalid credentials with SASL mechanism {}"
    assert await responses("nobody") == [
        (ErrorCode.none, None),
        (ErrorCode.sasl_authentication_failed, invalid.format("SCRAM-SHA-256")),
    ]


async def test_guesses_of_an_address_are_held_back(
    rig: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guesses, "FAILURES_MAX", 5)
    await listen(rig)
    assert (await login(await rig.connect())).error_code is ErrorCode.none
    wrong = SaslAuthenticateRequest(auth_bytes=b"\0bob\0wrong")
    for _ in range(5):
        refused = await login(await rig.connect(), wrong)
        assert refused.error_code is ErrorCode.sasl_authentication_failed
    for message in (BOB, wrong):
        with pytest.raises((ConnectionError, EOFError, asyncio.IncompleteReadError)):
            await login(await rig.connect(), message)
    assert rig.counters.limited[Limit.FAILED_LOGINS] == 2
    assert [record.message for record in caplog.records].count("login_held_back") == 2
    assert (await login(await rig.connect(), ALICE)).error_code is ErrorCode.none


async def test_an_unknown_mechanism_is_answered_with_those_that_there_are(rig: Any) -> None:
    await listen(rig)
    client = await rig.connect()
    response = await client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    assert (response.error_code, response.mechanisms) == (ErrorCode.unsupported_sasl_mechanism, MECHANISMS)
    assert await client.is_closed()


async def test_a_refusal_takes_its_time(rig: Any) -> None:
    """Connection.failed.authentication.delay.ms slows down guessing."""
    await listen(rig, failure_delay_ms=300)
    client = await rig.connect()
    began_s = time.monotonic()
    assert (await login(client, WRONG)).error_code is ErrorCode.sasl_authentication_failed
    assert time.monotonic() - began_s >= 0.3
    assert await client.is_closed()


async def test_frames_are_small_before(rig: Any) -> None:
    await listen(rig, receive_size_bytes_max=1_000)
    client = await rig.connect()
    client.writer.write((1_001).to_bytes(4, "big"))
    assert await client.is_closed()
    served = await rig.connect()
    await login(served)
    served.writer.write((20_000).to_bytes(4, "big"))
    await rig_barrier(rig)
    assert not served.reader.at_eof()


async def rig_barrier(rig: Any) -> None:
    """Return when what was sent before is taken."""
    for _ in range(3):
        await (await rig.connect()).ask(VERSIONS, 4)


class Clock:
    """A clock for sessions that a test moves."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of sessions."""
    found = Clock()
    monkeypatch.setattr(sasl, "time", found)
    return found


async def test_a_session_ends_unless_it_is_renewed(rig: Any, clock: Clock) -> None:
    """KIP-368."""
    await listen(rig, reauthentication_ms={"PLAIN": 60_000})
    client = await rig.connect()
    assert (await login(client)).session_lifetime == timedelta(minutes=1)
    clock.now_s += 50
    assert (await client.ask(PLAIN, 1)).error_code is ErrorCode.none
    assert (await client.ask(ALICE, 2)).session_lifetime == timedelta(minutes=1)
    clock.now_s += 50
    assert (await client.ask(heartbeat(), 1)).is_fenced
    clock.now_s += 11
    client.send(heartbeat(), 1)
    assert await client.is_closed()
    assert len(rig.node.controls) == 1


async def test_a_client_that_can_not_renew_is_told_no_lifetime(rig: Any) -> None:
    await listen(rig, reauthentication_ms={"PLAIN": 60_000})
    assert (await login(await rig.connect(), version=0)).session_lifetime == timedelta(0)


@pytest.mark.usefixtures("clock")
async def test_another_user_or_mechanism_can_not_take_over(rig: Any) -> None:
    await listen(rig, reauthentication_ms=dict.fromkeys(MECHANISMS, 60_000))
    client = await rig.connect()
    await login(client)
    await client.ask(PLAIN, 1)
    response = await client.ask(BOB, 2)
    assert response.error_message == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )
    assert await client.is_closed()
    client = await rig.connect()
    await login(client)
    await client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
    client.send(ALICE, 2)
    assert await client.is_closed()


async def test_renewing_too_often_or_without_need_is_refused(rig: Any, clock: Clock) -> None:
    await listen(rig, reauthentication_ms={"PLAIN": 60_000})
    client = await rig.connect()
    await login(client)
    await client.ask(PLAIN, 1)
    await client.ask(ALICE, 2)
    clock.now_s += 0.5
    assert (await client.ask(PLAIN, 1)).error_code is ErrorCode.illegal_sasl_state
    clock.now_s += 0.6
    assert (await client.ask(PLAIN, 1)).error_code is ErrorCode.none
    await rig.listener.close(grace_s=0)
    await listen(rig)
    client = await rig.connect()
    await login(client)
    assert (await client.ask(PLAIN, 1)).error_code is ErrorCode.illegal_sasl_state


class Lanes:
    """Lanes to the listener of a rig."""

    def __init__(self) -> None:
        self.open: list[PeerLane] = []

    def to(self, rig: Any, password: str = "alice-secret", mechanism: str = "PLAIN") -> PeerLane:
        """A lane that logs in as alice."""
        lane = PeerLane(
            Address(node_id=1, host="127.0.0.1", port=rig.listener.port),
            client_id="lane",
            cluster_id="cluster",
            limits=LaneLimits(),
            rng=random.Random(1),
            on_lost=lambda: None,
            on_misrouted=lambda: None,
            login=Login(mechanism=mechanism, username="alice", password=password),
        )
        self.open.append(lane)
        return lane


@pytest.fixture
def lane_to(rig: Any) -> Any:
    """Make lanes, which are closed at the end."""
    lanes = Lanes()
    yield partial(lanes.to, rig)
    for lane in lanes.open:
        lane.close()


async def test_a_lane_logs_in_and_renews_its_session(
    rig: Any, lane_to: Callable[..., PeerLane], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_lane, "REAUTHENTICATION_SHARE", 0.0)
    monkeypatch.setattr(sasl, "REAUTHENTICATION_INTERVAL_S_MIN", 0.0)
    await listen(rig, reauthentication_ms={"PLAIN": 60_000})
    lane = lane_to()
    for _ in range(3):
        responses = [lane.ask(heartbeat(), HANG_S) for _ in range(3)]
        assert all([(await response).is_fenced for response in responses])
    assert rig.counters.requests[36] == 3
    assert rig.listener.connection_count == 1


async def test_a_lane_with_a_wrong_password_is_told_so(
    rig: Any, lane_to: Callable[..., PeerLane], caplog: pytest.LogCaptureFixture
) -> None:
    await listen(rig)
    for lane in (
        lane_to("wrong-secret"),
        lane_to(mechanism="SCRAM-SHA-512"),
        lane_to(mechanism="SCRAM-SHA-256"),
    ):
        with pytest.raises(ConnectionError):
            await lane.ask(heartbeat(), HANG_S)
    await turn_until(lambda: rig.counters.failed_authentications >= 3)
    reasons = [
        record.facts["reason"] for record in caplog.records if record.message == "peer_authentication_failed"
    ]  # type: ignore[attr-defined]
    assert reasons[0] == "Authentication failed: Invalid username or password"
    assert reasons[1] == "SCRAM-SHA-512: UNSUPPORTED_SASL_MECHANISM; the peer has PLAIN, SCRAM-SHA-256"
    assert "invalid credentials" in reasons[2]
    assert "secret" not in caplog.text


async def test_who_does_not_authenticate_in_time_is_closed(
    rig: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(listener, "AUTHENTICATION_TIMEOUT_S", 0.1)
    monkeypatch.setattr(listener, "SWEEP_EVERY_S", 0.02)
    await listen(rig)
    alice, stranger = await rig.connect(), await rig.connect()
    await login(alice)
    assert (await alice.ask(heartbeat(), 1)).is_fenced
    assert (await stranger.ask(PLAIN, 1)).error_code is ErrorCode.none
    assert await stranger.is_closed()
    assert (await alice.ask(heartbeat(), 1)).is_fenced
    assert [record.message for record in caplog.records] == ["authentication_timed_out"]
    assert rig.counters.limited == {Limit.AUTHENTICATION_TIME: 1}
