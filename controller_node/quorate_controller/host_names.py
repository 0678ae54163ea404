"""Whether host names resolve, asked of the system's resolver beside the event loop."""

import asyncio
import socket
from collections.abc import Iterable


class HostNames:
    """Looks names up, one at a time: a request with many of them occupies one thread."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def unresolved(self, names: Iterable[str]) -> frozenset[str]:
        """Those of `names` that are neither addresses nor names of hosts."""
        async with self._turn:
            return frozenset([name for name in sorted(names) if not await _resolves(name)])


async def _resolves(name: str) -> bool:
    is_bracketed = name.startswith("[") and name.endswith("]")
    try:
        await asyncio.get_running_loop().getaddrinfo(
            name[1:-1] if is_bracketed else name,
            None,
            family=socket.AF_INET6 if is_bracketed else socket.AF_UNSPEC,
            type=socket.SOCK_STREAM,
        )
    except (OSError, ValueError):  # ValueError: text that no name can have
        return False
    return True
