"""The rules of the authorizer, one by one, and its index of ACLs."""

from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest
from quorate_controller.security.authorizer import KNOWN_MAX, AclsOfPattern, Action, Authorizer
from quorate_protocol.errors import ErrorCode, ProtocolError
from quorate_protocol.image import MetadataImage
from quorate_protocol.image.security import AccessControlEntry
from quorate_protocol.image.state import Provenance
from quorate_protocol.kafka.enums import AclOperation, AclPermissionType, PatternType, ResourceType
from quorate_protocol.records.generated import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    RemoveAccessControlEntryRecord,
)

READ, WRITE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.ALL
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
HOST = "10.1.2.3"


def acl(
    name: str = "orders",
    operation: AclOperation = READ,
    *,
    principal: str = "User:alice",
    pattern: PatternType = LITERAL,
    permission: AclPermissionType = ALLOW,
    host: str = "*",
    resource: ResourceType = ResourceType.TOPIC,
) -> AccessControlEntry:
    """An ACL: alice may read orders, unless it says otherwise."""
    return AccessControlEntry(
        resource_type=resource,
        resource_name=name,
        pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def image_of(*acls: AccessControlEntry) -> MetadataImage:
    """An image with these ACLs."""
    image = MetadataImage()
    image.replay_all([acl.to_record(uuid4()) for acl in acls], base_offset=0)
    return image


def is_allowed(
    authorizer: Authorizer,
    operation: AclOperation = READ,
    name: str = "orders",
    principal: str = "User:alice",
    host: str = HOST,
) -> bool:
    """Whether the authorizer allows it."""
    action = Action(operation=operation, resource_type=ResourceType.TOPIC, resource_name=name)
    return authorizer.decide(principal, host, action).is_allowed


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([acl()], True),
        ([acl("orders2")], False),
        ([acl("*")], True),
        ([acl("ord", pattern=PREFIXED)], True),
        ([acl("orders", pattern=PREFIXED)], True),
        ([acl("orders2", pattern=PREFIXED)], False),
        ([acl("*", pattern=PREFIXED)], False),
        ([acl("ord")], False),
        ([acl(resource=ResourceType.GROUP)], False),
        ([acl(principal="User:*")], True),
        ([acl(principal="User:bob")], False),
        ([acl(principal="Group:alice")], False),
        ([acl(host=HOST)], True),
        ([acl(host="10.1.2.4")], False),
        ([acl(host="10.1.0.0/16")], True),
        ([acl(host="10.2.0.0/16")], False),
        ([acl(operation=ALL)], True),
        ([acl(operation=WRITE)], False),
        ([acl(), acl(permission=DENY)], False),
        ([acl(), acl("o", pattern=PREFIXED, permission=DENY)], False),
        ([acl(), acl("*", ALL, principal="User:*", permission=DENY)], False),
        ([acl(), acl(permission=DENY, host="10.1.0.0/16")], False),
        ([acl(), acl(permission=DENY, host="10.2.0.0/16")], True),
        ([acl(), acl(permission=DENY, operation=WRITE)], True),
        ([acl(), acl(permission=DENY, principal="User:bob")], True),
        ([], False),
    ],
)
def test_an_acl_applies_by_pattern_principal_host_and_operation(
    acls: list[AccessControlEntry], allowed: bool
) -> None:
    assert is_allowed(Authorizer(image_of(*acls))) is allowed


@pytest.mark.parametrize("granted", [operation for operation in AclOperation if operation > AclOperation.ANY])
def test_operations_imply_others_where_they_are_allowed(granted: AclOperation) -> None:
    describing = {
        READ,
        WRITE,
        ALL,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
    }
    configs = {ALL, AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS}
    allowing = Authorizer(image_of(acl(operation=granted)))
    assert is_allowed(allowing, AclOperation.DESCRIBE) is (granted in describing)
    assert is_allowed(allowing, AclOperation.DESCRIBE_CONFIGS) is (granted in configs)
    denying = Authorizer(
        image_of(acl(operation=granted, permission=DENY)), allow_everyone_if_no_acl_found=True
    )
    assert not is_allowed(denying, granted)
    everything = Authorizer(image_of(acl(operation=ALL), acl(operation=granted, permission=DENY)))
    assert is_allowed(everything, AclOperation.DESCRIBE) is (granted not in {ALL, AclOperation.DESCRIBE})


def test_super_users_may_do_everything() -> None:
    """Neither denials nor the absence of ACLs bind a super user."""
    authorizer = Authorizer(
        image_of(acl("*", ALL, principal="User:*", permission=DENY)), super_users=["User:alice", "User:eve"]
    )
    assert is_allowed(authorizer)
    assert not is_allowed(authorizer, principal="User:bob")


def test_everyone_is_allowed_only_where_no_acl_is() -> None:
    authorizer = Authorizer(image_of(acl(principal="User:bob")), allow_everyone_if_no_acl_found=True)
    assert not is_allowed(authorizer)
    assert is_allowed(authorizer, name="payments")


def test_only_super_users_are_served_before_the_acls_are_loaded() -> None:
    loaded = False
    authorizer = Authorizer(image_of(acl()), super_users=["User:eve"], is_loaded=lambda: loaded)
    assert is_allowed(authorizer, principal="User:eve")
    with pytest.raises(ProtocolError) as refusal:
        is_allowed(authorizer)
    assert refusal.value.error_code is ErrorCode.unknown_server_error
    loaded = True
    assert is_allowed(authorizer)
    loaded = False
    assert is_allowed(authorizer)


def test_decisions_follow_what_is_replayed_undone_aborted_and_restored() -> None:
    image = MetadataImage()
    authorizer = Authorizer(image)
    acl_id = UUID(int=7)
    assert not is_allowed(authorizer)
    image.replay_batch([acl().to_record(acl_id)], base_offset=0, epoch=1, timestamp_ms=0)
    assert is_allowed(authorizer)
    image.commit(1)
    image.replay_batch([RemoveAccessControlEntryRecord(id=acl_id)], base_offset=1, epoch=1, timestamp_ms=0)
    assert not is_allowed(authorizer)
    image.revert_to(1)
    assert is_allowed(authorizer)
    denial = acl(permission=DENY).to_record(UUID(int=8))
    image.replay_all([BeginTransactionRecord(name="t"), denial], base_offset=1)
    assert not is_allowed(authorizer)
    image.replay_all([AbortTransactionRecord(reason="no")], base_offset=3)
    assert is_allowed(authorizer)
    other = acl("payments").to_record(UUID(int=9))
    image.restore([other], Provenance(end_offset=10, epoch=2, timestamp_ms=0))
    assert not is_allowed(authorizer)
    assert is_allowed(authorizer, name="payments")


def test_the_same_acl_under_two_ids_is_gone_when_both_are() -> None:
    image = MetadataImage()
    image.replay_all([acl().to_record(UUID(int=1)), acl().to_record(UUID(int=2))], base_offset=0)
    authorizer = Authorizer(image)
    assert acl() in authorizer.acls
    assert is_allowed(authorizer)
    image.replay_all([RemoveAccessControlEntryRecord(id=UUID(int=1))], base_offset=2)
    assert is_allowed(authorizer)
    image.replay_all([RemoveAccessControlEntryRecord(id=UUID(int=2))], base_offset=3)
    assert not is_allowed(authorizer)
    assert acl() not in authorizer.acls


def test_a_decision_looks_at_few_of_many_acls() -> None:
    names = [acl(f"topic-{number}", principal=f"User:u{number % 100}") for number in range(5_000)]
    prefixes = [acl(f"team-{number}.", pattern=PREFIXED) for number in range(3_000)]
    users = [acl("shared", principal=f"User:u{number}") for number in range(2_000)]
    authorizer = Authorizer(image_of(*names, *prefixes, *users))
    looked_at = [
        acl
        for name in ("topic-77", "team-77.orders", "shared", "absent")
        for acls in authorizer.acls.matching(ResourceType.TOPIC, name)
        for acl in acls.of("User:u77")
    ]
    assert len(looked_at) == 2
    assert is_allowed(authorizer, name="shared", principal="User:u1999")
    assert is_allowed(authorizer, name="team-2999.orders")


def test_decisions_are_remembered_until_an_acl_changes() -> None:
    """What is asked again and again costs one look, and never an old answer."""
    image = image_of(acl())
    authorizer = Authorizer(image)
    looks: list[str] = []
    matching = authorizer.acls.matching

    def counted(resource_type: int, name: str) -> Iterator[AclsOfPattern]:
        looks.append(name)
        return matching(resource_type, name)

    authorizer.acls.matching = counted  # type: ignore[method-assign]
    assert is_allowed(authorizer)
    assert is_allowed(authorizer)
    assert looks == ["orders"]
    image.replay_all([acl(permission=DENY).to_record(UUID(int=77))], base_offset=1)
    assert not is_allowed(authorizer)
    for number in range(3 * KNOWN_MAX):
        is_allowed(authorizer, name=f"topic-{number}")
        assert len(authorizer._known) <= KNOWN_MAX


def test_long_names_are_not_remembered() -> None:
    authorizer = Authorizer(image_of(acl()))
    assert not is_allowed(authorizer, name="n" * 32_767)
    assert not authorizer._known
    assert not is_allowed(authorizer, name="n")
    assert len(authorizer._known) == 1


def test_a_rule_is_named_as_in_kafkas_audit_log() -> None:
    action = Action(operation=READ, resource_type=ResourceType.TOPIC, resource_name="orders")
    authorizer = Authorizer(image_of(acl()), super_users=["User:eve"])
    assert authorizer.decide("User:eve", HOST, action).rule == "SuperUser"
    assert authorizer.decide("User:bob", HOST, action).rule == "DefaultDeny"
    assert authorizer.decide("User:alice", HOST, action).rule == (
        "MatchingAcl(acl=StandardAcl[resourceType=TOPIC, resourceName=orders, patternType=LITERAL, "
        "principal=User:alice, host=*, operation=READ, permissionType=ALLOW])"
    )
