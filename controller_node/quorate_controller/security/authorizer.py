"""The decisions of Kafka's StandardAuthorizer (org.apache.kafka.metadata.authorizer.StandardAuthorizerData)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from quorate_protocol.errors import ErrorCode, ProtocolError
from quorate_protocol.image.security import AccessControlEntry
from quorate_protocol.kafka.enums import AclOperation, AclPermissionType, PatternType, ResourceType
from quorate_protocol.plain_data import dataclass

from quorate_controller.security.acl_index import AclIndex
from quorate_controller.security.hosts import ANY_HOST, is_block, is_in_block

if TYPE_CHECKING:
    from quorate_protocol.image.state import ImageState

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
"""Decisions that are kept until an ACL changes: brokers and controllers ask for the same ones all the time."""
KNOWN_NAMES_LENGTH_MAX: Final = 512
"""Decisions on longer names are not kept. Requests may have names of 32 KiB, which nobody checks before this."""


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
    """Whether an action is allowed, and the rule that says so as Kafka's audit log names it."""

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

    `is_loaded` says whether the image has all committed ACLs. It is not asked again once it was true.
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
        """The changes of ACLs that what is known takes into account."""

    def check_ready(self, principal: str) -> None:
        """Check that the authorizer can decide for a principal: for super users it always can.

        Raises:
            ProtocolError: UNKNOWN_SERVER_ERROR while the ACLs are not loaded, as Kafka answers then.
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
