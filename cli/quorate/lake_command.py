"""`quorate lake`: a cluster's history as tables, and what is made of them."""

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
from pyspark_quorate.jobs.lake import FORMATS, Lake
from pyspark_quorate.jobs.progress import steps_shown
from pyspark_quorate.jobs.state import LakeError

from quorate.console import Output, print_json, report_failures, table_text, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark_quorate.jobs.progress import Steps

SHOWN_ROWS = 100

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

LakeArgument = Annotated[str, typer.Argument(metavar="LAKE", help="The directory of the lake.")]
ToOption = Annotated[str, typer.Option("--to", metavar="LAKE", help="The directory of the lake.")]
MasterOption = Annotated[
    str | None,
    typer.Option("--master", help="Spark's master; local[*] without, or what spark-submit says."),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A property of Spark; may be given more than once."),
]
FormatOption = Annotated[
    str | None, typer.Option("--format", metavar="parquet|delta", help="Of a new lake; parquet without.")
]
TablesOption = Annotated[
    str | None, typer.Option("--tables", metavar="A,B", help="Make these tables only; all without.")
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="For people, or for programs.")]


@app.callback()
def lake() -> None:
    r"""Keep the history of clusters as tables: who was a voter when, what blocked an upgrade, which broker flapped.

    Needs the packages of `pip install 'quorate\[lake]'` and Java 17 or newer.
    """


@app.command()
def ingest(
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE…", help="Directories with metadata logs below, or s3://… .")
    ],
    *,
    to: ToOption,
    master: MasterOption = None,
    format_: FormatOption = None,
    tables: TablesOption = None,
    conf: ConfOption = None,
    cluster_id: Annotated[
        str | None,
        typer.Option("--cluster-id", help="Of directories without meta.properties."),
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Make the tables of all clusters again, from the rows kept.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Read what is new in metadata logs and checkpoints, and bring the tables up to date.

    What was read before isn't read again. May be killed at any time; the next run goes on.
    """
    with _told(), _job("quorate lake ingest", master, conf) as (spark, steps):
        from pyspark_quorate.jobs.building import choose_tables
        from pyspark_quorate.jobs.ingest import ingest as run

        chosen = choose_tables(tables)
        with Lake.writing(to, _format(format_)) as found:
            done = run(spark, found, sources, steps, tables=chosen, cluster_id=cluster_id, everything=rebuild)
            summary = {
                "directories": done.directories,
                "changedDirectories": done.changed_directories,
                "filesRead": done.files,
                "bytesRead": done.bytes,
                "clustersBuilt": done.built.clusters,
            }
            _tell(found, summary, output)


@app.command()
def tail(
    *,
    bootstrap: Annotated[
        str,
        typer.Option(
            "--bootstrap-controller", "-C", metavar="HOST:PORT,…", help="Controllers to connect to first."
        ),
    ],
    to: ToOption,
    command_config: Annotated[
        Path | None,
        typer.Option("--command-config", "-c", metavar="FILE", help="Properties of a client: security."),
    ] = None,
    trigger: Annotated[
        str, typer.Option("--trigger", metavar="TIME", help="How often news is taken in: 500ms, 10s, 1m.")
    ] = "10s",
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Take in what there is now, and end.")
    ] = False,
    refresh: Annotated[
        str, typer.Option("--refresh", metavar="TIME", help="How often the tables are made again at most.")
    ] = "1m",
    master: MasterOption = None,
    format_: FormatOption = None,
    tables: TablesOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Follow a living quorum as an observer, until Ctrl-C or SIGTERM. A restart goes on where this ended."""
    trigger_s, refresh_s = _seconds(trigger, "--trigger"), _seconds(refresh, "--refresh")
    with _told(), _job("quorate lake tail", master, conf) as (spark, steps):
        from pyspark_quorate.jobs.building import choose_tables
        from pyspark_quorate.jobs.tail import Followed, follow

        chosen = choose_tables(tables)
        with Lake.writing(to, _format(format_)) as found, _asked_to_stop() as is_stopped:
            followed = Followed(bootstrap, command_config)
            batches = follow(
                spark,
                found,
                followed,
                steps,
                tables=chosen,
                trigger_s=None if available_now else trigger_s,
                refresh_s=refresh_s,
                is_stopped=is_stopped,
            )
            _tell(found, {"batches": batches}, output)


@app.command()
def compact(
    where: LakeArgument,
    master: MasterOption = None,
    conf: ConfOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Merge small files. What the tables say stays the same."""
    with _told(), _job("quorate lake compact", master, conf) as (spark, steps):
        from pyspark_quorate.jobs.compaction import compact as run

        Lake.open(where)
        with Lake.writing(where) as found:
            done = run(spark, found, steps)
            _tell(found, {"filesBefore": done.before, "filesAfter": done.after}, output)


@app.command()
def show(
    where: LakeArgument,
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE…", help="Without: which there are.")
    ] = None,
    cluster_id: Annotated[str | None, typer.Option("--cluster-id", help="One cluster; all without.")] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Rows of each table; 100 without, or all in JSON.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print tables. Needs no Java."""
    with _told():
        from pyspark_quorate.jobs.reading import ROWS_MAX, as_json, read_table

        found = Lake.open(where)
        if not tables:
            _tell(found, {}, output)
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
                + (_table(heading, [[row[one] for one in heading] for row in rows]) or "(no rows)\n")
            )


@app.command()
def report(
    where: LakeArgument,
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="The HTML file to write.")],
    cluster_id: Annotated[str | None, typer.Option("--cluster", "--cluster-id", help="All without.")] = None,
    since: Annotated[
        datetime | None, typer.Option("--since", help="UTC: 2026-01-31 or 2026-01-31T12:00:00.")
    ] = None,
    until: Annotated[datetime | None, typer.Option("--until", help="UTC, exclusive.")] = None,
) -> None:
    """Write one self-contained HTML file with what happened, in pictures. Needs no Java."""
    with _told(), steps_shown() as steps:
        from pyspark_quorate.report.collecting import collect
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
def _told() -> Iterator[None]:
    """Failures of users' making end with a message; SIGTERM ends a job like Ctrl-C."""

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - what a handler is given
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        with report_failures(LakeError):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C or SIGTERM came. An exception in the middle of a call to the JVM would spoil later ones."""
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - what a handler is given
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _job(
    name: str, master: str | None, conf: Sequence[str] | None
) -> Iterator[tuple["SparkSession", "Steps"]]:
    from pyspark_quorate.jobs.session import spark_session

    settings = _settings(conf or ())
    scratch = Path(tempfile.mkdtemp(prefix="quorate-lake-"))
    try:
        with (
            steps_shown() as steps,
            spark_session(name, scratch, master, settings) as spark,
            steps.watching(spark),
            _report_spark_failures(),
        ):
            yield spark, steps
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _report_spark_failures() -> Iterator[None]:
    """What Spark can't do is told in its first line, without plans and frames of the JVM."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark_quorate.jobs.session import spark_reason

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise LakeError(f"Spark failed: {spark_reason(error)}") from error


def _settings(conf: Sequence[str]) -> dict[str, str]:
    settings = {}
    for one in conf:
        key, separator, value = one.partition("=")
        if not separator or not key:
            raise LakeError(f"--conf {one}: it must be KEY=VALUE")
        settings[key] = value
    return settings


def _format(name: str | None) -> str | None:
    if name is not None and name not in FORMATS:
        raise LakeError(f"--format {name}: allowed are {', '.join(FORMATS)}")
    if name == "delta":
        from pyspark_quorate.jobs.delta import check_installed

        check_installed()
    return name


def _seconds(text: str, option: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|)", text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a duration; write 500ms, 10s or 1m", param_hint=option)
    return float(found[1]) * {"ms": 0.001, "s": 1, "": 1, "m": 60, "h": 3600}[found[2]]


def _tell(found: Lake, summary: Mapping[str, Any], output: Output) -> None:
    """What was done, and what the lake has now."""
    from pyspark_quorate.jobs.reading import count_rows

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
    shown = [["" if one is None else str(one) for one in row] for row in rows]
    return table_text(heading, shown) if heading else ""
