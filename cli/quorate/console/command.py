"""The commands and groups of tools: Typer's, with the options that every tool has."""

import re
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

import typer
from quorate_protocol.plain_data import dataclass
from typer.core import TyperGroup, TyperOption

from quorate.command_line import Command, Group, plain_app, warn
from quorate.console.output import UsageError, print_json, report_failures, write

_REMEMBERED = "quorate.tools."
_PANEL = "Cluster"
INT32_MAX = 2**31 - 1
"""The highest id of a node, number of a partition, or count in Kafka's protocol."""
DURATION_MS_MAX = 2**53
"""The longest duration that is accepted, in milliseconds: 285,000 years, which fit into a `timedelta`."""
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|)")
_UNIT_S = {"ms": 0.001, "s": 1, "": 1, "m": 60, "h": 3600}


class Output(StrEnum):
    """The format of a result: the text of Kafka's tool, or JSON."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """The values of the options that every tool has. At most one of the two bootstrap options is set."""

    bootstrap_server: str | None = None
    bootstrap_controller: str | None = None
    command_config: Path | None = None
    output: Output = Output.TABLE

    @property
    def is_json(self) -> bool:
        """Whether the result is printed as JSON."""
        return self.output is Output.JSON

    @property
    def bootstrap_arguments(self) -> str:
        """The bootstrap option as the user gave it, for commands that a tool recommends."""
        if self.bootstrap_controller is not None:
            return f"--bootstrap-controller {self.bootstrap_controller}"
        return f"--bootstrap-server {self.bootstrap_server}"


def remembered(context: typer.Context) -> dict[str, Any]:
    """The values of `remembered_option`s that were given, by name."""
    return {
        key.removeprefix(_REMEMBERED): value
        for key, value in context.meta.items()
        if key.startswith(_REMEMBERED)
    }


def tool_options(context: typer.Context) -> ToolOptions:
    """The options that were given, before or after the subcommand.

    Raises:
        UsageError: two options that exclude each other are given.
    """
    given = remembered(context)
    if "bootstrap_server" in given and "bootstrap_controller" in given:
        raise UsageError("--bootstrap-server and --bootstrap-controller can't be given together")
    deprecated = given.pop("deprecated_config", None)
    if deprecated is not None:
        name, path = deprecated
        if "command_config" in given:
            raise UsageError(f"{name} and --command-config can't be given together")
        given["command_config"] = path
    return ToolOptions(**given)


def show(context: typer.Context, text: Callable[[], str], content: Callable[[], object]) -> None:
    """Write the result as text or JSON, as --output says. Only the one that is written is computed."""
    show_as(tool_options(context).output, text, content)


def show_as(output: Output, text: Callable[[], str], content: Callable[[], object]) -> None:
    """Write the result as text or JSON, for commands with their own --output option."""
    if output is Output.JSON:
        print_json(content())
    else:
        write(text())


class LocalToolCommand(Command):
    """A command that connects to no cluster: of the shared options it has --output only."""

    def __init__(self, name: str | None, *, params: Sequence[Any] | None = None, **settings: Any) -> None:
        super().__init__(name, params=[*(params or ()), *self.shared_options()], **settings)

    def shared_options(self) -> Iterator[TyperOption]:
        """The options that commands of this kind have besides their own."""
        yield output_parameter()

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an expected error becomes a message and exit code 1."""
        with report_failures():
            return super().invoke(ctx)


class ToolCommand(LocalToolCommand):
    """A command that connects to brokers or controllers."""

    CONTROLLERS: ClassVar[bool] = True
    """Whether there is a --bootstrap-controller."""
    DEPRECATED_CONFIG: ClassVar[str | None] = None
    """Kafka's older name of --command-config, if the tool has one."""
    CONTROLLER_NAMES: ClassVar[tuple[str, ...]] = ("--bootstrap-controller", "-C")

    def shared_options(self) -> Iterator[TyperOption]:
        """Those that select the cluster, and --output."""
        return option_parameters(
            controllers=self.CONTROLLER_NAMES if self.CONTROLLERS else (),
            deprecated_config=self.DEPRECATED_CONFIG,
        )


class BrokerToolCommand(ToolCommand):
    """A command that connects to brokers only."""

    CONTROLLERS = False


class ToolGroup(Group):
    """A tool with subcommands: the shared options may precede the subcommand, as in Kafka."""

    def __init__(self, *, params: Sequence[Any] | None = None, **settings: Any) -> None:
        shared = option_parameters(controllers=ToolCommand.CONTROLLER_NAMES, deprecated_config=None)
        super().__init__(params=[*(params or ()), *shared], **settings)


def option(
    metavar: str | None, text: str, panel: str | None = None, *, names: Sequence[str] = (), **settings: Any
) -> Any:
    """An option with a value. `names` is needed only if the name of the option differs from that of the parameter."""
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel, **settings)


def id_option(text: str, *names: str) -> Any:
    """An option whose value is a node id or the number of a partition."""
    return option(None, text, names=names, min=0, max=INT32_MAX)


def flag(name: str, text: str, panel: str | None = None) -> Any:
    """An option without a value."""
    return typer.Option(name, help=text, rich_help_panel=panel)


def tool_app(cls: type[TyperGroup] | None = None) -> typer.Typer:
    """The Typer app of a tool; pass a `ToolGroup` if the tool has subcommands.

    A tool with subcommands also needs a callback (`@app.callback()`), whose docstring is the tool's help.
    """
    return plain_app(cls or Group, add_completion=False, no_args_is_help=True)


def option_parameters(*, controllers: Sequence[str], deprecated_config: str | None) -> Iterator[TyperOption]:
    """The options that select a cluster, and --output. `controllers` are the names of --bootstrap-controller."""
    addresses = "HOST:PORT,..."
    yield remembered_option(
        ("--bootstrap-server", "-b"), addresses, "The brokers to bootstrap from.", rich_help_panel=_PANEL
    )
    if controllers:
        text = "The controllers to bootstrap from; works without brokers."
        yield remembered_option(controllers, addresses, text, rich_help_panel=_PANEL)
    text = "Properties of the admin client, for instance security and timeouts."
    yield remembered_option(("--command-config", "-c"), "FILE", text, type=Path, rich_help_panel=_PANEL)
    if deprecated_config is not None:
        yield remembered_option(
            (deprecated_config, "deprecated_config"),
            "FILE",
            "Deprecated: use --command-config.",
            type=Path,
            rich_help_panel=_PANEL,
            callback=_remember_deprecated,
        )
    yield output_parameter()


def output_parameter() -> TyperOption:
    """`--output`, which commands without a cluster have too."""
    return remembered_option(
        ("--output", "-o"),
        "table|json",
        "Kafka's text, or JSON (default: table).",
        type=_output,
        autocompletion=_outputs_beginning_with,
    )


def remembered_option(names: Sequence[str], metavar: str, text: str, **settings: Any) -> TyperOption:
    """An option that many commands have.

    `remembered` returns its value; the function of a command does not get it.
    """
    settings.setdefault("callback", _remember)
    return TyperOption(param_decls=[*names], metavar=metavar, help=text, expose_value=False, **settings)


def _output(text: str) -> Output:
    try:
        return Output(text.lower())
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(Output)}") from None


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


def parse_ids(text: str, separator: str) -> list[int]:
    """Ids from 0 to INT32_MAX. Raises ValueError."""
    return [parse_id(part) for part in text.split(separator)]


def parse_id(text: str) -> int:
    """An id from 0 to INT32_MAX. Raises ValueError."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10 and int(digits) <= INT32_MAX):
        raise ValueError(f"{text!r} is not a number from 0 to {INT32_MAX}")
    return int(digits)


def parse_duration_s(text: str) -> float:
    """Seconds, from `500ms`, `90`, `120s`, `2m` or `1h`. Raises typer.BadParameter."""
    found = _DURATION.fullmatch(text)
    seconds = float(found[1]) * _UNIT_S[found[2]] if found else None
    if seconds is None or seconds > DURATION_MS_MAX / 1000:
        raise typer.BadParameter(f"{text!r} is not a duration; write 500ms, 90s or 2m")
    return seconds
