"""ACLs, SCRAM credentials, delegation tokens and quota entities in the image."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from quorate_protocol.kafka.enums import ScramMechanism
from quorate_protocol.records.generated import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    EntityData,
    UserScramCredentialRecord,
)

QuotaEntity = tuple[tuple[str, str | None], ...]
"""(entity type, name or None for the default) pairs, sorted by type: what a client quota applies to."""


def quota_entity(entity: Iterable[EntityData]) -> QuotaEntity:
    """Return the key of a quota; of two parts with the same type the last one counts, as in Kafka."""
    return tuple(sorted({part.entity_type: part.entity_name for part in entity}.items()))


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
        return cls(
            resource_type=record.resource_type,
            resource_name=record.resource_name,
            pattern_type=record.pattern_type,
            principal=record.principal,
            host=record.host,
            operation=record.operation,
            permission_type=record.permission_type,
        )

    def to_record(self, acl_id: UUID) -> AccessControlEntryRecord:
        return AccessControlEntryRecord(
            id=acl_id,
            resource_type=self.resource_type,
            resource_name=self.resource_name,
            pattern_type=self.pattern_type,
            principal=self.principal,
            host=self.host,
            operation=self.operation,
            permission_type=self.permission_type,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """A user's credential as servers store it (RFC 5802); ``repr`` hides the secrets, so that no log has them."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def from_record(cls, record: UserScramCredentialRecord) -> "ScramCredential":
        return cls(
            salt=record.salt,
            stored_key=record.stored_key,
            server_key=record.server_key,
            iterations=record.iterations,
        )

    def to_record(self, user: str, mechanism: ScramMechanism) -> UserScramCredentialRecord:
        return UserScramCredentialRecord(
            name=user,
            mechanism=int(mechanism),
            salt=self.salt,
            stored_key=self.stored_key,
            server_key=self.server_key,
            iterations=self.iterations,
        )


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
        return cls(
            token_id=record.token_id,
            owner=record.owner,
            requester=record.requester,
            renewers=record.renewers,
            issue_timestamp_ms=record.issue_timestamp,
            max_timestamp_ms=record.max_timestamp,
            expiration_timestamp_ms=record.expiration_timestamp,
        )

    def to_record(self) -> DelegationTokenRecord:
        return DelegationTokenRecord(
            owner=self.owner,
            requester=self.requester,
            renewers=self.renewers,
            issue_timestamp=self.issue_timestamp_ms,
            max_timestamp=self.max_timestamp_ms,
            expiration_timestamp=self.expiration_timestamp_ms,
            token_id=self.token_id,
        )
