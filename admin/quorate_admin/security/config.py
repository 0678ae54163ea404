"""TLS and SASL settings, parsed from Kafka's client properties and validated."""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Self, TypeVar

from quorate_protocol.kafka.enums import SecurityProtocol

from quorate_admin.errors import ConfigError

_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - the name of a property
_UNSECURED_PREFIX = "unsecuredLogin"
_UNSECURED_NAME = "unsecuredLoginStringClaim_sub"

KEYS = frozenset(
    {
        "security.protocol",
        *(f"ssl.truststore.{key}" for key in ("type", "location", "password", "certificates")),
        *(f"ssl.keystore.{key}" for key in ("type", "location", "password", "key", "certificate.chain")),
        *("ssl.key.password", "ssl.endpoint.identification.algorithm", "ssl.enabled.protocols"),
        *("ssl.protocol", "ssl.cipher.suites", "sasl.mechanism", "sasl.jaas.config", _TOKEN_URL),
    }
)
"""The properties that this module reads."""


class StoreType(Enum):
    """Formats of key stores and trust stores."""

    PEM = "PEM"
    PKCS12 = "PKCS12"
    JKS = "JKS"


class Mechanism(Enum):
    """The supported SASL mechanisms."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


TLS_VERSIONS = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A key store or trust store: a file, or PEM text in the properties."""

    prefix: str
    """`ssl.keystore` or `ssl.truststore`, to name the property in an error."""
    type: StoreType
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    pem: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """TLS settings. Without a trust store, the system's certificate authorities are trusted."""

    truststore: Store | None = None
    keystore: Store | None = None
    key_password: str | None = field(default=None, repr=False)
    is_checking_host: bool = True
    is_checking_certificate: bool = True
    """No property of Kafka disables this check; only probes do, which send no secrets."""
    enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslConfig:
    """The credentials of the client. `token_file` and `claims` are for OAUTHBEARER only."""

    mechanism: Mechanism
    username: str = ""
    password: str = field(default="", repr=False)
    is_token: bool = False
    """The name and password are the id and hmac of a delegation token (KIP-48)."""
    token_file: str | None = None
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
        protocol = _choice(
            properties,
            "security.protocol",
            "PLAINTEXT",
            {one.name: one for one in SecurityProtocol},
            normalize=str.upper,
        )
        return cls(
            protocol=protocol,
            tls=_tls(properties) if protocol.is_tls else TlsConfig(),
            sasl=_sasl(properties) if protocol.is_sasl else None,
        )


def _tls(properties: Mapping[str, str]) -> TlsConfig:
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https").strip()
    if algorithm.lower() not in {"", "https"}:
        raise ConfigError(
            f"ssl.endpoint.identification.algorithm={algorithm}: allowed are https, and nothing for no check"
        )
    enabled = _list(properties, "ssl.enabled.protocols") or TlsConfig().enabled_protocols
    for name in enabled:
        if name not in TLS_VERSIONS:
            raise ConfigError(
                f"ssl.enabled.protocols: {name} is unknown; allowed are {', '.join(TLS_VERSIONS)}"
            )
    return TlsConfig(
        truststore=_truststore(properties),
        keystore=_keystore(properties),
        key_password=properties.get("ssl.key.password"),
        is_checking_host=bool(algorithm),
        enabled_protocols=enabled,
        cipher_suites=_list(properties, "ssl.cipher.suites"),
    )


def _truststore(properties: Mapping[str, str]) -> Store | None:
    pem = properties.get("ssl.truststore.certificates")
    return _store(properties, "ssl.truststore", pem, "ssl.truststore.certificates")


def _keystore(properties: Mapping[str, str]) -> Store | None:
    key, chain = properties.get("ssl.keystore.key"), properties.get("ssl.keystore.certificate.chain")
    if (key is None) != (chain is None):
        missing = "ssl.keystore.key" if key is None else "ssl.keystore.certificate.chain"
        raise ConfigError(f"{missing} is missing: set both key and certificate chain, or neither")
    pem = None if key is None else f"{key}\n{chain}\n"
    return _store(properties, "ssl.keystore", pem, "ssl.keystore.key")


def _store(properties: Mapping[str, str], prefix: str, pem: str | None, pem_key: str) -> Store | None:
    location = properties.get(f"{prefix}.location")
    store_type = _choice(
        properties, f"{prefix}.type", "JKS", {one.value: one for one in StoreType}, normalize=str.upper
    )
    if pem is not None:
        if store_type is not StoreType.PEM:
            raise ConfigError(f"{pem_key} needs {prefix}.type=PEM, not {store_type.value}")
        if location is not None:
            raise ConfigError(f"{prefix}.location={location} and {pem_key}: allowed is one of the two")
    elif location is None:
        return None
    password = properties.get(f"{prefix}.password")
    if store_type is StoreType.PEM and password is not None:
        raise ConfigError(f"{prefix}.password is not for PEM files; ssl.key.password is for an encrypted key")
    return Store(prefix=prefix, type=store_type, location=location, password=password, pem=pem)


def _sasl(properties: Mapping[str, str]) -> SaslConfig:
    name = properties.get("sasl.mechanism", "GSSAPI").strip()
    allowed = ", ".join(one.value for one in Mechanism)
    if name == "GSSAPI":
        raise ConfigError(
            f"sasl.mechanism=GSSAPI (Kafka's default): this client does not support Kerberos; allowed are {allowed}"
        )
    mechanism = _choice(properties, "sasl.mechanism", "", {one.value: one for one in Mechanism})
    if mechanism is Mechanism.OAUTHBEARER:
        return _oauth(properties)
    module = _PLAIN_MODULE if mechanism is Mechanism.PLAIN else _SCRAM_MODULE
    options = _login_options(properties, module)
    for option in ("username", "password"):
        if option not in options:
            raise ConfigError(f'sasl.jaas.config: {option} is missing: {module} required {option}="…" …;')
    return SaslConfig(
        mechanism=mechanism,
        username=options["username"],
        password=options["password"],
        is_token=mechanism is not Mechanism.PLAIN and options.get("tokenauth", "").lower() == "true",
    )


def _oauth(properties: Mapping[str, str]) -> SaslConfig:
    options = _login_options(properties, _OAUTH_MODULE)
    url = properties.get(_TOKEN_URL)
    if url is not None:
        if not url.startswith("file:/"):
            raise ConfigError(
                f"{_TOKEN_URL}={url}: allowed is file:/path/of/token; this client fetches no token from a server"
            )
        return SaslConfig(mechanism=Mechanism.OAUTHBEARER, token_file="/" + url[len("file:") :].lstrip("/"))
    claims = {key: value for key, value in options.items() if key.startswith(_UNSECURED_PREFIX)}
    if _UNSECURED_NAME not in claims:
        raise ConfigError(
            f"{_TOKEN_URL} is missing: allowed is file:/path/of/token, or {_UNSECURED_NAME} in sasl.jaas.config "
            "for a test cluster that takes unsecured tokens"
        )
    return SaslConfig(mechanism=Mechanism.OAUTHBEARER, claims=claims)


def _login_options(properties: Mapping[str, str], module: str) -> Mapping[str, str]:
    from quorate_admin.security.jaas import parse_jaas

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


_Choice = TypeVar("_Choice")


def _choice(
    properties: Mapping[str, str],
    key: str,
    default: str,
    choices: Mapping[str, _Choice],
    normalize: Callable[[str], str] = str,
) -> _Choice:
    value = properties.get(key, default).strip()
    found = choices.get(normalize(value))
    if found is None:
        raise ConfigError(f"{key}={value}: allowed are {', '.join(choices)}")
    return found


def _list(properties: Mapping[str, str], key: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in properties.get(key, "").split(",") if one.strip())
