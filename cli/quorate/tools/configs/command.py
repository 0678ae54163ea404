"""The command `quorate configs`."""

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quorate.console import (
    UsageError,
    examples,
    option,
    read_properties,
    run,
    show,
    tool_app,
)
from quorate.console.jopt import given_options, one_action, only_with, options_command
from quorate.tools.configs.entities import (
    IPS,
    TYPES,
    Entities,
    check_alter,
    check_describe,
    resolve,
)

if TYPE_CHECKING:
    from quorate_admin.client import AdminClient
    from quorate_admin.results import Results
    from quorate_admin.types.credentials import UserScramCredentialsDescription

    from quorate.tools.configs.changes import Changes
    from quorate.tools.configs.text import DescribedEntity, Quotas

_PANEL = "Entity"

EXAMPLES = examples(
    "quorate configs -b localhost:9092 --describe --topic orders --all",
    "quorate configs -b localhost:9092 --alter --topic orders --add-config retention.ms=3600000",
    "quorate configs -b localhost:9092 --describe --broker 1",
)

app = tool_app()


ACTIONS = {"--describe": "Print configs.", "--alter": "Set and delete configs."}
FLAGS = {
    "--all": "With --describe: include static and default values.",
    "--entity-default": "In place of --entity-name: the default of users, clients, brokers or ips.",
    "--client-defaults": "The default of all client ids.",
    "--user-defaults": "The default of all users.",
    "--broker-defaults": "The default of all brokers.",
    "--ip-defaults": "The default of all IP addresses.",
}


@app.command(cls=options_command(ACTIONS, FLAGS), epilog=EXAMPLES)
def configs(
    context: typer.Context,
    *,
    entity_type: Annotated[list[str] | None, option("TYPE", f"One of {', '.join(TYPES)}.", _PANEL)] = None,
    entity_name: Annotated[list[str] | None, option("NAME", "The name or id of the entity.", _PANEL)] = None,
    topic: Annotated[str | None, option("NAME", "A topic.", _PANEL)] = None,
    client: Annotated[str | None, option("NAME", "A client id.", _PANEL)] = None,
    user: Annotated[str | None, option("NAME", "A user.", _PANEL)] = None,
    broker: Annotated[str | None, option("ID", "A broker.", _PANEL)] = None,
    broker_logger: Annotated[
        str | None, option("ID", "The loggers of a broker or controller.", _PANEL)
    ] = None,
    ip: Annotated[str | None, option("ADDRESS", "An IP address.", _PANEL)] = None,
    group: Annotated[str | None, option("ID", "A group.", _PANEL)] = None,
    client_metrics: Annotated[str | None, option("NAME", "A subscription to client metrics.", _PANEL)] = None,
    add_config: Annotated[
        str | None, option("K=V,K=[V,V],...", "Configs to set; values with commas are in brackets.")
    ] = None,
    add_config_file: Annotated[Path | None, option("FILE", "A file of properties to set.")] = None,
    delete_config: Annotated[list[str] | None, option("K,K,...", "Configs to delete.")] = None,
) -> None:
    """Describe and alter configs of topics, brokers, groups and clients, quotas, and SCRAM credentials.

    Give the entity with --entity-type and --entity-name or --entity-default, or with one option for both.
    Users and clients can be combined, for the quota of a user's client.
    """
    given = given_options(context)
    action = one_action(given, tuple(ACTIONS))
    for option_name in ("--add-config", "--add-config-file", "--delete-config"):
        only_with(given, option_name, ("--alter",))
    shortcuts = {
        "--topic": topic,
        "--client": client,
        "--user": user,
        "--broker": broker,
        "--broker-logger": broker_logger,
        "--ip": ip,
        "--client-metrics": client_metrics,
        "--group": group,
    }
    entities = resolve(
        given,
        entity_type or (),
        entity_name or (),
        {name: value for name, value in shortcuts.items() if value is not None},
    )
    if entities.type == IPS:
        _check_addresses(entities.names)
    if action == "--describe":
        check_describe(entities, given)
        _describe(context, entities, describe_all="--all" in given)
    else:
        check_alter(entities, given)
        _alter(context, entities, _changes(add_config, add_config_file, delete_config))


def _check_addresses(names: Sequence[str]) -> None:
    for name in filter(None, names):
        try:
            socket.getaddrinfo(name, None)
        except (OSError, UnicodeError) as error:
            raise UsageError(
                f"the entity name for {IPS} must be an IP address or a host name, not {name!r}"
            ) from error


def _changes(
    add_config: str | None, add_config_file: Path | None, delete_config: Sequence[str] | None
) -> "Changes":
    from quorate.tools.configs import changes

    to_set = {} if add_config_file is None else read_properties(add_config_file, "--add-config-file")
    if add_config is not None:
        to_set = changes.parse_add_config(add_config)
    changes.check_keys(to_set)
    return changes.Changes(to_set=to_set, to_delete=changes.parse_delete_config(delete_config or ()))


def _describe(context: typer.Context, entities: Entities, *, describe_all: bool) -> None:
    from quorate.tools.configs import actions, text

    if entities.type in actions.QUOTA_TYPES:
        _describe_quotas(context, entities)
        return

    async def ask(admin: "AdminClient") -> "list[DescribedEntity] | None":
        return await actions.describe_entities(admin, entities.type, entities.name, describe_all=describe_all)

    found = run(ask, context)
    if found is None:
        show(
            context,
            lambda: text.missing_text(entities.type, entities.name or ""),
            lambda: text.configs_json(entities.type, ()),
        )
    else:
        show(
            context,
            lambda: text.configs_text(entities.type, found, describe_all=describe_all),
            lambda: text.configs_json(entities.type, found),
        )


def _describe_quotas(context: typer.Context, entities: Entities) -> None:
    from quorate.tools.configs import actions, text

    async def ask(
        admin: "AdminClient",
    ) -> "tuple[Quotas, Results[str, UserScramCredentialsDescription] | None]":
        quotas = await actions.describe_quotas(admin, entities)
        if not actions.has_credentials(entities):
            return quotas, None
        return quotas, await admin.describe_user_scram_credentials(entities.names)

    quotas, users = run(ask, context)
    show(
        context,
        lambda: text.quotas_text(quotas) + (text.scram_text(users) if users else ""),
        lambda: text.quotas_json(quotas, users),
    )


def _alter(context: typer.Context, entities: Entities, changes: "Changes") -> None:
    from quorate.tools.configs import actions, text

    run(actions.alteration(entities, changes), context)
    show(
        context,
        lambda: text.updated_text(entities),
        lambda: text.updated_json(entities, tuple(changes.to_set), changes.to_delete),
    )
