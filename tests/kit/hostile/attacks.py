"""Attacks of hostile clients. Each attack runs until its time is over, and counts its attempts."""

import asyncio
import random
import socket
import ssl
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from kit.hostile import long_requests
from kit.hostile.victim import API_VERSIONS, CLIENT, CLIENT_PASSWORD, Victim, frame_of
from quorate_protocol.kafka.enums import ConfigResourceType
from quorate_protocol.kafka.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from quorate_protocol.kafka.generated.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from quorate_protocol.kafka.generated.sasl_authenticate_request import SaslAuthenticateRequest
from quorate_protocol.kafka.generated.sasl_handshake_request import SaslHandshakeRequest

OPEN_AT_ONCE: Final = 200
"""Connections that an attack begins at the same time."""
BYTE_EVERY_S: Final = 1.0
GUESSING_HOST: Final = "127.0.0.2"
HELLO_HELD_S: Final = 1.0
"""How long a handshake that was begun is left without its second flight."""
PIPELINED: Final = 200
LARGEST: Final = 100 * 1024 * 1024
LARGEST_LOGIN: Final = 512 * 1024
LARGEST_OF_STRANGER: Final = 8 * 1024 * 1024
TRICKLE_BYTES: Final = 100_000
"""A second: more than the least rate of a controller."""
_KEY_OF_CREATE_TOPICS: Final = b"\0\x13"
_KEY_OF_HEARTBEATS: Final = b"\0\x3f"
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER that makes close() send RST."""
_TCP_REPAIR: Final = 19
_REPLY_BYTES: Final = 64 * 1024

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Attacker:
    """One hostile process. `did` counts what it did and what happened to it."""

    def __init__(self, victim: Victim, seconds: float) -> None:
        self.victim = victim
        self.did: Counter[str] = Counter()
        self._ends_s = time.monotonic() + seconds
        self._chance = random.Random(1)
        self._kept: list[object] = []

    @property
    def is_over(self) -> bool:
        """Whether the time of the attack is over."""
        return time.monotonic() >= self._ends_s

    async def _rest(self) -> None:
        """Do nothing more until the attack is over: holding what was taken is the attack."""
        await asyncio.sleep(max(0.0, self._ends_s - time.monotonic()))

    # ---------------------------------------------------------------------------------------- connections

    async def _raw(self) -> socket.socket:
        """A connection without a TLS handshake."""
        opened = socket.socket()
        opened.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(opened, (self.victim.host, self.victim.port))
        except OSError:
            opened.close()
            raise
        self.did["connections"] += 1
        return opened

    async def _streams(self, context: ssl.SSLContext | None, local_host: str | None = None) -> Streams:
        streams = await asyncio.open_connection(
            self.victim.host,
            self.victim.port,
            ssl=context,
            limit=_REPLY_BYTES,
            local_addr=None if local_host is None else (local_host, 0),
        )
        self.did["connections"] += 1
        return streams

    async def _secured(self, context: ssl.SSLContext | None, local_host: str | None = None) -> Streams:
        """A connection without authentication, behind its TLS handshake if there is one."""
        return await self._streams(context, local_host)

    async def _logged_in(
        self,
        context: ssl.SSLContext | None,
        password: str = CLIENT_PASSWORD,
        local_host: str | None = None,
    ) -> Streams:
        """A connection that may send requests."""
        reader, writer = await self._secured(context, local_host)
        await self._exchange(reader, writer, frame_of(API_VERSIONS, 4))
        if self.victim.has_sasl:
            await self._exchange(reader, writer, frame_of(SaslHandshakeRequest(mechanism="PLAIN")))
            message = f"\0{CLIENT}\0{password}".encode()
            await self._exchange(reader, writer, frame_of(SaslAuthenticateRequest(auth_bytes=message)))
        return reader, writer

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frame: bytes
    ) -> None:
        writer.write(frame)
        size = int.from_bytes(await reader.readexactly(4), "big")
        await reader.readexactly(size)

    async def _many(
        self, count: int, act: Callable[[], Awaitable[object]], at_once: int = OPEN_AT_ONCE
    ) -> None:
        """Do something `count` times, `at_once` of them at the same time; a refusal counts."""
        allowed = asyncio.Semaphore(at_once)

        async def attempt() -> None:
            async with allowed:
                if self.is_over:
                    return
                try:
                    async with asyncio.timeout_at(
                        asyncio.get_running_loop().time() + self._ends_s - time.monotonic()
                    ):
                        await act()
                except (OSError, EOFError, TimeoutError) as error:
                    self.did[f"failed: {type(error).__name__}"] += 1

        await asyncio.gather(*(attempt() for _ in range(count)))

    async def _again_and_again(self, act: Callable[[], Awaitable[object]], at_once: int) -> None:
        while not self.is_over:
            await self._many(at_once * 5, act, at_once)

    # -------------------------------------------------------------------------------------------- attacks

    async def fill(self, connections: int) -> None:
        """Open connections and say nothing."""

        async def attempt() -> None:
            self._kept.append(await self._raw())

        await self._many(connections, attempt)
        await self._rest()

    async def vanish(self, connections: int) -> None:
        """Open connections and vanish without FIN or RST, as a machine does that loses its power. Needs root."""

        async def attempt() -> None:
            opened = await self._raw()
            opened.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 1)
            opened.close()
            self.did["vanished"] += 1

        await self._many(connections, attempt)
        await self._rest()

    async def drip(self, connections: int) -> None:
        """Send the first thing that the listener expects, a byte a second: a request, or a TLS handshake."""
        hello = _client_hello() if self.victim.has_tls else b""

        async def attempt() -> None:
            opened = await self._raw()
            self._kept.append(opened)
            await self._drip(hello or frame_of(API_VERSIONS, 4) * 10, opened.send)

        await self._many(connections, attempt, connections)

    async def drip_login(self, connections: int) -> None:
        """Begin to log in, and send the password a byte a second."""
        context = self.victim.tls()

        async def attempt() -> None:
            reader, writer = await self._secured(context)
            self._kept.append(writer)
            await self._exchange(reader, writer, frame_of(SaslHandshakeRequest(mechanism="PLAIN")))
            frame = frame_of(SaslAuthenticateRequest(auth_bytes=b"\0client\0" + bytes(10_000)))
            await self._drip(frame, lambda byte: _write(writer, byte))

        await self._many(connections, attempt, connections)

    async def _drip(self, data: bytes, send: Callable[[bytes], object]) -> None:
        for position in range(len(data)):
            if self.is_over:
                return
            send(data[position : position + 1])
            self.did["bytes"] += 1
            await asyncio.sleep(BYTE_EVERY_S)

    async def announce(self, connections: int) -> None:
        """Announce the largest request that is allowed, send 256 KiB of it, and no more."""
        context = self.victim.tls()

        async def attempt() -> None:
            _, writer = await self._logged_in(context)
            self._kept.append(writer)
            writer.write(LARGEST.to_bytes(4, "big") + bytes(256 * 1024))

        await self._many(connections, attempt, 50)
        await self._rest()

    async def announce_first(self, connections: int) -> None:
        """Announce the largest request that a stranger may send, and send eight bytes in all."""
        context = self.victim.tls()
        size_bytes = LARGEST_LOGIN if self.victim.has_sasl else LARGEST_OF_STRANGER

        async def attempt() -> None:
            _, writer = await self._secured(context)
            self._kept.append(writer)
            writer.write(size_bytes.to_bytes(4, "big") + _KEY_OF_CREATE_TOPICS + bytes(2))

        await self._many(connections, attempt, 50)
        await self._rest()

    async def trickle(self, connections: int) -> None:
        """Send requests of 10 MiB just fast enough: half of them begin like those of brokers."""
        context = self.victim.tls()
        size_bytes = 10 * 1024 * 1024

        async def attempt() -> None:
            _, writer = await self._logged_in(context)
            self._kept.append(writer)
            key = (_KEY_OF_CREATE_TOPICS, _KEY_OF_HEARTBEATS)[len(self._kept) % 2]
            writer.write(size_bytes.to_bytes(4, "big") + key + bytes(TRICKLE_BYTES))
            while not self.is_over:
                await asyncio.sleep(1)
                _write(writer, bytes(TRICKLE_BYTES))
                self.did["bytes"] += TRICKLE_BYTES

        await self._many(connections, attempt, connections)

    async def alter_many(self, connections: int) -> None:
        """Send 53 MiB of IncrementalAlterConfigs, again and again."""
        context = self.victim.tls()
        frame = long_requests.many_alterations()

        async def attempt() -> None:
            reader, writer = await self._logged_in(context)
            writer.write(frame)
            with suppress(OSError):
                await writer.drain()
                await reader.read()
            self.did["refused"] += 1
            writer.transport.abort()

        await self._again_and_again(attempt, connections)

    async def half_gets(self, connections: int) -> None:
        """Begin a GET of the metrics on many connections, and send no more of it."""

        async def attempt() -> None:
            _, writer = await asyncio.open_connection(self.victim.host, self.victim.http_port)
            self.did["connections"] += 1
            self._kept.append(writer)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n")

        await self._many(connections, attempt, 50)
        await self._rest()

    async def lengths(self, at_once: int) -> None:
        """Send lengths that are negative or too large, again and again."""
        context = self.victim.tls()
        wrong = (
            b"\xff\xff\xff\xff",
            b"\x80\x00\x00\x00",
            b"\x7f\xff\xff\xff",
            (LARGEST + 1).to_bytes(4, "big"),
        )

        async def attempt() -> None:
            reader, writer = await self._secured(context)
            writer.write(self._chance.choice(wrong) + bytes(1000))
            await reader.read()
            writer.transport.abort()

        await self._again_and_again(attempt, at_once)

    async def garbage(self, at_once: int) -> None:
        """Send random bytes without a handshake, again and again."""

        async def attempt() -> None:
            reader, writer = await self._streams(None)
            writer.write(self._chance.randbytes(self._chance.randrange(1, 2000)))
            writer.write_eof()
            with suppress(OSError):
                await reader.read()
            writer.transport.abort()

        await self._again_and_again(attempt, at_once)

    async def reset(self, at_once: int) -> None:
        """Connect, send half a request and reset the connection, again and again."""
        half = frame_of(API_VERSIONS, 4)[:10]

        async def attempt() -> None:
            opened = await self._raw()
            opened.send(half)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            opened.close()

        await self._again_and_again(attempt, at_once)

    async def ask_without_reading(self, connections: int) -> None:
        """Ask for large answers on many connections and read none of them."""
        context = self.victim.tls()
        frames = b"".join(frame_of(_all_configs(), correlation_id=number) for number in range(PIPELINED))

        async def attempt() -> None:
            _, writer = await self._logged_in(context)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            self._kept.append(writer)
            writer.write(frames)
            self.did["requests"] += PIPELINED

        await self._many(connections, attempt, 20)
        await self._rest()

    async def ask_for_all(self, connections: int, request: object) -> None:
        """Send a long request, read the response, and send it again."""
        context = self.victim.tls()
        frame = frame_of(request)

        async def attempt() -> None:
            reader, writer = await self._logged_in(context)
            while not self.is_over:
                writer.write(frame)
                size = int.from_bytes(await reader.readexactly(4), "big")
                while size:
                    size -= len(await reader.read(min(size, _REPLY_BYTES)))
                self.did["answers"] += 1

        await self._many(connections, attempt, connections)

    async def describe_configs(self, connections: int) -> None:
        """Describe all configs of all topics."""
        await self.ask_for_all(connections, long_requests.all_configs())

    async def describe_acls(self, connections: int) -> None:
        """Describe all ACLs, which one resource has."""
        await self.ask_for_all(connections, long_requests.all_acls())

    async def delete_acls(self, connections: int) -> None:
        """Delete ACLs with filters that match none."""
        await self.ask_for_all(connections, long_requests.idle_deletion())

    async def name_many(self, connections: int) -> None:
        """Name hundreds of thousands of resources in a request."""
        await self.ask_for_all(connections, long_requests.many_resources())

    async def create_beyond_quota(self, connections: int) -> None:
        """Create topics far beyond the quota of this client id, and ignore the throttle time."""
        context = self.victim.tls()

        async def attempt() -> None:
            reader, writer = await self._logged_in(context)
            while not self.is_over:
                name = f"hostile-{self._chance.randbytes(8).hex()}"
                await self._exchange(reader, writer, frame_of(_new_topic(name)))
                self.did["answers"] += 1

        await self._many(connections, attempt, connections)

    async def shake_hands(self, at_once: int) -> None:
        """Complete TLS handshakes and leave, again and again."""
        context = self.victim.tls()

        async def attempt() -> None:
            _, writer = await self._secured(context)
            writer.transport.abort()

        await self._again_and_again(attempt, at_once)

    async def hello_at_once(self, connections: int) -> None:
        """Open connections, then begin the TLS handshakes of all of them at the same moment, again and again."""
        hello = _client_hello()

        async def attempt() -> None:
            opened.append(await self._raw())

        while not self.is_over:
            opened: list[socket.socket] = []
            await self._many(connections, attempt)
            for connection in opened:
                with suppress(OSError):
                    connection.send(hello)
                    self.did["hellos"] += 1
            await asyncio.sleep(HELLO_HELD_S)
            for connection in opened:
                connection.close()

    async def guess(self, at_once: int) -> None:
        """Log in with wrong passwords, again and again, from another address than the bystanders: it has a bound."""
        context = self.victim.tls()

        async def attempt() -> None:
            reader, writer = await self._logged_in(context, "wrong", GUESSING_HOST)
            await reader.read()
            self.did["refused"] += 1
            writer.transport.abort()

        await self._again_and_again(attempt, at_once)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """A row of the table: what is done, how often, and where."""

    text: str
    run: Callable[[Attacker, int], Awaitable[None]]
    size: int
    """Connections, in all or at once."""
    needs_tls: bool = False
    needs_sasl: bool = False
    needs_root: bool = False
    needs_page: bool = False
    """A page of metrics."""
    needs_metadata: bool = False
    """Topics and ACLs that are there to ask for: see `long_requests.fill`."""

    def fits(self, protocol: str) -> bool:
        """Whether there is anything to attack on a listener with this security protocol."""
        return (protocol.endswith("SSL") or not self.needs_tls) and (
            protocol.startswith("SASL") or not self.needs_sasl
        )


ATTACKS: Final[Mapping[str, Attack]] = {
    "connections": Attack(text="{size:,} silent connections", run=Attacker.fill, size=5_000),
    "vanished": Attack(
        text="{size:,} connections whose clients vanish without FIN",
        run=Attacker.vanish,
        size=1_000,
        needs_root=True,
    ),
    "slow-loris": Attack(text="{size:,} connections, a byte a second each", run=Attacker.drip, size=1_000),
    "slow-login": Attack(
        text="{size:,} logins, a byte of the password a second",
        run=Attacker.drip_login,
        size=1_000,
        needs_sasl=True,
    ),
    "announced": Attack(
        text="{size:,} requests of 100 MiB of which 256 KiB come", run=Attacker.announce, size=500
    ),
    "announced-first": Attack(
        text="{size:,} first requests that are announced, of which eight bytes come",
        run=Attacker.announce_first,
        size=500,
    ),
    "trickle": Attack(
        text="{size:,} requests of 10 MiB that come at 100 kB a second, half of them like those of brokers",
        run=Attacker.trickle,
        size=500,
    ),
    "half-gets": Attack(
        text="{size:,} half GETs of the metrics", run=Attacker.half_gets, size=1_000, needs_page=True
    ),
    "lengths": Attack(text="negative and oversized lengths, {size} at a time", run=Attacker.lengths, size=20),
    "garbage": Attack(text="garbage, {size} connections at a time", run=Attacker.garbage, size=20),
    "resets": Attack(text="half requests, then a reset, {size} at a time", run=Attacker.reset, size=20),
    "no-reader": Attack(
        text="{size} clients that request 200 large responses each and read none",
        run=Attacker.ask_without_reading,
        size=200,
    ),
    "throttled": Attack(
        text="{size} clients beyond their quota that do not wait", run=Attacker.create_beyond_quota, size=20
    ),
    "handshakes": Attack(
        text="TLS handshakes, {size} at a time", run=Attacker.shake_hands, size=20, needs_tls=True
    ),
    "hellos": Attack(
        text="{size:,} TLS handshakes that begin at the same moment",
        run=Attacker.hello_at_once,
        size=1_000,
        needs_tls=True,
    ),
    "guesses": Attack(text="wrong passwords, {size} at a time", run=Attacker.guess, size=20, needs_sasl=True),
    "describe-all": Attack(
        text=f"{{size}} clients that describe all configs of {long_requests.TOPICS:,} topics",
        run=Attacker.describe_configs,
        size=4,
        needs_metadata=True,
    ),
    "describe-acls": Attack(
        text=f"{{size}} clients that describe {long_requests.ACLS:,} ACLs of a resource",
        run=Attacker.describe_acls,
        size=4,
        needs_metadata=True,
    ),
    "delete-acls": Attack(
        text=f"{{size}} clients that delete by {long_requests.FILTERS} filters, which match no ACL",
        run=Attacker.delete_acls,
        size=4,
        needs_metadata=True,
    ),
    "alterations": Attack(
        text="{size} clients that send 53 MiB of IncrementalAlterConfigs, again and again",
        run=Attacker.alter_many,
        size=4,
    ),
    "resources": Attack(
        text=f"{{size}} clients that name {long_requests.RESOURCES:,} resources in each request",
        run=Attacker.name_many,
        size=4,
        needs_metadata=True,
    ),
}


def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    if writer.transport.is_closing():
        raise ConnectionResetError
    writer.write(data)


def _client_hello() -> bytes:
    """The first message of a TLS handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    begun = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        begun.do_handshake()
    return outgoing.read()


def _all_configs() -> DescribeConfigsRequest:
    """All configs of brokers with their synonyms and descriptions: a small request, a large answer."""
    resource = DescribeConfigsResource(
        resource_type=ConfigResourceType.TOPIC, resource_name="probed-0", configuration_keys=None
    )
    return DescribeConfigsRequest(
        resources=(resource,) * 20, include_synonyms=True, include_documentation=True
    )


def _new_topic(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=(), configs=())
    return CreateTopicsRequest(topics=(topic,), timeout=timedelta(seconds=10), validate_only=False)
