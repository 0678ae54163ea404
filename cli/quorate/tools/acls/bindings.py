"""Parses the options of `quorate acls` to resource patterns and entries."""

from collections.abc import Collection, Iterable, Sequence
from itertools import product
from typing import Final

from quorate_admin.types.acls import WILDCARD, AccessControlEntry, ResourcePatternFilter
from quorate_protocol.kafka.enums import (
    SUPPORTED_OPERATIONS,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from quorate_protocol.plain_data import dataclass

from quorate.console import UsageError
from quorate.console.jopt import one_action, only_with, parse_principals, refuse, require

ACTIONS = {"--add": "Add ACLs.", "--remove": "Remove ACLs.", "--list": "List ACLs."}

CLUSTER: Final = ResourcePatternFilter(
    resource_type=ResourceType.CLUSTER, name="kafka-cluster", pattern_type=PatternType.LITERAL
)

_OPERATIONS_BY_NAME = {
    operation.name.replace("_", ""): operation
    for operation in AclOperation
    if operation not in {AclOperation.UNKNOWN, AclOperation.ANY}
}
OPERATION_NAMES = tuple(operation.name.title().replace("_", "") for operation in _OPERATIONS_BY_NAME.values())

PRODUCER_TOPIC = (AclOperation.WRITE, AclOperation.CREATE, AclOperation.DESCRIBE)
PRODUCER_TRANSACTIONAL_ID = (AclOperation.WRITE, AclOperation.DESCRIBE)
PRODUCER_CLUSTER = (AclOperation.IDEMPOTENT_WRITE,)
CONSUMER_TOPIC = (AclOperation.READ, AclOperation.DESCRIBE)
CONSUMER_GROUP = (AclOperation.READ,)

Entries = dict[ResourcePatternFilter, set[AccessControlEntry]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AclArguments:
    """The values of the options as text, apart from the action."""

    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()
    delegation_tokens: Sequence[str] = ()
    user_principals: Sequence[str] = ()
    cluster: bool = False
    pattern_type: PatternType = PatternType.LITERAL
    operations: Sequence[str] = ()
    allow_principals: Sequence[str] = ()
    deny_principals: Sequence[str] = ()
    allow_hosts: Sequence[str] = ()
    deny_hosts: Sequence[str] = ()
    producer: bool = False
    consumer: bool = False
    idempotent: bool = False


def check_options(given: Collection[str]) -> str:
    """Returns the action. Raises UsageError for options that exclude each other."""
    action = one_action(given, tuple(ACTIONS))
    deny = ("--deny-principal", "--deny-host")
    refuse(given, "--list", ("--producer", "--consumer", "--allow-host", "--allow-principal", *deny))
    for convenience in ("--producer", "--consumer"):
        refuse(given, convenience, ("--operation", *deny))
    only_with(given, "--principal", ("--list",))
    require(given, "--producer", "--topic")
    require(given, "--idempotent", "--producer")
    require(given, "--consumer", "--topic", "--group")
    if "--producer" not in given:
        refuse(given, "--consumer", ("--cluster", "--transactional-id"))
    # Kafka's tool ignores these, and would remove every ACL of the resource.
    require(given, "--allow-host", "--allow-principal")
    require(given, "--deny-host", "--deny-principal")
    if (
        action == "--remove"
        and "--operation" in given
        and not {"--allow-principal", "--deny-principal"} & set(given)
    ):
        raise UsageError("--remove with --operation needs --allow-principal or --deny-principal")
    return action


def parse_pattern_type(text: str) -> PatternType:
    """Raises UsageError."""
    try:
        return PatternType.parse(text)
    except ValueError as error:
        raise UsageError(f"--resource-pattern-type: {error}") from None


def parse_operation(text: str) -> AclOperation:
    """`Read`, `read`, `DescribeConfigs`, … Raises UsageError."""
    operation = _OPERATIONS_BY_NAME.get(text.strip().upper().replace("_", ""))
    if operation is None:
        raise UsageError(f"--operation {text!r}: it must be one of {', '.join(OPERATION_NAMES)}")
    return operation


def resource_filters(arguments: AclArguments) -> list[ResourcePatternFilter]:
    """The resources of the options, each once."""
    named = (
        *((ResourceType.TOPIC, name.strip()) for name in arguments.topics),
        *((ResourceType.GROUP, name.strip()) for name in arguments.groups),
        *((ResourceType.TRANSACTIONAL_ID, name) for name in arguments.transactional_ids),
        *((ResourceType.DELEGATION_TOKEN, name.strip()) for name in arguments.delegation_tokens),
        *((ResourceType.USER, name.strip()) for name in arguments.user_principals),
    )
    filters = [
        ResourcePatternFilter(resource_type=resource_type, name=name, pattern_type=arguments.pattern_type)
        for resource_type, name in named
    ]
    if (arguments.cluster or arguments.idempotent) and arguments.pattern_type is PatternType.LITERAL:
        filters.append(CLUSTER)
    return list(dict.fromkeys(filters))


def entries_by_filter(arguments: AclArguments) -> Entries:
    """The entries for each resource; without a principal there are none.

    Raises:
        UsageError: there is no resource, or a resource does not support an operation.
    """
    filters = resource_filters(arguments)
    if not filters:
        raise UsageError(
            "name a resource: --topic, --group, --cluster, --transactional-id, --delegation-token or"
            " --user-principal"
        )
    entries: Entries = {}
    if not (arguments.producer or arguments.consumer):
        operations = [parse_operation(text) for text in arguments.operations] or [AclOperation.ALL]
        for one in filters:
            entries[one] = _entries(arguments, operations)
    if arguments.producer:
        for one in filters:
            if one.resource_type is ResourceType.TOPIC:
                entries[one] = _entries(arguments, PRODUCER_TOPIC)
            elif one.resource_type is ResourceType.TRANSACTIONAL_ID:
                entries[one] = _entries(arguments, PRODUCER_TRANSACTIONAL_ID)
        if arguments.idempotent:
            entries[CLUSTER] = _entries(arguments, PRODUCER_CLUSTER)
    if arguments.consumer:
        for one in filters:
            if one.resource_type is ResourceType.TOPIC:
                entries.setdefault(one, set()).update(_entries(arguments, CONSUMER_TOPIC))
            elif one.resource_type is ResourceType.GROUP:
                entries.setdefault(one, set()).update(_entries(arguments, CONSUMER_GROUP))
    _check_operations(entries)
    return entries


def _entries(arguments: AclArguments, operations: Iterable[AclOperation]) -> set[AccessControlEntry]:
    allowed = product(
        [AclPermissionType.ALLOW],
        map(str, parse_principals("--allow-principal", arguments.allow_principals)),
        [host.strip() for host in arguments.allow_hosts] or [WILDCARD],
    )
    denied = product(
        [AclPermissionType.DENY],
        map(str, parse_principals("--deny-principal", arguments.deny_principals)),
        [host.strip() for host in arguments.deny_hosts] or [WILDCARD],
    )
    return {
        AccessControlEntry(
            principal=principal, host=host, operation=operation, permission_type=permission_type
        )
        for (permission_type, principal, host), operation in product([*allowed, *denied], list(operations))
    }


def _check_operations(entries: Entries) -> None:
    for one, its_entries in entries.items():
        supported = (*SUPPORTED_OPERATIONS[one.resource_type], AclOperation.ALL)
        for entry in its_entries:
            if entry.operation not in supported:
                raise UsageError(
                    f"ResourceType {one.resource_type} only supports operations"
                    f" {', '.join(map(str, supported))}, and not {entry.operation}"
                )


def check_to_add(arguments: AclArguments, entries: Entries) -> None:
    """Check the arguments of --add. Raises UsageError for filters, which only --list and --remove accept."""
    if arguments.pattern_type not in {PatternType.LITERAL, PatternType.PREFIXED}:
        raise UsageError(
            f"--resource-pattern-type {arguments.pattern_type} can't be used with --add;"
            " only LITERAL and PREFIXED can"
        )
    if not all(entries.values()):
        raise UsageError("--add needs --allow-principal or --deny-principal")
