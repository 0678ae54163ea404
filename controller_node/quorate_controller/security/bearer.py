"""The server's side of SASL/OAUTHBEARER (RFC 7628, KIP-255), as Kafka's servers do it. Pure."""

import re
from collections.abc import Callable
from typing import Final

from quorate_protocol.plain_data import dataclass

from quorate_controller.security.sasl import Authenticated, SaslRefusalError, shown_refusal

INVALID_TOKEN: Final = '{"status":"invalid_token"}'  # noqa: S105 - not a token
"""The response to a client whose token is refused.

After the client's acknowledgement it is also the message of the refusal.
"""

_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_CLIENT_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authorization_id>{_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_AUTHORIZATION: Final = re.compile(r"(?P<scheme>[A-Za-z0-9_]+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")
_ACKNOWLEDGEMENT: Final = b"\x01"


class InvalidTokenError(Exception):
    """A token is refused. The text is for the log: it has nothing of a token's signature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerToken:
    """The claims of a valid token."""

    name: str
    """The name of the principal, without its type."""
    expires_at_ms: int
    scopes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """The claims that tokens must have (sasl.oauthbearer.*)."""

    audiences: frozenset[str] = frozenset()
    """expected.audience: one of them is needed; none: any audience is accepted."""
    issuer: str | None = None
    """expected.issuer; None: any issuer is accepted."""
    clock_skew_s: int = 30
    scope_claim: str = "scope"
    sub_claim: str = "sub"


class BearerServer:
    """OAUTHBEARER: `validate` returns the claims of a token, or raises InvalidTokenError.

    SASL extensions are checked, and mean nothing here, as with Kafka's validator.
    """

    def __init__(self, validate: Callable[[str], BearerToken]) -> None:
        self._validate = validate
        self._refused: InvalidTokenError | None = None
        self.authenticated: Authenticated | None = None
        self.claimed_name = ""  # a token is no password: it can't be guessed

    def evaluate(self, message: bytes) -> bytes:
        """See `SaslServer`."""
        refused, self._refused = self._refused, None
        if refused is not None and message == _ACKNOWLEDGEMENT:
            raise SaslRefusalError(str(refused), shown=INVALID_TOKEN)
        value, authorization_id = _parsed(message)
        try:
            token = self._validate(value)
        except InvalidTokenError as error:
            self._refused = error
            return INVALID_TOKEN.encode()
        if authorization_id not in ("", token.name):
            raise shown_refusal(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({token.name})"
            )
        self.authenticated = Authenticated(name=token.name, expires_at_ms=token.expires_at_ms)
        return b""


def _parsed(message: bytes) -> tuple[str, str]:
    """The token and the authorization id of the client's first message."""
    match = _CLIENT_FIRST.fullmatch(message.decode(errors="replace"))
    if match is None:
        raise SaslRefusalError("the client's first message is malformed")
    pairs = dict(pair.split("=", 1) for pair in match["pairs"].split("\x01") if pair)
    authorization = _AUTHORIZATION.fullmatch(pairs.get("auth", ""))
    if authorization is None or authorization["scheme"].lower() != "bearer":
        raise SaslRefusalError("the client's first message has no bearer token")
    return authorization["token"], match["authorization_id"] or ""
