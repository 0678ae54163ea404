"""`quorate controller`: format a node's directories, run a controller, ship its log."""

import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from secrets import randbits
from typing import Annotated

import typer
from quorate_protocol.features import METADATA_VERSION, metadata_version_name
from quorate_protocol.security.scram import SALT_BITS, salt_of
from quorate_protocol.uuids import random_uuid, uuid_to_text

from quorate_controller.config import ConfigError, load_config, load_format_target
from quorate_controller.directories.format import (
    FormatError,
    FormatOptions,
    FormatResult,
    QuorumChoice,
    format_directories,
    parse_features,
    parse_initial_controllers,
)
from quorate_controller.directories.scram import parse_scram_users, read_scram_users
from quorate_controller.storage.errors import StorageError
from quorate_controller.storage.os_filesystem import OsFileSystem
from quorate_controller.structured_logs import LogFormat, LogLevel, configure_logs

_INTERVAL = re.compile(r"([1-9][0-9]{0,5})(s|m|h)")
_INTERVAL_UNITS_S = {"s": 1, "m": 60, "h": 3600}

EXAMPLES = """\b
Examples:
  quorate controller random-uuid
  quorate controller format --config server.properties --standalone \\
    --cluster-id 4L6g3nShT-eMCtK--X86sw
  quorate controller run --config server.properties
"""

app = typer.Typer(
    help="Format and run a controller with stock Kafka property names; ship its log.",
    epilog=EXAMPLES,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: no name of an option is cut
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Output(StrEnum):
    """How a result is printed."""

    TEXT = "text"
    JSON = "json"


ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", help="The node's .properties file, with Kafka's names.")
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How the result is printed.")]

# What format alone has
ClusterIdOption = Annotated[
    str,
    typer.Option("--cluster-id", "-t", help="The cluster's id; the command random-uuid prints a new one."),
]
StandaloneOption = Annotated[
    bool,
    typer.Option("--standalone", "-s", help="Make this controller the only voter of a dynamic quorum."),
]
InitialControllersOption = Annotated[
    str | None,
    typer.Option(
        "--initial-controllers",
        "-I",
        metavar="ID@HOST:PORT:DIRECTORY-ID,...",
        help="The voters of a dynamic quorum; the same on every node.",
    ),
]
NoInitialControllersOption = Annotated[
    bool,
    typer.Option("--no-initial-controllers", "-N", help="The node joins an existing dynamic quorum."),
]
ReleaseVersionOption = Annotated[
    str | None,
    typer.Option(
        "--release-version", "-r", help="The Kafka release whose feature levels the cluster starts with."
    ),
]
FeatureOption = Annotated[
    list[str] | None,
    typer.Option("--feature", "-f", metavar="NAME=LEVEL", help="The level of one feature; repeatable."),
]
AddScramOption = Annotated[
    list[str] | None,
    typer.Option(
        "--add-scram",
        "-S",
        metavar="MECHANISM=[name=USER,password=PASSWORD]",
        help="A SCRAM user that the cluster starts with; the same on every controller; repeatable.",
    ),
]
AddScramFromOption = Annotated[
    list[str] | None,
    typer.Option(
        "--add-scram-from",
        metavar="MECHANISM=DIRECTORY",
        help="As --add-scram, for each file in a directory: its name is the user, its content the password.",
    ),
]
IgnoreFormattedOption = Annotated[
    bool,
    typer.Option("--ignore-formatted", "-g", help="Skip directories that are already formatted."),
]
StockKafkaOption = Annotated[
    bool,
    typer.Option(
        "--stock-kafka",
        help="Stock Kafka will run this controller: do not refuse what only `quorate controller run` refuses.",
    ),
]
DirectoryIdToOption = Annotated[
    Path | None,
    typer.Option(
        "--directory-id-to",
        metavar="FILE",
        help="Also write the id of the first directory, new or not, to this file.",
    ),
]


@app.command("format")
def format_command(
    config: ConfigOption,
    cluster_id: ClusterIdOption,
    *,
    standalone: StandaloneOption = False,
    initial_controllers: InitialControllersOption = None,
    no_initial_controllers: NoInitialControllersOption = False,
    release_version: ReleaseVersionOption = None,
    feature: FeatureOption = None,
    add_scram: AddScramOption = None,
    add_scram_from: AddScramFromOption = None,
    ignore_formatted: IgnoreFormattedOption = False,
    stock_kafka: StockKafkaOption = False,
    directory_id_to: DirectoryIdToOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Format the directories of a node.

    It does what kafka-storage format does. A configuration with which a controller would not start is refused.
    """
    quorum = _quorum_choice(
        standalone=standalone,
        initial_controllers=initial_controllers is not None,
        no_initial_controllers=no_initial_controllers,
    )
    with _failures():
        options = FormatOptions(
            cluster_id=cluster_id,
            quorum=quorum,
            initial_controllers=parse_initial_controllers(initial_controllers) if initial_controllers else (),
            release_version=release_version,
            features=parse_features(feature or []),
            scram_users=(
                *parse_scram_users(add_scram or [], generate_salt=_new_salt),
                *read_scram_users(add_scram_from or [], generate_salt=_new_salt),
            ),
            ignore_formatted=ignore_formatted,
        )
        target = load_format_target(config, stock_kafka=stock_kafka)
        result = format_directories(OsFileSystem(), target, options, now_ms=time.time_ns() // 1_000_000)
    if directory_id_to is not None:
        _write_directory_id(directory_id_to, result)
    sys.stdout.write(_as_json(result) if output is Output.JSON else _as_text(result))


@app.command("run")
def run_command(
    config: ConfigOption,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="The format of a log line.")
    ] = LogFormat.TEXT,
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", help="The lowest level that is logged.")
    ] = LogLevel.INFO,
) -> None:
    """Run a controller. On SIGTERM it hands over leadership and stops. The log goes to stderr."""
    configure_logs(level=log_level, log_format=log_format)
    with _failures():
        parsed = load_config(config)
    from quorate_controller.process import StartError, run  # noqa: PLC0415 - format does not need the server

    with _failures(StartError):
        run(parsed)


LEADER_EPOCH_MAX = 2**31 - 2


@app.command("rebuild-quorum")
def rebuild_quorum_command(
    config: ConfigOption,
    above_epoch: Annotated[
        int,
        typer.Option(
            "--above-epoch",
            min=0,
            max=LEADER_EPOCH_MAX,
            metavar="EPOCH",
            help="The last leader epoch that is known: the new one is above it, and above that of the disk.",
        ),
    ] = 0,
    output: OutputOption = Output.TEXT,
) -> None:
    """Make a stopped controller the only voter of its quorum.

    That is for a quorum that has lost a majority of its disks for good.
    Records that only the lost controllers had are lost. Never start the other controllers again with their old
    disks.
    """
    from quorate_controller.directories.rebuild import rebuild_quorum  # noqa: PLC0415 - for this command alone

    with _failures():
        rebuilt = rebuild_quorum(
            OsFileSystem(),
            load_config(config),
            now_ms=time.time_ns() // 1_000_000,
            above_epoch=above_epoch,
        )
    if output is Output.JSON:
        document = {
            "nodeId": rebuilt.node_id,
            "directoryId": uuid_to_text(rebuilt.directory_id),
            "formerVoters": list(rebuilt.former_voters),
            "leaderEpoch": rebuilt.leader_epoch,
            "offset": rebuilt.offset,
            "nextSteps": list(rebuilt.next_steps),
        }
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return
    former = ", ".join(str(node_id) for node_id in rebuilt.former_voters)
    sys.stdout.write(
        f"Node {rebuilt.node_id} is the only voter from offset {rebuilt.offset} on, in epoch "
        f"{rebuilt.leader_epoch}; the voters were {former}.\n\nWhat to do next:\n"
    )
    for number, step in enumerate(rebuilt.next_steps, 1):
        sys.stdout.write(f"{number}. {step}.\n")


@app.command("ship")
def ship_command(
    log_dir: Annotated[
        Path, typer.Option("--log-dir", help="The controller's log directory, which has meta.properties.")
    ],
    to: Annotated[
        Path,
        typer.Option("--to", metavar="HISTORY", help="The directory of histories; many nodes can share it."),
    ],
    *,
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Keep shipping until SIGTERM. The log goes to stderr."),
    ] = False,
    interval: Annotated[
        str,
        typer.Option(
            "--interval", help="With --follow: the time between two passes, for instance 30s or 5m."
        ),
    ] = "30s",
    include_active: Annotated[
        bool,
        typer.Option("--include-active", help="Also ship the active segment, up to its current end."),
    ] = False,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="With --follow: the format of a log line.")
    ] = LogFormat.TEXT,
    output: OutputOption = Output.TEXT,
) -> None:
    """Copy the log to a history for the lake.

    `quorate lake ingest` reads it there. Closed segments and checkpoints go to HISTORY/CLUSTER ID/NODE ID. The
    controller, Python or Java, may run meanwhile; its files are only read. Files that were shipped before are not
    copied again, and nothing in HISTORY is deleted.
    """
    interval_s = _interval_s(interval)
    from quorate_controller.shipping.shipper import ShipError, Shipper  # noqa: PLC0415 - for this command alone
    from quorate_controller.shipping.shipper import follow as follow_log  # noqa: PLC0415 - for this command

    if follow:
        configure_logs(level=LogLevel.INFO, log_format=log_format)
        follow_log(log_dir, to, interval_s=interval_s, include_active=include_active)
        return
    with _failures(ShipError):
        done = Shipper(log_dir=log_dir, history=to, include_active=include_active).ship()
    names = [file.name for file in done.shipped]
    if output is Output.JSON:
        document = {
            "clusterId": done.properties.cluster_id,
            "nodeId": done.properties.node_id,
            "to": str(done.target),
            "shipped": names,
        }
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        files = "1 file" if len(names) == 1 else f"{len(names)} files"
        sys.stdout.write(f"Shipped {files} of node {done.properties.node_id} to {done.target}.\n")
    for problem in done.problems:
        typer.echo(f"error: {problem}", err=True)
    if done.problems:
        raise typer.Exit(1)


@app.command("random-uuid")
def random_uuid_command() -> None:
    """Print a random UUID for a cluster or a directory."""
    sys.stdout.write(f"{uuid_to_text(random_uuid())}\n")


def _new_salt() -> bytes:
    return salt_of(randbits(SALT_BITS))


def _interval_s(text: str) -> int:
    found = _INTERVAL.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"--interval: {text!r}: must be a number and a unit of s, m, h: 30s, 5m")
    return int(found[1]) * _INTERVAL_UNITS_S[found[2]]


@contextmanager
def _failures(*more: type[Exception]) -> Iterator[None]:
    """Expected failures end the command with one line each and exit code 1, without a traceback."""
    expected: tuple[type[Exception], ...] = (ConfigError, FormatError, StorageError, *more)
    try:
        yield
    except expected as error:
        for line in str(error).splitlines():
            typer.echo(f"error: {line}", err=True)
        raise typer.Exit(1) from None


def _quorum_choice(
    *, standalone: bool, initial_controllers: bool, no_initial_controllers: bool
) -> QuorumChoice:
    chosen = [
        choice
        for choice, is_chosen in (
            (QuorumChoice.STANDALONE, standalone),
            (QuorumChoice.INITIAL_CONTROLLERS, initial_controllers),
            (QuorumChoice.NO_INITIAL_CONTROLLERS, no_initial_controllers),
        )
        if is_chosen
    ]
    if len(chosen) > 1:
        names = " and ".join(choice.value for choice in chosen)
        raise typer.BadParameter(f"{names} exclude each other")
    return chosen[0] if chosen else QuorumChoice.UNSPECIFIED


def _write_directory_id(file: Path, result: FormatResult) -> None:
    """Serve a caller that reads a file of this process, not its output: Kubernetes' termination log."""
    directory_id = result.directories[0].directory_id
    try:
        file.write_text(uuid_to_text(directory_id) if directory_id else "")
    except OSError as error:
        typer.echo(f"error: --directory-id-to {file}: {error.strerror}", err=True)
        raise typer.Exit(1) from None


def _as_text(result: FormatResult) -> str:
    version = metadata_version_name(result.metadata_version)
    lines = [
        f"Formatting {directory.kind.value} {directory.path} with {METADATA_VERSION} {version}."
        for directory in result.directories
        if directory.is_new
    ]
    return "\n".join(lines or ["All of the log directories are already formatted."]) + "\n"


def _as_json(result: FormatResult) -> str:
    document = {
        "clusterId": result.cluster_id,
        "nodeId": result.node_id,
        "metadataVersion": {
            "level": result.metadata_version,
            "name": metadata_version_name(result.metadata_version),
        },
        "features": dict(result.features),
        "directories": [
            {
                "path": str(directory.path),
                "kind": directory.kind.value,
                "directoryId": uuid_to_text(directory.directory_id) if directory.directory_id else None,
                "formatted": directory.is_new,
            }
            for directory in result.directories
        ],
    }
    return json.dumps(document, indent=2) + "\n"
