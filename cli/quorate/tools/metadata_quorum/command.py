"""`quorate metadata-quorum`: the controller quorum as kafka-metadata-quorum shows and changes it (KIP-853)."""

import time
from typing import TYPE_CHECKING, Annotated

import typer
from quorate_admin.errors import AdminError, ServerError, UnsupportedByServerError

from quorate.console import (
    CommandError,
    ToolCommand,
    ToolGroup,
    UsageError,
    admin_config,
    examples,
    flag,
    id_option,
    option,
    read_properties,
    run,
    show,
    tool_app,
    tool_options,
)

if TYPE_CHECKING:
    import uuid

    from quorate_admin.client import AdminClient
    from quorate_admin.types.cluster import QuorumDescription

EXAMPLES = examples(
    "quorate metadata-quorum -C localhost:9093 describe --status",
    "quorate metadata-quorum -C localhost:9093 describe --replication --human-readable",
)

app = tool_app(ToolGroup)

_REMOVAL_WORDS = {
    True: ("DRY RUN of removing", "DRY RUN of unregistering"),
    False: ("Removed", "Unregistered"),
}

DryRunOption = Annotated[bool, flag("--dry-run", "Print what would be done, but do not do it.")]


@app.callback(epilog=EXAMPLES)
def metadata_quorum() -> None:
    """Describe the controller quorum; add and remove its voters.

    Options and output are those of kafka-metadata-quorum.
    """


@app.command(cls=ToolCommand)
def describe(
    context: typer.Context,
    *,
    status: Annotated[bool, flag("--status", "A summary: leader, largest lag, voters, observers.")] = False,
    replication: Annotated[bool, flag("--replication", "Each voter and observer with its lag.")] = False,
    human_readable: Annotated[
        bool, flag("--human-readable", "With --replication: elapsed times instead of timestamps.")
    ] = False,
) -> None:
    """Show the quorum: --status for a summary, --replication for each replica."""
    if status == replication:
        raise UsageError("give either --status or --replication")
    if status and human_readable:
        raise UsageError("--human-readable needs --replication")
    from quorate.tools.metadata_quorum import text as texts

    if status:
        cluster_id, quorum = run(_cluster_id_and_quorum, context)
        show(
            context,
            lambda: texts.status_text(cluster_id, quorum),
            lambda: texts.status_json(cluster_id, quorum),
        )
    else:
        quorum = run(lambda admin: admin.describe_metadata_quorum(), context)
        now_ms = time.time_ns() // 1_000_000 if human_readable else None
        show(context, lambda: texts.replication_text(quorum, now_ms), lambda: texts.replication_json(quorum))


@app.command("add-controller", cls=ToolCommand)
def add_controller(context: typer.Context, *, dry_run: DryRunOption = False) -> None:
    """Add a controller, which must be formatted and running, to the voters.

    --command-config is the properties file of that controller. The command reads node.id, the listeners, and
    metadata.log.dir or log.dirs, where meta.properties has the directory id.
    """
    from quorate_protocol.uuids import uuid_to_text

    from quorate.tools.metadata_quorum.controller_identity import read_controller_identity
    from quorate.tools.metadata_quorum.text import endpoint_text

    options = tool_options(context)
    admin_config(options)  # a dry run reports the same errors
    if options.command_config is None:
        raise UsageError("add-controller needs --command-config with the properties of the controller to add")
    controller = read_controller_identity(read_properties(options.command_config))
    if not dry_run:
        run(
            lambda admin: admin.add_raft_voter(
                controller.node_id, controller.directory_id, controller.endpoints
            ),
            context,
        )
    directory_id = uuid_to_text(controller.directory_id)
    endpoints = [endpoint_text(endpoint) for endpoint in controller.endpoints]
    show(
        context,
        lambda: (
            f"{'DRY RUN of adding' if dry_run else 'Added'} controller {controller.node_id} with directory id "
            f"{directory_id} and endpoints: {', '.join(endpoints)}\n"
        ),
        lambda: {
            "dryRun": dry_run,
            "controllerId": controller.node_id,
            "directoryId": directory_id,
            "endpoints": endpoints,
        },
    )


@app.command("remove-controller", cls=ToolCommand)
def remove_controller(
    context: typer.Context,
    *,
    controller_id: Annotated[int, id_option("The id of the voter.", "--controller-id", "-i")],
    controller_directory_id: Annotated[
        str,
        option(
            None,
            "The directory id of the voter, from describe --status.",
            names=("--controller-directory-id", "-d"),
        ),
    ],
    unregister: Annotated[
        bool, flag("--unregister", "Unregister the controller too, if it is stopped for good (KIP-1312).")
    ] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Remove a voter from the quorum. It continues as an observer until it is stopped."""
    from quorate_protocol.uuids import uuid_from_text, uuid_to_text

    try:
        directory_id = uuid_from_text(controller_directory_id)
    except ValueError as error:
        raise UsageError(f"--controller-directory-id: {error}") from None
    options = tool_options(context)
    admin_config(options)  # a dry run reports the same errors
    directory = uuid_to_text(directory_id)
    if not dry_run:
        unregister_alone = (
            f"quorate cluster unregister-controller {options.bootstrap_arguments} "
            f"--controller-id {controller_id}"
        )
        run(
            lambda admin: _remove(
                admin, controller_id, directory_id, unregister_alone if unregister else None
            ),
            context,
        )
    removing, unregistering = _REMOVAL_WORDS[dry_run]
    show(
        context,
        lambda: (
            f"{removing} KRaft controller {controller_id} with directory id {directory}\n"
            + (f"{unregistering} KRaft controller {controller_id}\n" if unregister else "")
        ),
        lambda: {
            "dryRun": dry_run,
            "controllerId": controller_id,
            "directoryId": directory,
            "unregister": unregister,
        },
    )


async def _cluster_id_and_quorum(admin: "AdminClient") -> "tuple[str, QuorumDescription]":
    return (await admin.describe_cluster()).cluster_id, await admin.describe_metadata_quorum()


async def _remove(
    admin: "AdminClient", controller_id: int, directory_id: "uuid.UUID", unregister_alone: str | None
) -> None:
    """Remove the voter. If `unregister_alone`, the command that does only that, is given, unregister it too."""
    way_out = f"To unregister the stopped controller alone: {unregister_alone}"
    try:
        await admin.remove_raft_voter(controller_id, directory_id)
    except (ServerError, UnsupportedByServerError) as error:
        if await _is_static(admin, error):
            then = f", then unregister it: {unregister_alone}" if unregister_alone else ""
            way_out = (
                "The voters of this quorum are static: remove the controller from controller.quorum.voters of all "
                f"nodes and restart them{then}"
            )
        elif unregister_alone is None:
            raise
        raise CommandError(
            f"Failed to remove KRaft voter {controller_id}: {str(error).rstrip('.')}. {way_out}"
        ) from error
    if unregister_alone is not None:
        try:
            await admin.unregister_controller(controller_id)
        except AdminError as error:
            raise CommandError(
                f"KRaft voter {controller_id} was removed, but not unregistered: {str(error).rstrip('.')}. {way_out}"
            ) from error


async def _is_static(admin: "AdminClient", refusal: ServerError | UnsupportedByServerError) -> bool:
    """Whether voters were not changed because controller.quorum.voters has them (kraft.version 0)."""
    from quorate_protocol.features import KRAFT_VERSION

    if isinstance(refusal, ServerError) and refusal.error_code.name != "unsupported_version":
        return False
    return not (await admin.describe_features()).finalized.get(KRAFT_VERSION)
