"""Listeners with TLS on real sockets: who the client is, what is refused, and bounds."""

import asyncio
import logging
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kit.controller_parts import heartbeat, heartbeat_response
from kit.java.tls import Certificates
from kit.request_handlers import LargeResponses
from kit.tls_listener import LOCALHOST, TlsRig, client_context, messages, pem, tls_of
from kit.waiting import HANG_S, turn_until
from quorate_controller.config.listener_security import ListenerTls
from quorate_controller.node.events import ANONYMOUS, Principal
from quorate_controller.security.principal_rules import parse_rules
from quorate_controller.server import connection_quotas, listener
from quorate_controller.server.connection_quotas import ConnectionLimits, Stage
from quorate_controller.server.counters import Limit
from quorate_controller.server.listener import Listener
from quorate_controller.server.listener_limits import ListenerLimits
from quorate_controller.server.peer_lane import Address, LaneLimits, PeerLane
from quorate_controller.server.tls import TlsOfListener
from quorate_protocol.security.stores import SecurityConfigError, TlsConfig
from quorate_protocol.security.tls import ClientAuth
from quorate_protocol.wire.client import ClientConnection
from quorate_protocol.wire.frames import encode_frame


@pytest.mark.parametrize("asked", list(ClientAuth))
async def test_the_principal_is_the_name_in_the_certificate(
    secured: TlsRig, certificates: Certificates, asked: ClientAuth
) -> None:
    await secured.listen(tls_of(certificates, client_auth=asked))
    await secured.ask(client_context(certificates, has_certificate=True))
    expected = ANONYMOUS if asked is ClientAuth.NONE else Principal(name="CN=client")
    assert secured.echo.principals == [expected]


async def test_names_are_mapped_by_the_rules(secured: TlsRig, certificates: Certificates) -> None:
    rules = parse_rules("RULE:CN=(.*)/$1-1/U")
    await secured.listen(tls_of(certificates, client_auth=ClientAuth.REQUIRED, mapping_rules=rules))
    await secured.ask(client_context(certificates, has_certificate=True))
    assert secured.echo.principals == [Principal(name="CLIENT-1")]


async def test_a_name_without_a_rule_is_refused(
    secured: TlsRig, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    rules = parse_rules("RULE:CN=other/x/")
    await secured.listen(tls_of(certificates, client_auth=ClientAuth.REQUIRED, mapping_rules=rules))
    reader, writer = await secured.connect(client_context(certificates, has_certificate=True))
    writer.write(encode_frame(b"hello"))
    assert await asyncio.wait_for(reader.read(), HANG_S) == b""
    assert secured.echo.principals == []
    (facts,) = messages(caplog, "connection_refused")
    assert facts["reason"] == "no rule of ssl.principal.mapping.rules applies to CN=client"


async def test_without_a_certificate_a_client_may_be_anonymous_or_nobody(
    secured: TlsRig, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    anonymous = client_context(certificates)
    await secured.listen(tls_of(certificates, client_auth=ClientAuth.REQUESTED))
    await secured.ask(anonymous)
    assert secured.echo.principals == [ANONYMOUS]
    await secured.listener.close(grace_s=0)
    await secured.listen(tls_of(certificates, client_auth=ClientAuth.REQUIRED))
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        await secured.ask(anonymous)
    await turn_until(lambda: messages(caplog, "tls_handshake_failed"))
    (facts,) = messages(caplog, "tls_handshake_failed")
    assert facts["reason"] == "PEER_DID_NOT_RETURN_A_CERTIFICATE"
    assert secured.echo.principals == [ANONYMOUS]


async def test_a_stranger_and_plain_text_are_refused(
    secured: TlsRig, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """Only what the authority signed comes in, and bytes without TLS are no request."""
    listening = tls_of(certificates, client_auth=ClientAuth.REQUIRED)
    await secured.listen(listening)
    stranger = client_context(certificates)
    stranger.load_cert_chain(certificates.other_authority, certificates.other_authority.with_suffix(".key"))
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        await secured.ask(stranger)
    reader, writer = await secured.connect(None)
    writer.write(encode_frame(b"hello"))
    assert b"hello" not in await asyncio.wait_for(reader.read(), HANG_S)
    await turn_until(lambda: len(messages(caplog, "tls_handshake_failed")) == 2)
    await secured.ask(client_context(certificates, has_certificate=True))
    assert len(secured.echo.principals) == 1


async def test_handshakes_count_as_connections(
    secured: TlsRig, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """Silent clients can't use up the process."""
    await secured.listen(tls_of(certificates), connections=ConnectionLimits(total_max=2))
    silent = [await secured.connect(None) for _ in range(2)]
    await secured.ask(client_context(certificates))
    assert await asyncio.wait_for(silent[0][0].read(), HANG_S) == b""
    (facts,) = messages(caplog, "connection_gave_way")
    assert (facts["stage"], facts["limit"]) == ("silent", "max.connections")
    assert not silent[1][0].at_eof()
    assert secured.listener.context.quotas.count == 2


def begun_handshakes(secured: TlsRig) -> int:
    """How many handshakes have begun of which none is complete."""
    places = secured.listener.context.quotas._by_listener["CONTROLLER"]
    return len(places.by_stage[Stage.HANDSHAKE]) + secured.counters.limited[Limit.HANDSHAKES]


async def test_few_handshakes_are_under_way_at_once(
    secured: TlsRig, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strangers that all begin a handshake at once hold the event loop shortly."""
    monkeypatch.setattr(connection_quotas, "HANDSHAKES_MAX", 2)
    monkeypatch.setattr(connection_quotas, "HANDSHAKE_S_MIN", 0.05)
    await secured.listen(tls_of(certificates))
    begun = [await secured.connect(None) for _ in range(5)]
    for number, (_, writer) in enumerate(begun):
        writer.write(b"\x16")
        await turn_until(partial(lambda count: begun_handshakes(secured) == count, number + 1))
    for reader, _ in begun[:3]:
        assert await asyncio.wait_for(reader.read(), HANG_S) == b""
    assert secured.counters.limited[Limit.HANDSHAKES] == 3
    await secured.ask(client_context(certificates))


async def test_silent_clients_hold_up_no_handshake(
    secured: TlsRig, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_quotas, "HANDSHAKES_MAX", 2)
    monkeypatch.setattr(connection_quotas, "HANDSHAKE_S_MIN", HANG_S)
    await secured.listen(tls_of(certificates))
    silent = [await secured.connect(None) for _ in range(20)]
    await asyncio.wait_for(secured.ask(client_context(certificates)), HANG_S)
    monkeypatch.setattr(listener, "HANDSHAKE_TIMEOUT_S", 0.01)
    late, _ = await secured.connect(None)
    assert await asyncio.wait_for(late.read(), HANG_S) == b""
    assert secured.counters.limited == {Limit.HANDSHAKE_TIME: 1}
    assert not silent[0][0].at_eof()


async def test_many_clients_that_come_at_once_are_served(
    secured: TlsRig, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_quotas, "HANDSHAKES_MAX", 2)
    monkeypatch.setattr(connection_quotas, "HANDSHAKE_S_MIN", HANG_S)
    await secured.listen(tls_of(certificates))
    context = client_context(certificates)
    await asyncio.wait_for(asyncio.gather(*(secured.ask(context) for _ in range(40))), HANG_S)
    assert secured.counters.limited[Limit.HANDSHAKES] == 0


async def test_a_handshake_that_ends_gives_its_place_back(
    secured: TlsRig, certificates: Certificates
) -> None:
    await secured.listen(tls_of(certificates))
    _, garbage = await secured.connect(None)
    garbage.write(b"garbage" * 10)
    _, cut = await secured.connect(None)
    cut.transport.abort()
    await secured.ask(client_context(certificates))
    secured.writers[-1].transport.abort()
    await turn_until(lambda: secured.listener.context.quotas.count == 0)
    assert secured.counters.failed_handshakes == 2


async def test_a_peer_that_does_not_read_is_not_read_from(
    secured: TlsRig, certificates: Certificates
) -> None:
    """Answers do not pile up behind TLS either."""
    handler = LargeResponses()
    await secured.listen(tls_of(certificates), handler, send_buffer_bytes_max=64 * 1024)
    reader, writer = await secured.connect(client_context(certificates))
    writer.write(encode_frame(b"ask") * 100)
    await turn_until(lambda: handler.handled > 0)
    for _ in range(5):
        other, other_writer = await secured.connect(client_context(certificates))
        other_writer.write(encode_frame(b"ask"))
        await asyncio.wait_for(other.readexactly(len(handler.response)), HANG_S)
    assert handler.handled < 80, "what the buffers hold, and no more"
    await asyncio.wait_for(reader.readexactly(100 * len(handler.response)), HANG_S)
    assert handler.handled == 105


async def test_requests_over_tls_are_served_by_the_node(rig: Any, certificates: Certificates) -> None:
    rig.node.decide = lambda _request, caller: heartbeat_response(
        is_fenced=str(caller.principal) == "User:CN=client"
    )
    listener = await rig.listen()
    await listener.close(grace_s=0)
    listening = Listener(
        name="CONTROLLER",
        handler=listener.context.handler,
        limits=ListenerLimits(),
        tls=tls_of(certificates, client_auth=ClientAuth.REQUIRED),
    )
    await listening.start(LOCALHOST, 0)
    try:
        reader, writer = await asyncio.open_connection(
            LOCALHOST, listening.port, ssl=client_context(certificates, has_certificate=True)
        )
        codec = ClientConnection("test")
        writer.write(codec.send(heartbeat(), 1))
        ((_, response),) = codec.receive_data(await asyncio.wait_for(reader.read(1000), HANG_S))
        assert response.is_fenced
        writer.transport.abort()
    finally:
        await listening.close(grace_s=0)


def lane_to(listener: Listener, tls: TlsOfListener, host: str = LOCALHOST) -> PeerLane:
    """A connection to another controller."""
    return PeerLane(
        Address(node_id=1, host=host, port=listener.port),
        client_id="lane",
        cluster_id="cluster",
        limits=LaneLimits(),
        rng=random.Random(1),
        on_lost=lambda: None,
        on_misrouted=lambda: None,
        tls=tls,
    )


@pytest.mark.parametrize(
    "case", ["trusted", "another name", "another name, not checked", "another authority"]
)
async def test_controllers_check_whom_they_connect_to(
    rig: Any, certificates: Certificates, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Ssl.endpoint.identification.algorithm and the trust store apply to connections to other controllers."""
    caplog.set_level(logging.INFO)
    rig.node.decide = lambda _request, caller: heartbeat_response(
        is_fenced=str(caller.principal) == "User:CN=server"
    )
    plain = await rig.listen()
    await plain.close(grace_s=0)
    keystore = certificates.client if "name" in case else certificates.server
    served = tls_of(certificates, keystore, client_auth=ClientAuth.REQUIRED)
    listener = Listener(name="CONTROLLER", handler=plain.context.handler, limits=ListenerLimits(), tls=served)
    await listener.start(LOCALHOST, 0)
    trusted = certificates.other_authority if case == "another authority" else certificates.authority
    config = TlsConfig(
        keystore=pem("keystore", certificates.server),
        truststore=pem("truststore", trusted),
        is_checking_host="not checked" not in case,
    )
    lane = lane_to(listener, TlsOfListener("CONTROLLER", ListenerTls(tls=config)))
    try:
        if case in ("trusted", "another name, not checked"):
            assert (await lane.ask(heartbeat(), HANG_S)).is_fenced
            return
        with pytest.raises(ConnectionError):
            await lane.ask(heartbeat(), HANG_S)
        (facts,) = messages(caplog, "peer_unreachable")
        expected = "IP address mismatch" if case == "another name" else "CERTIFICATE_VERIFY_FAILED"
        assert expected in facts["reason"]
        assert not rig.node.controls
    finally:
        lane.close()
        await listener.close(grace_s=0)


def test_a_store_that_can_not_be_read_ends_the_start(certificates: Certificates, tmp_path: Path) -> None:
    for file, reason in (
        (tmp_path / "none.pem", "No such file"),
        (certificates.authority, "key or certificate"),
    ):
        with pytest.raises(SecurityConfigError, match=reason) as refused:
            tls_of(certificates, file)
        assert str(refused.value).startswith(f"ssl.keystore.location={file}: ")
