"""Authentication with SASL on a listener (KIP-43, KIP-152, KIP-368), before anything else is served.

A `SaslGate` stands before the dispatcher of a listener. Each connection has a `SaslSession`: until the client is
authenticated only ApiVersions, SaslHandshake and SaslAuthenticate are served, in Kafka's order and in small frames.
The response to a refused client follows after `connection.failed.authentication.delay.ms`, then the connection
closes.
"""

from __future__ import annotations

import logging
import struct
import time
from datetime import timedelta
from enum import Enum
from secrets import token_bytes, token_urlsafe
from typing import TYPE_CHECKING, Final

from quorate_protocol.errors import ErrorCode, ProtocolError
from quorate_protocol.kafka.apis import APIS, ApiKey
from quorate_protocol.kafka.generated.sasl_authenticate_response import SaslAuthenticateResponse
from quorate_protocol.kafka.generated.sasl_handshake_response import SaslHandshakeResponse
from quorate_protocol.security.oauth import OAUTHBEARER
from quorate_protocol.wire.frames import encode_frame
from quorate_protocol.wire.server import parse_request, serialize_response

from quorate_controller.node.events import Principal
from quorate_controller.security.bearer import BearerServer
from quorate_controller.security.guesses import FAILURES_MAX, Guesses
from quorate_controller.security.sasl import (
    PLAIN,
    SCRAM_MECHANISMS,
    Decoys,
    LoginHeldBackError,
    Passwords,
    PlainServer,
    SaslRefusalError,
    ScramServer,
)
from quorate_controller.server.counters import Limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from quorate_protocol.wire.server import Request

    from quorate_controller.config.listener_sasl import ListenerSasl
    from quorate_controller.security.bearer import BearerToken
    from quorate_controller.security.sasl import Authenticated, Credentials, SaslServer
    from quorate_controller.server.connection import Exchange, RequestHandler
    from quorate_controller.server.counters import RequestCounters

log = logging.getLogger(__name__)

REAUTHENTICATION_INTERVAL_S_MIN: Final = 1.0
_API_KEY: Final = struct.Struct(">h")
_ERROR_CODE: Final = slice(8, 10)
"""Where each version of the ApiVersions response has its error code: behind the length and the correlation id."""
_NO_ERROR: Final = bytes(2)
_BEFORE_AUTHENTICATION: Final = {
    int(key): APIS[key] for key in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
}


class _State(Enum):
    """The kind of message that is expected next."""

    HANDSHAKE_OR_VERSIONS = "ApiVersions or SaslHandshake"
    HANDSHAKE = "SaslHandshake"
    AUTHENTICATE = "SaslAuthenticate"
    BARE = "a token of the mechanism, without header"
    WRONG_MECHANISM = "the end: the mechanism may not change"
    COMPLETE = "requests"
    FAILED = "nothing"


class SaslGate:
    """Authenticates the connections of a listener, and passes on their requests then. A `RequestHandler`."""

    def __init__(
        self,
        served: RequestHandler,
        config: ListenerSasl,
        credentials: Credentials,
        counters: RequestCounters,
        *,
        validate_token: Callable[[str], BearerToken] | None = None,
        decoys: Decoys | None = None,
    ) -> None:
        self.served = served
        self.config = config
        self.counters = counters
        self._credentials = credentials
        self._validate_token = validate_token
        """Returns the claims of a token of OAUTHBEARER; set where the mechanism is enabled."""
        self._passwords = Passwords(config.passwords, token_bytes(32))
        self._decoys = decoys or Decoys(token_bytes(32))
        self.guesses = Guesses()

    def handle(self, exchange: Exchange) -> None:
        """See `RequestHandler`."""
        session = exchange.connection.session
        if session is None:
            session = exchange.connection.session = SaslSession(self)
        session.handle(exchange)

    def server(self, mechanism: str, host: str) -> SaslServer:
        """Return the server's side of one authentication of a client at an address."""

        def may_guess(name: str) -> bool:
            return self.guesses.allows(host, name, time.monotonic())

        if mechanism == PLAIN:
            return PlainServer(self._passwords, may_guess)
        if mechanism == OAUTHBEARER:
            assert self._validate_token is not None, "the mechanism is enabled"
            return BearerServer(self._validate_token)
        return ScramServer(
            SCRAM_MECHANISMS[mechanism], self._credentials, lambda: token_urlsafe(24), self._decoys, may_guess
        )


class SaslSession:
    """Authentication on one connection."""

    def __init__(self, gate: SaslGate) -> None:
        self._gate = gate
        self._state = _State.HANDSHAKE_OR_VERSIONS
        self._mechanism = ""
        self._server: SaslServer | None = None
        self._principal: Principal | None = None
        """The authenticated principal."""
        self._expires_at_s: float | None = None
        self._reauthenticated_at_s: float | None = None

    def handle(self, exchange: Exchange) -> None:
        """Serve a frame."""
        if self._state is not _State.COMPLETE:
            self._authenticate(exchange)
        elif self._expires_at_s is None:
            self._gate.served.handle(exchange)
        elif exchange.frame[:2] == _API_KEY.pack(ApiKey.SASL_HANDSHAKE) and self._may_authenticate_again():
            self._state = _State.HANDSHAKE
            self._authenticate(exchange)
        elif time.monotonic() > self._expires_at_s:
            exchange.refuse("its session is over, and it has not authenticated again")
        else:
            self._gate.served.handle(exchange)

    def _may_authenticate_again(self) -> bool:
        """Whether a second has passed since the last time. If not, the handshake is refused as unexpected."""
        now_s, last_s = time.monotonic(), self._reauthenticated_at_s
        if last_s is not None and now_s - last_s < REAUTHENTICATION_INTERVAL_S_MIN:
            return False
        self._reauthenticated_at_s = now_s
        return True

    def _authenticate(self, exchange: Exchange) -> None:
        if len(exchange.frame) > self._gate.config.receive_size_bytes_max:
            self._fail(exchange, None, "a message is too large")
        elif self._state is _State.WRONG_MECHANISM:
            self._fail(exchange, None, "the mechanism may not change when a client authenticates again")
        elif self._state is _State.BARE:
            self._receive_token(exchange)
        else:
            self._receive_request(exchange)

    def _receive_request(self, exchange: Exchange) -> None:
        try:
            request = parse_request(exchange.frame, _BEFORE_AUTHENTICATION)
        except ProtocolError as error:
            self._fail(exchange, None, error.message)
            return
        key = request.api.key
        if key == ApiKey.API_VERSIONS and self._state is _State.HANDSHAKE_OR_VERSIONS:
            self._gate.served.handle(exchange)
            # After an error the client may send it again.
            if exchange.response is not None and exchange.response[_ERROR_CODE] == _NO_ERROR:
                self._state = _State.HANDSHAKE
            return
        self._gate.counters.requests[key] += 1
        if key == ApiKey.SASL_HANDSHAKE and self._state is not _State.AUTHENTICATE:
            self._shake_hands(exchange, request)
        elif key == ApiKey.SASL_AUTHENTICATE and self._state is _State.AUTHENTICATE:
            self._receive_message(exchange, request)
        else:
            self._fail(exchange, None, f"{request.api.name} came where {self._state.value} is expected")

    def _shake_hands(self, exchange: Exchange, request: Request) -> None:
        mechanism, enabled = request.body.mechanism, self._gate.config.mechanisms
        is_enabled = mechanism in enabled
        error_code = ErrorCode.none if is_enabled else ErrorCode.unsupported_sasl_mechanism
        response = _frame(request, SaslHandshakeResponse(error_code=error_code, mechanisms=enabled))
        if not is_enabled:
            self._fail(exchange, response, f"the mechanism is not one of {', '.join(enabled)}")
            return
        if self._principal is not None and mechanism != self._mechanism:
            self._state = _State.WRONG_MECHANISM
        else:
            self._mechanism, self._server = mechanism, self._gate.server(mechanism, exchange.peer.host)
            self._state = _State.AUTHENTICATE if request.version else _State.BARE
        exchange.respond(response)

    def _receive_token(self, exchange: Exchange) -> None:
        """A message of the mechanism as a frame of its own, after SaslHandshake version 0."""
        try:
            token, _ = self._evaluate(exchange, exchange.frame)
        except LoginHeldBackError:
            self._hold_back(exchange)
        except SaslRefusalError as refusal:
            self._fail(exchange, None, str(refusal))
        else:
            exchange.respond(encode_frame(token))

    def _receive_message(self, exchange: Exchange, request: Request) -> None:
        try:
            token, lifetime_ms = self._evaluate(exchange, request.body.auth_bytes)
        except LoginHeldBackError:
            self._hold_back(exchange)
            return
        except SaslRefusalError as refusal:
            code = ErrorCode.sasl_authentication_failed
            message = refusal.shown or (
                f"Authentication failed during {self._kind} due to invalid credentials with SASL mechanism "
                f"{self._mechanism}"
            )
            response = SaslAuthenticateResponse(error_code=code, error_message=message, auth_bytes=b"")
            self._fail(exchange, _frame(request, response), str(refusal))
            return
        response = SaslAuthenticateResponse(
            error_code=ErrorCode.none,
            error_message=None,
            auth_bytes=token,
            session_lifetime=timedelta(milliseconds=lifetime_ms if request.version else 0),
        )
        exchange.respond(_frame(request, response))

    @property
    def _kind(self) -> str:
        return "authentication" if self._principal is None else "re-authentication"

    def _evaluate(self, exchange: Exchange, message: bytes) -> tuple[bytes, int]:
        """Return the mechanism's response, and once the client is authenticated the lifetime of its session in ms."""
        assert self._server is not None, "it is made by the handshake"
        guesses, host = self._gate.guesses, exchange.peer.host
        try:
            token = self._server.evaluate(message)
        except SaslRefusalError as refusal:
            if refusal.is_guess:
                guesses.failed(host, self._server.claimed_name, time.monotonic())
            raise
        client = self._server.authenticated
        if client is None:
            return token, 0
        if self._server.claimed_name:
            guesses.succeeded(host, self._server.claimed_name, time.monotonic())
        principal = Principal(name=client.name, token_authenticated=client.token_authenticated)
        former = self._principal
        if former is not None and str(former) != str(principal):
            text = f"{former.type}.{former.name}: {principal.type}.{principal.name}"
            shown = f"Cannot change principals during re-authentication from {text}"
            raise SaslRefusalError("the principal may not change", shown=shown)
        self._principal = principal
        self._server = None
        self._state = _State.COMPLETE
        exchange.connection.authenticated(principal)
        return token, self._begin_session(client)

    def _begin_session(self, client: Authenticated) -> int:
        """Return how long the session lasts in milliseconds: by the configuration and the token; 0: no limit."""
        limits_ms = [self._gate.config.reauthentication_ms.get(self._mechanism, 0)]
        limits_ms = [limit_ms for limit_ms in limits_ms if limit_ms > 0]
        if client.expires_at_ms is not None:
            limits_ms.append(max(0, client.expires_at_ms - int(time.time() * 1000)))
        if not limits_ms:
            self._expires_at_s = None
            return 0
        self._expires_at_s = time.monotonic() + min(limits_ms) / 1000
        return min(limits_ms)

    def _hold_back(self, exchange: Exchange) -> None:
        """Close without a response, after the delay: the password may be right, and the client tries again then."""
        self._state = _State.FAILED
        self._gate.counters.limited[Limit.FAILED_LOGINS] += 1
        facts = {"peer": str(exchange.peer), "listener": exchange.peer.listener, "failures_max": FAILURES_MAX}
        log.warning("login_held_back", extra={"facts": facts})
        exchange.end_later(None, self._gate.config.failure_delay_ms / 1000)

    def _fail(self, exchange: Exchange, response: bytes | None, reason: str) -> None:
        """Refuse the client: send the response, if there is one, and close, both after the delay."""
        self._state = _State.FAILED
        self._gate.counters.failed_authentications += 1
        facts = {
            "peer": str(exchange.peer),
            "listener": exchange.peer.listener,
            "mechanism": self._mechanism or None,
            "reason": reason,
        }
        log.warning("authentication_failed", extra={"facts": facts})
        exchange.end_later(response, self._gate.config.failure_delay_ms / 1000)


def _frame(request: Request, response: object) -> bytes:
    return serialize_response(request.api, request.version, request.correlation_id, response)
