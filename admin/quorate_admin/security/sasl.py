"""SASL on a Kafka connection: handshake, then the messages of the mechanism (KIP-43, KIP-152)."""

import base64
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from quorate_protocol.errors import ErrorCode
from quorate_protocol.security.dialogues import BearerDialogue, Dialogue, PlainDialogue, ScramDialogue
from quorate_protocol.security.oauth import TokenError
from quorate_protocol.security.scram import ScramClient, ScramError
from quorate_protocol.security.stores import SecurityConfigError
from quorate_protocol.security.tokens import TokenKeeper

from quorate_admin.errors import AuthenticationError, ConfigError
from quorate_admin.security.config import Mechanism, SaslConfig

Ask = Callable[[Any], Awaitable[Any]]
ROUNDS_MAX = 10
_UNSECURED_LIFETIME_S = 3600


async def authenticate(config: SaslConfig, host: str, ask: Ask) -> int:
    """Authenticate, and return the lifetime of the session in milliseconds; 0 is unlimited (KIP-368).

    `ask` sends a canonical request and returns its canonical response.

    Raises:
        AuthenticationError: the server refused, or does not support the mechanism; or there is no token.
        ConfigError: a trust store can't be used.
    """
    from quorate_protocol.kafka.generated.sasl_authenticate_request import SaslAuthenticateRequest
    from quorate_protocol.kafka.generated.sasl_handshake_request import SaslHandshakeRequest

    mechanism = config.mechanism.value
    handshake = await ask(SaslHandshakeRequest(mechanism=mechanism))
    if handshake.error_code is not ErrorCode.none:
        raise AuthenticationError(
            f"sasl.mechanism={mechanism}: {handshake.error_code.name.upper()}; "
            f"{host} allows {', '.join(sorted(handshake.mechanisms)) or 'none'}"
        )
    dialogue = await dialogue_for(config)
    message: bytes | None = dialogue.first()
    lifetime_ms = 0
    for _ in range(ROUNDS_MAX):
        if message is None:
            return lifetime_ms
        response = await ask(SaslAuthenticateRequest(auth_bytes=message))
        if response.error_code is not ErrorCode.none:
            raise AuthenticationError(response.error_message or response.error_code.name.upper())
        lifetime_ms = int(response.session_lifetime.total_seconds() * 1000)
        try:
            message = dialogue.next(response.auth_bytes)
        except ScramError as error:
            raise AuthenticationError(f"{mechanism}: {error}") from None
    raise AuthenticationError(f"{mechanism}: not complete after {ROUNDS_MAX} messages")


async def dialogue_for(config: SaslConfig) -> Dialogue:
    """The client's side of the configured mechanism. Raises AuthenticationError and ConfigError without a token."""
    match config.mechanism:
        case Mechanism.PLAIN:
            return PlainDialogue(config.username, config.password)
        case Mechanism.OAUTHBEARER:
            if config.tokens is None:
                return BearerDialogue(unsecured_token(config.claims, time.time()))
            return await _bearer(config.tokens)
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


async def _bearer(tokens: TokenKeeper) -> Dialogue:
    try:
        token = await tokens.fresh()
    except TokenError as error:
        raise AuthenticationError(str(error)) from None
    except SecurityConfigError as error:
        raise ConfigError(str(error)) from None
    return BearerDialogue(token.value, tokens.login.extensions)


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
