"""Which Secrets of a cluster's own authority are to be written: decided from those that exist. Pure, but for keys.

    CLUSTER-ca          Secret: the authority and its key; no pod mounts it
    POOL-LISTENER-tls   Secret: the certificate of a listener, as cert-manager writes it
    CLUSTER-ca-cert     ConfigMap: ca.crt for clients

A certificate between nodes is signed only by an authority that each running node trusts. What a node trusts is
recorded on its pod when that is created, see `Carried`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from quorate_operator.models.secrets import Secret
from quorate_operator.models.security import TLS_AUTHORITIES, TLS_CERTIFICATE, TLS_KEY
from quorate_operator.planning.cluster import Role
from quorate_operator.resources.authority import (
    Authorities,
    KeyPair,
    Names,
    Stage,
    Validity,
    begins_at,
    certificates_in,
    due_at,
    fingerprints_in,
    issue,
    issuer_in,
    new_authorities,
    next_authorities,
    successor,
    why_replaced,
)

AUTHORITY_KEY = "ca.key"
_OTHER_CERTIFICATE, _OTHER_KEY = "other.crt", "other.key"
_EARLIER = "earlier.crt"
_STAGE = "stage"
_TRUSTED, _SHOWN = "trusts", "shows"
ROUNDS_MAX = 5
"""How often to decide at once: an authority has at most three stages to go through, and certificates follow."""
WAY_OUT = "set spec.state of the KafkaController to Hibernated, and to Running when its pods have stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSecret:
    """A Secret of a name that the operator is about to use. `is_own`: it was made for this cluster."""

    values: Mapping[str, str] = field(repr=False)
    is_own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateRequest:
    """A listener that gets its certificate from the cluster's authority. `secret` is the name of its Secret."""

    secret: str
    pool: str
    names: Names
    validity: Validity
    clients: frozenset[Role]
    """Of which nodes the listener is used by others: they must trust its certificate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """The authorities of a running node, by fingerprint: those that it trusts, and those of its certificates."""

    label: str
    role: Role
    trusted: frozenset[str] = frozenset()
    shown: frozenset[str] = frozenset()
    unused: frozenset[str] = frozenset()
    """The Secrets of listeners by which it does not connect to others. It trusts them when it begins to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """The content of a listener's Secret."""

    request: CertificateRequest
    values: Mapping[str, str] = field(repr=False)
    reason: str


class CertificateTimes(NamedTuple):
    """When a certificate expires, and when it is to be renewed, in Unix seconds."""

    expiry_s: float
    renewal_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is to be written: the authorities first; certificates follow from those that are stored."""

    authorities: Authorities | None = None
    issued: tuple[Issued, ...] = ()
    unissued: Mapping[str, str] = field(default_factory=dict)
    """Why there is no certificate, by the name of the Secret."""
    trusted: str | None = None
    """The `ca.crt` for clients."""
    authority_times: CertificateTimes | None = None
    times: Mapping[str, CertificateTimes] = field(default_factory=dict)
    """Those of the certificates that listeners have or get, by the name of the Secret."""


def decide(
    cluster: str,
    authority: StoredSecret | None,
    requests: Sequence[CertificateRequest],
    *,
    secrets: Mapping[str, StoredSecret],
    nodes: Sequence[Carried],
    now: datetime,
    way_out: str = WAY_OUT,
    lead_time: timedelta = timedelta(),
) -> Decision:
    """Return what is to be written now. `authority` is the Secret of the authority, `secrets` are those of listeners.

    `nodes` are the running nodes that use these Secrets, or are to use them. `way_out` is how a user stops them all.
    An authority that follows another one signs nothing for `lead_time`, so that clients can trust it before.
    """
    if authority is None:
        founded = _founded(cluster, requests, secrets, nodes, now, way_out=way_out)
        return Decision(authorities=founded) if isinstance(founded, Authorities) else _none(requests, founded)
    if not authority.is_own:
        return _none(
            requests, "the Secret of its authority belongs to another owner: rename the KafkaController"
        )
    try:
        known = authorities_of(authority.values)
    except (KeyError, ValueError):
        return _none(
            requests,
            "the Secret of its authority can't be read: restore it, or delete it to have another one",
        )
    if not (nodes and _is_announced(known, requests, secrets, now, lead_time)):
        following = next_authorities(
            cluster,
            known,
            trusted_by_all=_trusted_by_all(known, nodes),
            in_use={fingerprint for node in nodes for fingerprint in node.shown},
            now=now,
        )
        if following != known:
            return Decision(authorities=following)
    issued: list[Issued] = []
    unissued: dict[str, str] = {}
    for request in requests:
        found = _issued(known, request, secrets.get(request.secret), nodes, now, way_out=way_out)
        if isinstance(found, Issued):
            issued.append(found)
        elif found is not None:
            unissued[request.secret] = found
    written = {item.request.secret: item.values for item in issued}
    stored = {name: secret.values for name, secret in secrets.items() if secret.is_own}
    return Decision(
        issued=tuple(issued),
        unissued=unissued,
        trusted=known.trusted,
        authority_times=_times_of(known.signing),
        times={
            request.secret: _times_of(pair, request.validity)
            for request in requests
            if (pair := _pair_of({**stored, **written}.get(request.secret, {}))) is not None
        },
    )


def _is_announced(
    known: Authorities,
    requests: Iterable[CertificateRequest],
    secrets: Mapping[str, StoredSecret],
    now: datetime,
    lead_time: timedelta,
) -> bool:
    """Whether a new authority must not sign yet, because clients may not trust it.

    The time ends early where nodes would be left without a valid certificate: the former authority has expired, or
    its key is lost and a certificate is due.
    """
    if known.stage is not Stage.TRUSTING or known.other is None:
        return False
    if now >= min(begins_at(known.other.parsed) + lead_time, known.signing.parsed.not_valid_after_utc):
        return False
    pairs = [
        (pair, request.validity)
        for request in requests
        if (found := secrets.get(request.secret)) and found.is_own and (pair := _pair_of(found.values))
    ]
    return known.can_sign or not any(
        now >= due_at(pair.parsed, validity.renew_before) for pair, validity in pairs
    )


def _times_of(pair: KeyPair, validity: Validity | None = None) -> CertificateTimes:
    renew_before = None if validity is None else validity.renew_before
    return CertificateTimes(
        expiry_s=pair.parsed.not_valid_after_utc.timestamp(),
        renewal_s=due_at(pair.parsed, renew_before).timestamp(),
    )


def _none(requests: Iterable[CertificateRequest], reason: str) -> Decision:
    return Decision(unissued={request.secret: reason for request in requests})


def _founded(
    cluster: str,
    requests: Iterable[CertificateRequest],
    secrets: Mapping[str, StoredSecret],
    nodes: Sequence[Carried],
    now: datetime,
    *,
    way_out: str,
) -> Authorities | str:
    """Return the authority of a cluster that has none, or why it can not have one.

    If it had one, whose Secret was deleted, that one is followed by another: the Secrets of listeners have its
    certificate.
    """
    own = [found.values for request in requests if (found := secrets.get(request.secret)) and found.is_own]
    signing = sorted({issuer for values in own if (issuer := _issuer_of(values)) is not None})
    if signing:
        bundles = "".join(values.get(TLS_AUTHORITIES, "") for values in own)
        earlier = sorted({*certificates_in(bundles)} - {signing[0]})
        return successor(cluster, signing[0], earlier, now)
    if any(node.trusted for node in nodes):
        return f"the Secrets of the authority and of the listeners are gone while nodes use them: {way_out}"
    return new_authorities(cluster, now)


def _issuer_of(values: Mapping[str, str]) -> str | None:
    try:
        return issuer_in(values[TLS_AUTHORITIES], values[TLS_CERTIFICATE])
    except (KeyError, ValueError):
        return None


def _trusted_by_all(known: Authorities, nodes: Sequence[Carried]) -> frozenset[str]:
    trusted = fingerprints_in(known.trusted)
    return trusted.intersection(*(node.trusted for node in nodes))


def _issued(
    known: Authorities,
    request: CertificateRequest,
    stored: StoredSecret | None,
    nodes: Sequence[Carried],
    now: datetime,
    *,
    way_out: str,
) -> Issued | str | None:
    """Return the new content of a Secret, why it can not be written, or None if it needs no other."""
    if stored is not None and not stored.is_own:
        return f"the Secret {request.secret} exists and was not made for it: delete it, or name it in tls.secretName"
    pair = None if stored is None else _pair_of(stored.values)
    reason = (
        "the listener has none"
        if pair is None
        else why_replaced(pair, known, request.names, now, request.validity)
    )
    if reason is None or not known.can_sign:
        if pair is None:
            return (
                "the Secret of the authority was deleted, and the new one does not sign yet: all nodes have to trust "
                f"it, for spec.authority.leadTime; or {way_out}"
            )
        assert stored is not None
        if stored.values.get(TLS_AUTHORITIES) == known.trusted:
            return None
        return _content(request, pair, known, "its nodes are to trust other authorities")
    distrusting = [
        node.label
        for node in nodes
        if node.role in request.clients
        and request.secret not in node.unused
        and known.signing.fingerprint not in node.trusted
    ]
    if distrusting:
        return f"{', '.join(distrusting)} would not trust it: {way_out}"
    try:
        made = issue(known, request.names, now, request.validity.duration)
    except ValueError as error:
        return str(error)
    return _content(request, made, known, reason)


def _content(request: CertificateRequest, pair: KeyPair, known: Authorities, reason: str) -> Issued:
    values = {TLS_CERTIFICATE: pair.certificate, TLS_KEY: pair.key, TLS_AUTHORITIES: known.trusted}
    return Issued(request=request, values=values, reason=reason)


def _pair_of(values: Mapping[str, str]) -> KeyPair | None:
    """Return the certificate of a Secret; None if it has none with its key."""
    pair = KeyPair(certificate=values.get(TLS_CERTIFICATE, ""), key=values.get(TLS_KEY, ""))
    return pair if pair.is_whole else None


# What is stored


def authority_values(authorities: Authorities) -> dict[str, str]:
    """Return the values of the authority's Secret, which `authorities_of` reads."""
    values = {
        TLS_AUTHORITIES: authorities.signing.certificate,
        AUTHORITY_KEY: authorities.signing.key,
        _STAGE: authorities.stage.value,
    }
    if authorities.other is not None:
        values |= {_OTHER_CERTIFICATE: authorities.other.certificate, _OTHER_KEY: authorities.other.key}
    if authorities.earlier:
        values[_EARLIER] = "".join(authorities.earlier)
    return values


def authorities_of(values: Mapping[str, str]) -> Authorities:
    """Return the authorities that a Secret has, with keys that fit. Raises KeyError and ValueError."""
    signing = KeyPair(certificate=values[TLS_AUTHORITIES], key=values[AUTHORITY_KEY])
    other = None
    if _OTHER_CERTIFICATE in values:
        other = KeyPair(certificate=values[_OTHER_CERTIFICATE], key=values[_OTHER_KEY])
    earlier = certificates_in(values[_EARLIER]) if _EARLIER in values else ()
    found = Authorities(stage=Stage(values[_STAGE]), signing=signing, other=other, earlier=earlier)
    fingerprints_in(found.trusted)
    # In the first stage, the key of the one that signs may be lost, in the second one that of the other is.
    keys = {AUTHORITY_KEY: signing} if found.can_sign or found.stage is not Stage.TRUSTING else {}
    if other is not None and found.stage is Stage.TRUSTING:
        keys[_OTHER_KEY] = other
    for name, pair in keys.items():
        if not pair.is_whole:
            raise ValueError(f"{name} is not the key of the certificate")
    return found


# What nodes carry


def carried_text(secrets: Sequence[Secret]) -> str:
    """Return the record on a pod of the authorities in the Secrets that it mounts; `carried_of` reads it.

    It has fingerprints of certificates, which are no secret. Secrets that can't be read are left out.
    """
    trusted: frozenset[str] | None = None
    shown: set[str] = set()
    for secret in secrets:
        try:
            found = fingerprints_in(secret.values[TLS_AUTHORITIES])
        except (KeyError, ValueError):
            continue
        trusted = found if trusted is None else trusted & found
        issuer = _issuer_of(secret.values)
        shown |= fingerprints_in(issuer) if issuer is not None else frozenset()
    return f"{_TRUSTED} {','.join(sorted(trusted or ()))}; {_SHOWN} {','.join(sorted(shown))}"


def carried_of(text: str | None, label: str, role: Role, unused: frozenset[str] = frozenset()) -> Carried:
    """Return what a node carries; nothing without a record."""
    parts = dict(part.split(" ", 1) for part in (text or "").split("; ") if " " in part)
    trusted, shown = (frozenset(filter(None, parts.get(name, "").split(","))) for name in (_TRUSTED, _SHOWN))
    return Carried(label=label, role=role, trusted=trusted, shown=shown, unused=unused)
