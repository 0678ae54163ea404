"""The options that every tool has: which cluster, how to reach it, how to print."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperOption

from quorate.console.failures import UsageError, warn

_REMEMBERED = "quorate.tools."
_PANEL = "Cluster"


class Output(StrEnum):
    """How a result is printed: as Kafka's tool prints it, or for programs."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """What the options of every tool say. At most one of the two bootstrap options is set."""

    bootstrap_server: str | None = None
    bootstrap_controller: str | None = None
    command_config: Path | None = None
    output: Output = Output.TABLE

    @property
    def is_json(self) -> bool:
        """Whether the result is for programs."""
        return self.output is Output.JSON

    @property
    def bootstrap_arguments(self) -> str:
        """The bootstrap option as the user gave it, to be repeated in a command that is proposed."""
        if self.bootstrap_controller is not None:
            return f"--bootstrap-controller {self.bootstrap_controller}"
        return f"--bootstrap-server {self.bootstrap_server}"


def tool_options(context: typer.Context) -> ToolOptions:
    """What the user gave, before or behind the subcommand. Raises UsageError when both bootstraps are given."""
    given = {
        key.removeprefix(_REMEMBERED): value
        for key, value in context.meta.items()
        if key.startswith(_REMEMBERED)
    }
    if "bootstrap_server" in given and "bootstrap_controller" in given:
        raise UsageError("--bootstrap-server and --bootstrap-controller can't be given together")
    deprecated = given.pop("deprecated_config", None)
    if deprecated is not None:
        name, path = deprecated
        if "command_config" in given:
            raise UsageError(f"{name} and --command-config can't be given together")
        given["command_config"] = path
    return ToolOptions(**given)


def option_parameters(*, controllers: bool, deprecated_config: str | None) -> Iterator[TyperOption]:
    """The parameters of a command for these options; what is given is kept in the context's `meta`."""
    yield TyperOption(
        param_decls=["--bootstrap-server", "-b"],
        metavar="HOST:PORT,…",
        help="Brokers to connect to first.",
        rich_help_panel=_PANEL,
        expose_value=False,
        callback=_remember,
    )
    if controllers:
        yield TyperOption(
            param_decls=["--bootstrap-controller", "-C"],
            metavar="HOST:PORT,…",
            help="Controllers to connect to first: works when no broker does.",
            rich_help_panel=_PANEL,
            expose_value=False,
            callback=_remember,
        )
    yield TyperOption(
        param_decls=["--command-config", "-c"],
        metavar="FILE",
        help="Properties of the admin client: security, timeouts.",
        type=Path,
        rich_help_panel=_PANEL,
        expose_value=False,
        callback=_remember,
    )
    if deprecated_config is not None:
        yield TyperOption(
            param_decls=[deprecated_config, "deprecated_config"],
            metavar="FILE",
            help="Deprecated: use --command-config.",
            type=Path,
            rich_help_panel=_PANEL,
            expose_value=False,
            callback=_remember_deprecated,
        )
    yield output_parameter()


def output_parameter() -> TyperOption:
    """`--output`, for commands that ask no cluster too."""
    return TyperOption(
        param_decls=["--output", "-o"],
        metavar="table|json",
        help="Kafka's text, or JSON for programs. [default: table]",
        type=_output,
        autocompletion=_outputs_beginning_with,
        expose_value=False,
        callback=_remember,
    )


def _output(text: str) -> Output:
    try:
        return Output(text.lower())
    except ValueError:
        raise typer.BadParameter(f"{text!r} is none of {', '.join(Output)}") from None


def _outputs_beginning_with(_: object, __: object, beginning: str) -> list[str]:
    return [str(output) for output in Output if output.startswith(beginning)]


def _remember(context: typer.Context, parameter: TyperOption, value: Any) -> None:
    if value is not None:
        context.meta[_REMEMBERED + str(parameter.name)] = value


def _remember_deprecated(context: typer.Context, parameter: TyperOption, value: Path | None) -> None:
    if value is not None:
        name = parameter.opts[0]
        warn(f"{name} is deprecated and will be removed; use --command-config")
        context.meta[_REMEMBERED + "deprecated_config"] = (name, value)
