"""What an ended connection held is free at once: no garbage collection has to find it.

A controller collects its whole heap rarely, and a connection with TLS has buffers of some 300 KiB.
"""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from kit.controller_parts import heartbeat
from kit.java.tls import Certificates
from kit.tls_listener import TlsRig, client_context, tls_of
from kit.waiting import HANG_S, turn_until
from quorate_controller.server.listener import Listener
from quorate_protocol.wire.frames import encode_frame

HALF_A_REQUEST = encode_frame(bytes(100_000))[:50_000]


@pytest.fixture(autouse=True)
def no_collections() -> Iterator[None]:
    """No garbage is collected during a test."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def connections_of(listener: Listener) -> list[weakref.ref[Any]]:
    """Weak references to the open connections."""
    return [weakref.ref(connection) for connection in listener.context.connections]


async def all_freed(references: list[weakref.ref[Any]]) -> None:
    """Wait until nothing holds the connections."""
    await turn_until(lambda: all(reference() is None for reference in references))


async def test_a_connection_that_the_client_closes_is_freed(rig: Any) -> None:
    await rig.listen()
    client = await rig.connect()
    client.writer.write(HALF_A_REQUEST)
    await turn_until(lambda: rig.listener.connection_count == 1)
    references = connections_of(rig.listener)
    await client.close()
    await all_freed(references)


async def test_a_connection_with_a_request_in_flight_is_freed(rig: Any) -> None:
    await rig.listen()
    client = await rig.connect()
    client.send(heartbeat(1), 1)
    (future,) = await rig.node.requests(1)
    references = connections_of(rig.listener)
    await client.close()
    await turn_until(lambda: rig.listener.connection_count == 0)
    future.cancel()
    rig.node.controls.clear()
    del future
    await all_freed(references)


@pytest.mark.parametrize("is_aborted", [False, True])
async def test_a_connection_with_tls_is_freed(
    secured: TlsRig, certificates: Certificates, is_aborted: bool
) -> None:
    await secured.listen(tls_of(certificates))
    _, writer = await secured.connect(client_context(certificates))
    writer.write(HALF_A_REQUEST)
    await turn_until(lambda: secured.listener.connection_count == 1)
    references = connections_of(secured.listener)
    if is_aborted:
        writer.transport.abort()
    else:
        writer.close()
    await all_freed(references)


async def test_a_connection_that_the_controller_closes_is_freed(
    secured: TlsRig, certificates: Certificates
) -> None:
    await secured.listen(tls_of(certificates))
    reader, writer = await secured.connect(client_context(certificates))
    await turn_until(lambda: secured.listener.connection_count == 1)
    references = connections_of(secured.listener)
    writer.write(b"\xff\xff\xff\xff")
    with suppress(OSError):
        await asyncio.wait_for(reader.read(), HANG_S)
    writer.close()
    await all_freed(references)
