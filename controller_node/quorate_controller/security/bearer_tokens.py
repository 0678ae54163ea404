"""Whether a JSON web token is valid, as Kafka's BrokerJwtValidator decides (KIP-768).

Pure: token, keys, rules and time in, claims out. Only controllers with OAUTHBEARER import this module,
because PyJWT and cryptography take time and memory.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.api_jws import PyJWS
from quorate_protocol.plain_data import dataclass

from quorate_controller.security.bearer import BearerToken, InvalidTokenError, TokenRules

RSA_BITS_MIN: Final = 2048
KEYS_MAX: Final = 1000

_KINDS: Final[Mapping[str, tuple[str, str | None]]] = {
    **{f"{kind}{bits}": ("RSA", None) for kind in ("RS", "PS") for bits in (256, 384, 512)},
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "ES256K": ("EC", "secp256k1"),
    "EdDSA": ("OKP", None),
}
"""Type and curve of the keys of each algorithm. Those with secrets are missing: a verifier could forge."""
_NUMERIC_DATE_MAX: Final = 2**63 - 1
_EXPIRY_S_MAX: Final = 253_402_300_799
"""The end of the year 9999: the latest end of a session that a client understands."""


class InvalidKeysError(ValueError):
    """The content is not a JSON web key set."""


class UnknownKeyError(InvalidTokenError):
    """The keys have none with the id that the token names."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"there is no key with the id {key_id[:100]!r}")
        self.key_id = key_id


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationKey:
    """A public key of a JSON web key set (RFC 7517)."""

    key_id: str | None
    type: str
    algorithm: str | None
    """The only algorithm that it is for; None: each one of its type."""
    curve: str | None
    key: Any


def parse_keys(content: bytes) -> tuple[VerificationKey, ...]:
    """Parse a JSON web key set. Keys of other kinds, private keys and keys for encryption are left out.

    Raises:
        InvalidKeysError: it is no such set.
    """
    try:
        keys = _json_object(content)["keys"]
    except (ValueError, KeyError, RecursionError):
        keys = None
    if not isinstance(keys, list):
        raise InvalidKeysError('it is no JSON web key set: {"keys": [...]} is needed')
    if len(keys) > KEYS_MAX:
        raise InvalidKeysError(f"it has {len(keys)} keys; allowed are {KEYS_MAX}")
    return tuple(key for entry in keys if isinstance(entry, dict) and (key := _parsed_key(entry)) is not None)


def _parsed_key(content: dict[str, Any]) -> VerificationKey | None:
    type_, curve, operations = content.get("kty"), content.get("crv"), content.get("key_ops", ["verify"])
    is_to_verify = (
        content.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations
    )
    # PyJWT makes the same key for each algorithm of its type.
    algorithm = next(
        (name for name, (kind, its_curve) in _KINDS.items() if kind == type_ and its_curve in (None, curve)),
        None,
    )
    if not isinstance(type_, str) or algorithm is None or "d" in content or not is_to_verify:
        return None
    try:
        key = jwt.PyJWK({**content, "alg": algorithm}).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError):
        return None
    if isinstance(key, RSAPublicKey) and key.key_size < RSA_BITS_MIN:
        return None
    key_id, own = content.get("kid"), content.get("alg")
    return VerificationKey(
        key_id=key_id if isinstance(key_id, str) else None,
        type=type_,
        algorithm=own if isinstance(own, str) else None,
        curve=curve if isinstance(curve, str) else None,
        key=key,
    )


def validate(token: str, keys: Sequence[VerificationKey], rules: TokenRules, now_s: float) -> BearerToken:
    """Check signature and claims of a token, at a time in seconds since 1970.

    Raises:
        UnknownKeyError: the token names a key that is not among these.
        InvalidTokenError: the token is refused.
    """
    header, claims = _verified(token, keys)
    if "crit" in header or str(header.get("cty", "")).upper() == "JWT":
        raise InvalidTokenError("its header has crit or cty=JWT, which are not supported")
    expires_at_s = _check_times(claims, rules.clock_skew_s, now_s)
    _check_audience(claims, rules.audiences)
    _check_texts(claims, rules.issuer)
    name = claims.get(rules.sub_claim)
    if not isinstance(name, str) or not _trimmed(name):
        raise InvalidTokenError(f"its claim {rules.sub_claim} is missing, or no text")
    return BearerToken(
        name=_trimmed(name),
        expires_at_ms=min(expires_at_s, _EXPIRY_S_MAX) * 1000,
        scopes=_scopes(rules.scope_claim, claims.get(rules.scope_claim)),
    )


def _verified(token: str, keys: Sequence[VerificationKey]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Header and claims of a token whose signature is right."""
    if token.count(".") != 2:
        raise InvalidTokenError("it has not the three sections of a signed JSON web token")
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise InvalidTokenError(f"its header can't be read: {error}") from None
    algorithm: Any
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in _KINDS:
        raise InvalidTokenError(f"its algorithm is {str(algorithm)[:100]!r}; allowed are {', '.join(_KINDS)}")
    key = _key_for(algorithm, key_id, keys)
    try:
        # One algorithm, that of the key's type: no token can have a public key taken for a secret.
        decoded = PyJWS().decode_complete(token, key, algorithms=[algorithm])
        return header, _json_object(decoded["payload"])
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise InvalidTokenError(f"it can't be verified: {error}") from None


def _key_for(algorithm: str, key_id: object, keys: Iterable[VerificationKey]) -> Any:
    type_, curve = _KINDS[algorithm]
    if key_id is not None:
        keys = [key for key in keys if key.key_id == key_id]
        if not keys:
            raise UnknownKeyError(str(key_id))
    for key in keys:
        if key.type == type_ and curve in (None, key.curve) and key.algorithm in (None, algorithm):
            return key.key
    raise InvalidTokenError(f"there is no key for {algorithm}")


def _check_times(claims: Mapping[str, Any], skew_s: int, now_s: float) -> int:
    """Check exp, iat and nbf, of which the first two are needed. Returns exp."""
    expires_at_s, issued_at_s, begins_at_s = (_numeric_date(claims, name) for name in ("exp", "iat", "nbf"))
    if expires_at_s is None or issued_at_s is None:
        raise InvalidTokenError(f"its claim {'exp' if expires_at_s is None else 'iat'} is missing")
    now = int(now_s)
    if now - skew_s >= expires_at_s:
        raise InvalidTokenError(f"it has expired: exp={expires_at_s}, now={now}")
    if expires_at_s < max(issued_at_s, begins_at_s or 0):
        raise InvalidTokenError("its claim exp is before iat or nbf")
    if begins_at_s is not None and now + skew_s < begins_at_s:
        raise InvalidTokenError(f"it is not valid yet: nbf={begins_at_s}, now={now}")
    if issued_at_s < 0:
        raise InvalidTokenError("its claim iat is negative")
    return expires_at_s


def _numeric_date(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= _NUMERIC_DATE_MAX:
        raise InvalidTokenError(f"its claim {name} is no time")
    return int(value)


def _check_audience(claims: Mapping[str, Any], expected: frozenset[str]) -> None:
    if not expected:
        return
    found = claims.get("aud")
    audiences = [found] if isinstance(found, str) else found
    if not isinstance(audiences, list) or not all(isinstance(audience, str) for audience in audiences):
        raise InvalidTokenError("its claim aud is missing, or neither a text nor texts")
    if expected.isdisjoint(audiences):
        raise InvalidTokenError(f"it is for another audience: aud={str(found)[:200]}")


def _check_texts(claims: Mapping[str, Any], issuer: str | None) -> None:
    for name in ("iss", "sub", "jti"):
        if not isinstance(claims.get(name), str | None):
            raise InvalidTokenError(f"its claim {name} is no text")
    if issuer is not None and claims.get("iss") != issuer:
        raise InvalidTokenError(f"it is of another issuer: iss={str(claims.get('iss'))[:200]}")


def _scopes(claim: str, value: object) -> frozenset[str]:
    """The scopes of a token, which may have none. Kafka's validator allows no scope twice."""
    texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    scopes = [_trimmed(text) if isinstance(text, str) else "" for text in texts]
    if not all(scopes) or len(set(scopes)) < len(scopes):
        raise InvalidTokenError(f"its claim {claim} has an empty scope, or one twice")
    return frozenset(scopes)


def _trimmed(text: str) -> str:
    """As Java's String.trim does it."""
    return text.strip("".join(map(chr, range(0x21))))


def _json_object(content: bytes) -> dict[str, Any]:
    """A JSON object, in which no name comes twice. Raises ValueError, RecursionError."""
    value = json.loads(content, object_pairs_hook=_without_duplicates)
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 - a wrong value, not a wrong call
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) < len(pairs):
        raise ValueError("a name comes twice")
    return names
