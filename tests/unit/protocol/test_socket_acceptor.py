"""Which interfaces a server listens on."""

import asyncio
import errno
import socket

import pytest
from kit.waiting import HANG_S
from quorate_protocol import socket_acceptor
from quorate_protocol.socket_acceptor import SocketAcceptor

IPV4, IPV6 = ("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)
BOUND = socket_acceptor._bound


def free_port() -> int:
    """A port that is free for both families."""
    with socket.socket(socket.AF_INET6) as probe:
        probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        probe.bind(("::", 0))
        return int(probe.getsockname()[1])


async def served(host: str) -> list[str]:
    """The loopback addresses at which a server that listens on `host` accepts connections."""
    accepted: list[socket.socket] = []

    def accept(connection: socket.socket, _: tuple[str, int]) -> float:
        accepted.append(connection)
        return 0.0

    acceptor, port = SocketAcceptor(accept), free_port()
    await acceptor.start(host, port)
    found = []
    try:
        for address, _ in (IPV4, IPV6):
            try:
                async with asyncio.timeout(HANG_S):
                    _, writer = await asyncio.open_connection(address, port)
            except OSError:
                continue
            writer.close()
            found.append(address)
    finally:
        acceptor.close()
        for connection in accepted:
            connection.close()
    return found


@pytest.mark.parametrize("host", ["", "0.0.0.0"])
async def test_all_interfaces_are_those_of_both_families(host: str) -> None:
    """kubelet probes a pod at an IPv6 address where the Kubernetes cluster has no others; stock Kafka is alike."""
    assert await served(host) == ["127.0.0.1", "::1"]


async def test_one_interface_is_no_other() -> None:
    assert await served("127.0.0.1") == ["127.0.0.1"]
    assert await served("::1") == ["::1"]


@pytest.mark.parametrize("number", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
async def test_a_host_may_lack_a_family(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def bound(family: int, kind: int, protocol: int, address: object) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(number, "no IPv6 here")
        return BOUND(family, kind, protocol, address)

    monkeypatch.setattr(socket_acceptor, "_bound", bound)
    assert await served("") == ["127.0.0.1"]
    with pytest.raises(OSError, match="no IPv6 here"):
        await served("::1")


async def test_a_port_that_is_taken_for_one_family_is_an_error() -> None:
    with socket.socket(socket.AF_INET) as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            await SocketAcceptor(lambda _connection, _address: 0.0).start("", taken.getsockname()[1])
