"""The authorizer decides like a scan of all ACLs, whatever ACLs come and go."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from quorate_controller.security.authorizer import Action, Authorizer
from quorate_controller.security.hosts import is_in_block
from quorate_protocol.image import MetadataImage
from quorate_protocol.image.security import AccessControlEntry
from quorate_protocol.kafka.enums import AclOperation, AclPermissionType, PatternType, ResourceType
from quorate_protocol.records.generated import RemoveAccessControlEntryRecord

NAMES = st.sampled_from(["*", "a", "ab", "abc", "abd", "b", "ba"])
PRINCIPALS = st.sampled_from(["User:alice", "User:bob", "User:*", "Group:alice"])
HOSTS = st.sampled_from(["10.0.0.1", "10.0.1.1", "0:0:0:0:0:0:0:1"])
OPERATIONS = st.sampled_from([operation for operation in AclOperation if operation > AclOperation.ANY])
TYPES = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])
ACLS = st.builds(
    AccessControlEntry,
    resource_type=TYPES.map(int),
    resource_name=NAMES,
    pattern_type=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]).map(int),
    principal=PRINCIPALS,
    host=st.sampled_from(["*", "10.0.0.1", "10.0.0.0/24", "::/64", "0.0.0.0/0"]),
    operation=OPERATIONS.map(int),
    permission_type=st.sampled_from([AclPermissionType.ALLOW, AclPermissionType.DENY]).map(int),
)
DESCRIBING = {
    AclOperation.DESCRIBE,
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DELETE,
    AclOperation.ALTER,
}
SUPER_USER = "User:bob"


def scanned(
    acls: list[AccessControlEntry], principal: str, host: str, action: Action, *, default: bool
) -> bool:
    """The decision by a scan of all ACLs."""
    if principal == SUPER_USER:
        return True
    about = [acl for acl in acls if acl.resource_type == action.resource_type and _covers(acl, action)]
    if not about:
        return default
    applied = [
        acl.permission_type
        for acl in about
        if acl.principal in (principal, "User:*")
        and (acl.host in ("*", host) or is_in_block(acl.host, host))
        and _is_about(acl, action.operation)
    ]
    return AclPermissionType.ALLOW in applied and AclPermissionType.DENY not in applied


def _covers(acl: AccessControlEntry, action: Action) -> bool:
    if acl.pattern_type == PatternType.PREFIXED:
        return action.resource_name.startswith(acl.resource_name)
    return acl.resource_name in ("*", action.resource_name)


def _is_about(acl: AccessControlEntry, operation: AclOperation) -> bool:
    if acl.operation in (AclOperation.ALL, operation):
        return True
    if acl.permission_type == AclPermissionType.DENY:
        return False
    if operation is AclOperation.DESCRIBE:
        return acl.operation in DESCRIBING
    return operation is AclOperation.DESCRIBE_CONFIGS and acl.operation == AclOperation.ALTER_CONFIGS


@given(
    acls=st.lists(ACLS, max_size=30),
    removed=st.sets(st.integers(0, 29)),
    committed=st.integers(0, 30),
    default=st.booleans(),
    data=st.data(),
)
def test_decisions_equal_those_of_a_scan(
    acls: list[AccessControlEntry], removed: set[int], committed: int, default: bool, data: st.DataObject
) -> None:
    image = MetadataImage()
    authorizer = Authorizer(image, super_users=[SUPER_USER], allow_everyone_if_no_acl_found=default)

    def compare() -> None:
        action = Action(
            operation=data.draw(OPERATIONS), resource_type=data.draw(TYPES), resource_name=data.draw(NAMES)
        )
        principal, host = data.draw(PRINCIPALS), data.draw(HOSTS)
        expected = scanned(list(image.acls.values()), principal, host, action, default=default)
        assert authorizer.decide(principal, host, action).is_allowed is expected

    for offset, acl in enumerate(acls):
        record = acl.to_record(UUID(int=offset + 1))
        image.replay_batch([record], base_offset=offset, epoch=1, timestamp_ms=0)
    compare()
    image.commit(min(committed, len(acls)))
    for number in sorted(removed):
        if number < len(acls):
            record = RemoveAccessControlEntryRecord(id=UUID(int=number + 1))
            image.replay_batch([record], base_offset=image.end_offset, epoch=1, timestamp_ms=0)
    compare()
    image.revert_to(image.committed_end_offset)
    compare()
