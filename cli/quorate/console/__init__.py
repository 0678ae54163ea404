# ruff: noqa: I001 - one statement for each module, though the names are exported by `as`
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

from quorate.command_line import (
    examples as examples,
    plain_app as plain_app,
    print_failure as print_failure,
    warn as warn,
)
from quorate.console.client import (
    admin_config as admin_config,
    parse_file as parse_file,
    parse_json as parse_json,
    read_properties as read_properties,
    run as run,
    watched as watched,
)
from quorate.console.command import (
    DURATION_MS_MAX as DURATION_MS_MAX,
    INT32_MAX as INT32_MAX,
    BrokerToolCommand as BrokerToolCommand,
    LocalToolCommand as LocalToolCommand,
    Output as Output,
    ToolCommand as ToolCommand,
    ToolGroup as ToolGroup,
    ToolOptions as ToolOptions,
    flag as flag,
    id_option as id_option,
    option as option,
    parse_duration_s as parse_duration_s,
    parse_id as parse_id,
    parse_ids as parse_ids,
    remembered as remembered,
    remembered_option as remembered_option,
    show as show,
    show_as as show_as,
    tool_app as tool_app,
    tool_options as tool_options,
)
from quorate.console.output import (
    CommandError as CommandError,
    UsageError as UsageError,
    aligned_text as aligned_text,
    needing as needing,
    print_json as print_json,
    print_version as print_version,
    report_failures as report_failures,
    table_text as table_text,
    write as write,
)
