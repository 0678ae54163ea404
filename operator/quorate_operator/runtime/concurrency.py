"""Work that is done at the same time."""

import asyncio
from collections.abc import Awaitable, Iterable


async def finish_all(works: Iterable[Awaitable[None]]) -> None:
    """Wait until all of them have ended, also if some fail. Raises the first error, in their order."""
    for result in await asyncio.gather(*works, return_exceptions=True):
        if result is not None:
            raise result
