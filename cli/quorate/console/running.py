"""Running a tool's work with a client of the cluster that the options name."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import typer

from quorate.console.failures import UsageError, warn
from quorate.console.options import ToolOptions, tool_options
from quorate.console.properties import read_properties

if TYPE_CHECKING:
    from quorate_admin.client import AdminClient
    from quorate_admin.config import AdminConfig

_Result = TypeVar("_Result")


def run(
    work: "Callable[[AdminClient], Awaitable[_Result]]",
    context: typer.Context,
    *,
    defaults: Mapping[str, str] | None = None,
) -> _Result:
    """What `work` returns, given a client of the cluster that the options name.

    `defaults` are properties that the file of --command-config may override. Raises UsageError, CommandError
    and AdminError, which the command classes turn into a message and an exit code.
    """
    options = tool_options(context)
    config = admin_config(options, defaults)
    import asyncio  # takes longer than everything before it, and errors need none

    from quorate_admin.client import AdminClient  # likewise

    async def with_client() -> _Result:
        async with AdminClient(config) as admin:
            return await work(admin)

    return asyncio.run(with_client())


def admin_config(options: ToolOptions, defaults: Mapping[str, str] | None = None) -> "AdminConfig":
    """The client's configuration: the bootstrap option, above the file, above `defaults`.

    Raises UsageError without a bootstrap option, CommandError for a file that can't be read, ConfigError for
    one that says what is not allowed.
    """
    if options.bootstrap_server is None and options.bootstrap_controller is None:
        raise UsageError("give --bootstrap-server or --bootstrap-controller")
    properties = dict(defaults or {})
    if options.command_config is not None:
        properties |= read_properties(options.command_config)

    from quorate_admin.config import AdminConfig  # the errors above need none

    _tell_warnings()
    return AdminConfig.from_properties(
        properties,
        bootstrap_servers=_addresses(options.bootstrap_server),
        bootstrap_controllers=_addresses(options.bootstrap_controller),
    )


class _ToStderr(logging.Handler):
    """Tells what the client logs as a tool tells a warning of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


def _tell_warnings() -> None:
    logger = logging.getLogger("quorate_admin")
    if not any(isinstance(handler, _ToStderr) for handler in logger.handlers):
        logger.addHandler(_ToStderr(logging.WARNING))


def _addresses(option: str | None) -> list[str] | None:
    return None if option is None else [text.strip() for text in option.split(",")]
