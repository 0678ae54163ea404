"""One connection to a broker or controller: versions negotiated, answers matched, time limited."""

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any, Self

from quorate_protocol.errors import ErrorCode, ProtocolError, UnsupportedVersion
from quorate_protocol.wire.api import API_VERSIONS, api_of, find_api
from quorate_protocol.wire.client import ClientConnection

from quorate_admin.errors import (
    ConnectionFailedError,
    RequestTimeoutError,
    ServerError,
    UnsupportedByServerError,
)
from quorate_admin.network.address import Address

READ_SIZE_BYTES = 64 * 1024
IN_FLIGHT_MAX = 100
NEGOTIATION_VERSION = 4
"""The ApiVersions version that is tried first: every Kafka 4 knows it."""


class Connection:
    """An open connection. Requests may overlap; the server answers them in order.

    Requests and responses are the canonical classes of `quorate_protocol.wire.api`.
    """

    def __init__(
        self, address: Address, client_id: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.address = address
        self._wire = ClientConnection(client_id, in_flight_max=IN_FLIGHT_MAX)
        self._writer = writer
        self._answers: deque[asyncio.Future[Any]] = deque()
        self._room = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._versions: dict[int, tuple[int, int]] = {}
        self._failure: str | None = None
        self._receiving = asyncio.create_task(self._receive(reader))

    @classmethod
    async def open(cls, address: Address, *, client_id: str, timeout_ms: int) -> Self:
        """Connect and negotiate versions. Raises ConnectionFailedError, RequestTimeoutError, ServerError."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                reader, writer = await asyncio.open_connection(address.host, address.port)
        except TimeoutError:
            raise RequestTimeoutError(f"no connection to {address} in {timeout_ms} ms") from None
        except OSError as error:
            raise ConnectionFailedError(f"no connection to {address}: {error.strerror or error}") from error
        connection = cls(address, client_id, reader, writer)
        try:
            await connection.negotiate(timeout_ms)
        except BaseException:
            await connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        """Whether a request could still be answered."""
        return self._failure is None

    async def negotiate(self, timeout_ms: int) -> Any:
        """Ask the server what it speaks; its ApiVersions response, which also tells the feature levels.

        Raises ServerError, RequestTimeoutError, ConnectionFailedError.
        """
        api = find_api(API_VERSIONS)
        request = api.canonical_request(client_software_name="quorate", client_software_version="1")
        response = await self._exchange(request, NEGOTIATION_VERSION, timeout_ms)
        if response.error_code is ErrorCode.unsupported_version:
            known = next((key.max_version for key in response.api_keys if key.api_key == API_VERSIONS), 0)
            response = await self._exchange(request, min(known, NEGOTIATION_VERSION), timeout_ms)
        if response.error_code is not ErrorCode.none:
            raise ServerError(response.error_code)
        self._versions = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
        return response

    async def request(self, request: Any, timeout_ms: int) -> Any:
        """Send a request in the highest version that both sides know; its response.

        Raises UnsupportedByServerError, RequestTimeoutError, ConnectionFailedError.
        """
        api = api_of(request)
        lowest, highest = self._versions.get(api.key, (0, -1))
        version = min(api.version_max, highest)
        if version < max(api.version_min, lowest):
            raise UnsupportedByServerError(
                f"{self.address} has no version of {api.name} that this client has"
            )
        return await self._exchange(request, version, timeout_ms)

    async def close(self) -> None:
        """Close the connection; requests under way fail."""
        self._receiving.cancel()
        with suppress(asyncio.CancelledError):
            await self._receiving
        self._fail("the connection was closed")
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def _exchange(self, request: Any, version: int, timeout_ms: int) -> Any:
        try:
            async with asyncio.timeout(timeout_ms / 1000), self._room:
                if self._failure is not None:
                    raise ConnectionFailedError(f"{self.address}: {self._failure}")
                frame = self._wire.send(request, version)
                answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                self._answers.append(answer)
                self._writer.write(frame)
                await self._writer.drain()
                return await answer
        except UnsupportedVersion as error:
            raise UnsupportedByServerError(f"{self.address}: {error}") from error
        except (TimeoutError, asyncio.CancelledError) as error:
            # The answer may come late or never: this connection is of no use to the next request.
            self._receiving.cancel()
            self._fail("a request was given up")
            if isinstance(error, asyncio.CancelledError):
                raise
            raise RequestTimeoutError(f"no answer from {self.address} in {timeout_ms} ms") from None
        except OSError as error:
            raise ConnectionFailedError(f"{self.address}: {error}") from error

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        try:
            while data := await reader.read(READ_SIZE_BYTES):
                for _, response in self._wire.receive_data(data):
                    answer = self._answers.popleft()
                    if not answer.done():  # whoever asked may have stopped waiting
                        answer.set_result(response)
            self._fail("the server closed the connection")
        except (OSError, ProtocolError) as error:
            self._fail(str(error))
        finally:
            self._writer.close()

    def _fail(self, reason: str) -> None:
        if self._failure is None:
            self._failure = reason
        while self._answers:
            answer = self._answers.popleft()
            if not answer.done():
                answer.set_exception(ConnectionFailedError(f"{self.address}: {self._failure}"))
                answer.exception()  # seen: whoever asked may have failed to send, and wait for nothing
