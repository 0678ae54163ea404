"""The admin client of the cluster that a tool's options name."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from quorate.command_line import warn
from quorate.console.command import ToolOptions, tool_options
from quorate.console.output import CommandError, UsageError

if TYPE_CHECKING:
    from quorate_admin.client import AdminClient
    from quorate_admin.config import AdminConfig

JSON_SIZE_BYTES_MAX = 16 * 1024 * 1024
WATCHED_AFTER_S = 1.5
"""A tool that takes longer looks for the leader of its quorum itself."""

_Result = TypeVar("_Result")


def run(
    work: "Callable[[AdminClient], Awaitable[_Result]]",
    context: typer.Context,
    *,
    defaults: Mapping[str, str] | None = None,
    is_watched: bool = True,
) -> _Result:
    """Run `work` with a client of the cluster that the options name, and return its result.

    `defaults` are client properties that the file of --command-config overrides. If `is_watched`, controllers without
    a leader end it within seconds.

    Raises:
        UsageError, CommandError, ConfigError: as `admin_config`.
        AdminError: from `work`. The command classes turn all of these into a message and an exit code.
    """
    options = tool_options(context)
    config = admin_config(options, defaults)
    import asyncio  # slower than everything before it, and usage errors do not need it

    from quorate_admin.client import AdminClient  # likewise

    async def with_client() -> _Result:
        async with AdminClient(config) as admin:
            return await (watched(config, work(admin), defaults) if is_watched else work(admin))

    return asyncio.run(with_client())


async def watched(
    config: "AdminConfig", work: Awaitable[_Result], defaults: Mapping[str, str] | None = None
) -> _Result:
    """The result of `work`, which ends within seconds if its controllers have no leader; see `leadership.until_led`.

    `defaults` are as in `run`: with another `default.api.timeout.ms` than these, the user waits for that time.
    """
    import asyncio

    if not config.is_to_controllers:
        return await work
    started_ms = int(asyncio.get_running_loop().time() * 1000)
    working = asyncio.ensure_future(work)
    await asyncio.wait({working}, timeout=WATCHED_AFTER_S)
    if working.done() and working.exception() is None:
        return working.result()
    from quorate_admin.config import DEFAULT_API_TIMEOUT_MS
    from quorate_admin.leadership import until_led  # most runs need no search for a leader

    usual_ms = int((defaults or {}).get("default.api.timeout.ms", DEFAULT_API_TIMEOUT_MS))
    is_patient = config.default_api_timeout_ms != usual_ms
    return await until_led(config, working, started_ms, is_patient=is_patient)


def admin_config(options: ToolOptions, defaults: Mapping[str, str] | None = None) -> "AdminConfig":
    """The client's configuration: the bootstrap option overrides the file, which overrides `defaults`.

    Raises:
        UsageError: there is no bootstrap option.
        CommandError: the file can't be read.
        ConfigError: a property in it is invalid.
    """
    if options.bootstrap_server is None and options.bootstrap_controller is None:
        raise UsageError("give --bootstrap-server or --bootstrap-controller")
    properties = dict(defaults or {})
    if options.command_config is not None:
        properties |= read_properties(options.command_config)

    from quorate_admin.config import AdminConfig  # the errors above do not need it

    _print_client_warnings()
    return AdminConfig.from_properties(
        properties,
        bootstrap_servers=_addresses(options.bootstrap_server),
        bootstrap_controllers=_addresses(options.bootstrap_controller),
    )


def read_properties(path: Path, option: str = "--command-config") -> dict[str, str]:
    """The properties in a file that an option names. Raises CommandError as `parse_file`."""
    # Most runs have no such file.
    from quorate_protocol.files import PROPERTIES_SIZE_BYTES_MAX
    from quorate_protocol.properties import parse_properties

    return parse_file(path, option, parse_properties, size_bytes_max=PROPERTIES_SIZE_BYTES_MAX)


def parse_file(
    path: Path,
    option: str,
    parse: Callable[[str], _Result],
    *,
    size_bytes_max: int = JSON_SIZE_BYTES_MAX,
) -> _Result:
    """What `parse` returns for the text of a file that an option names.

    Raises:
        CommandError: the file can't be read, is too large, or `parse` raised ValueError or CommandError; the
            message has the option, the file and the reason.
    """
    from quorate_protocol.files import read_bounded

    try:
        return parse(read_bounded(path, size_bytes_max).decode())
    except OSError as error:
        raise CommandError(f"{option} {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{option} {path}: it is not UTF-8 text") from error
    except (ValueError, CommandError) as error:
        raise CommandError(f"{option} {path}: {error}") from error


def parse_json(text: str) -> Any:
    """The content of a JSON text. Raises CommandError."""
    import json

    try:
        content = json.loads(text)
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise CommandError(
            f"a text in it is not Unicode: {error.object[error.start : error.end]!a}"
        ) from error
    except ValueError as error:
        raise CommandError(f"it is not valid JSON: {error}") from error
    except RecursionError as error:
        raise CommandError("its lists and objects are nested too deeply") from error
    return content


class _ToStderr(logging.Handler):
    """Prints warnings that the client logs as warnings of the tool."""

    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


def _print_client_warnings() -> None:
    logger = logging.getLogger("quorate_admin")
    if not any(isinstance(handler, _ToStderr) for handler in logger.handlers):
        logger.addHandler(_ToStderr(logging.WARNING))


def _addresses(option: str | None) -> list[str] | None:
    return None if option is None else [text.strip() for text in option.split(",")]
