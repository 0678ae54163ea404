"""Bodies of responses of the API server, or of a proxy in between: JSON objects, and the events of watches."""

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

EVENT_SIZE_BYTES_MAX = 4 * 1024 * 1024
"""The maximum size of one event of a watch, larger than any object that etcd can hold."""
TEXT_SHOWN_MAX = 200
"""How many characters of an invalid response an error quotes."""


async def event_lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield the lines of a watch. aiohttp's own reader refuses long ones. Raises ValueError: one is too long."""
    held = bytearray()
    async for chunk in content.iter_any():
        held += chunk
        *lines, rest = held.split(b"\n")
        for line in lines:
            yield bytes(line)
        held = bytearray(rest)
        if len(held) > EVENT_SIZE_BYTES_MAX:
            raise ValueError(f"an event of more than {EVENT_SIZE_BYTES_MAX} bytes")


def json_object(content: bytes) -> dict[str, Any] | None:
    """Return the JSON object, None for any other content."""
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def parse_event(line: bytes) -> tuple[str, dict[str, Any]]:
    """Return type and object of a line of a watch. Raises ValueError."""
    match json_object(line):
        case {"type": str(change), "object": dict(subject)}:
            return change, subject
    raise ValueError(f"not an event: {line[:TEXT_SHOWN_MAX]!r}")
