"""kopf's connections to the API server: named like the operator's own, and bounded where requests are many.

kopf opens one watch for each kind and namespace, which no limit may stop, and one request for each object that gets
or loses its finalizer, of which there may be thousands at once.
"""

import asyncio
from typing import Any

import aiohttp
import kopf

from quorate_operator.runtime.kubernetes.api import USER_AGENT, refuse_redirection

REQUESTS_MAX = 32
"""How many requests of kopf, other than watches, are sent at the same time."""


async def login(*, settings: kopf.OperatorSettings, **_: Any) -> kopf.AiohttpSession | None:
    """Return a session by the service account of this pod or a kubeconfig; None without either.

    kopf reads these files by itself; it does not support `kubernetes.aio`. It closes the session.
    """
    found = kopf.login_with_service_account(settings=settings) or kopf.login_with_kubeconfig(
        settings=settings
    )
    if found is None or found.server is None:
        return None
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=found.as_ssl_context()),
        headers={**found.as_http_headers(), "User-Agent": USER_AGENT},
        proxy=found.proxy_url,
        trust_env=found.trust_env,
        middlewares=(refuse_redirection, RequestLimit(REQUESTS_MAX)),
    )
    return kopf.AiohttpSession(
        server=found.server,
        default_namespace=found.default_namespace,
        expiration=found.expiration,
        aiohttp_session=session,
    )


class RequestLimit:
    """Delays requests while as many others are under way. Watches are not counted."""

    def __init__(self, number: int) -> None:
        self._places = asyncio.Semaphore(number)

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        if request.url.query.get("watch") == "true":
            return await handler(request)
        async with self._places:
            return await handler(request)
