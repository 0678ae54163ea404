"""Plans one user: the Secret, SCRAM credentials, ACLs, quotas, and what is revoked at its deletion. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from quorate_admin.types.acls import AccessControlEntry, AclBinding, ResourcePattern
from quorate_protocol.kafka.enums import AclOperation, AclPermissionType, PatternType, ResourceType

from quorate_operator.entities.password_overlap import FormerPassword, Passwords, next_passwords, utc_text
from quorate_operator.entities.plan import Change, EntityPlan, ObservedKafka
from quorate_operator.models.base import duration_ms
from quorate_operator.models.entities import JAAS_CONFIG, PASSWORD, SASL_MECHANISM
from quorate_operator.models.secrets import FOR_USERS, no_labelled_secret
from quorate_operator.models.users import Acl, KafkaUser, Quotas, enum_name
from quorate_operator.planning.steps import Refusal

RESERVED, NO_AUTHORIZER, SECRET_MISSING, SECRET_STALE, SECRET_TAKEN, NO_CERTIFICATES, OVERLAPS = (
    "ReservedUser",
    "NoAuthorizer",
    "SecretMissing",
    "SecretStale",
    "SecretTaken",
    "CertManagerMissing",
    "PasswordOverlaps",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedSecret:
    """A Secret. `version` changes with it; `is_own` if it was made for this resource.

    `certificate` is the name of the Certificate for which cert-manager wrote it.
    """

    version: str
    password: str | None = field(repr=False)
    is_own: bool
    is_labelled: bool = False
    """Whether it may be used for KafkaUsers that did not make it."""
    certificate: str | None = None
    has_other_login: bool = False
    """Whether its `sasl.jaas.config` does not have its user and password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCertificate:
    """The Certificate of a user. `problem`: why it is not issued. `unusable`: why there can be no Certificates."""

    is_own: bool = False
    is_as_wanted: bool = False
    problem: str | None = None
    unusable: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedUser:
    """A principal as brokers describe it, and its Secret.

    `mechanisms` are those that it has SCRAM credentials for; brokers do not return passwords. `acls` is None without
    an authorizer.
    """

    mechanisms: frozenset[str] = frozenset()
    acls: frozenset[AclBinding] | None = frozenset()
    quotas: Mapping[str, float] = field(default_factory=dict)
    secret: ObservedSecret | None = None
    certificate: ObservedCertificate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredUser:
    """What the status stores.

    `is_managed`: the resource has the user. `secret_version` is that of the Secret whose password Kafka has.
    """

    is_managed: bool = False
    mechanism: str | None = None
    secret_version: str | None = None
    former: FormerPassword | None = None

    @classmethod
    def of_status(cls, status: Mapping[str, Any]) -> Self:
        return cls(
            is_managed=status.get("principal") is not None,
            mechanism=status.get("mechanism"),
            secret_version=status.get("secretVersion"),
            former=FormerPassword.of_status(status),
        )

    @property
    def mechanisms(self) -> frozenset[str]:
        """The mechanisms of the credentials that the operator has set."""
        former = None if self.former is None else self.former.mechanism
        return frozenset(filter(None, (self.mechanism, former)))

    @property
    def passwords(self) -> Passwords:
        return Passwords(mechanism=self.mechanism, secret_version=self.secret_version, former=self.former)


NOTHING_STORED: Final = StoredUser()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSecret:
    """A new Secret with a random password, which is not known before it is stored."""

    name: str
    user: str
    mechanism: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyCertificate:
    """The Certificate by which cert-manager issues the user's certificate is created, or changed."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCredentials:
    """AlterUserScramCredentials: the password of a Secret."""

    user: str
    mechanism: str
    password: str = field(repr=False)
    secret_version: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteCredentials:
    """AlterUserScramCredentials: the user can't log in with these any more."""

    user: str
    mechanisms: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"delete the credentials of {self.user} for {', '.join(self.mechanisms)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddAcls:
    """CreateAcls."""

    bindings: tuple[AclBinding, ...]

    @property
    def text(self) -> str:
        return f"add {'; '.join(map(acl_text, self.bindings))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveAcls:
    """DeleteAcls, of these bindings alone."""

    bindings: tuple[AclBinding, ...]

    @property
    def text(self) -> str:
        return f"remove {'; '.join(map(acl_text, self.bindings))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterQuotas:
    """AlterClientQuotas of a user; None removes one. `present` has their current values."""

    user: str
    values: Mapping[str, float | None]
    present: Mapping[str, float] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "; ".join(
            f"{name}: {'none' if value is None else f'{value:g}'}, not {self._present(name)}"
            for name, value in self.values.items()
        )

    def _present(self, name: str) -> str:
        return f"{self.present[name]:g}" if name in self.present else "none"


def plan_user(
    resource: KafkaUser,
    observed: ObservedUser,
    kafka: ObservedKafka,
    *,
    stored: StoredUser = NOTHING_STORED,
    now_ms: int = 0,
) -> EntityPlan:
    """Plan a user whose resource stays. `now_ms` is Unix time in milliseconds."""
    reserved = sorted(_principals(resource) & kafka.reserved)
    if reserved:
        message = (
            f"{reserved[0]} is a super user, or the login of nodes or of the operator, and can't be managed by a "
            "resource: choose another userName"
        )
        return EntityPlan(refusals=(Refusal(code=RESERVED, message=message),))
    changes: list[Change] = []
    refusals: list[Refusal] = []
    passwords = _plan_credentials(resource, observed, stored, changes, refusals, now_ms=now_ms)
    waits = _plan_certificate(resource, observed, changes, refusals)
    _plan_acls(resource, observed, changes, refusals)
    if resource.spec.quotas is not None:
        changes += _quota_changes(
            _name_in(resource.principal), quota_values(resource.spec.quotas), observed.quotas
        )
    return EntityPlan(
        changes=tuple(changes),
        waits=waits,
        refusals=tuple(refusals),
        status={
            "principal": resource.principal,
            "mechanism": passwords.mechanism,
            "secretName": resource.secret_name,
            "secretVersion": passwords.secret_version,
            "formerPassword": None
            if passwords.former is None
            else passwords.former.as_status(_overlap_ms(resource)),
            "acls": None if observed.acls is None else len(observed.acls),
        },
    )


def _principals(resource: KafkaUser) -> frozenset[str]:
    """Return the principals of the user: its own, and those of a certificate with its name."""
    name = resource.user_name
    issued = (f"User:CN={name}", f"User:{name}") if resource.is_issued else ()
    return frozenset((resource.principal, *issued))


def plan_user_deletion(resource: KafkaUser, observed: ObservedUser, stored: StoredUser) -> EntityPlan:
    """Plan for a user whose resource is deleted: what the spec names is revoked, except for the Secret."""
    spec = resource.spec
    if not stored.is_managed or spec.deletion_policy == "Retain":
        return EntityPlan()
    changes: list[Change] = []
    held = sorted(observed.mechanisms & {resource.mechanism, *stored.mechanisms})
    if held:
        changes.append(DeleteCredentials(user=resource.user_name, mechanisms=tuple(held)))
    if spec.acls is not None and observed.acls:
        changes.append(RemoveAcls(bindings=tuple(sorted(observed.acls))))
    if spec.quotas is not None:
        changes += _quota_changes(_name_in(resource.principal), {}, observed.quotas)
    return EntityPlan(changes=tuple(changes))


def _plan_credentials(
    resource: KafkaUser,
    observed: ObservedUser,
    stored: StoredUser,
    changes: list[Change],
    refusals: list[Refusal],
    *,
    now_ms: int,
) -> Passwords:
    """Plan the credentials; returns what is to be stored about them before they are changed."""
    user, mechanism, secret = resource.user_name, resource.mechanism, observed.secret
    if mechanism is None or resource.secret_name is None:
        # Only credentials that the operator has set are deleted. They are stored until they are gone: after a kill in
        # between, the next operator still deletes them.
        others = observed.mechanisms & stored.mechanisms
        if others:
            changes.append(DeleteCredentials(user=user, mechanisms=tuple(sorted(others))))
        known = stored.former if stored.former and stored.former.mechanism in others else None
        return Passwords(mechanism=stored.mechanism if stored.mechanism in others else None, former=known)
    overlap_ms = _overlap_ms(resource)
    passwords = next_passwords(
        stored.passwords,
        mechanism,
        None if secret is None else secret.version,
        mechanisms=observed.mechanisms,
        overlap_ms=overlap_ms,
        now_ms=now_ms,
    )
    if passwords is None:
        assert stored.former is not None, "only a former password refuses"
        message = (
            f"spec.authentication.type: {user} has one password for {mechanism}, and the former one is valid until "
            f"{utc_text(stored.former.ends_at_ms(overlap_ms))}: wait until then, or remove overlap to replace it now"
        )
        refusals.append(Refusal(code=OVERLAPS, message=message))
        return stored.passwords
    refusal = _fault_of_secret(resource, resource.secret_name, secret)
    if secret is None and resource.has_own_secret:
        text = f"create the Secret {resource.secret_name} with a random password"
        changes.append(CreateSecret(name=resource.secret_name, user=user, mechanism=mechanism, text=text))
    elif refusal is not None or secret is None or secret.password is None:
        assert refusal is not None, "without a password, the Secret is refused"
        refusals.append(refusal)
    elif mechanism not in observed.mechanisms or passwords.secret_version != secret.version:
        text = f"set the credentials of {user} for {mechanism} to those of the Secret {resource.secret_name}"
        changes.append(
            SetCredentials(
                user=user,
                mechanism=mechanism,
                password=secret.password,
                secret_version=secret.version,
                text=text,
            )
        )
    else:
        if secret.has_other_login and resource.has_own_secret:
            # The operator may create Secrets, and change none.
            message = (
                f"the Secret {resource.secret_name} has another password than its {JAAS_CONFIG}, or not the "
                f"user's {SASL_MECHANISM}: clients that read these can't log in. Edit them, too, or delete the "
                "Secret: it is made again with another password"
            )
            refusals.append(Refusal(code=SECRET_STALE, message=message))
        # Credentials of another mechanism are deleted only when those of the desired one exist.
        former = None if passwords.former is None else passwords.former.mechanism
        others = observed.mechanisms - {mechanism, former}
        if others:
            changes.append(DeleteCredentials(user=user, mechanisms=tuple(sorted(others))))
    return passwords


def _fault_of_secret(resource: KafkaUser, name: str, secret: ObservedSecret | None) -> Refusal | None:
    """Return why the password of the Secret can't be used."""
    where = f"spec.authentication.secretName: {name!r}"
    if secret is None or not (resource.has_own_secret or secret.is_labelled):
        message = no_labelled_secret("spec.authentication.secretName", name, FOR_USERS)
        return Refusal(code=SECRET_MISSING, message=f"{message}; it must have {PASSWORD}")
    if resource.has_own_secret and not secret.is_own:
        message = (
            f"the Secret {name} was not made for this resource; name it in spec.authentication.secretName to use its "
            "password"
        )
        return Refusal(code=SECRET_TAKEN, message=message)
    if not secret.password or secret.password != secret.password.strip("\r\n"):
        message = f"{where}: the Secret must have {PASSWORD}, without a line break at its beginning or end"
        return Refusal(code=SECRET_MISSING, message=message)
    return None


def _overlap_ms(resource: KafkaUser) -> int:
    authentication = resource.spec.authentication
    overlap = None if authentication is None else authentication.overlap
    return 0 if overlap is None else duration_ms(overlap)


def _plan_certificate(
    resource: KafkaUser, observed: ObservedUser, changes: list[Change], refusals: list[Refusal]
) -> tuple[str, ...]:
    """Plan the certificate of a user that names an issuer; returns what cert-manager has yet to do."""
    authentication, name = resource.spec.authentication, resource.secret_name
    if authentication is None or authentication.issuer_ref is None or name is None:
        return ()
    certificate, secret, issuer = observed.certificate, observed.secret, authentication.issuer_ref
    subject = f"CN={resource.user_name}"
    where = f"spec.authentication.issuerRef: {issuer.name!r}"
    if certificate is not None and certificate.unusable is not None:
        message = (
            f"{where}: {certificate.unusable}: install cert-manager, or leave issuerRef out and have the certificate "
            f"of {subject} issued in another way"
        )
        refusals.append(Refusal(code=NO_CERTIFICATES, message=message))
    elif certificate is not None and not certificate.is_own:
        message = (
            f"{where}: the Certificate {name} was not made for this resource; choose another metadata.name"
        )
        refusals.append(Refusal(code=SECRET_TAKEN, message=message))
    elif secret is not None and secret.certificate != name:
        message = (
            f"{where}: the Secret {name} is not that of the certificate, and would be overwritten; choose another "
            "metadata.name, or delete the Secret"
        )
        refusals.append(Refusal(code=SECRET_TAKEN, message=message))
    elif certificate is None or not certificate.is_as_wanted:
        text = f"ask the {issuer.kind} {issuer.name} for a certificate of {subject}"
        changes.append(ApplyCertificate(text=text))
    elif certificate.problem is not None or secret is None:
        why = certificate.problem or f"there is no Secret {name} yet"
        return (f"the certificate of {subject}: {why}",)
    return ()


def _plan_acls(
    resource: KafkaUser, observed: ObservedUser, changes: list[Change], refusals: list[Refusal]
) -> None:
    if resource.spec.acls is None:
        return
    desired = frozenset(
        binding for acl in resource.spec.acls for binding in bindings_of(acl, resource.principal)
    )
    if observed.acls is None:
        if desired:
            message = "spec.acls: the cluster has no authorizer, so that every user may do everything"
            refusals.append(Refusal(code=NO_AUTHORIZER, message=message))
        return
    missing, surplus = desired - observed.acls, observed.acls - desired
    # Denials are added first and removed last.
    if missing:
        changes.append(AddAcls(bindings=tuple(sorted(missing, key=_denials_first))))
    if surplus:
        changes.append(RemoveAcls(bindings=tuple(sorted(surplus, key=_denials_last))))


def _denials_first(binding: AclBinding) -> tuple[bool, AclBinding]:
    return binding.entry.permission_type is not AclPermissionType.DENY, binding


def _denials_last(binding: AclBinding) -> tuple[bool, AclBinding]:
    return binding.entry.permission_type is AclPermissionType.DENY, binding


def bindings_of(acl: Acl, principal: str) -> tuple[AclBinding, ...]:
    """Return a binding for each operation."""
    pattern = ResourcePattern(
        resource_type=ResourceType[enum_name(acl.resource.type)],
        name=acl.resource.name,
        pattern_type=PatternType[acl.resource.pattern.upper()],
    )
    return tuple(
        AclBinding(
            pattern=pattern,
            entry=AccessControlEntry(
                principal=principal,
                host=acl.host,
                operation=AclOperation[enum_name(operation)],
                permission_type=AclPermissionType[acl.permission.upper()],
            ),
        )
        for operation in acl.operations
    )


def acl_text(binding: AclBinding) -> str:
    """`Allow Read on Topic orders`."""
    pattern, entry = binding.pattern, binding.entry
    prefix = " prefix" if pattern.pattern_type is PatternType.PREFIXED else ""
    host = "" if entry.host == "*" else f" from {entry.host}"
    names = [
        word_of(member.name) for member in (entry.permission_type, entry.operation, pattern.resource_type)
    ]
    return f"{names[0]} {names[1]} on {names[2]}{prefix} {pattern.name}{host}"


def word_of(name: str) -> str:
    """Return `DESCRIBE_CONFIGS` as `DescribeConfigs`."""
    return "".join(part.capitalize() for part in name.split("_"))


def quota_values(quotas: Quotas) -> dict[str, float]:
    """Return the quotas that are given, with Kafka's names."""
    return {name: float(value) for name, value in quotas.model_dump().items() if value is not None}


def _quota_changes(user: str, desired: Mapping[str, float], observed: Mapping[str, float]) -> list[Change]:
    values: dict[str, float | None] = {
        name: value for name, value in desired.items() if observed.get(name) != value
    }
    values |= dict.fromkeys(sorted(observed.keys() - desired.keys()))
    if not values:
        return []
    present = {name: observed[name] for name in values if name in observed}
    return [AlterQuotas(user=user, values=values, present=present)]


def _name_in(principal: str) -> str:
    """The entity of quotas: the principal without its type."""
    return principal.partition(":")[2]
