"""Input for OAUTHBEARER from clients and issuers: messages, tokens, key sets, responses of an endpoint."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from kit.fuzz.target import Target
from kit.issuer import ISSUER, Issuer, sign
from quorate_controller.security.bearer import BearerServer, BearerToken, InvalidTokenError, TokenRules
from quorate_controller.security.bearer_tokens import InvalidKeysError, parse_keys, validate
from quorate_controller.security.sasl import SaslRefusalError
from quorate_protocol.security.dialogues import BearerDialogue
from quorate_protocol.security.oauth import TokenError, token_of_response

_NOW_S = 1_700_000_000
_RULES = TokenRules(audiences=frozenset({"kafka"}), issuer=ISSUER)


@cache
def _issuer() -> Issuer:
    return Issuer.with_keys("ES256", "EdDSA")


@cache
def _keys() -> Any:
    return parse_keys(json.dumps(_issuer().jwks).encode())


def _validated(token: str) -> BearerToken:
    return validate(token, _keys(), _RULES, _NOW_S)


def _log_in(data: bytes) -> None:
    server = BearerServer(_validated)
    if server.evaluate(data) == b"":
        assert server.authenticated is not None
    else:
        server.evaluate(b"\x01")


def _token() -> str:
    return _issuer().token(iat=_NOW_S - 1, exp=_NOW_S + 1)


def _signed(data: bytes) -> None:
    """The input as the claims of a token whose signature is right."""
    key_id, (algorithm, key) = next(iter(_issuer().keys.items()))
    _validated(sign({"alg": algorithm, "kid": key_id}, data, key))


def _respond(data: bytes) -> None:
    token_of_response(200, data)


def _claims() -> Iterator[bytes]:
    yield json.dumps(_issuer().claims(iat=_NOW_S - 1, exp=_NOW_S + 1, nbf=_NOW_S - 1.5, jti="7")).encode()
    yield json.dumps(
        _issuer().claims(iat=_NOW_S - 1, exp=_NOW_S + 1, aud=["x", "kafka"], scope="a b")
    ).encode()


def _messages() -> Iterator[bytes]:
    yield BearerDialogue(_token(), {"cluster": "blue"}).first()
    yield BearerDialogue(_token(), {}).first()


def token_targets() -> Iterator[Target]:
    """The targets of this module."""
    yield Target(name="bearer-messages", read=_log_in, good=_messages, refusals=(SaslRefusalError,))
    yield Target(name="claims", read=_signed, good=_claims, refusals=(InvalidTokenError,))
    yield Target(
        name="key-sets",
        read=parse_keys,
        good=lambda: iter((json.dumps(_issuer().jwks).encode(),)),
        refusals=(InvalidKeysError,),
    )
    yield Target(
        name="token-responses",
        read=_respond,
        good=lambda: iter((json.dumps({"access_token": _token(), "expires_in": 7}).encode(),)),
        refusals=(TokenError,),
    )
