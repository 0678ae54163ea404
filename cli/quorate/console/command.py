"""Typer commands and groups that have the options of every tool and tell failures."""

from collections.abc import Sequence
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from quorate.console.failures import failures_told
from quorate.console.options import option_parameters, output_parameter


class ToolCommand(TyperCommand):
    """A command that asks brokers or controllers."""

    CONTROLLERS: ClassVar[bool] = True
    """Whether there is a --bootstrap-controller."""
    DEPRECATED_CONFIG: ClassVar[str | None] = None
    """Kafka's older name of --command-config, if the tool has one."""

    def __init__(self, name: str | None, *, params: Sequence[Any] | None = None, **settings: Any) -> None:
        shared = option_parameters(controllers=self.CONTROLLERS, deprecated_config=self.DEPRECATED_CONFIG)
        super().__init__(name, params=[*(params or ()), *shared], **settings)

    def invoke(self, ctx: Any) -> Any:
        """Run it; what is expected to go wrong ends with a message and exit code 1."""
        with failures_told():
            return super().invoke(ctx)


class BrokerToolCommand(ToolCommand):
    """A command that asks brokers only."""

    CONTROLLERS = False


class LocalToolCommand(TyperCommand):
    """A command that asks no cluster: --output alone."""

    def __init__(self, name: str | None, *, params: Sequence[Any] | None = None, **settings: Any) -> None:
        super().__init__(name, params=[*(params or ()), output_parameter()], **settings)

    def invoke(self, ctx: Any) -> Any:
        """Run it; what is expected to go wrong ends with a message and exit code 1."""
        with failures_told():
            return super().invoke(ctx)


class ToolGroup(TyperGroup):
    """A tool with subcommands: the options of every tool may stand before the subcommand, as in Kafka."""

    CONTROLLERS: ClassVar[bool] = True
    DEPRECATED_CONFIG: ClassVar[str | None] = None

    def __init__(self, *, params: Sequence[Any] | None = None, **settings: Any) -> None:
        shared = option_parameters(controllers=self.CONTROLLERS, deprecated_config=self.DEPRECATED_CONFIG)
        super().__init__(params=[*(params or ()), *shared], **settings)


class BrokerToolGroup(ToolGroup):
    """A tool with subcommands that ask brokers only."""

    CONTROLLERS = False


def tool_app(cls: type[TyperGroup] | None = None) -> typer.Typer:
    """The Typer app of a tool; give a `ToolGroup` if it has subcommands.

    With subcommands, write a callback too (`@app.callback()`), whose docstring is the tool's help.
    """
    return typer.Typer(
        cls=cls,
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
