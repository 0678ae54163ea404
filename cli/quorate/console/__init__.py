"""The console kit: shared options, the client that they configure, error messages and output.

A tool is a module like this:

    app = tool_app()

    @app.command("cluster-id", cls=ToolCommand)
    def cluster_id(context: typer.Context) -> None:
        \"\"\"Print the cluster's id.\"\"\"
        cluster = run(AdminClient.describe_cluster, context)
        show(context, lambda: f"Cluster ID: {cluster.cluster_id}\\n", lambda: {"clusterId": cluster.cluster_id})

`ToolCommand` adds --bootstrap-server, --bootstrap-controller, --command-config and --output, before or after the
name of a subcommand, and turns each expected error into one message and exit code 1. The client, asyncio and rich
are imported only when they are needed, because people wait for the start of a tool.
"""

from quorate.console.client import admin_config, parse_file, parse_json, read_properties, run
from quorate.console.command import (
    BrokerToolCommand,
    LocalToolCommand,
    Output,
    ToolCommand,
    ToolGroup,
    ToolOptions,
    flag,
    id_option,
    option,
    remembered,
    remembered_option,
    show,
    tool_app,
    tool_options,
)
from quorate.console.output import (
    CommandError,
    UsageError,
    print_failure,
    print_json,
    report_failures,
    table_text,
    warn,
    write,
)
from quorate.console.values import (
    DURATION_MS_MAX,
    INT32_MAX,
    parse_duration_s,
    parse_id,
    parse_ids,
)

__all__ = (
    "DURATION_MS_MAX",
    "INT32_MAX",
    "BrokerToolCommand",
    "CommandError",
    "LocalToolCommand",
    "Output",
    "ToolCommand",
    "ToolGroup",
    "ToolOptions",
    "UsageError",
    "admin_config",
    "flag",
    "id_option",
    "option",
    "parse_duration_s",
    "parse_file",
    "parse_id",
    "parse_ids",
    "parse_json",
    "print_failure",
    "print_json",
    "read_properties",
    "remembered",
    "remembered_option",
    "report_failures",
    "run",
    "show",
    "table_text",
    "tool_app",
    "tool_options",
    "warn",
    "write",
)
