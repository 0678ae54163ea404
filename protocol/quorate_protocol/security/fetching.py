"""The only HTTP client of Quorate's processes. It fetches what OAUTHBEARER needs, tokens and the keys of an issuer,
and for the doctor the metrics of brokers.

One policy for each request:

- the URL comes from the allow-list of the configuration or from the command line (`AllowedUrl`), so that plain http:
  is used only where one of them names it
- redirections are not followed: their targets are in no allow-list, may be plain http:, and would get the secret of
  a client or choose the keys that verify tokens
- certificates and host names are verified as the TLS settings of the login module demand
- time, size and encoding of a response are bounded

Requests to the Kubernetes API are the exception: they use the client of `kubernetes.aio`, without redirections, too.
Ruff's rule TID251 refuses other clients.
"""

from typing import TYPE_CHECKING, Final

from quorate_protocol.plain_data import dataclass
from quorate_protocol.printable import printable
from quorate_protocol.security.oauth_properties import AllowedUrl
from quorate_protocol.security.stores import TlsConfig

if TYPE_CHECKING:
    from aiohttp import StreamReader

RESPONSE_SIZE_BYTES_MAX: Final = 1024 * 1024
TIMEOUT_S: Final = 20.0
"""The default timeout of a request. Kafka has no limit if no property sets one."""
_REDIRECTIONS: Final = (301, 302, 303, 307, 308)
_LOCATION_LENGTH_MAX: Final = 200


class FetchError(Exception):
    """There is no response, or one that is refused."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final
        """Whether the same request would be refused again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A response that is not a redirection."""

    status: int
    content: bytes
    """At most RESPONSE_SIZE_BYTES_MAX."""


async def fetch(
    url: AllowedUrl,
    *,
    tls: TlsConfig,
    headers: dict[str, str],
    body: bytes | None = None,
    connect_timeout_ms: int | None = None,
    read_timeout_ms: int | None = None,
) -> Fetched:
    """GET a URL, or POST a body to it. The whole takes at most 20 s, or the sum of both timeouts if that is longer.

    Raises:
        FetchError: the endpoint can't be reached, redirects, or sends too much.
        SecurityConfigError: a store of `tls` can't be used.
    """
    import aiohttp

    from quorate_protocol.security.tls import client_context

    timeout = aiohttp.ClientTimeout(
        total=max(TIMEOUT_S, ((connect_timeout_ms or 0) + (read_timeout_ms or 0)) / 1000),
        connect=_seconds(connect_timeout_ms),
        sock_read=_seconds(read_timeout_ms),
    )
    connector = aiohttp.TCPConnector(ssl=client_context(tls), force_close=True)
    # A few bytes of a compressed response may be a gigabyte.
    headers = {**headers, "Accept-Encoding": "identity"}
    session = aiohttp.ClientSession(
        connector=connector, timeout=timeout, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
    )
    async with session:
        method = "GET" if body is None else "POST"
        try:
            request = session.request(method, url, headers=headers, data=body, allow_redirects=False)
            async with request as response:
                _refuse_redirection(response.status, response.headers.get("Location", ""))
                encoding = response.headers.get("Content-Encoding", "identity")
                if encoding.lower() != "identity":
                    raise FetchError(
                        f"the response is encoded as {_shown(encoding)}; allowed is identity", is_final=True
                    )
                return Fetched(status=response.status, content=await _read(response.content))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise FetchError(f"the endpoint can't be asked: {error or type(error).__name__}") from None


def _refuse_redirection(status: int, location: str) -> None:
    """Raise FetchError for a redirection, with the target, without its query, which may have secrets."""
    if status not in _REDIRECTIONS:
        return
    target = _shown(location.partition("#")[0].partition("?")[0])
    raise FetchError(
        f"the endpoint redirects with status {status} to {target!r}, which is not followed; configure and allow the "
        "URL of the endpoint itself",
        is_final=True,
    )


async def _read(content: "StreamReader") -> bytes:
    body = bytearray()
    while len(body) <= RESPONSE_SIZE_BYTES_MAX:
        part = await content.read(RESPONSE_SIZE_BYTES_MAX)
        if not part:
            return bytes(body)
        body += part
    raise FetchError(f"the response has more than {RESPONSE_SIZE_BYTES_MAX} bytes", is_final=True)


def _shown(text: str) -> str:
    return printable(text[:_LOCATION_LENGTH_MAX])


def _seconds(milliseconds: int | None) -> float | None:
    return None if not milliseconds else milliseconds / 1000
