"""TLS settings in Kafka's properties: key stores, trust stores, versions, cipher suites. No file is opened here."""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum
from typing import Final, TypeVar

from quorate_protocol.plain_data import dataclass

ENABLED_PROTOCOLS: Final = "ssl.enabled.protocols"
PROTOCOL: Final = "ssl.protocol"
CIPHER_SUITES: Final = "ssl.cipher.suites"
ENDPOINT_IDENTIFICATION: Final = "ssl.endpoint.identification.algorithm"

TLS_KEYS: Final = frozenset(
    {
        *(f"ssl.truststore.{key}" for key in ("type", "location", "password", "certificates")),
        *(f"ssl.keystore.{key}" for key in ("type", "location", "password", "key", "certificate.chain")),
        *("ssl.key.password", ENDPOINT_IDENTIFICATION, ENABLED_PROTOCOLS, PROTOCOL, CIPHER_SUITES),
    }
)
"""The properties that this module reads."""

TLS_VERSIONS: Final = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}


class SecurityConfigError(ValueError):
    """A security setting is invalid. The message has key, value (of secrets only the key) and what is allowed."""


class StoreType(Enum):
    """Formats of key stores and trust stores."""

    PEM = "PEM"
    PKCS12 = "PKCS12"
    JKS = "JKS"


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
    names: Mapping[str, str] = field(default_factory=dict)
    """By the host that a client connects to, the name that the certificate must have, if it is another one. No
    property of Kafka has it: a program that knows nodes by their addresses sets it."""
    enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()


def tls_from_properties(properties: Mapping[str, str]) -> TlsConfig:
    """Parse the TLS properties of a client or a listener. Raises SecurityConfigError."""
    algorithm = properties.get(ENDPOINT_IDENTIFICATION, "https").strip()
    if algorithm.lower() not in {"", "https"}:
        raise SecurityConfigError(
            f"{ENDPOINT_IDENTIFICATION}={algorithm}: allowed are https, and nothing for no check"
        )
    enabled = list_of(properties, ENABLED_PROTOCOLS) or TlsConfig().enabled_protocols
    for name in enabled:
        if name not in TLS_VERSIONS:
            raise SecurityConfigError(
                f"{ENABLED_PROTOCOLS}: {name} is unknown; allowed are {', '.join(TLS_VERSIONS)}"
            )
    version = properties.get(PROTOCOL, "TLS").strip()
    if version not in {"TLS", *TLS_VERSIONS}:
        # Only checked: as in Java, the versions in use are those of ssl.enabled.protocols.
        raise SecurityConfigError(f"{PROTOCOL}={version}: allowed are TLS, {', '.join(TLS_VERSIONS)}")
    return TlsConfig(
        truststore=_truststore(properties),
        keystore=_keystore(properties),
        key_password=properties.get("ssl.key.password"),
        is_checking_host=bool(algorithm),
        enabled_protocols=enabled,
        cipher_suites=list_of(properties, CIPHER_SUITES),
    )


def _truststore(properties: Mapping[str, str]) -> Store | None:
    pem = properties.get("ssl.truststore.certificates")
    return _store(properties, "ssl.truststore", pem, "ssl.truststore.certificates")


def _keystore(properties: Mapping[str, str]) -> Store | None:
    key, chain = properties.get("ssl.keystore.key"), properties.get("ssl.keystore.certificate.chain")
    if (key is None) != (chain is None):
        missing = "ssl.keystore.key" if key is None else "ssl.keystore.certificate.chain"
        raise SecurityConfigError(f"{missing} is missing: set both key and certificate chain, or neither")
    pem = None if key is None else f"{key}\n{chain}\n"
    return _store(properties, "ssl.keystore", pem, "ssl.keystore.key")


def _store(properties: Mapping[str, str], prefix: str, pem: str | None, pem_key: str) -> Store | None:
    location = properties.get(f"{prefix}.location")
    store_type = choice(
        properties,
        f"{prefix}.type",
        "JKS",
        {store_type.value: store_type for store_type in StoreType},
        normalize=str.upper,
    )
    if pem is not None:
        if store_type is not StoreType.PEM:
            raise SecurityConfigError(f"{pem_key} needs {prefix}.type=PEM, not {store_type.value}")
        if location is not None:
            raise SecurityConfigError(
                f"{prefix}.location={location} and {pem_key}: allowed is one of the two"
            )
    elif location is None:
        return None
    password = properties.get(f"{prefix}.password")
    if store_type is StoreType.PEM and password is not None:
        raise SecurityConfigError(
            f"{prefix}.password is not for PEM files; ssl.key.password is for an encrypted key"
        )
    return Store(prefix=prefix, type=store_type, location=location, password=password, pem=pem)


_Choice = TypeVar("_Choice")


def choice(
    properties: Mapping[str, str],
    key: str,
    default: str,
    choices: Mapping[str, _Choice],
    normalize: Callable[[str], str] = str,
) -> _Choice:
    """The choice that a property names. Raises SecurityConfigError with those that are allowed."""
    value = properties.get(key, default).strip()
    found = choices.get(normalize(value))
    if found is None:
        raise SecurityConfigError(f"{key}={value}: allowed are {', '.join(choices)}")
    return found


def list_of(properties: Mapping[str, str], key: str) -> tuple[str, ...]:
    """The values of a property that is a list."""
    return tuple(part.strip() for part in properties.get(key, "").split(",") if part.strip())
