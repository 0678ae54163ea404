"""Large answers are written in pieces: a transport with TLS holds little of them, and their bytes arrive in order."""

import asyncio
import random

from kit.java.tls import Certificates
from kit.tls_listener import TlsRig, client_context, tls_of
from kit.waiting import HANG_S, turn_until
from quorate_controller.server.connection import Exchange
from quorate_controller.server.response_writer import PIECE_BYTES_MAX
from quorate_protocol.wire.frames import encode_frame

MIB = 1024 * 1024
LARGE = encode_frame(random.Random(5).randbytes(8 * MIB))
SMALL = encode_frame(b"small")


class LargeResponse:
    """Answers `large` with 8 MiB, `last` with 8 MiB before it closes the connection, and all else with some bytes."""

    def handle(self, exchange: Exchange) -> None:
        if exchange.frame == b"last":
            exchange.end_later(LARGE, 0)
        else:
            exchange.respond(LARGE if exchange.frame == b"large" else SMALL)


async def test_tls_holds_a_piece_of_a_large_answer(secured: TlsRig, certificates: Certificates) -> None:
    """A client that reads slowly costs its response, and not copies of it."""
    await secured.listen(tls_of(certificates), LargeResponse())
    reader, writer = await secured.connect(client_context(certificates))
    writer.transport.pause_reading()
    writer.write(encode_frame(b"large") + encode_frame(b"small"))
    await turn_until(lambda: bool(secured.listener.context.connections))
    (connection,) = secured.listener.context.connections
    await turn_until(lambda: bool(connection._writer.has_rest))
    await turn_until(lambda: secured.listener.context.responses.used_bytes > MIB)
    assert connection._transport.get_write_buffer_size() < 4 * PIECE_BYTES_MAX
    writer.transport.resume_reading()
    assert await asyncio.wait_for(reader.readexactly(len(LARGE) + len(SMALL)), HANG_S) == LARGE + SMALL
    await turn_until(lambda: secured.listener.context.responses.used_bytes == 0)
    writer.write(encode_frame(b"small"))
    assert await asyncio.wait_for(reader.readexactly(len(SMALL)), HANG_S) == SMALL


async def test_a_connection_closes_behind_the_last_piece(secured: TlsRig, certificates: Certificates) -> None:
    await secured.listen(tls_of(certificates), LargeResponse())
    reader, writer = await secured.connect(client_context(certificates))
    writer.write(encode_frame(b"last"))
    assert await asyncio.wait_for(reader.read(), HANG_S) == LARGE
