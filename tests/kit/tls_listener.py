"""A listener with TLS on a real socket, and its clients."""

import asyncio
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kit.java.tls import Certificates
from kit.waiting import HANG_S
from quorate_controller.config.listener_security import ListenerTls
from quorate_controller.server.connection import Exchange
from quorate_controller.server.connection_quotas import ConnectionLimits, ConnectionQuotas
from quorate_controller.server.counters import RequestCounters
from quorate_controller.server.listener import Listener
from quorate_controller.server.listener_limits import ListenerLimits
from quorate_controller.server.tls import TlsOfListener
from quorate_protocol.security.stores import Store, StoreType, TlsConfig
from quorate_protocol.wire.frames import encode_frame

if TYPE_CHECKING:
    from quorate_controller.node.events import Principal

LOCALHOST = "127.0.0.1"


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
        """Have a request echoed. Returns the TLS of the connection."""
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


def messages(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """The facts of an event in the log."""
    return [record.facts for record in caplog.records if record.message == event]  # type: ignore[attr-defined]
