"""TLS contexts from Kafka's key stores and trust stores."""

import os
import re
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Final

from quorate_protocol.files import read_bounded
from quorate_protocol.security.stores import TLS_VERSIONS, SecurityConfigError, Store, StoreType, TlsConfig

_JKS_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_STORE_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024
_DESCRIPTORS: Final = Path("/proc/self/fd")
_TLS_13_SUITE: Final = re.compile(r"TLS_(AES|CHACHA20)_\w+")
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_OLD_SUITE: Final = re.compile(
    r"(?:TLS|SSL)_(?P<exchange>[A-Z]+(?:_[A-Z]+)?)_WITH_(?P<cipher>\w+?)_(?P<digest>SHA\d*)"
)
_CIPHERS: Final = {
    **{f"AES_{bits}_GCM": f"AES{bits}-GCM" for bits in (128, 256)},
    **{f"AES_{bits}_CBC": f"AES{bits}" for bits in (128, 256)},
    "CHACHA20_POLY1305": "CHACHA20-POLY1305",
}


class ClientAuth(Enum):
    """Whether a listener asks clients for a certificate: the values of ssl.client.auth."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


_VERIFY_MODES: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


def server_context(config: TlsConfig, client_auth: ClientAuth) -> ssl.SSLContext:
    """The context of a listener. Raises SecurityConfigError as `client_context` does, and without a key store."""
    if config.keystore is None:
        raise SecurityConfigError(
            "ssl.keystore.location is missing: a listener with TLS needs a key and a certificate; set it, or "
            "ssl.keystore.key and ssl.keystore.certificate.chain with ssl.keystore.type=PEM"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    _set_versions(context, config)
    _identify(context, config.keystore, config.key_password)
    context.verify_mode = _VERIFY_MODES[client_auth]
    if client_auth is not ClientAuth.NONE:
        if config.truststore is None:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        else:
            _trust(context, config.truststore)
    return context


def client_context(config: TlsConfig) -> ssl.SSLContext:
    """The context of a client. Raises SecurityConfigError if a file can't be read or has the wrong content."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = config.is_checking_host and config.is_checking_certificate
    _set_versions(context, config)
    if not config.is_checking_certificate:
        context.verify_mode = ssl.CERT_NONE
    elif config.truststore is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _trust(context, config.truststore)
    if config.keystore is not None:
        _identify(context, config.keystore, config.key_password)
    return context


def with_content(config: TlsConfig) -> TlsConfig:
    """The settings with the text of both stores, each read once. Raises SecurityConfigError if that fails."""
    keystore, truststore = config.keystore, config.truststore
    return replace(
        config,
        keystore=keystore and replace(keystore, pem=_pem_of(keystore, config.key_password)),
        truststore=truststore and replace(truststore, pem=_pem_of(truststore, key_password=None)),
    )


def leaf_certificate(store: Store) -> bytes:
    """The DER certificate that a key store with its content has for its key, which is its first.

    Raises:
        SecurityConfigError: it has none, or a damaged one.
    """
    assert store.pem is not None
    found = _CERTIFICATE.search(store.pem)
    if found is None:
        raise SecurityConfigError(f"{_named(store)}: it has no certificate")
    try:
        return ssl.PEM_cert_to_DER_cert(found[0])
    except ValueError as error:
        raise SecurityConfigError(f"{_named(store)}: its certificate can't be read: {error}") from None


def _set_versions(context: ssl.SSLContext, config: TlsConfig) -> None:
    versions = [TLS_VERSIONS[name] for name in config.enabled_protocols]
    if config.cipher_suites:
        old = [name for name in config.cipher_suites if not _TLS_13_SUITE.fullmatch(name)]
        # OpenSSL enables all suites of TLS 1.3 or none, by enabling the version.
        is_old_only = len(old) == len(config.cipher_suites)
        versions = [
            version
            for version in versions
            if (version < ssl.TLSVersion.TLSv1_3 if is_old_only else old or version == ssl.TLSVersion.TLSv1_3)
        ]
        if not versions:
            raise SecurityConfigError(
                f"ssl.cipher.suites={','.join(config.cipher_suites)}: none of them is for "
                f"ssl.enabled.protocols={','.join(config.enabled_protocols)}"
            )
        if old:
            _set_ciphers(context, old)
    context.minimum_version = min(versions)
    context.maximum_version = max(versions)


def _set_ciphers(context: ssl.SSLContext, names: list[str]) -> None:
    for name in names:
        try:
            context.set_ciphers(openssl_name(name))
        except (ssl.SSLError, ValueError):
            raise SecurityConfigError(
                f"ssl.cipher.suites: {name} is not supported; allowed are names such as "
                "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
            ) from None
    context.set_ciphers(":".join(openssl_name(name) for name in names))


def openssl_name(suite: str) -> str:
    """OpenSSL's name for Java's name of a suite up to TLS 1.2. Raises ValueError."""
    match = _OLD_SUITE.fullmatch(suite)
    if match is None or match["cipher"] not in _CIPHERS:
        raise ValueError(f"{suite} is unknown")
    cipher = _CIPHERS[match["cipher"]]
    exchange = match["exchange"].replace("_", "-")
    digest = "" if cipher.startswith("CHACHA20") else f"-{match['digest']}"
    return (f"{exchange}-" if exchange != "RSA" else "") + cipher + digest


def _trust(context: ssl.SSLContext, store: Store) -> None:
    pem = _pem_of(store, key_password=None)
    try:
        context.load_verify_locations(cadata=pem)
    except ssl.SSLError as error:
        raise SecurityConfigError(
            f"{_named(store)}: it has no certificates ({error.reason or error})"
        ) from None


def _identify(context: ssl.SSLContext, store: Store, key_password: str | None) -> None:
    pem = _pem_of(store, key_password)
    try:
        with _file_of(pem) as name:
            # Without a callback OpenSSL would prompt for a password.
            context.load_cert_chain(name, password=lambda: key_password or "")
    except (ssl.SSLError, ValueError) as error:
        hint = "" if key_password else " (if the key is encrypted, give ssl.key.password)"
        reason = getattr(error, "reason", None) or error
        raise SecurityConfigError(
            f"{_named(store)}: key or certificate can't be used: {reason}{hint}"
        ) from None
    except OSError as error:
        raise SecurityConfigError(
            f"{_named(store)}: no file can be made through which OpenSSL reads keys: {error.strerror}"
        ) from None


@contextmanager
def _file_of(pem: str) -> Iterator[str]:
    """Yield the name of a file with a key, because OpenSSL reads keys only from files. Raises OSError.

    The file is in memory. Where the system has no such files, it is a private temporary file.
    """
    content = pem.encode()
    if hasattr(os, "memfd_create") and _DESCRIPTORS.is_dir():
        with os.fdopen(os.memfd_create("quorate-key"), "wb") as memory:
            memory.write(content)
            memory.flush()
            yield str(_DESCRIPTORS / str(memory.fileno()))
        return
    with tempfile.NamedTemporaryFile(prefix="quorate-", suffix=".pem") as file:
        file.write(content)
        file.flush()
        yield file.name


def _pem_of(store: Store, key_password: str | None) -> str:
    if store.pem is not None:
        return store.pem
    content = _content(store)
    if store.type is not StoreType.PEM:
        return _pem_of_pkcs12(store, content, key_password)
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise SecurityConfigError(
            f"{_named(store)}: it is not a PEM file, but {store.prefix}.type is PEM"
        ) from None


def _content(store: Store) -> bytes:
    assert store.location is not None
    try:
        return read_bounded(Path(store.location), _STORE_SIZE_BYTES_MAX)
    except OSError as error:
        raise SecurityConfigError(f"{_named(store)}: {error.strerror}") from None
    except ValueError as error:
        raise SecurityConfigError(f"{_named(store)}: {error}") from None


def _pem_of_pkcs12(store: Store, content: bytes, key_password: str | None) -> str:
    if content.startswith(_JKS_MAGIC):
        raise SecurityConfigError(
            f"{_named(store)}: it is a JKS file, which only Java can read. Convert it:\n"
            f"  keytool -importkeystore -srckeystore {store.location} -srcstoretype JKS "
            f"-destkeystore {store.location}.p12 -deststoretype PKCS12\n"
            f"and set {store.prefix}.location={store.location}.p12 and {store.prefix}.type=PKCS12"
        )
    try:
        from cryptography.hazmat.primitives.serialization import (
            BestAvailableEncryption,
            Encoding,
            NoEncryption,
            PrivateFormat,
        )
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise SecurityConfigError(
            f"{_named(store)}: cryptography is missing: pip install 'quorate[pkcs12]', "
            f"or set {store.prefix}.type=PEM and give a PEM file"
        ) from None
    try:
        bag = load_pkcs12(content, store.password.encode() if store.password else None)
    except ValueError:
        raise SecurityConfigError(
            f"{_named(store)}: {store.prefix}.password is wrong, or it is not a PKCS12 file"
        ) from None
    entries = [bag.cert] if bag.cert else []
    pem = "".join(
        entry.certificate.public_bytes(Encoding.PEM).decode() for entry in (*entries, *bag.additional_certs)
    )
    if bag.key is None:
        return pem
    encryption = BestAvailableEncryption(key_password.encode()) if key_password else NoEncryption()
    return bag.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode() + pem


def _named(store: Store) -> str:
    return f"{store.prefix}.location={store.location}" if store.location else f"{store.prefix} (PEM text)"
