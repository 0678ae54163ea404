"""The command `quorate acls`."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from quorate.console import CommandError, flag, option, print_json, run, show, tool_app, tool_options, write
from quorate.console.jopt import given_options, options_command, parse_principals
from quorate.tools.acls.bindings import (
    ACTIONS,
    OPERATION_NAMES,
    AclArguments,
    Entries,
    check_options,
    check_to_add,
    entries_by_filter,
    parse_pattern_type,
    resource_filters,
)

if TYPE_CHECKING:
    from quorate_admin.client import AdminClient
    from quorate_admin.types.acls import AclBinding

_RESOURCE = "Resource"
_WHO = "Who may do what"
_OR_BLOCK = "or, from metadata.version 4.4-IV1 on, a block of addresses such as 10.0.0.0/8"

Names = list[str] | None

app = tool_app()


@app.command(cls=options_command(ACTIONS))
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
        Names, option("OPERATION", f"One of {', '.join(OPERATION_NAMES)}. [default: All]", _WHO)
    ] = None,
    allow_principal: Annotated[
        Names, option("TYPE:NAME", "A principal to allow, for instance User:alice.", _WHO)
    ] = None,
    allow_host: Annotated[
        Names, option("ADDRESS", f"A host {_OR_BLOCK} to allow. [default: *]", _WHO)
    ] = None,
    deny_principal: Annotated[
        Names, option("TYPE:NAME", "A principal to deny; denying takes precedence.", _WHO)
    ] = None,
    deny_host: Annotated[Names, option("ADDRESS", f"A host {_OR_BLOCK} to deny. [default: *]", _WHO)] = None,
    producer: Annotated[
        bool, flag("--producer", "The ACLs of a producer: Write, Describe, Create on topics.", _WHO)
    ] = False,
    idempotent: Annotated[
        bool, flag("--idempotent", "With --producer: IdempotentWrite on the cluster.", _WHO)
    ] = False,
    consumer: Annotated[
        bool, flag("--consumer", "The ACLs of a consumer: Read, Describe on topics, Read on groups.", _WHO)
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
        return [binding for one in filters for binding in await admin.describe_acls(one)]

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
                [AccessControlEntryFilter.of(one) for one in sorted(its_entries)]
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
    """Ask the user; True for the answer y. With JSON the question goes to stderr."""
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
