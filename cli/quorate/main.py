"""The `quorate` command: lists all commands, and imports the module of a command only when it is called."""

import importlib
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from quorate.command_line import Group, examples, plain_app, prepare_text


@dataclass(frozen=True, slots=True)
class Command:
    """A command of another module, which has a Typer app."""

    module: str
    help: str


TOOLS = "quorate.tools"
"""The tools with the options and the output of the Kafka tool of the same name."""

COMMANDS = {
    "acls": Command(f"{TOOLS}.acls.command", "Add, remove and list access control entries."),
    "broker-api-versions": Command(
        f"{TOOLS}.broker_api_versions", "List the APIs of each broker and their versions."
    ),
    "cluster": Command(
        f"{TOOLS}.cluster", "Cluster id, endpoints, registrations of brokers and controllers."
    ),
    "configs": Command(f"{TOOLS}.configs.command", "Describe and alter configs, quotas and SCRAM users."),
    "delegation-tokens": Command(
        f"{TOOLS}.delegation_tokens", "Create, renew, expire, list delegation tokens."
    ),
    "doctor": Command(f"{TOOLS}.doctor", "Find problems of a cluster and blockers of upgrades."),
    "export": Command("quorate.export_command", "Print topics and users of a cluster as manifests."),
    "features": Command(f"{TOOLS}.features", "Describe, upgrade and downgrade feature levels."),
    "lake": Command("quorate.lake_command", "Keep the metadata history of clusters as tables, on Spark."),
    "leader-election": Command(f"{TOOLS}.leader_election", "Elect preferred, or any, leaders of partitions."),
    "metadata-quorum": Command(
        f"{TOOLS}.metadata_quorum.command", "Describe the controller quorum; add, remove voters."
    ),
    "metadata-shell": Command(
        f"{TOOLS}.metadata_shell.command", "Browse a cluster's metadata, live or from a file."
    ),
    "reassign-partitions": Command(f"{TOOLS}.reassign_partitions.command", "Move replicas between brokers."),
    "topics": Command(f"{TOOLS}.topics.command", "Create, delete, describe and change topics."),
    "completion": Command("quorate.completion", "Print the completion script of a shell."),
    "controller": Command(
        "quorate_controller.commands", "Format and run a controller with Kafka's properties."
    ),
    "operator": Command("quorate.operator_command", "Run the operator for Kubernetes."),
    "play": Command("quorate.play.command", "Run a whole cluster on this machine from manifests."),
}


class LazyCommand(TyperGroup):
    """A placeholder in the list of commands; the module of the command is imported when it is called."""

    def __init__(self, name: str, found: Command) -> None:
        super().__init__(name=name, help=found.help)
        self._command = found

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the real command, which replaces this one."""
        command = get_command(importlib.import_module(self._command.module).app)
        return command.make_context(info_name, args, parent, **extra)


class RootGroup(Group):
    """The commands of this module and those of COMMANDS."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, found in COMMANDS.items():
            self.add_command(LazyCommand(name, found), name)

    def list_commands(self, ctx: Any) -> list[str]:
        """Every command, in the order of the help."""
        return sorted(super().list_commands(ctx))


EXAMPLES = examples(
    "quorate play",
    "quorate doctor --bootstrap-server localhost:9092",
    "quorate topics --help",
)

app = plain_app(RootGroup, no_args_is_help=True)


def _print_version(wanted: bool) -> None:
    from quorate.console import print_version  # importing it here keeps the start of all commands fast

    print_version(wanted)


@app.callback(epilog=EXAMPLES)
def quorate(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Run and operate Apache Kafka's KRaft clusters; `kubectl quorate` has the commands for those on Kubernetes.

    Exit code: 0 success, 1 failure, 2 wrong command line, 130 Ctrl-C.
    """


@app.command()
def version() -> None:
    """Print the version."""
    _print_version(True)


def main() -> None:
    """The entry point of the `quorate` script."""
    prepare_text()
    app(prog_name="quorate")
