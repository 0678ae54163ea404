"""`quorate metadata-shell`: browse a cluster's metadata, as with kafka-metadata-shell, in files or live."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from quorate_protocol.plain_data import dataclass

from quorate.console import (
    CommandError,
    ToolCommand,
    UsageError,
    admin_config,
    examples,
    needing,
    option,
    print_json,
    tool_app,
    tool_options,
    warn,
    watched,
    write,
)

if TYPE_CHECKING:
    from quorate_protocol.image import ImageState, Provenance

    from quorate.tools.metadata_shell.calls import Call
    from quorate.tools.metadata_shell.nodes import Node

EXAMPLES = examples(
    "quorate metadata-shell -C localhost:9093 ls /image/topics/byName",
    "quorate metadata-shell --directory /var/lib/kafka/__cluster_metadata-0",
)

app = tool_app()


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the metadata comes from."""

    refresh: "Callable[[], Node]"
    """Returns the root of the current tree. Raises AdminError if the cluster does not answer."""
    refresh_or_warn: "Callable[[], Node]"
    """The same, but prints a warning and returns the previous tree if the cluster does not answer."""


@dataclass(frozen=True, slots=True)
class _Files:
    """The options that name what to read without a cluster."""

    snapshot: Path | None
    directory: Path | None
    lake: str | None
    at: str | None
    cluster_id: str | None


class ShellCommand(ToolCommand):
    """A command with the names that KIP-919 gives its options, which no release of Kafka has."""

    DEPRECATED_CONFIG = "--config"
    CONTROLLER_NAMES = (*ToolCommand.CONTROLLER_NAMES, "-q")


@app.command(cls=ShellCommand, epilog=EXAMPLES)
def metadata_shell(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[COMMAND [ARGUMENT]...]", help="The command to run; without it, a prompt."),
    ] = None,
    *,
    snapshot: Annotated[
        Path | None, option("FILE", "A checkpoint or log segment to read.", names=("--snapshot", "-s"))
    ] = None,
    directory: Annotated[
        Path | None,
        option(
            "DIR",
            "A __cluster_metadata-0 directory to read: its newest checkpoint and the log after it.",
            names=("--directory", "-d"),
        ),
    ] = None,
    lake: Annotated[
        str | None, option("LAKE", "A lake to read: the metadata as it was, at the end or at --at.")
    ] = None,
    at: Annotated[
        str | None,
        option(
            "TIME",
            "With --lake: a time (UTC) such as 2026-01-31T12:00:00, or an offset: the state before its record.",
        ),
    ] = None,
    cluster_id: Annotated[
        str | None, option(None, "With --lake: the cluster (default: the only one of the lake).")
    ] = None,
) -> None:
    """Browse a cluster's metadata as a tree of directories and files.

    Commands: cat, find, ls, tree, with globs; at the prompt also cd, exit, help, history, man, pwd.

    Nodes and output are those of kafka-metadata-shell. As there, a path that does not exist is reported on stdout and
    is no failure; with --output json it is one.

    With --bootstrap-controller the metadata is read from a live cluster, as an observer of its quorum, and refreshed
    before each command. With --lake and --at it is that of a moment in the past.
    """
    from quorate.tools.metadata_shell.calls import CommandLineError, parse_call

    is_json = tool_options(context).is_json
    try:
        call = parse_call(words or (), is_interactive=False)
    except CommandLineError as error:
        if is_json:
            raise UsageError(str(error)) from error
        # Kafka's shell prints this on stdout and exits with 0; with JSON it is a failure.
        write(f"{error}\n")
        return
    if is_json and call is None:
        raise UsageError("--output json needs a command: the prompt prints text")
    files = _Files(snapshot, directory, lake, at, cluster_id)
    with _source(context, files, announces=call is None) as source:
        if call is None:
            _run_prompt(source)
        else:
            _run_once(call, source.refresh(), is_json=is_json)


def _run_prompt(source: _Source) -> None:
    from quorate.tools.metadata_shell.interactive import run_shell

    root = source.refresh()
    write("Starting...\n")
    run_shell(root, source.refresh_or_warn)


def _run_once(call: "Call", root: "Node", *, is_json: bool) -> None:
    from quorate.tools.metadata_shell.shell_builtins import ShellState

    state = ShellState(root)
    if not is_json:
        from quorate.tools.metadata_shell.interactive import print_lines

        print_lines(call.command.run(state, call.arguments))
        return
    from quorate.tools.metadata_shell.calls import NotThereError, content_of

    try:
        print_json(content_of(call, state))
    except NotThereError as error:
        raise CommandError(str(error)) from error


@contextmanager
def _source(context: typer.Context, files: _Files, *, announces: bool) -> Iterator[_Source]:
    options = tool_options(context)
    if options.bootstrap_server is not None:
        raise UsageError("brokers do not serve the metadata log: give --bootstrap-controller")
    given = (files.snapshot, files.directory, files.lake, options.bootstrap_controller)
    if sum(source is not None for source in given) != 1:
        raise UsageError("give one of --snapshot, --directory, --lake and --bootstrap-controller")
    for name, value in (("--at", files.at), ("--cluster-id", files.cluster_id)):
        if value is not None and files.lake is None:
            raise UsageError(f"{name} {value}: only with --lake")
    if announces:
        write("Loading...\n")
    if options.bootstrap_controller is not None:
        with _live(context) as source:
            yield source
    else:
        root = _root(*(_past(files) if files.lake is not None else _load(files)))
        yield _Source(lambda: root, lambda: root)


def _past(files: _Files) -> tuple["ImageState", "Provenance"]:
    from quorate.tools.metadata_shell.past import open_history, parse_moment
    from quorate.tools.metadata_shell.sources import warn_of

    with needing("lake"):
        from pyspark_quorate.errors import LakeError
        from pyspark_quorate.past.image import Moment

        moment = Moment() if files.at is None else parse_moment(files.at)
        try:
            past = open_history(files.lake or "", files.cluster_id).to(moment)
        except LakeError as error:
            raise CommandError(str(error)) from error
    warn_of(past)
    return past.image, past.image.provenance


def _load(files: _Files) -> tuple["ImageState", "Provenance"]:
    from quorate.tools.metadata_shell.sources import (
        SourceError,
        load_directory,
        load_file,
        visible,
        warn_of,
    )

    try:
        loaded = (
            load_file(files.snapshot)
            if files.snapshot is not None
            else load_directory(files.directory or Path())
        )
    except SourceError as error:
        raise CommandError(str(error)) from error
    warn_of(loaded)
    return visible(loaded.image)


@contextmanager
def _live(context: typer.Context) -> Iterator[_Source]:
    config = admin_config(tool_options(context))
    import asyncio  # reading files does not need it

    from quorate_admin.errors import AdminError
    from quorate_admin.metadata_log import LiveImage

    from quorate.tools.metadata_shell.sources import visible

    with asyncio.Runner() as runner:

        async def begin() -> LiveImage:
            return LiveImage(config)

        live = runner.run(begin())

        def refresh() -> "Node":
            runner.run(watched(config, live.refresh()))
            return _root(*visible(live.image))

        def refresh_or_warn() -> "Node":
            try:
                return refresh()
            except AdminError as error:
                warn(f"the metadata is not up to date: {error}")
                return _root(*visible(live.image))

        try:
            yield _Source(refresh, refresh_or_warn)
        finally:
            runner.run(live.close())


def _root(image: "ImageState", where: "Provenance") -> "Node":
    from quorate.tools.metadata_shell.tree import image_root

    return image_root(image, where, _version)


def _version() -> str:
    from importlib.metadata import version

    return version("quorate")
