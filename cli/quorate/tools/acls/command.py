"""The command `quorate acls`."""

import sys
from collections.abc import Collection, Iterable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Annotated, Final

import typer
from quorate_admin.types.acls import WILDCARD, AccessControlEntry, ResourcePatternFilter
from quorate_protocol.kafka.enums import (
    SUPPORTED_OPERATIONS,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from quorate_protocol.plain_data import dataclass

from quorate.console import (
    CommandError,
    UsageError,
    examples,
    flag,
    option,
    print_json,
    run,
    show,
    tool_app,
    tool_options,
    write,
)
from quorate.console.jopt import (
    given_options,
    one_action,
    only_with,
    options_command,
    parse_principals,
    refuse,
    require,
)

if TYPE_CHECKING:
    from quorate_admin.client import AdminClient
    from quorate_admin.types.acls import AclBinding

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
_RESOURCE = "Resource"
_PERMISSIONS = "Permissions"
_OR_BLOCK = "or, from metadata.version 4.4-IV1 on, a block of addresses such as 10.0.0.0/8"


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
    """Return the action. Raises UsageError for options that exclude each other."""
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
    """Parse the value of --resource-pattern-type. Raises UsageError."""
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
    """The entries for each resource; empty without a principal.

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
        for acl_filter in filters:
            entries[acl_filter] = _entries(arguments, operations)
    if arguments.producer:
        for acl_filter in filters:
            if acl_filter.resource_type is ResourceType.TOPIC:
                entries[acl_filter] = _entries(arguments, PRODUCER_TOPIC)
            elif acl_filter.resource_type is ResourceType.TRANSACTIONAL_ID:
                entries[acl_filter] = _entries(arguments, PRODUCER_TRANSACTIONAL_ID)
        if arguments.idempotent:
            entries[CLUSTER] = _entries(arguments, PRODUCER_CLUSTER)
    if arguments.consumer:
        for acl_filter in filters:
            if acl_filter.resource_type is ResourceType.TOPIC:
                entries.setdefault(acl_filter, set()).update(_entries(arguments, CONSUMER_TOPIC))
            elif acl_filter.resource_type is ResourceType.GROUP:
                entries.setdefault(acl_filter, set()).update(_entries(arguments, CONSUMER_GROUP))
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
    for acl_filter, its_entries in entries.items():
        supported = (*SUPPORTED_OPERATIONS[acl_filter.resource_type], AclOperation.ALL)
        for entry in its_entries:
            if entry.operation not in supported:
                raise UsageError(
                    f"ResourceType {acl_filter.resource_type} only supports operations"
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


Names = list[str] | None

EXAMPLES = examples(
    "quorate acls -b localhost:9092 --list --topic orders",
    "quorate acls -b localhost:9092 --add --allow-principal User:alice --consumer --topic orders --group '*'",
)

app = tool_app()


@app.command(cls=options_command(ACTIONS), epilog=EXAMPLES)
def acls(
    context: typer.Context,
    *,
    topic: Annotated[Names, option("NAME", "A topic; * for all.", _RESOURCE)] = None,
    group: Annotated[Names, option("ID", "A group; * for all.", _RESOURCE)] = None,
    cluster: Annotated[bool, flag("--cluster", "The cluster itself.", _RESOURCE)] = False,
    transactional_id: Annotated[Names, option("ID", "A transactional id; * for all.", _RESOURCE)] = None,
    delegation_token: Annotated[Names, option("ID", "A delegation token; * for all.", _RESOURCE)] = None,
    user_principal: Annotated[
        Names, option("TYPE:NAME", "A user, as the owner of delegation tokens.", _RESOURCE)
    ] = None,
    resource_pattern_type: Annotated[
        str,
        option(
            "TYPE",
            "The type of the pattern: literal, prefixed; with --list and --remove also any, match.",
            _RESOURCE,
        ),
    ] = "literal",
    operation: Annotated[
        Names, option("OPERATION", f"One of {', '.join(OPERATION_NAMES)} (default: All).", _PERMISSIONS)
    ] = None,
    allow_principal: Annotated[
        Names, option("TYPE:NAME", "A principal to allow, for instance User:alice.", _PERMISSIONS)
    ] = None,
    allow_host: Annotated[
        Names, option("ADDRESS", f"A host {_OR_BLOCK} to allow (default: *).", _PERMISSIONS)
    ] = None,
    deny_principal: Annotated[
        Names, option("TYPE:NAME", "A principal to deny; denying takes precedence.", _PERMISSIONS)
    ] = None,
    deny_host: Annotated[
        Names, option("ADDRESS", f"A host {_OR_BLOCK} to deny (default: *).", _PERMISSIONS)
    ] = None,
    producer: Annotated[
        bool, flag("--producer", "The ACLs of a producer: Write, Describe, Create on topics.", _PERMISSIONS)
    ] = False,
    idempotent: Annotated[
        bool, flag("--idempotent", "With --producer: IdempotentWrite on the cluster.", _PERMISSIONS)
    ] = False,
    consumer: Annotated[
        bool,
        flag("--consumer", "The ACLs of a consumer: Read, Describe on topics, Read on groups.", _PERMISSIONS),
    ] = False,
    principal: Annotated[
        Names, option("TYPE:NAME", "With --list: only the ACLs of these principals.")
    ] = None,
    force: Annotated[bool, flag("--force", "With --remove: do not ask for confirmation.")] = False,
) -> None:
    """Add, remove and list access control entries (ACLs).

    Options with names can be repeated.
    """
    action = check_options(given_options(context))
    arguments = AclArguments(
        topics=topic or (),
        groups=group or (),
        transactional_ids=transactional_id or (),
        delegation_tokens=delegation_token or (),
        user_principals=user_principal or (),
        cluster=cluster,
        pattern_type=parse_pattern_type(resource_pattern_type),
        operations=operation or (),
        allow_principals=allow_principal or (),
        deny_principals=deny_principal or (),
        allow_hosts=allow_host or (),
        deny_hosts=deny_host or (),
        producer=producer,
        consumer=consumer,
        idempotent=idempotent,
    )
    if action == "--list":
        principals = dict.fromkeys(map(str, parse_principals("--principal", principal or ())))
        _list(context, arguments, list(principals))
        return
    entries = entries_by_filter(arguments)
    if action == "--add":
        check_to_add(arguments, entries)
        _add(context, entries)
    else:
        _remove(context, entries, force=force)


def _list(context: typer.Context, arguments: AclArguments, principals: list[str]) -> None:
    from quorate_admin.types.acls import ANY_ACL, AclBindingFilter

    from quorate.tools.acls import text

    async def ask(admin: "AdminClient") -> "list[AclBinding]":
        filters = [
            AclBindingFilter(pattern=resource_filter) for resource_filter in resource_filters(arguments)
        ] or [ANY_ACL]
        return [binding for acl_filter in filters for binding in await admin.describe_acls(acl_filter)]

    found = run(ask, context)
    show(
        context,
        lambda: text.list_text(found, principals),
        lambda: {
            "acls": text.bindings_json(
                binding for binding in found if not principals or binding.entry.principal in principals
            )
        },
    )


def _add(context: typer.Context, entries: Entries) -> None:
    from quorate_admin.types.acls import (
        AclBinding,
        AclBindingFilter,
        ResourcePattern,
    )

    from quorate.tools.acls import text

    is_json = tool_options(context).is_json
    existing: list[AclBinding] = []
    added: list[AclBinding] = []

    async def add(admin: "AdminClient") -> None:
        for resources, its_entries in entries.items():
            assert resources.name is not None
            pattern = ResourcePattern(
                resource_type=resources.resource_type,
                name=resources.name,
                pattern_type=resources.pattern_type,
            )
            present = set(await admin.describe_acls(AclBindingFilter(pattern=resources)))
            wanted = [AclBinding(pattern=pattern, entry=entry) for entry in sorted(its_entries)]
            kept = [binding for binding in wanted if binding in present]
            new = [binding for binding in wanted if binding not in present]
            if not is_json:
                write(text.added_text(pattern, kept, new))
            if new:
                (await admin.create_acls(new)).raise_any()
            existing.extend(kept)
            added.extend(new)

    run(add, context)
    if is_json:
        print_json({"added": text.bindings_json(added), "existing": text.bindings_json(existing)})


def _remove(context: typer.Context, entries: Entries, *, force: bool) -> None:
    from quorate_admin.types.acls import (
        AccessControlEntryFilter,
        AclBindingFilter,
    )

    from quorate.tools.acls import text

    is_json = tool_options(context).is_json

    async def remove(admin: "AdminClient") -> "list[AclBinding]":
        filters = [
            AclBindingFilter(pattern=resources, entry=entry)
            for resources, its_entries in entries.items()
            if force or _is_confirmed(text.question(resources, its_entries), is_json=is_json)
            for entry in (
                [AccessControlEntryFilter.of(entry) for entry in sorted(its_entries)]
                or [AccessControlEntryFilter()]
            )
        ]
        if not filters:
            return []
        results = await admin.delete_acls(filters)
        results.raise_any()
        deletions = [deletion for deleted in results.values.values() for deletion in deleted]
        for deletion in deletions:
            if deletion.error is not None:
                raise deletion.error
        return [deletion.binding for deletion in deletions]

    removed = run(remove, context)
    show(context, lambda: "", lambda: {"removed": text.bindings_json(removed)})


def _is_confirmed(question: str, *, is_json: bool) -> bool:
    """Ask the user; True for y. With JSON the question goes to stderr."""
    if is_json:
        typer.echo(question, err=True, nl=False)
    else:
        write(question)
    response = sys.stdin.readline()
    if not response:
        raise CommandError(
            "--remove: there is no input that could confirm it, so nothing is removed; --force removes "
            "without confirmation"
        )
    return response.strip().lower() == "y"
