"""An OAuth server on loopback: a token endpoint for client credentials and assertions, and the keys of its issuer."""

import asyncio
import base64
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import jwt
from aiohttp import web
from kit.issuer import Issuer
from kit.loop_thread import LoopThread
from quorate_protocol.security.oauth import OAuthLogin, Token
from quorate_protocol.security.tokens import TokenKeeper

ASSERTION_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class GivenToken(TokenKeeper):
    """A token that the client does not look at."""

    def __init__(self, value: str) -> None:
        super().__init__(OAuthLogin(file="/given"))
        self._value = value

    async def fresh(self) -> Token:
        return Token(value=self._value, issued_at_s=None, expires_at_s=0)


class TokenEndpoint:
    """Runs in a thread of its own. Attributes may be changed while it runs.

    It speaks TLS with a `certificate`, a PEM file of the certificate and its key. With `redirects_to`, requests for
    the keys are led to that URL.
    """

    def __init__(
        self,
        issuer: Issuer,
        clients: dict[str, str],
        *,
        lifetime_s: int = 600,
        certificate: Path | None = None,
        redirects_to: str | None = None,
    ) -> None:
        self.issuer = issuer
        self.clients = clients
        """Secrets by client id; a client's id is the subject of its tokens."""
        self.assertion_keys: dict[str, Any] = {}
        """The public key of each client that asks with assertions, by the issuer that it names itself."""
        self.lifetime_s = lifetime_s
        self._certificate = certificate
        self._redirects_to = redirects_to
        self._connections: set[asyncio.Transport] = set()
        self.status = 200
        """What each request is answered with."""
        self.requests: list[dict[str, str]] = []
        """Path, user and fields of the requests so far."""
        self.url = ""

    async def start(self) -> Self:
        """Listen on a free port of loopback."""
        application = web.Application()
        application.add_routes([web.post("/token", self._token), web.get("/keys", self._keys)])
        application.on_response_prepare.append(self._note_connection)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        context = None
        if self._certificate is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(self._certificate)
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"{'http' if context is None else 'https'}://127.0.0.1:{port}"
        return self

    async def stop(self) -> None:
        """Close all sockets. With TLS, a connection would otherwise wait for its client, and outlive the loop."""
        await self._runner.cleanup()
        for connection in self._connections:
            connection.abort()
        await asyncio.sleep(0)  # connections end in the next turn of the loop

    async def _note_connection(self, request: web.Request, _: web.StreamResponse) -> None:
        assert request.transport is not None
        self._connections.add(request.transport)

    async def _token(self, request: web.Request) -> web.Response:
        fields = await request.post()
        scheme, _, credentials = request.headers.get("Authorization", "").partition(" ")
        user, _, secret = base64.b64decode(credentials).decode().partition(":")
        self.requests.append(
            {"path": "/token", "user": user, **{key: str(value) for key, value in fields.items()}}
        )
        if self.status != 200:
            return web.json_response({"error": "server_error"}, status=self.status)
        for grant, assertion in ((ASSERTION_GRANT, "assertion"), ("client_credentials", "client_assertion")):
            if not scheme and fields.get("grant_type") == grant and assertion in fields:
                return self._respond_to_assertion(str(fields[assertion]))
        if scheme != "Basic" or self.clients.get(user) != secret:
            return web.json_response({"error": "invalid_client", "error_description": "who?"}, status=401)
        if fields.get("grant_type") != "client_credentials":
            return web.json_response({"error": "unsupported_grant_type"}, status=400)
        return self._token_of(user)

    def _respond_to_assertion(self, assertion: str) -> web.Response:
        """Check an assertion as RFC 7523 has it: signature, audience, times."""
        try:
            issuer = jwt.decode(assertion, options={"verify_signature": False})["iss"]
            key, algorithms = self.assertion_keys[issuer], ["RS256", "ES256"]
            claims = jwt.decode(assertion, key, algorithms, audience=self.url, options={"require": ["exp"]})
        except (jwt.PyJWTError, KeyError) as error:
            refused = {"error": "invalid_grant", "error_description": type(error).__name__}
            return web.json_response(refused, status=400)
        return self._token_of(str(claims["sub"]))

    def _token_of(self, user: str) -> web.Response:
        times = self.issuer.claims()
        token = self.issuer.token(sub=user, exp=times["iat"] + 10 + self.lifetime_s)
        return web.json_response(
            {"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime_s}
        )

    async def _keys(self, request: web.Request) -> web.Response:
        self.requests.append({"path": request.path})
        if self._redirects_to is not None:
            raise web.HTTPFound(f"{self._redirects_to}{request.path}")
        return web.Response(text=json.dumps(self.issuer.jwks), status=self.status)


@contextmanager
def token_endpoint(issuer: Issuer, clients: dict[str, str], **options: Any) -> Iterator[TokenEndpoint]:
    """A running endpoint, for tests that have no loop."""
    endpoint = TokenEndpoint(issuer, clients, **options)
    loop = LoopThread("token endpoint")
    try:
        loop.do(endpoint.start())
        yield endpoint
    finally:
        loop.do(endpoint.stop())
        loop.close()
