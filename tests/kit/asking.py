"""One question to a cluster through a client of its own, for tests that wait in between."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from quorate_admin.client import AdminClient
from quorate_admin.config import AdminConfig

_Result = TypeVar("_Result")


class Asking:
    """Asks brokers, or controllers, that are given as `host:port,...`; `options` are fields of AdminConfig."""

    def __init__(
        self,
        *,
        servers: str | None = None,
        controllers: str | None = None,
        properties: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        self._config = AdminConfig.from_properties(
            properties or {}, bootstrap_servers=servers, bootstrap_controllers=controllers
        )
        self._options = options

    def __call__(self, question: Callable[[AdminClient], Awaitable[_Result]]) -> _Result:
        """The result. Raises AdminError."""

        async def ask() -> _Result:
            async with AdminClient(self._config, **self._options) as admin:
                return await question(admin)

        return asyncio.run(ask())
