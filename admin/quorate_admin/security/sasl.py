"""SASL on a Kafka connection: handshake, then the messages of the mechanism (KIP-43, KIP-152)."""

import base64
import json
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from quorate_protocol.errors import ErrorCode
from quorate_protocol.files import read_bounded
from quorate_protocol.security.dialogues import Dialogue, PlainDialogue, ScramDialogue
from quorate_protocol.security.scram import ScramClient, ScramError

from quorate_admin.errors import AuthenticationError, ConfigError
from quorate_admin.security.config import Mechanism, SaslConfig

Ask = Callable[[Any], Awaitable[Any]]
ROUNDS_MAX = 10
_TOKEN_SIZE_BYTES_MAX = 64 * 1024
_UNSECURED_LIFETIME_S = 3600
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")


async def authenticate(config: SaslConfig, host: str, ask: Ask) -> int:
    """Authenticate, and return the lifetime of the session in milliseconds; 0 is unlimited (KIP-368).

    `ask` sends a canonical request and returns its canonical response.

    Raises:
        AuthenticationError: the server refused, or does not support the mechanism.
        ConfigError: a token file can't be read.
    """
    from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
    from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

    mechanism = config.mechanism.value
    handshake = await ask(SaslHandshakeRequest(mechanism=mechanism))
    if handshake.error_code is not ErrorCode.none:
        raise AuthenticationError(
            f"sasl.mechanism={mechanism}: {handshake.error_code.name.upper()}; "
            f"{host} allows {', '.join(sorted(handshake.mechanisms)) or 'none'}"
        )
    dialogue = dialogue_for(config)
    message: bytes | None = dialogue.first()
    lifetime_ms = 0
    for _ in range(ROUNDS_MAX):
        if message is None:
            return lifetime_ms
        answer = await ask(SaslAuthenticateRequest(auth_bytes=message))
        if answer.error_code is not ErrorCode.none:
            raise AuthenticationError(answer.error_message or answer.error_code.name.upper())
        lifetime_ms = int(answer.session_lifetime.total_seconds() * 1000)
        try:
            message = dialogue.next(answer.auth_bytes)
        except ScramError as error:
            raise AuthenticationError(f"{mechanism}: {error}") from None
    raise AuthenticationError(f"{mechanism}: not complete after {ROUNDS_MAX} messages")


def dialogue_for(config: SaslConfig) -> Dialogue:
    """The client's side of the configured mechanism. Raises ConfigError for a token that can't be read."""
    match config.mechanism:
        case Mechanism.PLAIN:
            return PlainDialogue(config.username, config.password)
        case Mechanism.OAUTHBEARER:
            return _Bearer(oauth_token(config, time.time()))
    nonce = secrets.token_urlsafe(24)
    return ScramDialogue(
        ScramClient(
            mechanism=config.mechanism.value,
            username=config.username,
            password=config.password,
            nonce=nonce,
            is_token=config.is_token,
        )
    )


class _Bearer:
    """OAUTHBEARER (RFC 7628): sends the token; the server sends an error as JSON before it refuses."""

    def __init__(self, token: str) -> None:
        self._token = token

    def first(self) -> bytes:
        return f"n,,\x01auth=Bearer {self._token}\x01\x01".encode()

    def next(self, received: bytes) -> bytes | None:
        return b"\x01" if received else None


def oauth_token(config: SaslConfig, now_s: float) -> str:
    """The bearer token from its file, or an unsecured one. Raises ConfigError."""
    if config.token_file is None:
        return unsecured_token(config.claims, now_s)
    named = f"sasl.oauthbearer.token.endpoint.url=file:{config.token_file}"
    try:
        token = read_bounded(Path(config.token_file), _TOKEN_SIZE_BYTES_MAX).decode("ascii").strip()
    except OSError as error:
        raise ConfigError(f"{named}: {error.strerror}") from None
    except ValueError:  # too long, or not ASCII
        token = ""
    if not _TOKEN.fullmatch(token):
        raise ConfigError(f"{named}: it does not hold a token")
    return token


def unsecured_token(claims: Mapping[str, str], now_s: float) -> str:
    """An unsecured JSON web token with the claims in the options of OAuthBearerLoginModule (KIP-255)."""
    content: dict[str, object] = {"iat": int(now_s), "exp": int(now_s) + _UNSECURED_LIFETIME_S}
    for option, value in claims.items():
        kind, _, name = option.removeprefix("unsecuredLogin").partition("Claim_")
        if kind == "String":
            content[name] = value
        elif kind == "List":
            content[name] = value[1:].split(value[0]) if value else []
        elif kind == "Number":
            try:
                content[name] = float(value)
            except ValueError:
                raise ConfigError(f"sasl.jaas.config: {option}={value}: allowed is a number") from None
    header = {"alg": "none"}
    return f"{_encoded(header)}.{_encoded(content)}."


def _encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
