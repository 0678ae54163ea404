"""The authorizer decides what Kafka's StandardAuthorizer decides, and reads blocks of addresses as Kafka does."""

from collections.abc import Sequence
from random import Random
from uuid import UUID

import pytest
from kit.java.programs import run_java
from quorate_controller.security.authorizer import Action, Authorizer
from quorate_controller.security.hosts import check_block, is_in_block, java_address
from quorate_protocol.image import MetadataImage
from quorate_protocol.image.security import AccessControlEntry
from quorate_protocol.kafka.enums import AclOperation, ResourceType
from quorate_protocol.kafka.releases import NEWEST_RELEASE

ROUNDS, ACLS_MAX, QUESTIONS = 60, 40, 50
NAMES = ("*", "a", "ab", "abc", "abcd", "abd", "b", "ba", "a.b", "A")
PRINCIPALS = ("User:alice", "User:bob", "User:*", "Group:alice", "User:eve:x", "User:")
SENDERS = tuple(principal for principal in PRINCIPALS if principal != "User:*")
"""Kafka's class fails for a client with the name `*`."""
ADDRESSES = ("10.0.0.1", "10.0.1.1", "192.168.7.7", "0.0.0.0", "::1", "fd00::12", "::ffff:10.0.0.1")
HOSTS = (
    "*",
    "10.0.0.1",
    "0:0:0:0:0:0:0:1",
    "::1",
    "10.0.0.0/24",
    "10.0.0.9/8",
    "0.0.0.0/0",
    "fd00::/8",
    "::/0",
    "x/y",
)
SUPER_USER = "User:eve:x"
BLOCKS = (
    *(
        "10.0.0.0/24",
        "10.0.0.1/32",
        "10.0.0.0/31",
        "0.0.0.0/0",
        "10.0.0.0/33",
        "256.0.0.0/8",
        "10.0.0/8",
        "a/b",
    ),
    *("10.0.0.0/", "/8", "10.0.0.0/8/8", "10.0.0.0/-1", "10.0.0.0/+8", "010.000.000.001/08", " 10.0.0.0/8"),
    *(
        "fd00::/8",
        "::/0",
        "::1/128",
        "fd00::/129",
        "fd00::/-1",
        "fd00::/+8",
        "fd00::/x",
        "fd00::/",
        "fd00::/99999999999",
    ),
    *("[fd00::]/8", "fd00:::1/8", "::ffff:10.0.0.0/104", "fd00::1/8/8", "g::/8", "fd00::/008"),
)

pytestmark = pytest.mark.integration


def kafkas_decisions(commands: Sequence[Sequence[object]]) -> list[str]:
    """A line for each question in the commands."""
    lines = ("\t".join(map(str, command)) for command in commands)
    return run_java("AuthorizerDecisions", NEWEST_RELEASE, lines=lines)


def any_acls(rng: Random) -> list[AccessControlEntry]:
    """Different ACLs, as many as happen to be."""
    acls = {
        AccessControlEntry(
            resource_type=rng.choice((2, 3)),
            resource_name=rng.choice(NAMES),
            pattern_type=rng.choice((3, 4)),
            principal=rng.choice(PRINCIPALS),
            host=rng.choice(HOSTS),
            operation=rng.randint(2, 15),
            permission_type=rng.choice((2, 3, 3, 3)),
        ): None
        for _ in range(rng.randint(0, ACLS_MAX))
    }
    return list(acls)


def test_decisions_are_kafkas() -> None:
    """No ACL means something else here."""
    rng = Random(7)
    commands: list[tuple[object, ...]] = []
    ours = []
    for _ in range(ROUNDS):
        acls, allow_everyone = any_acls(rng), rng.random() < 0.5
        image = MetadataImage()
        image.replay_all(
            [acl.to_record(UUID(int=number)) for number, acl in enumerate(acls, 1)], base_offset=0
        )
        authorizer = Authorizer(
            image, super_users=[SUPER_USER], allow_everyone_if_no_acl_found=allow_everyone
        )
        commands.append(("begin", SUPER_USER, str(allow_everyone).lower()))
        commands += [
            (
                *("acl", acl.resource_type, acl.resource_name, acl.pattern_type, acl.principal, acl.host),
                *(acl.operation, acl.permission_type),
            )
            for acl in acls
        ]
        for _ in range(QUESTIONS):
            principal, address = rng.choice(SENDERS), rng.choice(ADDRESSES)
            action = Action(
                operation=AclOperation(rng.randint(3, 15)),
                resource_type=ResourceType(rng.choice((2, 3))),
                resource_name=rng.choice(NAMES),
            )
            commands.append(
                (
                    "ask",
                    principal,
                    address,
                    int(action.operation),
                    int(action.resource_type),
                    action.resource_name,
                )
            )
            is_allowed = authorizer.decide(principal, java_address(address), action).is_allowed
            ours.append("ALLOWED" if is_allowed else "DENIED")
    assert len(set(ours)) == 2
    assert ours == kafkas_decisions(commands)


def test_blocks_and_addresses_are_read_as_kafka_reads_them() -> None:
    pairs = [(block, address) for block in BLOCKS for address in ADDRESSES]
    ours = []
    for block, address in pairs:
        error = ""
        try:
            check_block(block)
        except ValueError as refusal:
            error = str(refusal)
        host = java_address(address)
        ours.append(f"{str(is_in_block(block, host)).lower()}\t{host}\t{error}")
    theirs = kafkas_decisions([("block", block, address) for block, address in pairs])
    assert dict(zip(pairs, ours, strict=True)) == dict(zip(pairs, theirs, strict=True))
