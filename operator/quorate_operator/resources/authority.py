"""The certificate authority of one cluster: made, renewed and replaced while nodes run. Pure, but for random keys.

An authority is replaced in three stages, so that each two nodes trust each other at any time:

```
SETTLED ──► TRUSTING ──► SIGNING ──► SETTLED
   new authority, which    it signs; the former one     the former one
   signs nothing yet       is trusted still             is dropped
```

TRUSTING ends when all nodes trust the new authority, and clients had time to; SIGNING ends when no node shows a
certificate of the former one. An authority whose key is lost is replaced in the same way; it signs nothing meanwhile.
"""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from ipaddress import ip_address

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_VALIDITY = timedelta(days=1825)
CERTIFICATE_VALIDITY = timedelta(days=90)
RENEWED_AFTER = 2 / 3
"""The part of its validity after which an authority or a certificate is replaced, as by cert-manager."""
BACKDATED = timedelta(hours=1)
"""How far the clocks of nodes may be behind."""
COMMON_NAME_LENGTH_MAX = 64


class Stage(StrEnum):
    """How far the replacement of an authority is."""

    SETTLED = "settled"
    TRUSTING = "trusting"
    SIGNING = "signing"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A certificate and its key in PEM; the key of a former authority is empty."""

    certificate: str
    key: str = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """A hash that identifies the certificate."""
        return hashlib.sha256(self.parsed.public_bytes(serialization.Encoding.DER)).hexdigest()

    @property
    def parsed(self) -> x509.Certificate:
        """The certificate. Raises ValueError."""
        return x509.load_pem_x509_certificate(self.certificate.encode())

    @property
    def is_whole(self) -> bool:
        """Whether the key is that of the certificate."""
        try:
            key = serialization.load_pem_private_key(self.key.encode(), None)
            return key.public_key() == self.parsed.public_key()
        except (TypeError, ValueError, UnsupportedAlgorithm):
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorities:
    """The authority that signs, and the one that is to follow it or was before it."""

    stage: Stage
    signing: KeyPair
    other: KeyPair | None = None
    earlier: tuple[str, ...] = ()
    """The certificates of authorities before these, which nodes trust until the replacement is over."""

    @property
    def can_sign(self) -> bool:
        """Whether the key of the authority that signs is known."""
        return bool(self.signing.key)

    @property
    def trusted(self) -> str:
        """The content of `ca.crt`: the authorities that nodes trust."""
        pairs = [self.signing] if self.other is None else [self.signing, self.other]
        return "".join((*(pair.certificate for pair in pairs), *self.earlier))


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The subject of a certificate: whose principal it is, and under which hosts it is reached."""

    common_name: str
    hosts: tuple[str, ...]
    """DNS names, with wildcards, and IP addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """How long a certificate is valid, and how long before its end it is renewed."""

    duration: timedelta = CERTIFICATE_VALIDITY
    renew_before: timedelta | None = None
    """None: a third of the duration, see `RENEWED_AFTER`."""


def new_authorities(cluster: str, now: datetime) -> Authorities:
    """Return the authority of a new cluster."""
    return Authorities(stage=Stage.SETTLED, signing=_new_authority(cluster, now))


def successor(cluster: str, signing: str, earlier: Collection[str], now: datetime) -> Authorities:
    """Return the authorities where the key of the one that signs is lost: a new one is to follow it.

    `signing` is its certificate, `earlier` are those of other authorities that nodes trust.
    """
    return Authorities(
        stage=Stage.TRUSTING,
        signing=KeyPair(certificate=signing, key=""),
        other=_new_authority(cluster, now),
        earlier=tuple(earlier),
    )


def next_authorities(
    cluster: str,
    known: Authorities,
    *,
    trusted_by_all: Collection[str],
    in_use: Collection[str],
    now: datetime,
) -> Authorities:
    """Return the authorities of the next stage; `known` if nothing is due.

    `trusted_by_all`: fingerprints of the authorities that each running node trusts. `in_use`: those of the
    authorities whose certificates running nodes show.
    """
    match known.stage:
        case Stage.SETTLED if is_due(known.signing.parsed, now):
            return replace(known, stage=Stage.TRUSTING, other=_new_authority(cluster, now))
        case Stage.TRUSTING if known.other is not None and known.other.fingerprint in trusted_by_all:
            # The key of the former one is not needed any more.
            former = replace(known.signing, key="")
            return replace(known, stage=Stage.SIGNING, signing=known.other, other=former)
        case Stage.SIGNING if set(in_use) <= {known.signing.fingerprint}:
            return Authorities(stage=Stage.SETTLED, signing=known.signing)
    return known


def issue(
    authorities: Authorities, names: Names, now: datetime, duration: timedelta = CERTIFICATE_VALIDITY
) -> KeyPair:
    """Return a certificate for nodes, with a new key, which is valid for servers and clients.

    It does not outlive its authority, whose key must be known. Raises ValueError for names that no certificate can
    have.
    """
    if len(names.common_name) > COMMON_NAME_LENGTH_MAX:
        raise ValueError(
            f"{names.common_name!r}: a common name has at most {COMMON_NAME_LENGTH_MAX} characters"
        )
    authority = authorities.signing.parsed
    signing_key = serialization.load_pem_private_key(authorities.signing.key.encode(), None)
    assert isinstance(signing_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    end = min(now + duration, authority.not_valid_after_utc)
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    issuer_id = x509.SubjectKeyIdentifier.from_public_key(signing_key.public_key())
    built = (
        _builder(names.common_name, authority.subject, key, now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName([*map(_general_name, names.hosts)]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_id), critical=False
        )
        .sign(signing_key, hashes.SHA256())
    )
    return _pair(built, key)


def why_replaced(
    certificate: KeyPair,
    authorities: Authorities,
    names: Names,
    now: datetime,
    validity: Validity | None = None,
) -> str | None:
    """Return why a node's certificate has to be replaced, or None."""
    parsed, authority = certificate.parsed, authorities.signing.parsed
    wanted = validity or Validity()
    if not _is_issued_by(parsed, authority):
        return "another authority signs"
    end, latest = parsed.not_valid_after_utc, authority.not_valid_after_utc
    # Near the end of the authority, a new certificate would not be valid for longer.
    if is_due(parsed, now, wanted.renew_before) and end < min(now + wanted.duration, latest):
        return f"it expires at {end:%Y-%m-%dT%H:%M:%SZ}"
    begin = begins_at(parsed)
    if end != min(begin + wanted.duration, latest):
        return f"it is valid for {end - begin}"
    found = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    lacking = [host for host in names.hosts if _general_name(host) not in found]
    if lacking:
        return f"it lacks the names {', '.join(lacking)}"
    commons = parsed.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return None if [common.value for common in commons] == [names.common_name] else "it has another subject"


def is_due(certificate: x509.Certificate, now: datetime, renew_before: timedelta | None = None) -> bool:
    """Whether a certificate is to be renewed, see `due_at`."""
    return now >= due_at(certificate, renew_before)


def due_at(certificate: x509.Certificate, renew_before: timedelta | None = None) -> datetime:
    """Return when a certificate is to be renewed: `renew_before` its end, or after two thirds of its validity."""
    begin, end = begins_at(certificate), certificate.not_valid_after_utc
    return begin + (end - begin) * RENEWED_AFTER if renew_before is None else end - renew_before


def begins_at(certificate: x509.Certificate) -> datetime:
    """Return when a certificate of this cluster was made."""
    return certificate.not_valid_before_utc + BACKDATED


@lru_cache(maxsize=1024)
def certificates_in(bundle: str) -> tuple[str, ...]:
    """Return the certificates of a PEM file, each in PEM. Raises ValueError."""
    return tuple(
        parsed.public_bytes(serialization.Encoding.PEM).decode()
        for parsed in x509.load_pem_x509_certificates(bundle.encode())
    )


@lru_cache(maxsize=1024)
def fingerprints_in(bundle: str) -> frozenset[str]:
    """Return the fingerprints of the certificates of a PEM file. Raises ValueError."""
    return frozenset(KeyPair(certificate=text, key="").fingerprint for text in certificates_in(bundle))


@lru_cache(maxsize=1024)
def issuer_in(bundle: str, certificate: str) -> str | None:
    """Return the one of the authorities in a PEM file that has issued a certificate, or None. Raises ValueError."""
    issued = x509.load_pem_x509_certificate(certificate.encode())
    for text in certificates_in(bundle):
        if _is_issued_by(issued, x509.load_pem_x509_certificate(text.encode())):
            return text
    return None


def _is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, TypeError, ValueError):
        return False
    return True


def _new_authority(cluster: str, now: datetime) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    # The time distinguishes authorities of a cluster: some clients look for an issuer by its name alone.
    common_name = f"{cluster[:40]} {now:%Y-%m-%dT%H:%M:%SZ}"
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    built = (
        _builder(common_name, subject, key, now, now + AUTHORITY_VALIDITY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _pair(built, key)


def _builder(
    common_name: str,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    # Kafka reads unencrypted keys in PKCS#8 only (DefaultSslEngineFactory.PemStore).
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyPair(
        certificate=certificate.public_bytes(serialization.Encoding.PEM).decode(), key=private.decode()
    )
