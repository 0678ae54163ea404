"""The decisions of Kafka's StandardAuthorizer (org.apache.kafka.metadata.authorizer.StandardAuthorizerData).

`AclIndex` finds the ACLs of an image by resource, and follows each record that is replayed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from quorate_protocol.errors import ErrorCode, ProtocolError
from quorate_protocol.image.security import AccessControlEntry
from quorate_protocol.kafka.enums import AclOperation, AclPermissionType, PatternType, ResourceType
from quorate_protocol.plain_data import dataclass

from quorate_controller.security.hosts import ANY_HOST, is_block, is_in_block

if TYPE_CHECKING:
    from uuid import UUID

    from quorate_protocol.image.state import FollowedTable, ImageState

CLUSTER_NAME: Final = "kafka-cluster"
"""The only name of a resource of type CLUSTER."""

ANY_PRINCIPAL: Final = "User:*"

NOT_READY_MESSAGE: Final = "The ACLs are not loaded yet: only super users are authorized"

_IMPLYING: Final[Mapping[int, frozenset[int]]] = {
    AclOperation.DESCRIBE: frozenset(
        (
            AclOperation.DESCRIBE,
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DELETE,
            AclOperation.ALTER,
        )
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset((AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)),
}
"""The operations that allow another one, too. Denials imply nothing."""


KNOWN_MAX: Final = 4096
"""Decisions that are kept until an ACL changes: brokers and controllers need the same ones all the time."""
KNOWN_NAMES_LENGTH_MAX: Final = 512
"""Decisions on longer names are not kept. Requests may have names of 32 KiB, which are not checked before."""

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
        """Number of changes so far: decisions before the last one may be wrong."""
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


class Action(NamedTuple):
    """An operation on a resource, to be authorized.

    A tuple, because one is created and looked up for each request.
    """

    operation: AclOperation
    resource_type: ResourceType
    resource_name: str
    reference_count: int = 1
    """How often the request names the resource."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether an action is allowed, and the rule for it as Kafka's audit log names it."""

    is_allowed: bool
    acl: AccessControlEntry | None = None
    is_super_user: bool = False

    @property
    def rule(self) -> str:
        if self.acl is not None:
            return f"MatchingAcl(acl={_text(self.acl)})"
        if self.is_super_user:
            return "SuperUser"
        return "DefaultAllow" if self.is_allowed else "DefaultDeny"


_SUPER_USER: Final = Decision(is_allowed=True, is_super_user=True)
_DENY: Final = Decision(is_allowed=False)


class Authorizer:
    """Decides by super users, then by the ACLs of an image; a denial wins over any number of permissions.

    `is_loaded` returns whether the image has all committed ACLs. It is not called again once it was true.
    """

    def __init__(
        self,
        image: "ImageState",
        *,
        super_users: Iterable[str] = (),
        allow_everyone_if_no_acl_found: bool = False,
        is_loaded: Callable[[], bool] = lambda: True,
    ) -> None:
        self.acls = AclIndex(image)
        self._super_users = frozenset(super_users)
        self._default = Decision(allow_everyone_if_no_acl_found)
        self._is_loaded = is_loaded
        self._was_loaded = False
        self._known: dict[tuple[str, str, Action], Decision] = {}
        self._known_of = -1
        """The number of changes of ACLs at which the known decisions were made."""

    def check_ready(self, principal: str) -> None:
        """Check that the authorizer can decide for a principal: for super users it always can.

        Raises:
            ProtocolError: UNKNOWN_SERVER_ERROR while the ACLs are not loaded, as in Kafka.
        """
        if self._was_loaded or principal in self._super_users:
            return
        self._was_loaded = self._is_loaded()
        if not self._was_loaded:
            raise ProtocolError(ErrorCode.unknown_server_error, NOT_READY_MESSAGE)

    def decide(self, principal: str, host: str, action: Action) -> Decision:
        """Decide whether a principal (`User:alice`) at a host, as `java_address` prints it, may do something.

        Raises:
            ProtocolError: as `check_ready`.
        """
        if principal in self._super_users:
            return _SUPER_USER
        self.check_ready(principal)
        changes = self.acls.changes
        if changes != self._known_of or len(self._known) >= KNOWN_MAX:
            self._known.clear()
            self._known_of = changes
        question = principal, host, action
        decision = self._known.get(question)
        if decision is None:
            decision = self._decided(principal, host, action)
            if len(principal) + len(action.resource_name) <= KNOWN_NAMES_LENGTH_MAX:
                self._known[question] = decision
        return decision

    def _decided(self, principal: str, host: str, action: Action) -> Decision:
        allowing: AccessControlEntry | None = None
        has_acls = False
        for acls in self.acls.matching(action.resource_type, action.resource_name):
            has_acls = True
            for acl in _of_both(
                acls.of(principal), acls.of(ANY_PRINCIPAL), is_one=principal == ANY_PRINCIPAL
            ):
                if not _applies(acl, host, action.operation):
                    continue
                if acl.permission_type != AclPermissionType.ALLOW:
                    return Decision(is_allowed=False, acl=acl)
                allowing = acl
        if allowing is not None:
            return Decision(is_allowed=True, acl=allowing)
        return _DENY if has_acls else self._default


def _of_both(
    own: Iterator[AccessControlEntry], of_all: Iterator[AccessControlEntry], *, is_one: bool
) -> Iterator[AccessControlEntry]:
    yield from own
    if not is_one:
        yield from of_all


def _applies(acl: AccessControlEntry, host: str, operation: AclOperation) -> bool:
    """Whether an ACL for the resource and the principal is about this host and operation."""
    if acl.operation not in (AclOperation.ALL, operation):
        implying = _IMPLYING.get(operation, ()) if acl.permission_type == AclPermissionType.ALLOW else ()
        if acl.operation not in implying:
            return False
    return acl.host in (ANY_HOST, host) or (is_block(acl.host) and is_in_block(acl.host, host))


def _text(acl: AccessControlEntry) -> str:
    return (
        f"StandardAcl[resourceType={ResourceType(acl.resource_type)}, resourceName={acl.resource_name}, "
        f"patternType={PatternType(acl.pattern_type)}, principal={acl.principal}, host={acl.host}, "
        f"operation={AclOperation(acl.operation)}, "
        f"permissionType={AclPermissionType(acl.permission_type)}]"
    )
