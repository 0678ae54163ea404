"""What all tools share: the options that say which cluster, running, errors, and output.

A tool is a module like this:

    app = tool_app()

    @app.command("cluster-id", cls=ToolCommand)
    def cluster_id(context: typer.Context) -> None:
        \"\"\"Print the cluster's id.\"\"\"
        cluster = run(AdminClient.describe_cluster, context)
        show(context, lambda: f"Cluster ID: {cluster.cluster_id}\\n", lambda: {"clusterId": cluster.cluster_id})

`ToolCommand` adds --bootstrap-server, --bootstrap-controller, --command-config and --output, which may stand
before or behind the name of a subcommand, and turns every expected error into one message and exit code 1.
Nothing here imports the client, asyncio or rich before it is needed.
"""

from quorate.console.command import (
    BrokerToolCommand,
    BrokerToolGroup,
    LocalToolCommand,
    ToolCommand,
    ToolGroup,
    tool_app,
)
from quorate.console.failures import CommandError, UsageError, failures_told, tell_failure, warn
from quorate.console.options import Output, ToolOptions, tool_options
from quorate.console.output import print_json, show, table_text, write
from quorate.console.properties import read_properties
from quorate.console.running import admin_config, run

__all__ = (
    "BrokerToolCommand",
    "BrokerToolGroup",
    "CommandError",
    "LocalToolCommand",
    "Output",
    "ToolCommand",
    "ToolGroup",
    "ToolOptions",
    "UsageError",
    "admin_config",
    "failures_told",
    "print_json",
    "read_properties",
    "run",
    "show",
    "table_text",
    "tell_failure",
    "tool_app",
    "tool_options",
    "warn",
    "write",
)
