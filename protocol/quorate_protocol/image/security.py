"""ACLs, SCRAM credentials, delegation tokens and quota entities in the image."""

from collections.abc import Iterable
from dataclasses import field, fields
from typing import TypeVar
from uuid import UUID

from quorate_protocol.kafka.enums import ScramMechanism
from quorate_protocol.plain_data import dataclass
from quorate_protocol.records.generated import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    EntityData,
    UserScramCredentialRecord,
)

T = TypeVar("T")

QuotaEntity = tuple[tuple[str, str | None], ...]
"""(entity type, name or None for the default) pairs, sorted by type: what a client quota applies to."""


def quota_entity(entity: Iterable[EntityData]) -> QuotaEntity:
    """Return the key of a quota; of two parts with the same type the last one counts, as in Kafka."""
    return tuple(sorted({part.entity_type: part.entity_name for part in entity}.items()))


def _copied(source: object, kind: type[T], **others: object) -> T:
    """A `kind` with the fields of the same names, and the others as given."""
    names = {field.name for field in fields(kind)} - others.keys()  # type: ignore[arg-type]
    return kind(**{name: getattr(source, name) for name in names}, **others)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessControlEntry:
    """One ACL. Numbers are those of ResourceType, PatternType, AclOperation and AclPermissionType."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    @classmethod
    def from_record(cls, record: AccessControlEntryRecord) -> "AccessControlEntry":
        return _copied(record, cls)

    def to_record(self, acl_id: UUID) -> AccessControlEntryRecord:
        return _copied(self, AccessControlEntryRecord, id=acl_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """A user's credential as servers store it (RFC 5802); ``repr`` hides the secrets, so that no log has them."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def from_record(cls, record: UserScramCredentialRecord) -> "ScramCredential":
        return _copied(record, cls)

    def to_record(self, user: str, mechanism: ScramMechanism) -> UserScramCredentialRecord:
        return _copied(self, UserScramCredentialRecord, name=user, mechanism=int(mechanism))


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """One delegation token (KIP-48, KIP-900). Its HMAC is derived from the id and a secret, never stored."""

    token_id: str
    owner: str
    """Principals are written ``User:alice``."""
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiration_timestamp_ms: int

    @classmethod
    def from_record(cls, record: DelegationTokenRecord) -> "DelegationToken":
        return _copied(
            record,
            cls,
            issue_timestamp_ms=record.issue_timestamp,
            max_timestamp_ms=record.max_timestamp,
            expiration_timestamp_ms=record.expiration_timestamp,
        )

    def to_record(self) -> DelegationTokenRecord:
        return _copied(
            self,
            DelegationTokenRecord,
            issue_timestamp=self.issue_timestamp_ms,
            max_timestamp=self.max_timestamp_ms,
            expiration_timestamp=self.expiration_timestamp_ms,
        )
