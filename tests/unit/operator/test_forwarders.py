"""Forwarding listeners: bytes both ways, half-closed connections, bounds, and withdrawal."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest
from kit.waiting import HANG_S, turn_until
from quorate_operator.planning.cluster import Address, Publication
from quorate_operator.planning.steps import PublishAddress, RetireAddress, StepError, WithdrawAddress
from quorate_operator.runtime.local import forwarders
from quorate_operator.runtime.local.errors import PlayError
from quorate_operator.runtime.local.forwarders import (
    FILES_KEPT,
    FILES_OF_CONNECTION,
    ForwardedTotal,
    Forwarder,
    Publications,
)

HOST = "127.0.0.1"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[Address], Awaitable[Streams]]
LARGE = bytes(range(256)) * 8 * 1024  # 2 MiB, more than any buffer on the way


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A node that sends back what it gets, and ends when the client has ended."""
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write(b"bye")
    except ConnectionError:
        pass  # the client is gone
    finally:
        writer.close()


async def free_address() -> Address:
    """An address without a listener."""
    server = await asyncio.start_server(echo, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return Address("127.0.0.2", port)


@pytest.fixture
async def node() -> AsyncIterator[Address]:
    """Where a node listens."""
    server = await asyncio.start_server(echo, HOST, 0)
    yield Address(HOST, server.sockets[0].getsockname()[1])
    server.close()


@pytest.fixture
async def forwarder(node: Address) -> AsyncIterator[Forwarder]:
    """An address that leads to the node."""
    forwarder = Forwarder(await free_address(), node)
    await forwarder.open()
    yield forwarder
    await forwarder.close()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Open connections of clients, which end with the test."""
    writers = []

    async def open_one(address: Address) -> Streams:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writers.append(writer)
        return reader, writer

    yield open_one
    for writer in writers:
        writer.transport.abort()


async def test_bytes_go_both_ways_and_an_end_is_no_end_of_the_answer(
    forwarder: Forwarder, connect: Connect
) -> None:
    reader, writer = await connect(forwarder.address)
    response = asyncio.create_task(reader.read(-1))
    writer.write(LARGE)
    await writer.drain()
    writer.write_eof()
    assert await asyncio.wait_for(response, HANG_S) == LARGE + b"bye"


async def test_connections_are_counted_while_they_last(forwarder: Forwarder, connect: Connect) -> None:
    clients = [await connect(forwarder.address) for _ in range(2)]
    for reader, writer in clients:
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
    assert forwarder.connections == 2
    reader, writer = clients.pop()
    writer.write_eof()
    assert await reader.read(-1) == b"bye"
    await turn_until(lambda: forwarder.connections == 1)


async def test_more_connections_than_allowed_are_refused(
    forwarder: Forwarder, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarders, "CONNECTIONS_MAX", 1)
    reader, writer = await connect(forwarder.address)
    writer.write(b"x")
    await reader.readexactly(1)
    refused, _ = await connect(forwarder.address)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await refused.readexactly(1)
    assert forwarder.connections == 1


async def test_addresses_share_the_file_descriptors(node: Address, connect: Connect) -> None:
    """Clients of forwarded addresses never keep the supervisor from starting nodes and writing files."""
    total = ForwardedTotal(FILES_KEPT + FILES_OF_CONNECTION)
    forwarders = [Forwarder(await free_address(), node, total) for _ in range(2)]
    for forwarder in forwarders:
        await forwarder.open()
    try:
        reader, writer = await connect(forwarders[0].address)
        writer.write(b"x")
        await reader.readexactly(1)
        refused, _ = await connect(forwarders[1].address)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await refused.readexactly(1)
        writer.close()
        await turn_until(lambda: total.count == 0)
        reader, writer = await connect(forwarders[1].address)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
    finally:
        for forwarder in forwarders:
            await forwarder.close()
    assert total.count == 0


async def test_a_node_that_is_down_ends_the_connection(connect: Connect) -> None:
    forwarder = Forwarder(await free_address(), Address(HOST, 1))
    await forwarder.open()
    try:
        reader, _ = await connect(forwarder.address)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1), HANG_S)
    finally:
        await forwarder.close()


async def test_closing_sends_everybody_away(forwarder: Forwarder, connect: Connect) -> None:
    reader, writer = await connect(forwarder.address)
    writer.write(b"x")
    await reader.readexactly(1)
    await forwarder.close()
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await asyncio.wait_for(reader.readexactly(1), HANG_S)
    with pytest.raises(ConnectionError):
        await connect(forwarder.address)


async def test_an_address_in_use_is_told(node: Address) -> None:
    with pytest.raises(PlayError, match=f"{node} can't be published"):
        await Forwarder(node, Address(HOST, 1)).open()


async def test_an_address_goes_from_one_node_to_another_only_by_a_withdrawal(node: Address) -> None:
    kept: list[tuple[Publication, ...]] = []
    publications = Publications((), lambda node_id, _: Address(HOST, node.port + node_id), kept.append)
    address = await free_address()

    async def publish(node_id: int) -> None:
        await publications.publish(
            PublishAddress(address=address, node_id=node_id, listener="PLAINTEXT", reason="test")
        )

    try:
        await publish(0)
        since_ms = kept[-1][0].since_ms
        publications.retire(RetireAddress(address=address, node_id=0, reason="test"))
        assert kept[-1][0].retired_at_ms is not None
        with pytest.raises(StepError, match="still points at node 0"):
            await publish(1)
        await publish(0)  # it is advertised again
        assert (kept[-1][0].since_ms, kept[-1][0].retired_at_ms) == (since_ms, None)
        await publications.withdraw(WithdrawAddress(address=address, node_id=1, reason="not its own"))
        assert len(publications.current()) == 1
        await publications.withdraw(WithdrawAddress(address=address, node_id=0, reason="test"))
        assert kept[-1] == publications.current() == ()
        await publish(1)
        assert kept[-1][0].node_id == 1
    finally:
        await publications.close()


@pytest.mark.parametrize("turns", range(6))
async def test_nobody_is_forwarded_who_comes_while_an_address_is_closed(
    forwarder: Forwarder, turns: int
) -> None:
    with socket.create_connection(tuple(forwarder.address)) as client:
        client.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
        await forwarder.close()
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(HANG_S):
            with suppress(ConnectionResetError):
                assert await loop.sock_recv(client, 1) == b""
    assert forwarder.connections == 0
