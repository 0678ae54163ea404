"""Assertions with which a client of SASL/OAUTHBEARER asks for its token in place of a secret (KIP-1139, RFC 7523).

An assertion is a JSON web token. It is read from a file, or made and signed here: the claims of the properties, those
of a template file and what depends on the time are put above each other, as `AssertionSupplierFactory` of 4.4.0 does.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from quorate_protocol.plain_data import dataclass
from quorate_protocol.security.oauth_properties import (
    JAVA_OPTIONS,
    allowed_resources,
    number,
    of_mechanism,
)
from quorate_protocol.security.stores import SecurityConfigError

_PREFIX: Final = "sasl.oauthbearer.assertion"
ASSERTION_FILE: Final = f"{_PREFIX}.file"
PRIVATE_KEY_FILE: Final = f"{_PREFIX}.private.key.file"
PASSPHRASE: Final = f"{_PREFIX}.private.key.passphrase"
ALGORITHM: Final = f"{_PREFIX}.algorithm"
TEMPLATE_FILE: Final = f"{_PREFIX}.template.file"
EXP_SECONDS: Final = f"{_PREFIX}.claim.exp.seconds"
NBF_SECONDS: Final = f"{_PREFIX}.claim.nbf.seconds"
JTI_INCLUDE: Final = f"{_PREFIX}.claim.jti.include"
ISSUER_CLAIM: Final = f"{_PREFIX}.claim.iss"
ALLOWED_FILES: Final = "org.apache.kafka.sasl.oauthbearer.allowed.files"
"""The files that may be read, as the configuration writes them. In Kafka it is a system property of Java."""
_CLAIMS: Final = {name: f"{_PREFIX}.claim.{name}" for name in ("aud", "iss", "sub")}
ASSERTION_KEYS: Final = frozenset(
    {
        *(ASSERTION_FILE, PRIVATE_KEY_FILE, PASSPHRASE, ALGORITHM, TEMPLATE_FILE),
        *(EXP_SECONDS, NBF_SECONDS, JTI_INCLUDE, *_CLAIMS.values(), ALLOWED_FILES),
    }
)
"""The properties that this module reads."""

_ALGORITHMS: Final = ("RS256", "ES256")
_EXP_SECONDS_MAX: Final = 86_400
_NBF_SECONDS_MAX: Final = 3_600
_PEM: Final = b"-----BEGIN "

Json = Mapping[str, Any]


class AssertionNotMadeError(Exception):
    """An assertion can't be made; the text has no part of a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertionSettings:
    """Where an assertion comes from: a file that has one, or a private key that signs one; exactly one is set."""

    file: str | None = None
    private_key_file: str | None = None
    passphrase: str | None = field(default=None, repr=False)
    algorithm: str = "RS256"
    template_file: str | None = None
    claims: Mapping[str, str] = field(default_factory=dict)
    exp_s: int = 300
    """How long an assertion is valid, in seconds."""
    nbf_s: int = 60
    """How many seconds before its creation an assertion becomes valid, because clocks differ."""
    has_jti: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """The headers and claims that a template file adds to an assertion."""

    header: Json = field(default_factory=dict)
    payload: Json = field(default_factory=dict)


def parse_assertion(properties: Mapping[str, str], environment: Mapping[str, str]) -> AssertionSettings:
    """Parse a client's properties. A file with an assertion takes precedence, as in Kafka.

    `environment` may have KAFKA_OPTS with -Dorg.apache.kafka.sasl.oauthbearer.allowed.files.

    Raises:
        SecurityConfigError: a setting is missing or wrong.
    """
    allowed = allowed_resources(properties, environment, ALLOWED_FILES)

    def file_of(key: str) -> str | None:
        file = of_mechanism(properties, key)
        if file is not None and file not in allowed:
            raise SecurityConfigError(
                f"{key}={file}: the file is not allowed; add it to {ALLOWED_FILES}, here or as a system property in "
                f"{JAVA_OPTIONS}"
            )
        return file

    file = file_of(ASSERTION_FILE)
    if file is not None:
        return AssertionSettings(file=file)
    key_file = file_of(PRIVATE_KEY_FILE)
    if key_file is None:
        raise SecurityConfigError(
            f"{PRIVATE_KEY_FILE} is missing: give the key that signs assertions, or {ASSERTION_FILE}"
        )
    algorithm = (of_mechanism(properties, ALGORITHM) or _ALGORITHMS[0]).upper()
    if algorithm not in _ALGORITHMS:
        raise SecurityConfigError(f"{ALGORITHM}={algorithm}: allowed are {', '.join(_ALGORITHMS)}")
    jti = (of_mechanism(properties, JTI_INCLUDE) or "false").lower()
    if jti not in ("true", "false"):
        raise SecurityConfigError(f"{JTI_INCLUDE}={jti}: allowed are true and false")
    claims = {name: of_mechanism(properties, key) for name, key in _CLAIMS.items()}
    defaults = AssertionSettings()
    return AssertionSettings(
        private_key_file=key_file,
        passphrase=of_mechanism(properties, PASSPHRASE),
        algorithm=algorithm,
        template_file=file_of(TEMPLATE_FILE),
        claims={name: value for name, value in claims.items() if value is not None},
        exp_s=number(properties, EXP_SECONDS, defaults.exp_s, _EXP_SECONDS_MAX),
        nbf_s=number(properties, NBF_SECONDS, defaults.nbf_s, _NBF_SECONDS_MAX),
        has_jti=jti == "true",
    )


def parse_template(content: bytes) -> Template:
    """A template file: a JSON object that may have the objects `header` and `payload`.

    Raises:
    AssertionNotMadeError: the content is not such an object.
    """
    try:
        parts = json.loads(content)
    except (ValueError, RecursionError):
        raise AssertionNotMadeError("it is no JSON") from None
    found = [parts.get(name, {}) if isinstance(parts, dict) else None for name in ("header", "payload")]
    header, payload = found
    if not isinstance(header, dict) or not isinstance(payload, dict):
        raise AssertionNotMadeError("it has to be an object, and so have header and payload in it")
    return Template(header=header, payload=payload)


def assertion_parts(
    settings: AssertionSettings, template: Template, now_s: float, jti: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and claims of an assertion that is made now; `jti` is an id that no other has."""
    issued_at_s = int(now_s)
    header = {**template.header, "alg": settings.algorithm, "typ": "JWT"}
    claims = {
        **settings.claims,
        **template.payload,
        "iat": issued_at_s,
        "exp": issued_at_s + settings.exp_s,
        "nbf": issued_at_s - settings.nbf_s,
    }
    return header, {**claims, "jti": jti} if settings.has_jti else claims


def sign_assertion(header: Json, claims: Json, key: bytes, passphrase: str | None, algorithm: str) -> str:
    """Sign an assertion with a private key: PKCS #8 as PEM, or its base64 alone.

    Raises:
        AssertionNotMadeError: the key can't be read, or is not one of the algorithm.
    """
    try:
        import jwt
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key
    except ImportError:
        raise AssertionNotMadeError("signing needs the extra quorate[oauthbearer]") from None
    password = None if passphrase is None else passphrase.encode()
    try:
        if key.lstrip().startswith(_PEM):
            private_key = load_pem_private_key(key, password)
        else:
            private_key = load_der_private_key(base64.b64decode(key), password)
    except (
        ValueError,
        TypeError,
        UnsupportedAlgorithm,
    ):  # also a wrong passphrase, or one too many or too few
        raise AssertionNotMadeError(
            "it is no private key that can be read, with this passphrase or without"
        ) from None
    try:
        return jwt.encode(dict(claims), private_key, algorithm, headers=dict(header))  # type: ignore[arg-type]
    except (jwt.PyJWTError, TypeError, ValueError) as error:
        raise AssertionNotMadeError(f"{algorithm}: {error}") from None
