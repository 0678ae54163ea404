"""Listeners with TLS on real sockets: who the client is, what is refused, bounds, and keys that change."""

import asyncio
import logging
import random
import shutil
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kit.controller_parts import heartbeat, heartbeat_answer
from kit.java.tls import Certificates, signed
from kit.waiting import HANG_S, turn_until
from quorate_controller.config import load_config
from quorate_controller.config.listener_security import ListenerTls
from quorate_controller.control.regular_expressions import is_regular_expression
from quorate_controller.node.events import ANONYMOUS, Principal
from quorate_controller.security.certificates import Certificate
from quorate_controller.security.principal_rules import parse_rules
from quorate_controller.server import connection_quotas
from quorate_controller.server.connection import ListenerLimits
from quorate_controller.server.connection_quotas import ConnectionLimits, ConnectionQuotas
from quorate_controller.server.counters import Limit, RequestCounters
from quorate_controller.server.exchange import Exchange
from quorate_controller.server.listener import Listener
from quorate_controller.server.peer_lane import Address, LaneLimits, PeerLane
from quorate_controller.server.server import read_stores
from quorate_controller.server.tls import TlsOfListener
from quorate_controller.server.tls_changes import refusal_of
from quorate_protocol.security.stores import SecurityConfigError, Store, StoreType, TlsConfig
from quorate_protocol.security.tls import ClientAuth
from quorate_protocol.wire.client import ClientConnection
from quorate_protocol.wire.frames import encode_frame

LOCALHOST = "127.0.0.1"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority, a server, a client."""
    return Certificates.create(tmp_path_factory.mktemp("tls") / "certificates")


def pem(prefix: str, file: Path) -> Store:
    """A store in a PEM file."""
    return Store(prefix=f"ssl.{prefix}", type=StoreType.PEM, location=str(file))


def tls_of(
    certificates: Certificates,
    keystore: Path | None = None,
    *,
    connects_controllers: bool = False,
    **changes: Any,
) -> TlsOfListener:
    """TLS of a listener that has the server's key."""
    config = TlsConfig(
        keystore=pem("keystore", keystore or certificates.server),
        truststore=pem("truststore", certificates.authority),
    )
    listening = ListenerTls(tls=config, **changes)
    return TlsOfListener("CONTROLLER", listening, connects_controllers=connects_controllers)


def client_context(certificates: Certificates, *, has_certificate: bool = False) -> ssl.SSLContext:
    """A client that trusts the authority."""
    context = ssl.create_default_context(cafile=certificates.authority)
    if has_certificate:
        context.load_cert_chain(certificates.client)
    return context


class Echo:
    """Answers each request with itself, and notes who asked."""

    def __init__(self) -> None:
        self.principals: list[Principal] = []

    def handle(self, exchange: Exchange) -> None:
        self.principals.append(exchange.peer.principal)
        exchange.respond(encode_frame(exchange.frame))


class TlsRig:
    """A listener with TLS, and clients."""

    def __init__(self) -> None:
        self.echo = Echo()
        self.writers: list[asyncio.StreamWriter] = []
        self.listener: Listener

    async def listen(
        self,
        tls: TlsOfListener,
        handler: Any = None,
        connections: ConnectionLimits | None = None,
        **limits: Any,
    ) -> Listener:
        """Start the listener."""
        self.counters = RequestCounters()
        self.listener = Listener(
            name="CONTROLLER",
            handler=handler or self.echo,
            limits=ListenerLimits(**limits),
            tls=tls,
            quotas=ConnectionQuotas(connections or ConnectionLimits(), ["CONTROLLER"], self.counters),
            counters=self.counters,
        )
        await self.listener.start(LOCALHOST, 0)
        return self.listener

    async def connect(
        self, context: ssl.SSLContext | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection, with TLS unless there is no context."""
        reader, writer = await asyncio.open_connection(LOCALHOST, self.listener.port, ssl=context)
        self.writers.append(writer)
        return reader, writer

    async def ask(self, context: ssl.SSLContext, text: bytes = b"hello") -> ssl.SSLObject:
        """Have a request echoed; returns the TLS of the connection."""
        reader, writer = await self.connect(context)
        writer.write(encode_frame(text))
        assert await asyncio.wait_for(reader.readexactly(4 + len(text)), HANG_S) == encode_frame(text)
        found: ssl.SSLObject = writer.get_extra_info("ssl_object")
        return found

    async def close(self) -> None:
        """Close everything."""
        for writer in self.writers:
            writer.transport.abort()
        await self.listener.close(grace_s=0)
        await asyncio.sleep(0)


@pytest.fixture
async def secured() -> AsyncIterator[TlsRig]:
    """A listener with TLS, which the test starts."""
    built = TlsRig()
    yield built
    await built.close()


def messages(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """The facts of an event in the log."""
    return [record.facts for record in caplog.records if record.message == event]  # type: ignore[attr-defined]


@pytest.mark.parametrize("asked", list(ClientAuth))
async def test_the_principal_is_the_name_in_the_certificate(
    secured: TlsRig, certificates: Certificates, asked: ClientAuth
) -> None:
    """Goal: ACLs can name TLS clients. Method: ask with a certificate under each value of ssl.client.auth."""
    await secured.listen(tls_of(certificates, client_auth=asked))
    await secured.ask(client_context(certificates, has_certificate=True))
    expected = ANONYMOUS if asked is ClientAuth.NONE else Principal(name="CN=client")
    assert secured.echo.principals == [expected]


async def test_names_are_mapped_by_the_rules(secured: TlsRig, certificates: Certificates) -> None:
    """Goal: ssl.principal.mapping.rules apply. Method: a rule for the client."""
    rules = parse_rules("RULE:CN=(.*)/$1-1/U", is_regular_expression)
    await secured.listen(tls_of(certificates, client_auth=ClientAuth.REQUIRED, mapping_rules=rules))
    await secured.ask(client_context(certificates, has_certificate=True))
    assert secured.echo.principals == [Principal(name="CLIENT-1")]


async def test_a_name_without_a_rule_is_refused(
    secured: TlsRig, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: nobody becomes someone by accident. Method: a rule that does not match; the connection ends."""
    rules = parse_rules("RULE:CN=other/x/", is_regular_expression)
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
    """Goal: requested is not required. Method: a client without certificate on listeners of both kinds."""
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
    """Goal: only what the authority signed comes in, and bytes without TLS are no request.

    Method: a certificate that signs itself, then a frame without TLS; then a client that is served.
    """
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
    """Goal: silent clients can't use up the process. Method: two that say nothing where two may connect.

    A third gets in: the first of the silent ones gives way.
    """
    await secured.listen(tls_of(certificates), connections=ConnectionLimits(total_max=2))
    silent = [await secured.connect(None) for _ in range(2)]
    await secured.ask(client_context(certificates))
    assert await asyncio.wait_for(silent[0][0].read(), HANG_S) == b""
    (facts,) = messages(caplog, "connection_gave_way")
    assert (facts["stage"], facts["limit"]) == ("handshake", "max.connections")
    assert not silent[1][0].at_eof()
    assert secured.listener.quotas.count == 2


async def test_few_handshakes_are_under_way_at_once(
    secured: TlsRig, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: strangers that all begin a handshake at once hold the event loop shortly. Method: five, two may be.

    The first three are closed, and a client is served.
    """
    monkeypatch.setattr(connection_quotas, "HANDSHAKES_MAX", 2)
    monkeypatch.setattr(connection_quotas, "HANDSHAKE_S_MIN", 0.05)
    await secured.listen(tls_of(certificates))
    silent = [await secured.connect(None) for _ in range(5)]
    for reader, _ in silent[:3]:
        assert await asyncio.wait_for(reader.read(), HANG_S) == b""
    assert secured.counters.limited[Limit.HANDSHAKES] == 3
    await secured.ask(client_context(certificates))


async def test_many_clients_that_come_at_once_are_served(
    secured: TlsRig, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a cluster that starts is no attack. Method: 40 clients at the same moment, two handshakes at a time."""
    monkeypatch.setattr(connection_quotas, "HANDSHAKES_MAX", 2)
    monkeypatch.setattr(connection_quotas, "HANDSHAKE_S_MIN", HANG_S)
    await secured.listen(tls_of(certificates))
    context = client_context(certificates)
    await asyncio.wait_for(asyncio.gather(*(secured.ask(context) for _ in range(40))), HANG_S)
    assert secured.counters.limited[Limit.HANDSHAKES] == 0


async def test_a_handshake_that_ends_gives_its_place_back(
    secured: TlsRig, certificates: Certificates
) -> None:
    """Goal: places do not leak. Method: handshakes that fail, are cut off, and succeed; then all have left."""
    await secured.listen(tls_of(certificates))
    _, garbage = await secured.connect(None)
    garbage.write(b"garbage" * 10)
    _, cut = await secured.connect(None)
    cut.transport.abort()
    await secured.ask(client_context(certificates))
    secured.writers[-1].transport.abort()
    await turn_until(lambda: secured.listener.quotas.count == 0)
    assert secured.counters.failed_handshakes == 2


class LargeAnswers:
    """Answers each request with 256 KiB."""

    ANSWER = bytes(256 * 1024)

    def __init__(self) -> None:
        self.handled = 0

    def handle(self, exchange: Exchange) -> None:
        self.handled += 1
        exchange.respond(self.ANSWER)


async def test_a_peer_that_does_not_read_is_not_read_from(
    secured: TlsRig, certificates: Certificates
) -> None:
    """Goal: answers do not pile up behind TLS either. Method: 100 requests for 256 KiB each; read only later."""
    handler = LargeAnswers()
    await secured.listen(tls_of(certificates), handler, send_buffer_bytes_max=64 * 1024)
    reader, writer = await secured.connect(client_context(certificates))
    writer.write(encode_frame(b"ask") * 100)
    await turn_until(lambda: handler.handled > 0)
    for _ in range(5):
        other, other_writer = await secured.connect(client_context(certificates))
        other_writer.write(encode_frame(b"ask"))
        await asyncio.wait_for(other.readexactly(len(handler.ANSWER)), HANG_S)
    assert handler.handled < 80, "what the buffers hold, and no more"
    await asyncio.wait_for(reader.readexactly(100 * len(handler.ANSWER)), HANG_S)
    assert handler.handled == 105


async def test_a_changed_key_is_used_without_losing_a_connection(
    secured: TlsRig, certificates: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: certificates are renewed while controllers run.

    Method: replace the file of the key; the open connection goes on, a new one sees the new certificate. Then
    write what is no key: the last good one stays, which is logged once.
    """
    caplog.set_level(logging.INFO)
    keystore = tmp_path / "server.pem"
    shutil.copy(certificates.server, keystore)
    tls = tls_of(certificates, keystore)
    await secured.listen(tls)
    context = client_context(certificates)
    reader, writer = await secured.connect(context)
    renewed = signed(certificates.authority.parent, "renewed", common_name="server")
    replace_file(keystore, renewed)
    await tls.reload_if_changed()
    assert (await secured.ask(context)).getpeercert(binary_form=True) == certificate_in(renewed)
    writer.write(encode_frame(b"still here"))
    assert await asyncio.wait_for(reader.readexactly(14), HANG_S) == encode_frame(b"still here")
    keystore.write_text("nothing")
    for _ in range(3):
        await tls.reload_if_changed()
    await secured.ask(context)
    (facts,) = messages(caplog, "tls_reloaded")
    assert facts["serial_number"] == tls.certificate.serial_number
    assert facts["issuer"] == "CN=ca"
    (facts,) = messages(caplog, "tls_reload_failed")
    assert facts["reason"].startswith(f"ssl.keystore.location={keystore}: ")


def replace_file(file: Path, content: Path) -> None:
    """Give a file another content at once."""
    shutil.copy(content, file.with_suffix(".next"))
    file.with_suffix(".next").replace(file)


def certificate_in(file: Path) -> bytes:
    """The DER certificate of a PEM file that has a key, too."""
    text = file.read_text()
    return ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERTIFICATE") :])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"common_name": "other"}, "is for CN=other, the former for CN=server"),
        ({"alternative_names": "DNS:localhost"}, "lacks subject alternative names"),
        ({"authority": "other-ca"}, "would not trust each other"),
    ],
)
async def test_a_certificate_that_others_would_refuse_is_not_taken(
    certificates: Certificates,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    changes: dict[str, Any],
    reason: str,
) -> None:
    """Goal: a wrong new certificate takes no listener down. Method: several; then one that can be used."""
    caplog.set_level(logging.INFO)
    directory, keystore = certificates.authority.parent, tmp_path / "server.pem"
    shutil.copy(certificates.server, keystore)
    tls = tls_of(certificates, keystore, connects_controllers=True)
    former = tls.server, tls.client, tls.certificate
    replace_file(keystore, signed(directory, "wrong", **{"common_name": "server", **changes}))
    for _ in range(2):
        await tls.reload_if_changed()
    assert (tls.server, tls.client, tls.certificate) == former
    (facts,) = messages(caplog, "tls_reload_failed")
    assert reason in facts["reason"]
    assert tls.refuses_files
    replace_file(keystore, signed(directory, "right", common_name="server"))
    await tls.reload_if_changed()
    assert tls.certificate != former[2]
    assert not tls.refuses_files


@pytest.mark.parametrize(
    ("days", "reason"), [(-1, "is not valid before"), (0, None), (3, "expired at"), (1, None)]
)
def test_a_certificate_is_taken_while_it_is_valid(
    certificates: Certificates, days: int, reason: str | None
) -> None:
    """Goal: an expired certificate is not served in place of a valid one. Method: look at one on several days."""
    former = Certificate.of(certificate_in(certificates.server))
    renewed = signed(certificates.authority.parent, "valid", common_name="server")
    new = Certificate.of(certificate_in(renewed))
    config = ListenerTls(tls=TlsConfig())
    now = new.not_before + timedelta(days=days, seconds=1)
    refusal = refusal_of(new, former, config, now)
    assert refusal is None if reason is None else reason in str(refusal)
    assert refusal_of(former, former, config, now) is None, "an authority may change beside it"


@pytest.mark.parametrize("allowed", [{"allows_other_subject": True}, {"allows_fewer_names": True}])
async def test_another_subject_can_be_allowed(
    certificates: Certificates, tmp_path: Path, allowed: dict[str, bool]
) -> None:
    """Goal: ssl.allow.dn.changes and ssl.allow.san.changes are Kafka's. Method: what each of them allows."""
    keystore = tmp_path / "server.pem"
    shutil.copy(certificates.server, keystore)
    tls = tls_of(certificates, keystore, **allowed)
    is_subject = "allows_other_subject" in allowed
    changes = {"common_name": "other"} if is_subject else {"alternative_names": "DNS:localhost"}
    renewed = signed(certificates.authority.parent, "allowed", **{"common_name": "server", **changes})
    replace_file(keystore, renewed)
    await tls.reload_if_changed()
    assert tls.certificate.subject == ("CN=other" if is_subject else "CN=server")
    assert not tls.refuses_files


async def test_an_authority_is_exchanged_in_three_steps_and_in_no_other_order(
    certificates: Certificates, tmp_path: Path
) -> None:
    """Goal: controllers that have read the new files, and those that have not yet, connect to each other.

    Method: a step too early is refused: another authority's certificate, and an authority that goes while its
    certificate is served. Trust in both, the new certificate, trust in the new one alone are taken.
    """
    directory = certificates.authority.parent
    keystore, truststore = tmp_path / "server.pem", tmp_path / "ca.pem"
    shutil.copy(certificates.server, keystore)
    shutil.copy(certificates.authority, truststore)
    config = TlsConfig(keystore=pem("keystore", keystore), truststore=pem("truststore", truststore))
    both = tmp_path / "both.pem"
    both.write_text(certificates.authority.read_text() + certificates.other_authority.read_text())
    other = signed(directory, "under-other", authority="other-ca", common_name="server")
    for client_auth in (ClientAuth.NONE, ClientAuth.REQUIRED):
        replace_file(keystore, certificates.server)
        replace_file(truststore, certificates.authority)
        tls = TlsOfListener(
            "CONTROLLER", ListenerTls(tls=config, client_auth=client_auth), connects_controllers=True
        )
        for file, content, is_taken in (
            (keystore, other, False),
            (keystore, certificates.server, True),
            (truststore, both, True),
            (keystore, other, True),
            (truststore, certificates.authority, False),
            (truststore, certificates.other_authority, True),
        ):
            replace_file(file, content)
            await tls.reload_if_changed()
            assert tls.refuses_files is not is_taken, (client_auth, file.name, content.name)
        assert tls.certificate.issuer == "CN=other-ca"


async def test_a_key_that_came_before_its_certificate_is_waited_for(
    certificates: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: keys and certificates of a mounted Secret are reloaded (KIP-297), and never half of them.

    Method: files that variables of a configuration name; the new key first, which is not used, then its certificate.
    """
    caplog.set_level(logging.INFO)
    directory, secret = certificates.authority.parent, tmp_path / "secret"
    secret.mkdir()
    renewed = signed(directory, "mounted", common_name="server")
    shutil.copy(directory / "server.key", secret / "tls.key")
    shutil.copy(directory / "server.crt", secret / "tls.crt")
    written = {
        "process.roles": "controller",
        "node.id": "1",
        "log.dirs": str(tmp_path / "data"),
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://127.0.0.1:9093",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
        "listener.security.protocol.map": "CONTROLLER:SSL",
        "config.providers": "directory",
        "config.providers.directory.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": f"${{directory:{secret}:tls.key}}",
        "listener.name.controller.ssl.keystore.certificate.chain": f"${{directory:{secret}:tls.crt}}",
    }
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in written.items()))
    tls = read_stores(load_config(file))["CONTROLLER"]
    serial_number = tls.certificate.serial_number
    replace_file(secret / "tls.key", renewed.with_suffix(".key"))
    for _ in range(2):
        await tls.reload_if_changed()
    assert tls.certificate.serial_number == serial_number
    (facts,) = messages(caplog, "tls_reload_failed")
    assert "key" in facts["reason"].lower()
    replace_file(secret / "tls.crt", renewed.with_suffix(".crt"))
    await tls.reload_if_changed()
    assert tls.certificate == Certificate.of(certificate_in(renewed))
    (secret / "tls.key").unlink()
    await tls.reload_if_changed()
    assert "tls.key" in messages(caplog, "tls_reload_failed")[-1]["reason"]
    assert tls.certificate == Certificate.of(certificate_in(renewed))


async def test_requests_over_tls_are_served_by_the_node(rig: Any, certificates: Certificates) -> None:
    """Goal: a request that came over TLS is like any other. Method: a heartbeat through dispatcher and node."""
    rig.node.decide = lambda _request, caller: heartbeat_answer(
        is_fenced=str(caller.principal) == "User:CN=client"
    )
    listener = await rig.listen()
    await listener.close(grace_s=0)
    listening = Listener(
        name="CONTROLLER",
        handler=listener.handler,
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
    """Goal: ssl.endpoint.identification.algorithm and the trust store apply to connections to other controllers.

    Method: a lane to a listener whose certificate is for this host, for another one, or signed by a stranger.
    """
    caplog.set_level(logging.INFO)
    rig.node.decide = lambda _request, caller: heartbeat_answer(
        is_fenced=str(caller.principal) == "User:CN=server"
    )
    plain = await rig.listen()
    await plain.close(grace_s=0)
    keystore = certificates.client if "name" in case else certificates.server
    served = tls_of(certificates, keystore, client_auth=ClientAuth.REQUIRED)
    listener = Listener(name="CONTROLLER", handler=plain.handler, limits=ListenerLimits(), tls=served)
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
    """Goal: no controller without its key. Method: a file that is missing, and one without a key."""
    for file, reason in (
        (tmp_path / "none.pem", "No such file"),
        (certificates.authority, "key or certificate"),
    ):
        with pytest.raises(SecurityConfigError, match=reason) as refused:
            tls_of(certificates, file)
        assert str(refused.value).startswith(f"ssl.keystore.location={file}: ")
