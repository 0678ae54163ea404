"""`python -m benchmarks [--jars DIR] [--only PART] [-o json]`: a row per figure, ours beside stock Kafka's."""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import tempfile
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

from quorate_operator.runtime.local.errors import KafkaUnavailableError
from quorate_operator.runtime.local.stock_kafka import find_kafka
from rich.console import Console

from benchmarks import tables
from benchmarks.authorization import ACLS, AuthorizationMeasurements, measure_authorization
from benchmarks.controllers import Measurements, measure
from benchmarks.lake import RECORDS, LakeMeasurements, estimate, measure_lake
from benchmarks.operators import OperatorMeasurements, measure_operator
from benchmarks.quorum import Implementation, java_implementation, linger, python_implementation
from benchmarks.scale_report import (
    PARTITIONS,
    Results,
    measure_scale,
    print_growth,
    print_size,
    scale_json,
)
from benchmarks.tools import ToolMeasurements, measure_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Row = tuple[str, str, "Callable[[float], str]", str]
"""Name in JSON, label, text of a value, aim."""


ROWS: Final[tuple[Row, ...]] = (
    ("start_seconds", "cold start until all three are registered", tables.seconds, "<= 0.2x"),
    ("resident_bytes", "idle resident memory of the three", tables.mebibytes, "<= 0.2x"),
    ("failover_seconds", "kill -9 of the active one until a commit", tables.seconds, "<= 0.25x"),
    ("create_p50_seconds", "CreateTopics, one client, p50", tables.milliseconds, "<= 0.1x"),
    ("create_p99_seconds", "CreateTopics, one client, p99", tables.milliseconds, "none"),
    ("forwarded_p50_seconds", "CreateTopics that a broker forwards, p50", tables.milliseconds, "none"),
    ("forwarded_p99_seconds", "CreateTopics that a broker forwards, p99", tables.milliseconds, "none"),
)
OPERATOR_ROWS: Final[tuple[tuple[str, str, Callable[[float], str]], ...]] = (
    ("clusters", "clusters in one operator", tables.count),
    ("resident_bytes", "resident memory of the operator", tables.mebibytes),
    ("settle_seconds", "operator's start until all are looked at", tables.seconds),
    ("idle_requests_per_minute", "requests to the API server when idle", lambda value: f"{value:.0f} /min"),
    ("first_step_seconds", "change of a spec until its first step is done", tables.milliseconds),
)
AUTHORIZATION_RELEASE: Final = "4.4.0"
"""The release of Kafka whose authorizer is measured: the first whose ACLs may have blocks of addresses."""
AUTHORIZATION_PORTS: Final = 12
AUTHORIZATION_ROWS: Final[tuple[tuple[str, str, Callable[[float], str]], ...]] = (
    ("create_p50_seconds", "CreateTopics, p50", tables.milliseconds),
    ("create_cpu_seconds", "the same, processor time of the active one", tables.microseconds),
    ("heartbeat_p50_seconds", "BrokerHeartbeat, p50", tables.milliseconds),
    ("heartbeat_cpu_seconds", "the same, processor time of the active one", tables.microseconds),
)
TOOL_ROWS: Final[tuple[Row, ...]] = (
    ("metadata_quorum_seconds", "metadata-quorum describe --status", tables.seconds, "<= 0.25x"),
    ("topics_list_seconds", "topics --list", tables.seconds, "<= 0.25x"),
)


def _free_ports(count: int) -> tuple[int, ...]:
    """Free ports; all are held until the last is found, so that they differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = tuple(each.getsockname()[1] for each in sockets)
    for each in sockets:
        each.close()
    return ports


def _median(runs: list[Measurements]) -> Measurements:
    names = (field.name for field in fields(Measurements))
    return Measurements(**{name: statistics.median(getattr(run, name) for run in runs) for name in names})


def main() -> int:
    """Measures in rounds, the two in turn, and prints medians and their ratio."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument(
        "--jars", type=Path, help=f"directory with the jars of {tables.KAFKA}; fetched if missing"
    )
    parser.add_argument("--python", default=sys.executable, help="interpreter that runs what is ours")
    for option, default, meaning in (
        ("--rounds", 3, "runs of controllers, of which medians are printed"),
        ("--pairs", 10, "runs of each tool, of which medians are printed"),
        ("--lake-records", RECORDS, "records of the log that the lake reads; 10000000 takes some minutes"),
    ):
        parser.add_argument(option, type=int, default=default, help=f"{meaning} (default {default})")
    parts = ("controllers", "tools", "operator", "lake", *ONLY_ALONE)
    alone = " and ".join(ONLY_ALONE)
    parser.add_argument(
        "--only", choices=parts, help=f"measure only these; {alone} are measured only by this option"
    )
    parser.add_argument(
        "--scale-partitions",
        type=_sizes,
        default=PARTITIONS,
        help="numbers of partitions, separated by commas",
    )
    parser.add_argument("--scale-rounds", type=int, default=1, help="rounds of scale (default 1)")
    parser.add_argument("--kafka-linger-ms", type=int, help="Kafka's linger for scale (default: Kafka's)")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    options = parser.parse_args()
    console = Console(stderr=True)
    release = AUTHORIZATION_RELEASE if options.only == "authorization" else tables.RELEASE
    if options.jars is None and options.only != "operator":
        try:
            options.jars = find_kafka(release, os.environ, console.print).libs
        except KafkaUnavailableError as error:
            console.print(f"{error}", markup=False)
            return 1
    if options.only in ONLY_ALONE:
        return ONLY_ALONE[options.only](options, console)
    jars = options.jars.resolve() if options.jars else Path()
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as scratch, console.status("") as status:
        controllers = tools = operator = lake = None
        if options.only in (None, "operator"):
            operator = measure_operator(options.python, Path(scratch), progress=status.update)
        if options.only in (None, "controllers"):
            controllers = _controllers(options.python, jars, Path(scratch), options.rounds, status.update)
        if options.only in (None, "tools"):
            directory, (broker, controller) = Path(scratch) / "tools", _free_ports(2)
            tools = measure_tools(
                *(options.python, jars, directory, (broker, controller)),
                pairs=options.pairs,
                progress=status.update,
            )
        if options.only in (None, "lake"):
            records = options.lake_records
            lake = measure_lake(options.python, jars, Path(scratch), records=records, progress=status.update)
    if options.output == "json":
        content = _json(controllers, options.rounds, tools, options.pairs, operator)
        if lake is not None:
            content["lake"] = asdict(lake) | {"estimate": asdict(estimate(lake))}
        print(json.dumps(content, indent=2))
    else:
        _print(options, controllers, tools, operator, lake)
    return 0


def _print(
    options: argparse.Namespace,
    controllers: tuple[Measurements, Measurements] | None,
    tools: tuple[ToolMeasurements, ToolMeasurements] | None,
    operator: OperatorMeasurements | None,
    lake: LakeMeasurements | None,
) -> None:
    if controllers is not None:
        _print_table(f"Three controllers, medians of {options.rounds} rounds", ROWS, *controllers)
    if tools is not None:
        _print_table(f"Tools, from start to end, medians of {options.pairs} pairs", TOOL_ROWS, *tools)
    if operator is not None:
        _print_operator(operator)
    if lake is not None:
        _print_lake(lake)


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(int(size) for size in text.split(","))
    if not all(1_000 <= size <= 2_000_000 for size in sizes):
        raise argparse.ArgumentTypeError("each number must be from 1000 to 2000000")
    return sizes


def _scale(options: argparse.Namespace, console: Console) -> int:
    results: dict[int, Results] = {}
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as scratch, console.status("") as status:
        for size, by_name in measure_scale(
            *(options.python, options.jars.resolve(), Path(scratch)),
            sizes=options.scale_partitions,
            rounds=options.scale_rounds,
            linger_ms=options.kafka_linger_ms,
            free_ports=_free_ports,
            progress=status.update,
        ):
            results[size] = by_name
            if options.output == "table":
                print_size(size, by_name, options.scale_rounds)
    if options.output == "json":
        print(json.dumps({"scale": scale_json(results)}, indent=2))
    else:
        print_growth(results)
    return 0


def _controllers(
    python: str, jars: Path, scratch: Path, rounds: int, progress: Callable[[str], None]
) -> tuple[Measurements, Measurements]:
    ours: list[Measurements] = []
    theirs: list[Measurements] = []
    contenders: tuple[tuple[Implementation, list[Measurements]], ...] = (
        (python_implementation(python), ours),
        (java_implementation(jars), theirs),
    )
    for number in range(rounds):
        for implementation, runs in contenders:
            name = f"round {number + 1} of {rounds}, {implementation.name}"
            runs.append(
                measure(
                    implementation,
                    scratch / f"{implementation.name}-{number}",
                    _free_ports(3),
                    lambda part, name=name: progress(f"{name}: {part}"),
                )
            )
    return _median(ours), _median(theirs)


def _authorization(options: argparse.Namespace, console: Console) -> int:
    """Kafka without its linger, which would hide what ACLs cost."""
    lingers = (
        (python_implementation(options.python), None),
        (java_implementation(options.jars.resolve()), 0),
    )
    results: dict[str, AuthorizationMeasurements] = {}
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as scratch, console.status("") as status:
        for one, linger_ms in lingers:
            results[one.name] = measure_authorization(
                *(one, Path(scratch) / one.name, _free_ports(AUTHORIZATION_PORTS)),
                release=AUTHORIZATION_RELEASE,
                linger=linger(linger_ms),
                progress=lambda part, name=one.name: status.update(f"{name}: {part}"),
            )
    if options.output == "json":
        print(json.dumps({"authorization": {name: asdict(one) for name, one in results.items()}}, indent=2))
    else:
        _print_authorization(*results.values())
    return 0


ONLY_ALONE: Final[Mapping[str, Callable[[argparse.Namespace, Console], int]]] = {
    "scale": _scale,
    "authorization": _authorization,
}
"""Parts that are measured only by `--only`."""


def _json(
    controllers: tuple[Measurements, Measurements] | None,
    rounds: int,
    tools: tuple[ToolMeasurements, ToolMeasurements] | None,
    pairs: int,
    operator: OperatorMeasurements | None,
) -> dict[str, object]:
    content: dict[str, object] = {}
    if controllers is not None:
        content |= {"rounds": rounds, "quorate": asdict(controllers[0]), "kafka": asdict(controllers[1])}
    if tools is not None:
        content["tools"] = {"pairs": pairs, "quorate": asdict(tools[0]), "kafka": asdict(tools[1])}
    if operator is not None:
        content["operator"] = asdict(operator)
    return content


def _print_authorization(ours: AuthorizationMeasurements, theirs: AuthorizationMeasurements) -> None:
    title = f"Without an authorizer, and with {ACLS:,} ACLs"
    table = tables.table(title, "Quorate", "ratio", f"Kafka {AUTHORIZATION_RELEASE}", "ratio", "aim")
    for name, label, text in AUTHORIZATION_ROWS:
        cells = []
        for one in (ours, theirs):
            without, with_acls = getattr(one, name)
            cells += [f"{text(without)}, {text(with_acls)}", f"{with_acls / without:.2f}x"]
        table.add_row(label, *cells, "<= 1.2x")
    Console(width=130).print(table)


def _print_operator(operator: OperatorMeasurements) -> None:
    table = tables.table("One operator, a real API server", "Quorate")
    for name, label, text in OPERATOR_ROWS:
        table.add_row(label, text(getattr(operator, name)))
    Console(width=110).print(table)


def _print_lake(lake: LakeMeasurements) -> None:
    """Rates are of records a second; a ratio above 1 is in favour of the lake, but for memory."""
    two, one, dump = lake.two_cores, lake.one_core, lake.dump
    title = f"Reading a metadata log of {lake.records:,} records, {tables.mebibytes(lake.segment_bytes)}"
    table = tables.table(title, "Quorate", "DumpLogSegments", "ratio", "aim")

    def rate(label: str, ours: float, theirs: float, aim: str) -> None:
        our, their = lake.records / ours, lake.records / theirs
        table.add_row(label, f"{our:,.0f} /s", f"{their:,.0f} /s", f"{our / their:.1f}x", aim)

    rate("two cores, query", two.read_seconds, dump.seconds, ">= 5x")
    rate("two cores, start of the process to its end", two.seconds, dump.seconds, "none")
    rate("one core, query", one.read_seconds, dump.seconds, "none")
    rate("per second of processor time", two.cpu_seconds, dump.cpu_seconds, "none")
    ours, theirs = two.resident_bytes_max, dump.resident_bytes_max
    ratio = f"{ours / theirs:.1f}x"
    table.add_row("memory, all processes", tables.mebibytes(ours), tables.mebibytes(theirs), ratio, "none")
    scaling = one.read_seconds / two.read_seconds
    table.add_row("from one core to two", f"{scaling:.2f}x", "", "", "none")
    small = f"{lake.small_clusters:,} clusters of {lake.small_records} records in one job"
    table.add_row(small, f"{lake.small.read_seconds:.1f} s", "", "", "none")
    console = Console(width=110)
    console.print(table)
    paper = estimate(lake)
    console.print(
        f"On paper, {paper.clusters:,} clusters and a year: {paper.records:.2g} records, most of them NoOpRecords, "
        f"in {paper.log_bytes / 1e12:.1f} TB of logs, are read once in {paper.core_hours:,.0f} hours of one core: "
        f"{paper.core_hours / (365 * 24):.1f} cores that read all the time keep up."
    )


def _print_table(title: str, rows: Sequence[Row], ours: object, theirs: object) -> None:
    table = tables.table(title, "Quorate", tables.KAFKA, "ratio", "aim")
    for name, label, text, aim in rows:
        our, their = getattr(ours, name), getattr(theirs, name)
        table.add_row(label, text(our), text(their), f"{our / their:.3f}x", aim)
    Console(width=110).print(table)


if __name__ == "__main__":
    sys.exit(main())
