"""One connection to a broker or controller: TLS, versions and identity, SASL, and responses matched to requests."""

import asyncio
import logging
import os
import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

from quorate_protocol.errors import ErrorCode, FrameTooLarge, ProtocolError, UnsupportedVersion, ValueTooLong
from quorate_protocol.kafka.apis import CONTROLLER_READ_APIS, Api, ApiKey, api_of
from quorate_protocol.plain_data import dataclass
from quorate_protocol.wire.client import ClientConnection
from quorate_protocol.wire.versions import (
    IDENTITY_SINCE,
    READER_SOFTWARE_NAME,
    Negotiation,
    PeerVersions,
)

from quorate_admin.config import Address
from quorate_admin.errors import (
    AdminError,
    AuthenticationError,
    ConfigError,
    ConnectionFailedError,
    ForeignProtocolError,
    RebootstrapRequiredError,
    RequestTimeoutError,
    ServerError,
    TlsExpectedError,
    UnsupportedByServerError,
)
from quorate_admin.security.config import SecurityConfig

logger = logging.getLogger(__name__)

READ_SIZE_BYTES = 64 * 1024
IN_FLIGHT_MAX = 100
_CORRELATION_ID_FIRST = 0x0A0A
"""Two line feeds: an HTTP server that waits for the end of a line, or of the headers, answers the first request."""
_TLS_ALERT = b"\x15\x03"
_HTTP = (b"HTTP", b"<!DO", b"<HTM")
"""A status line or, from some servers for what is no request, a page alone."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The expected identity of a server, which the server checks (KIP-1242)."""

    cluster_id: str
    node_id: int


class Connection:
    """An open connection. Requests may overlap; the server answers them in order.

    Requests and responses are the canonical classes of `quorate_protocol.kafka.apis`.
    """

    def __init__(
        self, address: Address, client_id: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.address = address
        self.identity: Identity | None = None
        self._wire = ClientConnection(
            client_id, in_flight_max=IN_FLIGHT_MAX, correlation_id_first=_CORRELATION_ID_FIRST
        )
        self._writer = writer
        self._pending: deque[asyncio.Future[Any]] = deque()
        self._room = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._open_for_requests = asyncio.Lock()
        self._versions = PeerVersions()
        self._serves_reads: bool | None = None
        """Whether the server serves CONTROLLER_READ_APIS; None before it is asked."""
        self._failure: AdminError | None = None
        self._reauthenticate_at_s: float | None = None
        self._security: SecurityConfig | None = None
        self._receiving = asyncio.create_task(self._receive(reader))

    @classmethod
    async def open(
        cls,
        address: Address,
        *,
        client_id: str,
        timeout_ms: int,
        setup_timeout_ms: int | None = None,
        security: SecurityConfig | None = None,
        identity: Identity | None = None,
    ) -> Self:
        """Connect, negotiate versions, have the server check `identity`, and authenticate.

        `setup_timeout_ms` applies to the socket and TLS, `timeout_ms` to each request after that.

        Raises:
            ConnectionFailedError, RequestTimeoutError: the server does not respond.
            AuthenticationError: TLS or SASL failed.
            RebootstrapRequiredError: the server has another identity.
            ServerError: the server refused.
            ConfigError: a file of the configuration can't be used.
        """
        reader, writer = await _connect(address, security, setup_timeout_ms or timeout_ms)
        connection = cls(address, client_id, reader, writer)
        try:
            await connection.negotiate(timeout_ms, identity)
            if security is not None and security.sasl is not None:
                connection._security = security
                await connection._authenticate(timeout_ms)
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        """Whether the connection can be used."""
        return self._failure is None

    @property
    def in_flight(self) -> int:
        """The number of requests without a response."""
        return len(self._pending)

    def supports(self, key: ApiKey) -> bool:
        """Whether the server has an API, in any version."""
        return key in self._versions

    async def negotiate(self, timeout_ms: int, identity: Identity | None = None) -> Any:
        """Negotiate versions, and return the ApiVersions response, which also has the feature levels.

        With `identity` the server checks its identity, if it supports that.

        Raises:
            RebootstrapRequiredError: the server has another identity.
            ServerError: the server refused.
            RequestTimeoutError, ConnectionFailedError: the server did not respond.
        """
        negotiation = Negotiation(
            cluster_id=identity.cluster_id if identity else None,
            node_id=identity.node_id if identity else -1,
            known=self._versions,
        )
        try:
            while True:
                response = await self._exchange(negotiation.request, negotiation.version, timeout_ms)
                versions = negotiation.receive(response)
                if versions is not None:
                    break
        except ProtocolError as error:
            if error.error_code is ErrorCode.rebootstrap_required:
                raise RebootstrapRequiredError(
                    f"{self.address}: the server reports that it is not the expected node"
                ) from None
            raise ServerError(error.error_code) from None
        self._versions, self._serves_reads = versions, None
        self.identity = identity if negotiation.version >= IDENTITY_SINCE else None
        return response

    async def verify(self, identity: Identity, timeout_ms: int) -> None:
        """Have the server check its identity, if it supports that and has not done so. Raises as `negotiate`."""
        can_check = self._versions.range_of(ApiKey.API_VERSIONS)[1] >= IDENTITY_SINCE
        if can_check and self.identity != identity:
            await self.negotiate(timeout_ms, identity)

    async def check_reads(self, timeout_ms: int) -> None:
        """Check that the server is a controller that serves all of CONTROLLER_READ_APIS. Others are not offered them.

        Raises:
            UnsupportedByServerError: it does not, as the controllers of Kafka.
            ServerError, RequestTimeoutError, ConnectionFailedError: as `negotiate`.
        """
        if self._serves_reads is None:
            negotiation = Negotiation(known=self._versions, software_name=READER_SOFTWARE_NAME)
            response = await self._exchange(negotiation.request, negotiation.version, timeout_ms)
            try:
                versions = negotiation.receive(response) or self._versions
            except ProtocolError as error:
                raise ServerError(error.error_code) from None
            self._serves_reads = all(api.key in versions for api in CONTROLLER_READ_APIS.values())
            if self._serves_reads:
                self._versions = versions
        if not self._serves_reads:
            raise UnsupportedByServerError(
                f"{self.address}: this controller does not serve what brokers serve"
            )

    async def request(self, request: Any, timeout_ms: int) -> Any:
        """Send a request in the highest version that both sides support, and return the response.

        Raises:
            UnsupportedByServerError: there is no such version.
            RequestTimeoutError, ConnectionFailedError: the server did not respond.
            AuthenticationError: authenticating again failed (KIP-368).
        """
        version = self._version_for(api_of(request))
        await self._reauthenticate_if_due(timeout_ms)
        return await self._exchange(request, version, timeout_ms)

    def _version_for(self, api: Api) -> int:
        try:
            return self._versions.version_for(api)
        except UnsupportedVersion as error:
            raise UnsupportedByServerError(f"{self.address}: {error.message}") from None

    async def close(self) -> None:
        """Close the connection. Requests in flight fail."""
        self._receiving.cancel()
        try:
            # Not awaited itself: its cancellation would look like that of the caller, whose timeout has to count.
            await asyncio.wait([self._receiving])
        finally:
            self._fail(ConnectionFailedError(f"{self.address}: the connection was closed"))
            self._writer.close()
        if not self._receiving.cancelled():
            self._receiving.result()  # raises only for a defect of this class: `_receive` handles failures of servers
        with suppress(OSError):
            await self._writer.wait_closed()

    # Authentication

    async def _authenticate(self, timeout_ms: int) -> None:
        assert self._security is not None
        assert self._security.sasl is not None
        from quorate_admin.security.sasl import authenticate  # noqa: PLC0415 - most connections need none

        async def ask(request: Any) -> Any:
            api = api_of(request)
            if api.key not in self._versions:
                raise AuthenticationError(
                    f"{self.address} is not a SASL listener: security.protocol is "
                    f"{self._security.protocol.name if self._security else ''}"
                )
            return await self._exchange(request, self._version_for(api), timeout_ms, is_urgent=True)

        try:
            lifetime_ms = await authenticate(self._security.sasl, self.address.host, ask)
        except AuthenticationError as error:
            raise AuthenticationError(f"{self.address}: {error}") from error
        self._reauthenticate_at_s = None
        if lifetime_ms > 0:
            # Before the session ends, because requests take time too (KIP-368).
            now_s = asyncio.get_running_loop().time()
            self._reauthenticate_at_s = now_s + lifetime_ms * 0.85 / 1000

    async def _reauthenticate_if_due(self, timeout_ms: int) -> None:
        if not self._is_reauthentication_due():
            return
        async with self._open_for_requests:
            if not self._is_reauthentication_due():
                return  # another request has authenticated
            logger.debug("%s: the session ends soon; authenticating again", self.address)
            # The server accepts no other request in between: wait for all responses.
            pending = [waiter for waiter in self._pending if not waiter.done()]
            if pending:
                await asyncio.wait(pending, timeout=timeout_ms / 1000)
            try:
                await self._authenticate(timeout_ms)
            except AdminError as error:
                self._fail(error)
                raise

    def _is_reauthentication_due(self) -> bool:
        due_s = self._reauthenticate_at_s
        return due_s is not None and asyncio.get_running_loop().time() >= due_s

    # Sending and receiving

    async def _exchange(self, request: Any, version: int, timeout_ms: int, *, is_urgent: bool = False) -> Any:
        try:
            async with asyncio.timeout(timeout_ms / 1000), self._room:
                async with self._turn(is_urgent=is_urgent):
                    if self._failure is not None:
                        raise self._failure
                    frame = self._wire.send(request, version)
                    waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                    self._pending.append(waiter)
                    self._writer.write(frame)
                await self._writer.drain()
                return await waiter
        except UnsupportedVersion as error:
            raise UnsupportedByServerError(f"{self.address}: {error}") from error
        except ValueTooLong as error:
            raise UnsupportedByServerError(f"no version of the request can express it: {error}") from error
        except (TimeoutError, asyncio.CancelledError) as error:
            # The response may arrive late or never, so the connection can't be used for the next request.
            self._receiving.cancel()
            self._fail(ConnectionFailedError(f"{self.address}: a request was cancelled or timed out"))
            if isinstance(error, asyncio.CancelledError):
                raise
            raise RequestTimeoutError(f"no response from {self.address} in {timeout_ms} ms") from None
        except OSError as error:
            raise _failure_of(self.address, error) from error

    @asynccontextmanager
    async def _turn(self, *, is_urgent: bool) -> AsyncIterator[None]:
        """Wait until a request may be sent.

        While the connection authenticates again, only urgent ones may: its own.
        """
        if is_urgent:
            yield
        else:
            async with self._open_for_requests:
                yield

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        first = b""
        try:
            while data := await reader.read(READ_SIZE_BYTES):
                first = first or data[:4]
                for _, response in self._wire.receive_data(data):
                    waiter = self._pending.popleft()
                    if not waiter.done():  # the caller may have stopped waiting
                        waiter.set_result(response)
            self._fail(ConnectionFailedError(f"{self.address}: the server closed the connection"))
        except OSError as error:
            self._fail(_failure_of(self.address, error))
        except FrameTooLarge as error:
            if first.startswith(_TLS_ALERT):
                hint = "it speaks TLS: security.protocol must be SSL or SASL_SSL"
                self._fail(TlsExpectedError(f"{self.address}: {error} ({hint})"))
            elif first.upper() in _HTTP:
                self._fail(ForeignProtocolError(f"{self.address}: it speaks HTTP, not Kafka's protocol"))
            else:
                self._fail(ConnectionFailedError(f"{self.address}: {error}"))
        except ProtocolError as error:
            self._fail(ConnectionFailedError(f"{self.address}: {error}"))
        finally:
            self._writer.close()

    def _fail(self, failure: AdminError) -> None:
        if self._failure is None:
            self._failure = failure
        while self._pending:
            waiter = self._pending.popleft()
            if not waiter.done():
                waiter.set_exception(self._failure)
                waiter.exception()  # mark it as retrieved: the caller may have failed to send and not wait for it


async def _connect(
    address: Address, security: SecurityConfig | None, timeout_ms: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = name = None
    if security is not None and security.protocol.is_tls:
        # Imported only here, because most connections do without TLS.
        from quorate_protocol.security.stores import SecurityConfigError  # noqa: PLC0415
        from quorate_protocol.security.tls import client_context  # noqa: PLC0415

        try:
            context = client_context(security.tls)
        except SecurityConfigError as error:
            raise ConfigError(str(error)) from None
        name = security.tls.names.get(address.host, address.host)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await asyncio.open_connection(
                address.host,
                address.port,
                ssl=context,
                server_hostname=name,
            )
    except TimeoutError:
        raise ConnectionFailedError(f"no connection to {address} in {timeout_ms} ms") from None
    except ConnectionError as error:
        if context is None or isinstance(error, ConnectionRefusedError):
            raise _failure_of(address, error) from error
        raise ConnectionFailedError(
            f"no connection to {address}: it was closed during the TLS handshake (is it a TLS listener?)"
        ) from error
    except OSError as error:
        raise _failure_of(address, error) from error


def _failure_of(address: Address, error: OSError) -> AdminError:
    """The error for a failed socket: a rejected certificate is final, other failures may be temporary."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return AuthenticationError(f"{address}: its certificate is not trusted: {error.verify_message}")
    is_ended = isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError))
    if isinstance(error, ssl.SSLError) and error.reason is not None and not is_ended:
        hint = " (is it a TLS listener?)" if error.reason == "WRONG_VERSION_NUMBER" else ""
        return AuthenticationError(f"{address}: TLS failed: {error.reason}{hint}")
    reason = error.strerror or str(error) or type(error).__name__
    if isinstance(error, ConnectionError) and error.errno:
        reason = os.strerror(error.errno)  # the event loop's text repeats the address
    return ConnectionFailedError(f"no connection to {address}: {reason}")
