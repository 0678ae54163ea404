"""TLS and SASL settings, parsed from Kafka's client properties and validated."""

import os
from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Self

from quorate_protocol.kafka.enums import SecurityProtocol
from quorate_protocol.plain_data import dataclass
from quorate_protocol.security.jaas import LOGIN_MODULES
from quorate_protocol.security.oauth import (
    ALLOWED_URLS,
    OAUTH_LOGIN_KEYS,
    TOKEN_URL,
    parse_oauth_login,
)
from quorate_protocol.security.stores import (
    TLS_KEYS,
    SecurityConfigError,
    TlsConfig,
    choice,
    tls_from_properties,
)
from quorate_protocol.security.tokens import TokenKeeper

from quorate_admin.errors import ConfigError

_UNSECURED_PREFIX = "unsecuredLogin"
_UNSECURED_NAME = "unsecuredLoginStringClaim_sub"

KEYS = frozenset({"security.protocol", *TLS_KEYS, "sasl.mechanism", "sasl.jaas.config", *OAUTH_LOGIN_KEYS})
"""The properties that this module reads."""


class Mechanism(Enum):
    """The supported SASL mechanisms."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslConfig:
    """The credentials of the client. `tokens` or `claims` are for OAUTHBEARER."""

    mechanism: Mechanism
    username: str = ""
    password: str = field(default="", repr=False)
    is_token: bool = False
    """The name and password are the id and hmac of a delegation token (KIP-48)."""
    tokens: TokenKeeper | None = field(default=None, compare=False)
    """The token of all connections with this configuration."""
    claims: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """Encryption and authentication of connections."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: TlsConfig = field(default_factory=TlsConfig)
    sasl: SaslConfig | None = None

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Parse Kafka's client properties. Files are not opened yet. Raises ConfigError."""
        try:
            protocol = choice(
                properties,
                "security.protocol",
                "PLAINTEXT",
                {protocol.name: protocol for protocol in SecurityProtocol},
                normalize=str.upper,
            )
            return cls(
                protocol=protocol,
                tls=tls_from_properties(properties) if protocol.is_tls else TlsConfig(),
                sasl=_sasl(properties) if protocol.is_sasl else None,
            )
        except SecurityConfigError as error:
            raise ConfigError(str(error)) from None


def _sasl(properties: Mapping[str, str]) -> SaslConfig:
    name = properties.get("sasl.mechanism", "GSSAPI").strip()
    allowed = ", ".join(mechanism.value for mechanism in Mechanism)
    if name == "GSSAPI":
        raise ConfigError(
            f"sasl.mechanism=GSSAPI (Kafka's default): this client does not support Kerberos; allowed are {allowed}"
        )
    mechanism = choice(
        properties, "sasl.mechanism", "", {mechanism.value: mechanism for mechanism in Mechanism}
    )
    module = LOGIN_MODULES[mechanism.value]
    options = _login_options(properties, module)
    if mechanism is Mechanism.OAUTHBEARER:
        return _oauth(properties, options)
    for option in ("username", "password"):
        if option not in options:
            raise ConfigError(f'sasl.jaas.config: {option} is missing: {module} required {option}="…" …;')
    return SaslConfig(
        mechanism=mechanism,
        username=options["username"],
        password=options["password"],
        is_token=mechanism is not Mechanism.PLAIN and options.get("tokenauth", "").lower() == "true",
    )


def _oauth(properties: Mapping[str, str], options: Mapping[str, str]) -> SaslConfig:
    if TOKEN_URL in properties:
        login = parse_oauth_login(properties, options, os.environ)
        return SaslConfig(mechanism=Mechanism.OAUTHBEARER, tokens=TokenKeeper(login))
    claims = {key: value for key, value in options.items() if key.startswith(_UNSECURED_PREFIX)}
    if _UNSECURED_NAME not in claims:
        raise ConfigError(
            f"{TOKEN_URL} is missing: set it, and {ALLOWED_URLS}, or {_UNSECURED_NAME} in sasl.jaas.config for a "
            "test cluster that takes unsecured tokens"
        )
    return SaslConfig(mechanism=Mechanism.OAUTHBEARER, claims=claims)


def _login_options(properties: Mapping[str, str], module: str) -> Mapping[str, str]:
    from quorate_protocol.security.jaas import parse_jaas

    text = properties.get("sasl.jaas.config")
    if text is None:
        raise ConfigError(f"sasl.jaas.config is missing: give {module} required …;")
    try:
        login = parse_jaas(text)
    except ValueError as error:
        raise ConfigError(f"sasl.jaas.config: {error}; allowed is {module} required …;") from None
    if login.name != module:
        raise ConfigError(
            f"sasl.jaas.config: {login.name} is not for sasl.mechanism={properties.get('sasl.mechanism')}; "
            f"allowed is {module}"
        )
    return login.options
