"""Access control: bindings of a resource pattern to what a principal may do, and filters over them (KIP-140)."""

from dataclasses import dataclass
from typing import Final, Self

from quorate_protocol.kafka.enums import AclOperation, AclPermissionType, PatternType, ResourceType

from quorate_admin.errors import ServerError

WILDCARD: Final = "*"
"""The name that matches every resource, and the host that matches every host."""


@dataclass(frozen=True, slots=True, order=True)
class ResourcePattern:
    """The resources that a binding is about."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AccessControlEntry:
    """An operation that a principal, `Type:name`, may or may not do from a host."""

    principal: str
    host: str = WILDCARD
    operation: AclOperation
    permission_type: AclPermissionType = AclPermissionType.ALLOW


@dataclass(frozen=True, slots=True, order=True)
class AclBinding:
    """One ACL."""

    pattern: ResourcePattern
    entry: AccessControlEntry


@dataclass(frozen=True, slots=True)
class ResourcePatternFilter:
    """Which patterns; None and ANY match all, MATCH those patterns that cover `name`."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY


@dataclass(frozen=True, slots=True)
class AccessControlEntryFilter:
    """Which entries; None and ANY match all."""

    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY

    @classmethod
    def of(cls, entry: AccessControlEntry) -> Self:
        """The filter that matches this entry alone."""
        return cls(
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission_type,
        )


@dataclass(frozen=True, slots=True)
class AclBindingFilter:
    """Which bindings."""

    pattern: ResourcePatternFilter = ResourcePatternFilter()
    entry: AccessControlEntryFilter = AccessControlEntryFilter()

    @classmethod
    def of(cls, binding: AclBinding) -> Self:
        """The filter that matches this binding alone."""
        pattern, entry = binding.pattern, binding.entry
        return cls(
            pattern=ResourcePatternFilter(
                resource_type=pattern.resource_type, name=pattern.name, pattern_type=pattern.pattern_type
            ),
            entry=AccessControlEntryFilter.of(entry),
        )


ANY_ACL: Final = AclBindingFilter()
"""Matches every binding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclDeletion:
    """A binding that a filter matched; `error` is None when it was deleted."""

    binding: AclBinding
    error: ServerError | None
