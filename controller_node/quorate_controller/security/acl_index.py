"""The ACLs of an image by the resources that they are about, kept up to date with each record that is replayed."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from quorate_protocol.image.security import AccessControlEntry
from quorate_protocol.kafka.enums import PatternType

if TYPE_CHECKING:
    from uuid import UUID

    from quorate_protocol.image.state import FollowedTable, ImageState

WILDCARD: Final = "*"
"""As the name of a literal resource: each name."""

_LITERAL: Final = int(PatternType.LITERAL)
_PREFIXED: Final = int(PatternType.PREFIXED)

_Pattern = tuple[int, int, str]
"""Resource type, pattern type, name."""


class AclsOfPattern:
    """The ACLs with one resource pattern, by principal. An ACL may be stored under several ids."""

    __slots__ = ("_by_principal",)

    def __init__(self) -> None:
        self._by_principal: dict[str, dict[AccessControlEntry, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_principal)

    def __contains__(self, acl: AccessControlEntry) -> bool:
        return acl in self._by_principal.get(acl.principal, ())

    def of(self, principal: str) -> Iterator[AccessControlEntry]:
        """Yield the ACLs of a principal."""
        return iter(self._by_principal.get(principal, ()))

    def change(self, acl: AccessControlEntry, by: int) -> None:
        """Add one more of an ACL (`by` 1), or remove one (-1)."""
        counts = self._by_principal.setdefault(acl.principal, {})
        counts[acl] = counts.get(acl, 0) + by
        if not counts[acl]:
            del counts[acl]
        if not counts:
            del self._by_principal[acl.principal]


class AclIndex:
    """Finds the ACLs for a resource by its name and its prefixes, however many ACLs there are.

    It follows the table of ACLs of an image, with what a decision wrote ahead of its commit and with what was undone.
    When a snapshot has replaced the table, all ACLs are read again on the next question.
    """

    def __init__(self, image: "ImageState") -> None:
        self._image = image
        self._table: FollowedTable[UUID, AccessControlEntry] | None = None
        self._by_pattern: dict[_Pattern, AclsOfPattern] = {}
        self._prefix_lengths: dict[int, dict[int, int]] = {}
        self._changes = 0

    @property
    def changes(self) -> int:
        """Number of changes so far: what was decided before the last one may be wrong."""
        self._follow()
        return self._changes

    def __contains__(self, acl: AccessControlEntry) -> bool:
        self._follow()
        acls = self._by_pattern.get(_pattern(acl))
        return acls is not None and acl in acls

    def matching(self, resource_type: int, name: str) -> Iterator[AclsOfPattern]:
        """Yield the ACLs of each pattern that matches a resource: its name, prefixes of it, the wildcard."""
        self._follow()
        by_pattern = self._by_pattern
        literal = by_pattern.get((resource_type, _LITERAL, name))
        if literal is not None:
            yield literal
        for length in self._prefix_lengths.get(resource_type, ()):
            if length <= len(name):
                prefixed = by_pattern.get((resource_type, _PREFIXED, name[:length]))
                if prefixed is not None:
                    yield prefixed
        if name != WILDCARD:
            wildcard = by_pattern.get((resource_type, _LITERAL, WILDCARD))
            if wildcard is not None:
                yield wildcard

    def _follow(self) -> None:
        """Read all ACLs of a table that is new to the index, and have it report its changes."""
        table = self._image.acls
        if table is self._table:
            return
        if self._table is not None:
            self._table.on_change = None
        self._table = table
        self._changes += 1
        self._by_pattern = {}
        self._prefix_lengths = {}
        for acl in table.values():
            self._change(acl, 1)
        table.on_change = self._on_change

    def _on_change(self, old: AccessControlEntry | None, new: AccessControlEntry | None) -> None:
        if old is not None:
            self._change(old, -1)
        if new is not None:
            self._change(new, 1)

    def _change(self, acl: AccessControlEntry, by: int) -> None:
        self._changes += 1
        pattern = _pattern(acl)
        acls = self._by_pattern.get(pattern)
        if acls is None:
            acls = self._by_pattern[pattern] = AclsOfPattern()
            self._count_prefix(pattern, 1)
        acls.change(acl, by)
        if not acls:
            del self._by_pattern[pattern]
            self._count_prefix(pattern, -1)

    def _count_prefix(self, pattern: _Pattern, by: int) -> None:
        resource_type, pattern_type, name = pattern
        if pattern_type != _PREFIXED:
            return
        lengths = self._prefix_lengths.setdefault(resource_type, {})
        lengths[len(name)] = lengths.get(len(name), 0) + by
        if not lengths[len(name)]:
            del lengths[len(name)]


def _pattern(acl: AccessControlEntry) -> _Pattern:
    return acl.resource_type, acl.pattern_type, acl.resource_name
