"""The protocol between commands and a supervisor: JSON lines over a Unix socket in the cluster's directory.

Request: `{"command": "status", "arguments": {...}}`; answer: `{"result": ...}` or `{"error": "..."}`.
"""

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from quorate_operator.runtime.local.directory import PlayDirectory, UntrustedError, check_peer
from quorate_operator.runtime.local.errors import NotAnsweringError, NotRunningError, PlayError

SOCKET_NAME = "control.sock"
REQUEST_SIZE_BYTES_MAX = 2 * 1024 * 1024
RESPONSE_SIZE_BYTES_MAX = 4 * 1024 * 1024
RESPONSE_TIMEOUT_S = 30

Handler = Callable[[str, Mapping[str, Any]], Awaitable[Any]]

logger = logging.getLogger(__name__)


class _TooLongError(Exception):
    """A line is longer than a request or a response may be."""


@asynccontextmanager
async def serve(directory: PlayDirectory, handler: Handler) -> AsyncIterator[None]:
    """Answer commands while the context is open. `handler` raises PlayError for a refused command."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            check_peer(writer.get_extra_info("socket"), directory.path / SOCKET_NAME)
            while line := await _line(reader):
                writer.write(json.dumps(await _response_to(line, handler)).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, UntrustedError, _TooLongError):
            pass  # the client left, or is another program: `call` sends no request that is too long
        except asyncio.CancelledError:
            # The supervisor ends, and clients see the connection close. asyncio before Python 3.12 takes a
            # cancelled handler for a failed one, and logs that.
            pass
        finally:
            writer.close()

    with _short_path(directory.path) as short:
        (directory.path / SOCKET_NAME).unlink(missing_ok=True)  # we hold the lock: a dead process left it
        server = await asyncio.start_unix_server(respond, path=short, limit=REQUEST_SIZE_BYTES_MAX)
        (directory.path / SOCKET_NAME).chmod(0o600)
        try:
            yield
        finally:
            server.close()
            (directory.path / SOCKET_NAME).unlink(missing_ok=True)


async def call(directory: PlayDirectory, command: str, **arguments: Any) -> Any:
    """Send a command to the supervisor of this directory; returns its result.

    Raises NotRunningError, NotAnsweringError, or PlayError: with what it answered, or for what is too long.
    """
    request = json.dumps({"command": command, "arguments": arguments}).encode() + b"\n"
    if len(request) > REQUEST_SIZE_BYTES_MAX:
        raise PlayError(
            f"the request {command} has {len(request)} bytes, at most {REQUEST_SIZE_BYTES_MAX} are allowed"
        )
    directory.check()  # the request may have secrets
    try:
        async with asyncio.timeout(RESPONSE_TIMEOUT_S):
            with _short_path(directory.path) as short:
                reader, writer = await asyncio.open_unix_connection(short, limit=RESPONSE_SIZE_BYTES_MAX)
            try:
                check_peer(writer.get_extra_info("socket"), directory.path / SOCKET_NAME)
                writer.write(request)
                line = await _line(reader)
            finally:
                writer.close()
    except TimeoutError:
        raise NotAnsweringError(
            f"the supervisor of {directory.path} has not answered in {RESPONSE_TIMEOUT_S} s"
        ) from None
    except OSError as error:
        raise NotRunningError(f"the cluster in {directory.path} does not run") from error
    except _TooLongError as error:
        raise PlayError(f"the supervisor of {directory.path} sent too long a response: {error}") from None
    if not line:
        raise NotRunningError(f"the supervisor of {directory.path} ended")
    return _result(line, directory)


async def _line(reader: asyncio.StreamReader) -> bytes:
    """The next line; empty at the end. Raises _TooLongError for one that exceeds the limit of the reader."""
    try:
        return await reader.readline()
    except ValueError as error:
        raise _TooLongError(f"{error}") from None


def _result(line: bytes, directory: PlayDirectory) -> Any:
    try:
        response = json.loads(line)
    except (ValueError, RecursionError):
        response = None
    match response:
        case {"error": error}:
            raise PlayError(str(error))
        case {"result": result}:
            return result
    raise PlayError(f"the supervisor of {directory.path} sent neither a result nor an error: {line[:200]!r}")


async def _response_to(line: bytes, handler: Handler) -> dict[str, Any]:
    try:
        request = json.loads(line)
        command, arguments = request["command"], request["arguments"]
    except RecursionError:
        return {"error": "not a request: its lists and objects are nested too deeply"}
    except (ValueError, KeyError, TypeError):
        return {"error": "not a request"}
    try:
        return {"result": await handler(command, arguments)}
    except PlayError as error:
        return {"error": str(error)}
    except Exception as error:  # reported to the client; the cluster keeps running
        logger.exception("the command %s", command)
        return {"error": f"a fault of the supervisor, see its log: {error!r}"}


@contextmanager
def _short_path(directory: Path) -> Iterator[str]:
    """Yield a short path of the socket: the path of a Unix socket is limited to 107 bytes."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)
