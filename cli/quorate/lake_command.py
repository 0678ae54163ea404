"""`quorate lake`: keeps the metadata history of clusters as tables, and reports on it."""

import re
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pyspark_quorate.errors import LakeError
from pyspark_quorate.jobs.lake import FORMATS, Lake
from pyspark_quorate.jobs.progress import steps_shown

from quorate.console import (
    Output,
    examples,
    flag,
    needing,
    option,
    parse_duration_s,
    plain_app,
    print_json,
    report_failures,
    table_text,
    write,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark_quorate.jobs.progress import Steps
    from pyspark_quorate.tables.contract import Table

SHOWN_ROWS = 100
MOMENT_HELP = "A time (UTC) such as 2026-01-31T12:00:00, or an offset: the state before its record."

EXAMPLES = examples(
    "quorate lake ingest /var/lib/kafka --to history",
    "quorate lake show history leadership",
    "quorate lake report history --to history.html",
)

app = plain_app(add_completion=False, no_args_is_help=True)

LakeArgument = Annotated[str, typer.Argument(metavar="LAKE", help="Directory of the lake.")]
ToOption = Annotated[str, option("LAKE", "Directory of the lake.", names=("--to",))]
MasterOption = Annotated[
    str | None,
    option(None, "Spark's master (default: local[*], or that of spark-submit).", names=("--master",)),
]
ConfOption = Annotated[
    list[str] | None,
    option("KEY=VALUE", "A Spark property; can be repeated.", names=("--conf",)),
]
FormatOption = Annotated[
    str | None,
    option("parquet|delta", "Format of a new lake (default: parquet).", names=("--format",)),
]
TablesOption = Annotated[
    str | None, option("A,B", "Build only these tables (default: all).", names=("--tables",))
]
OutputOption = Annotated[Output, option(None, "Output format.", names=("--output", "-o"))]


@app.callback(epilog=EXAMPLES)
def lake() -> None:
    r"""Keep the metadata history of clusters as tables: voters over time, blocked upgrades, flapping brokers.

    Needs the packages of `pip install 'quorate\[lake]'` and Java 17 or newer.
    """


@app.command()
def ingest(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE...", help="Directories that contain metadata logs, or s3://BUCKET."),
    ],
    *,
    to: ToOption,
    master: MasterOption = None,
    format_: FormatOption = None,
    tables: TablesOption = None,
    conf: ConfOption = None,
    cluster_id: Annotated[
        str | None, option(None, "Cluster id of directories without meta.properties.")
    ] = None,
    rebuild: Annotated[
        bool, flag("--rebuild", "Rebuild the tables of all clusters from the stored rows.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Read new files of metadata logs and checkpoints, and update the tables.

    Files that were read before are not read again. The command can be killed at any time; the next run continues.
    """
    with _failures_reported():
        chosen = _checked(to, format_, tables)
        from pyspark_quorate.jobs import ingest as job

        settings = _settings(conf or ())
        # Refuses a source on this machine before it makes a lake; listing a store twice would take too long.
        job.find_places([source for source in sources if "://" not in source], {}, cluster_id)
        with steps_shown() as steps, Lake.writing(to, format_) as found:
            steps.begin("listing the sources")
            news = job.find_new_files(found, sources, cluster_id)
            if job.is_needed(found, news, chosen, everything=rebuild):
                with _spark("quorate lake ingest", steps, master, settings) as spark:
                    done = job.ingest(spark, found, news, steps, tables=chosen, everything=rebuild)
            else:
                done = job.ingested(news)
            summary = {
                "directories": done.directories,
                "changedDirectories": done.changed_directories,
                "filesRead": done.files,
                "bytesRead": done.bytes,
                "clustersBuilt": done.built.clusters,
                "unreadable": len(done.unreadable),
            }
            _show_summary(found, summary, output)
            if done.unreadable:
                others = f", and {len(done.unreadable) - 1} more" if done.unreadable[1:] else ""
                raise LakeError(f"{done.unreadable[0]}{others}: the next ingest tries again")


@app.command()
def tail(
    *,
    bootstrap: Annotated[
        str,
        option("HOST:PORT,...", "The controllers to bootstrap from.", names=("--bootstrap-controller", "-C")),
    ],
    to: ToOption,
    command_config: Annotated[
        Path | None,
        option("FILE", "Client properties, such as security settings.", names=("--command-config", "-c")),
    ] = None,
    trigger: Annotated[
        float, option("TIME", "Interval between batches: 500ms, 10s, 1m.", parser=parse_duration_s)
    ] = "10s",  # type: ignore[assignment]  # parsed like what a user writes
    available_now: Annotated[
        bool, flag("--available-now", "Ingest the records that exist now, then exit.")
    ] = False,
    refresh: Annotated[
        float, option("TIME", "Minimum time between updates of the tables.", parser=parse_duration_s)
    ] = "1m",  # type: ignore[assignment]
    master: MasterOption = None,
    format_: FormatOption = None,
    tables: TablesOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Follow a running quorum as an observer until Ctrl-C or SIGTERM. A restart continues from the last batch."""
    with _failures_reported():
        chosen = _checked(to, format_, tables)
        with (
            _job("quorate lake tail", master, conf) as (spark, steps),
            Lake.writing(to, format_) as found,
            _stop_signals() as is_stopped,
        ):
            from pyspark_quorate.jobs.tail import FollowedQuorum, follow

            followed = FollowedQuorum(bootstrap, command_config)
            batches = follow(
                spark,
                found,
                followed,
                steps,
                tables=chosen,
                trigger_s=None if available_now else trigger,
                refresh_s=refresh,
                is_stopped=is_stopped,
            )
            _show_summary(found, {"batches": batches}, output)


@app.command()
def compact(
    where: LakeArgument,
    master: MasterOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Merge small files. The content of the tables stays the same."""
    with _failures_reported():
        Lake.open(where)
        _checked(where)
        with _job("quorate lake compact", master, conf) as (spark, steps), Lake.writing(where) as found:
            from pyspark_quorate.jobs.compaction import compact as run

            done = run(spark, found, steps)
            _show_summary(found, {"filesBefore": done.before, "filesAfter": done.after}, output)


@app.command()
def show(
    where: LakeArgument,
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE...", help="The tables (default: list them).")
    ] = None,
    cluster_id: Annotated[str | None, option(None, "Only this cluster (default: all).")] = None,
    limit: Annotated[
        int | None, option(None, "Rows per table (default: 100, or all for JSON).", min=1)
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print tables. Needs no Java."""
    with _failures_reported():
        from pyspark_quorate.jobs.table_reader import ROWS_MAX, as_json, read_table

        found = Lake.open(where)
        if not tables:
            _show_summary(found, {}, output)
            return
        shown = {}
        for name in tables:
            read = read_table(
                found, name, cluster_id, limit or (ROWS_MAX if output is Output.JSON else SHOWN_ROWS)
            )
            if read is not None:
                shown[name] = [as_json(dict(row)) for row in read.rows]
        if output is Output.JSON:
            print_json({"lake": str(found.path), "tables": shown})
            return
        missing = [name for name in tables if name not in shown]
        if missing:
            raise LakeError(
                f"{found.path} has no table {missing[0]}; it has {', '.join(sorted(found.state.tables))}"
            )
        for name, rows in shown.items():
            heading = list(rows[0]) if rows else []
            write(
                f"{name}\n"
                + (_table(heading, [[row[column] for column in heading] for row in rows]) or "(no rows)\n")
            )


@app.command()
def diff(
    where: LakeArgument,
    before: Annotated[str, typer.Argument(metavar="BEFORE", help=MOMENT_HELP)],
    after: Annotated[
        str | None, typer.Argument(metavar="[AFTER]", help="A later one (default: the end of the history).")
    ] = None,
    cluster_id: Annotated[
        str | None, option(None, "The cluster (default: the only one of the lake).")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print what changed in a cluster's metadata between two times or offsets. Needs no Java.

    Names are those of the metadata shell. Secrets are not in a lake, so that their changes are not shown.
    """
    with _failures_reported():
        from quorate.tools.metadata_shell.past import (
            difference_json,
            difference_text,
            find_difference,
            parse_span,
        )

        span = parse_span(before, after)
        found = find_difference(where, cluster_id, span)
        if output is Output.JSON:
            print_json(difference_json(found))
        else:
            write(difference_text(found))


@app.command()
def report(
    where: LakeArgument,
    to: Annotated[Path, option("FILE", "The HTML file to write.")],
    cluster_id: Annotated[
        str | None, option(None, "Only this cluster (default: all).", names=("--cluster", "--cluster-id"))
    ] = None,
    since: Annotated[datetime | None, option(None, "UTC: 2026-01-31 or 2026-01-31T12:00:00.")] = None,
    until: Annotated[datetime | None, option(None, "UTC, exclusive.")] = None,
) -> None:
    """Write a self-contained HTML file with charts of the history. Needs no Java."""
    with _failures_reported(), steps_shown() as steps:
        from pyspark_quorate.report.history import collect
        from pyspark_quorate.report.page import render

        found = Lake.open(where)
        steps.begin("reading the tables")
        histories = collect(
            found, cluster_id, since and since.replace(tzinfo=UTC), until and until.replace(tzinfo=UTC)
        )
        steps.begin("drawing", len(histories))
        page = render(histories, datetime.now(UTC), steps.advance)
        to.write_text(page, encoding="utf-8")
        write(
            f"{to}: {len(histories)} cluster{'s' if len(histories) != 1 else ''}, {len(page) // 1024 + 1} KiB\n"
        )


@contextmanager
def _failures_reported() -> Iterator[None]:
    """Report expected errors in one line, and end the job on SIGTERM as on Ctrl-C."""

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - signature of a handler
        raise KeyboardInterrupt(number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        with report_failures(LakeError), needing("lake"):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _stop_signals() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C or SIGTERM arrived. An exception would break calls to the JVM."""
    arrived = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - signature of a handler
        arrived.set()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield arrived.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _job(
    name: str, master: str | None, conf: Sequence[str] | None
) -> Iterator[tuple["SparkSession", "Steps"]]:
    settings = _settings(conf or ())
    with steps_shown() as steps, _spark(name, steps, master, settings) as spark:
        yield spark, steps


@contextmanager
def _spark(
    name: str, steps: "Steps", master: str | None, settings: Mapping[str, str]
) -> Iterator["SparkSession"]:
    from pyspark_quorate.jobs.session import spark_session

    steps.begin("starting Spark")
    scratch = Path(tempfile.mkdtemp(prefix="quorate-lake-"))
    try:
        with (
            spark_session(name, scratch, steps, master, settings) as spark,
            steps.watching(spark),
            _report_spark_failures(),
        ):
            yield spark
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _report_spark_failures() -> Iterator[None]:
    """Report a failure of Spark by its first line, without plans and JVM frames."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark_quorate.jobs.session import spark_reason

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise LakeError(f"Spark failed: {spark_reason(error)}") from error


def _settings(conf: Sequence[str]) -> dict[str, str]:
    settings = {}
    for setting in conf:
        key, separator, value = setting.partition("=")
        if not separator or not key:
            raise LakeError(f"--conf {setting}: must be KEY=VALUE")
        settings[key] = value
    return settings


def _checked(to: str, format_: str | None = None, tables: str | None = None) -> "Sequence[Table]":
    """Return the tables to build. Raises LakeError for invalid options, before Spark is started."""
    from pyspark_quorate.jobs.session import check_installed

    check_installed()
    if format_ is not None and format_ not in FORMATS:
        raise LakeError(f"--format {format_}: allowed are {', '.join(FORMATS)}")
    if format_ == "delta":
        from pyspark_quorate.jobs import delta

        delta.check_installed()
    Lake.check(to, format_)
    from pyspark_quorate.jobs.table_build import choose_tables

    return choose_tables(tables)


def _show_summary(found: Lake, summary: Mapping[str, Any], output: Output) -> None:
    """Print the results of a job and the tables that the lake now has."""
    from pyspark_quorate.jobs.table_reader import count_rows

    counts = {name: count_rows(found, name) for name in sorted(found.state.tables)}
    if output is Output.JSON:
        print_json(
            {"lake": str(found.path), "clusters": len(found.state.clusters), **summary, "tables": counts}
        )
        return
    for key, value in summary.items():
        words = re.sub("([A-Z])", lambda match: f" {match[1].lower()}", key)
        write(f"{words}: {value}\n")
    write(_table(["table", "rows"], [[name, count] for name, count in counts.items()]))
    write(f"clusters: {len(found.state.clusters)}\n")


def _table(heading: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    shown = [["" if cell is None else str(cell) for cell in row] for row in rows]
    return table_text(heading, shown) if heading else ""
