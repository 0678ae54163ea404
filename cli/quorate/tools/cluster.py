"""`quorate cluster`: cluster id, endpoints and registrations, as kafka-cluster shows and removes them."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from quorate_admin.errors import ServerError, UnsupportedByServerError

from quorate.console import (
    CommandError,
    ToolCommand,
    ToolGroup,
    UsageError,
    examples,
    flag,
    id_option,
    run,
    show,
    tool_app,
    tool_options,
    warn,
)

if TYPE_CHECKING:
    from quorate_admin.client import AdminClient
    from quorate_admin.types.cluster import ControllerRegistration, NodeDescription

RACK_WIDTH_WITHOUT_RACKS = 10
HOST_WIDTH_WITHOUT_NODES = 100


class ClusterCommand(ToolCommand):
    """A command with the former name that Kafka's tool has for --command-config."""

    DEPRECATED_CONFIG = "--config"


EXAMPLES = examples(
    "quorate cluster list-endpoints -C localhost:9093",
    "quorate cluster unregister -b localhost:9092 --id 3",
)

app = tool_app(ToolGroup)

ControllerIdOption = Annotated[
    int, id_option("The id of the controller, which must be stopped.", "--controller-id", "--id", "-i")
]


@app.callback(epilog=EXAMPLES)
def cluster() -> None:
    """Show the cluster's id and endpoints; unregister nodes that are stopped for good.

    Options and output are those of kafka-cluster.
    """


@app.command("cluster-id", cls=ClusterCommand)
def cluster_id(context: typer.Context) -> None:
    """Print the id of the cluster."""
    found = run(lambda admin: admin.describe_cluster(), context)
    show(
        context,
        lambda: f"Cluster ID: {found.cluster_id}\n",
        lambda: {"clusterId": found.cluster_id},
    )


@app.command(cls=ClusterCommand)
def unregister(
    context: typer.Context,
    *,
    broker_id: Annotated[int, id_option("The id of the broker.", "--id", "-i")],
) -> None:
    """Unregister a broker that is stopped for good.

    If the broker is running, the command warns and, on a terminal, asks first.
    """
    if run(lambda admin: _is_running(admin, broker_id), context):
        warn(
            f"broker {broker_id} is running: it fetched metadata a moment ago. A running broker does not register "
            "again: its partitions have other leaders, or none, until it is restarted. Stop it first"
        )
        if _is_terminal():
            typer.confirm(f"Unregister broker {broker_id} anyway?", abort=True, err=True)
    run(lambda admin: admin.unregister_broker(broker_id), context)
    _show_unregistered(context, "broker", broker_id)


@app.command("list-endpoints", cls=ClusterCommand)
def list_endpoints(
    context: typer.Context,
    *,
    include_fenced_brokers: Annotated[
        bool, flag("--include-fenced-brokers", "Include fenced brokers.")
    ] = False,
) -> None:
    """List the endpoints of brokers or, with --bootstrap-controller, of controllers."""
    controllers = tool_options(context).bootstrap_controller is not None
    if include_fenced_brokers and controllers:
        raise UsageError("--include-fenced-brokers needs --bootstrap-server")
    found = run(lambda admin: admin.describe_cluster(include_fenced_brokers=include_fenced_brokers), context)
    nodes = sorted(found.nodes, key=lambda node: node.node_id)
    show(
        context,
        lambda: endpoints_text(nodes, controllers=controllers),
        lambda: [_endpoint_json(node, controllers=controllers) for node in nodes],
    )


@app.command("api-versions", cls=ClusterCommand)
def api_versions(context: typer.Context) -> None:
    """List the APIs of each broker or, with --bootstrap-controller, of each controller, with their versions.

    Like kafka-cluster, it also lists APIs of brokers that a controller does not have; broker-api-versions does not.
    """
    from quorate_protocol.kafka.apis import ListenerType

    from quorate.console.api_versions import list_api_versions

    list_api_versions(context, ListenerType.BROKER)


@app.command("unregister-controller", cls=ClusterCommand)
def unregister_controller(context: typer.Context, *, controller_id: ControllerIdOption) -> None:
    """Unregister a controller that is stopped for good (KIP-1312).

    If it is a voter, remove it from the quorum first: `quorate metadata-quorum remove-controller`.
    Requires metadata.version 33 (4.4-IV2).
    """
    try:
        run(lambda admin: admin.unregister_controller(controller_id), context)
    except (ServerError, UnsupportedByServerError) as error:
        if isinstance(error, ServerError) and error.error_code.name != "unsupported_version":
            raise
        bootstrap = tool_options(context).bootstrap_arguments
        raise CommandError(
            f"{str(error).rstrip('.')}. Unregistering controllers requires metadata.version 33 (4.4-IV2). If the "
            "registration of a stopped controller blocks the upgrade to it, replace the registration: "
            f"quorate cluster refresh-controller {bootstrap} --controller-id {controller_id}"
        ) from error
    _show_unregistered(context, "controller", controller_id)


@app.command("refresh-controller", cls=ClusterCommand)
def refresh_controller(
    context: typer.Context,
    *,
    controller_id: ControllerIdOption,
    allow_unlisted: Annotated[
        bool,
        flag(
            "--allow-unlisted", "Accept a controller without known endpoints, for instance after a refresh."
        ),
    ] = False,
    dry_run: Annotated[
        bool, flag("--dry-run", "Check everything and print the registration, but do not send it.")
    ] = False,
) -> None:
    """Replace the registration of a stopped controller, so that it no longer blocks upgrades of features.

    The registration of a stopped controller blocks the feature levels that it did not support; below metadata.version
    33 it can't be removed. The new registration has the feature levels of the active controller and no endpoints. A
    controller that is started again registers itself again. The command is refused if the controller may be running:
    if it fetched recently, or answers. Kafka has no such tool.
    """
    if tool_options(context).bootstrap_server is not None:
        raise UsageError(
            "refresh-controller needs --bootstrap-controller: brokers do not support the request"
        )
    registration = run(
        lambda admin: admin.refresh_controller(
            controller_id, allow_unlisted=allow_unlisted, validate_only=dry_run
        ),
        context,
    )
    show(
        context,
        lambda: registration_text(registration, dry_run=dry_run),
        lambda: registration_json(registration, dry_run=dry_run),
    )


def _is_terminal() -> bool:
    """Whether a user can confirm a question."""
    return sys.stdin.isatty()


async def _is_running(admin: "AdminClient", broker_id: int) -> bool:
    """Whether a broker follows the metadata log. False if the user may not know: the warning is no requirement."""
    from quorate_admin.diagnosis.judgement import LeaderView

    try:
        quorum = await admin.describe_metadata_quorum()
    except (ServerError, UnsupportedByServerError):
        return False
    return LeaderView.of(quorum).node_follows(broker_id)


def _show_unregistered(context: typer.Context, kind: str, node_id: int) -> None:
    show(
        context,
        lambda: f"{kind.title()} {node_id} is no longer registered.\n",
        lambda: {f"{kind}Id": node_id, "registered": False},
    )


def endpoints_text(nodes: "list[NodeDescription]", *, controllers: bool) -> str:
    """What `kafka-cluster list-endpoints` prints."""
    host_width = max((len(node.host) for node in nodes), default=HOST_WIDTH_WITHOUT_NODES)
    rack_width = max((len(node.rack) for node in nodes if node.rack), default=RACK_WIDTH_WITHOUT_RACKS)

    widths = [10, host_width, 10, rack_width, *([] if controllers else [10]), 15]

    def line(*columns: object) -> str:
        return " ".join(f"{column!s:<{width}}" for column, width in zip(columns, widths, strict=True)) + "\n"

    text = line("ID", "HOST", "PORT", "RACK", *([] if controllers else ["STATE"]), "ENDPOINT_TYPE")
    for node in nodes:
        state = [] if controllers else ["fenced" if node.fenced else "unfenced"]
        rack = "null" if node.rack is None else node.rack
        text += line(
            node.node_id, node.host, node.port, rack, *state, "controller" if controllers else "broker"
        )
    return text


def _endpoint_json(node: "NodeDescription", *, controllers: bool) -> dict[str, object]:
    return {
        "id": node.node_id,
        "host": node.host,
        "port": node.port,
        "rack": node.rack,
        "state": None if controllers else "fenced" if node.fenced else "unfenced",
        "endpointType": "controller" if controllers else "broker",
    }


def registration_text(registration: "ControllerRegistration", *, dry_run: bool) -> str:
    """What `refresh-controller` prints: the registration that was sent, or would be."""
    from quorate_protocol.uuids import uuid_to_text

    done = "DRY RUN of refreshing" if dry_run else "Refreshed"
    lines = [
        f"{done} the registration of controller {registration.controller_id}:\n",
        f"  incarnation id: {uuid_to_text(registration.incarnation_id)}\n",
        f"  listeners: {', '.join(listener.name for listener in registration.listeners) or 'none'}\n",
    ]
    lines += [f"  {name}: {low} to {high}\n" for name, (low, high) in sorted(registration.features.items())]
    return "".join(lines)


def registration_json(registration: "ControllerRegistration", *, dry_run: bool) -> dict[str, Any]:
    """The same as JSON."""
    from quorate_protocol.uuids import uuid_to_text

    return {
        "dryRun": dry_run,
        "controllerId": registration.controller_id,
        "incarnationId": uuid_to_text(registration.incarnation_id),
        "listeners": [
            {
                "name": listener.name,
                "host": listener.host,
                "port": listener.port,
                "securityProtocol": listener.security_protocol,
            }
            for listener in registration.listeners
        ],
        "features": {
            name: {"minSupportedVersion": low, "maxSupportedVersion": high}
            for name, (low, high) in sorted(registration.features.items())
        },
    }
