"""`python -m benchmarks [--kafka VERSION] [--only PART] [-o FORMAT]`: ours beside stock Kafka's.

Without `--only`, controllers and tools are measured. KAFKA_HOME names an unpacked Kafka; Maven fetches one otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from quorate_operator.runtime.local.errors import KafkaUnavailableError
from quorate_operator.runtime.local.stock_kafka import find_kafka
from quorate_protocol.kafka.releases import DEFAULT_RELEASE, RELEASES, version_key
from rich.console import Console

from benchmarks import report, tables
from benchmarks.authorization import ACLS, AuthorizationMeasurements, measure_authorization
from benchmarks.controllers import measure_rounds
from benchmarks.entities import measure_entities
from benchmarks.ingest import CONTROLLERS, Ingest, measure_ingests
from benchmarks.ingest import RECORDS as INGEST_RECORDS
from benchmarks.lake import RECORDS, LakeMeasurements, estimate, measure_lake
from benchmarks.operators import measure_operator
from benchmarks.quorum import Quorum, free_ports, java_implementation, python_implementation
from benchmarks.scale_report import (
    PARTITIONS,
    Results,
    measure_scale,
    print_growth,
    print_size,
    scale_json,
)
from benchmarks.size import Sizes, measure_size, size_rows
from benchmarks.tools import measure_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from quorate_operator.runtime.local.stock_kafka import Kafka


def _per_minute(value: float) -> str:
    return f"{value:.0f} /min"


OPERATOR_ROWS: Final[tuple[tuple[str, str, Callable[[float], str]], ...]] = (
    ("clusters", "clusters in one operator", tables.count),
    ("resident_bytes", "resident memory of the operator", tables.mebibytes),
    ("settle_seconds", "operator's start until all are looked at", tables.seconds),
    ("idle_requests_per_minute", "requests to the API server when idle", _per_minute),
    ("idle_cpu_share", "its processor time meanwhile, of one core", tables.percent),
    ("first_step_seconds", "change of a spec until its first step is done", tables.milliseconds),
    ("waiting_requests_per_minute", "requests while all pods wait for a machine", _per_minute),
    ("waiting_cpu_share", "its processor time meanwhile, of one core", tables.percent),
    ("waiting_resident_bytes", "its resident memory then", tables.mebibytes),
)
ENTITY_ROWS: Final[tuple[tuple[str, str, Callable[[float], str]], ...]] = (
    ("topics", "KafkaTopics of one cluster", tables.count),
    ("users", "KafkaUsers of one cluster", tables.count),
    ("settle_seconds", "operator's start until all are Ready", tables.seconds),
    ("settle_cpu_seconds", "its processor time until then", tables.seconds),
    ("settle_requests", "requests to the API server until then", tables.count),
    ("resident_bytes", "its resident memory", tables.mebibytes),
    ("idle_requests_per_minute", "requests to the API server when idle", _per_minute),
    ("idle_cpu_share", "processor time of the operator when idle, of one core", tables.percent),
    ("idle_broker_cpu_share", "the same, of the broker", tables.percent),
    ("change_seconds", "change of a topic's resource until Kafka has it", tables.seconds),
    ("start_requests_per_minute", "requests in the first minute of the next operator", _per_minute),
    ("start_cpu_share", "its processor time in that minute, of one core", tables.percent),
)
AUTHORIZATION_SINCE: Final = "4.4.0"
"""The first release whose ACLs may have blocks of addresses."""
AUTHORIZATION_PORTS: Final = 12
SIZE_PORTS: Final = 3
AUTHORIZATION_ROWS: Final[tuple[tuple[str, str, Callable[[float], str]], ...]] = (
    ("create_p50_seconds", "CreateTopics, p50", tables.milliseconds),
    ("create_cpu_seconds", "the same, processor time of the active one", tables.microseconds),
    ("heartbeat_p50_seconds", "BrokerHeartbeat, p50", tables.milliseconds),
    ("heartbeat_cpu_seconds", "the same, processor time of the active one", tables.microseconds),
)
INGESTS: Final = 5
DEFAULT_PARTS: Final = ("controllers", "tools")
"""What is measured without `--only`."""


def main() -> int:
    """Measure in rounds, one implementation after the other, and print medians and their ratio."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument(
        "--kafka", choices=RELEASES, default=DEFAULT_RELEASE, help="the release (default %(default)s)"
    )
    parser.add_argument("--python", default=sys.executable, help="interpreter that runs what is ours")
    for option, default, meaning in (
        ("--rounds", 3, "runs of controllers"),
        ("--pairs", 7, "runs of each tool"),
        ("--lake-records", RECORDS, "records of the log that the lake reads; 10000000 takes some minutes"),
    ):
        parser.add_argument(option, type=_positive, default=default, help=f"{meaning} (default {default})")
    parser.add_argument("--only", choices=PARTS, help="measure only these")
    parser.add_argument(
        "--scale-partitions",
        type=_sizes,
        default=PARTITIONS,
        help="numbers of partitions, separated by commas",
    )
    parser.add_argument("--scale-rounds", type=_positive, default=1, help="rounds of scale (default 1)")
    for option, default, meaning in (
        ("--topics", 5_000, "KafkaTopics of entities"),
        ("--users", 5_000, "KafkaUsers of entities"),
        ("--size-brokers", 1_000, "brokers beside the largest requests"),
        ("--size-topics", 4_900, "topics of one request"),
        ("--size-partitions", 100_000, "partitions of the topic that is deleted"),
    ):
        parser.add_argument(option, type=_positive, default=default, help=f"{meaning} (default {default})")
    parser.add_argument("--kafka-linger-ms", type=int, help="Kafka's linger for scale (default: Kafka's)")
    parser.add_argument("-o", "--output", choices=("table", "json", "markdown"), default="table")
    options = parser.parse_args()
    console = Console(stderr=True)
    measured = (options.only,) if options.only else DEFAULT_PARTS
    if options.output == "markdown" and not set(measured) <= set(DEFAULT_PARTS):
        parser.error(f"--output markdown is for {' and '.join(DEFAULT_PARTS)}")
    if options.only == "authorization" and version_key(options.kafka) < version_key(AUTHORIZATION_SINCE):
        parser.error(f"--only authorization needs Kafka {AUTHORIZATION_SINCE} or newer, not {options.kafka}")
    try:
        kafka = find_kafka(options.kafka, os.environ, console.print)
    except KafkaUnavailableError as error:
        console.print(f"{error}", markup=False)
        return 1
    circumstances = report.circumstances(kafka)
    content: dict[str, object] = {"circumstances": circumstances}
    if options.output != "json":
        print(", ".join(f"{name} {value}" for name, value in circumstances.items()))
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as scratch, console.status("") as status:
        bench = Bench(options, kafka, Path(scratch), status.update)
        for part in measured:
            content |= PARTS[part](bench)
    if options.output == "json":
        print(json.dumps(content, indent=2))
    return 0


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(int(size) for size in text.split(","))
    if not all(1_000 <= size <= 2_000_000 for size in sizes):
        raise argparse.ArgumentTypeError("each number must be from 1000 to 2000000")
    return sizes


@dataclass(frozen=True, slots=True)
class Bench:
    """What each part is given. A part prints its tables unless JSON is wanted, and returns its JSON."""

    options: argparse.Namespace
    kafka: Kafka
    scratch: Path
    progress: Callable[[str], None]

    @property
    def prints_tables(self) -> bool:
        return self.options.output != "json"

    def print_comparison(self, title: str, headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
        """Print a table, of rich or of markdown."""
        if self.options.output == "markdown":
            print(tables.markdown(title, headings, rows))
            return
        table = tables.table(title, *headings)
        for row in rows:
            table.add_row(*row)
        Console(width=160).print(table)


def _controllers(bench: Bench) -> dict[str, object]:
    rounds = bench.options.rounds
    runs = measure_rounds(bench.options.python, bench.kafka, bench.scratch, rounds, bench.progress)
    if bench.prints_tables:
        for table in report.controller_tables(runs, bench.kafka.version, rounds):
            bench.print_comparison(*table)
    return {"rounds": rounds, "controllers": report.controllers_json(runs)}


def _tools(bench: Bench) -> dict[str, object]:
    pairs = bench.options.pairs
    measured = measure_tools(
        *(bench.options.python, bench.kafka, bench.scratch / "tools"), pairs=pairs, progress=bench.progress
    )
    if bench.prints_tables:
        bench.print_comparison(*report.tool_table(measured, bench.kafka, pairs))
    return {
        "pairs": pairs,
        "kafka_tools": bench.kafka.version,
        "tools": {label: asdict(seconds) for label, seconds in measured.items()},
    }


def _operator(bench: Bench) -> dict[str, object]:
    operator = measure_operator(bench.options.python, bench.scratch, progress=bench.progress)
    if bench.prints_tables:
        _print_operator("One operator, a real API server", OPERATOR_ROWS, operator)
    return {"operator": asdict(operator)}


def _entities(bench: Bench) -> dict[str, object]:
    options = bench.options
    entities = measure_entities(
        *(options.python, bench.scratch / "entities", options.topics, options.users), progress=bench.progress
    )
    if bench.prints_tables:
        _print_operator("One operator, topics and users of one cluster", ENTITY_ROWS, entities)
    return {"entities": asdict(entities)}


def _lake(bench: Bench) -> dict[str, object]:
    records = bench.options.lake_records
    lake = measure_lake(
        *(bench.options.python, bench.kafka, bench.scratch), records=records, progress=bench.progress
    )
    if bench.prints_tables:
        _print_lake(lake, bench.kafka.version)
    bench.progress("ingests of a small cluster")
    ingests = measure_ingests(bench.options.python, bench.scratch / "ingest", runs=INGESTS)
    if bench.prints_tables:
        _print_ingests(ingests)
    measured = asdict(lake) | {
        "estimate": asdict(estimate(lake)),
        "ingests": [asdict(ingest) for ingest in ingests],
    }
    return {"lake": measured}


def _scale(bench: Bench) -> dict[str, object]:
    options, release = bench.options, bench.kafka.version
    results: dict[int, Results] = {}
    for size, by_name in measure_scale(
        options.python,
        bench.kafka,
        bench.scratch,
        sizes=options.scale_partitions,
        rounds=options.scale_rounds,
        linger_ms=options.kafka_linger_ms,
        progress=bench.progress,
    ):
        results[size] = by_name
        if bench.prints_tables:
            print_size(size, by_name, options.scale_rounds, release)
    if bench.prints_tables:
        print_growth(results, release)
    return {"scale": scale_json(results)}


def _authorization(bench: Bench) -> dict[str, object]:
    """Kafka without its linger, which would hide what ACLs cost."""
    release = bench.kafka.version
    results: dict[str, AuthorizationMeasurements] = {}
    for implementation in (
        python_implementation(bench.options.python, release),
        java_implementation(bench.kafka, linger_ms=0),
    ):
        results[implementation.name] = measure_authorization(
            implementation,
            bench.scratch / implementation.name,
            free_ports(AUTHORIZATION_PORTS),
            progress=lambda part, name=implementation.name: bench.progress(f"{name}: {part}"),
        )
    if bench.prints_tables:
        _print_authorization(*results.values(), release=release)
    return {"authorization": {name: asdict(measured) for name, measured in results.items()}}


def _size(bench: Bench) -> dict[str, object]:
    options, release = bench.options, bench.kafka.version
    sizes = Sizes(
        brokers=options.size_brokers, topics=options.size_topics, partitions=options.size_partitions
    )
    results = {
        implementation.name: measure_size(
            Quorum(implementation, bench.scratch / implementation.name, free_ports(SIZE_PORTS)),
            sizes,
            lambda part, name=implementation.name: bench.progress(f"{name}: {part}"),
        )
        for implementation in (
            python_implementation(options.python, release),
            java_implementation(bench.kafka),
        )
    }
    if bench.prints_tables:
        rows = size_rows(sizes, *results.values())
        bench.print_comparison("The largest requests", ("Quorate", f"Kafka {release}"), rows)
    return {"size": {"sizes": asdict(sizes), **results}}


def _print_authorization(
    ours: AuthorizationMeasurements, theirs: AuthorizationMeasurements, *, release: str
) -> None:
    title = f"Without an authorizer, and with {ACLS:,} ACLs"
    table = tables.table(title, "Quorate", "ratio", f"Kafka {release}", "ratio", "aim")
    for name, label, text in AUTHORIZATION_ROWS:
        cells = []
        for measured in (ours, theirs):
            without, with_acls = getattr(measured, name)
            cells += [f"{text(without)}, {text(with_acls)}", f"{with_acls / without:.2f}x"]
        table.add_row(label, *cells, "<= 1.2x")
    Console(width=130).print(table)


def _print_operator(
    title: str, rows: Sequence[tuple[str, str, Callable[[float], str]]], measured: object
) -> None:
    table = tables.table(title, "Quorate")
    for name, label, text in rows:
        table.add_row(label, text(getattr(measured, name)))
    Console(width=110).print(table)


def _print_lake(lake: LakeMeasurements, tools_release: str) -> None:
    """Rates are of records a second; a ratio above 1 is in favour of the lake, but for memory."""
    whole, two, one_core, dump = lake.whole, lake.two_cores, lake.one_core, lake.dump
    title = f"Reading a metadata log of {lake.records:,} records, {tables.mebibytes(lake.segment_bytes)}"
    table = tables.table(title, "Quorate", f"DumpLogSegments {tools_release}", "ratio", "aim")

    def rate(label: str, ours: float, theirs: float, aim: str) -> None:
        our, their = lake.records / ours, lake.records / theirs
        table.add_row(label, f"{our:,.0f} /s", f"{their:,.0f} /s", f"{our / their:.1f}x", aim)

    rate("two cores, query", two.read_seconds, dump.seconds, ">= 5x")
    rate("the same, a query from the start of the process to its end", whole.seconds, dump.seconds, "none")
    rate("rows stored by `ingest`, from start to end", lake.stored.seconds, dump.seconds, ">= 5x")
    rate("one core, query", one_core.read_seconds, dump.seconds, "none")
    rate("per second of processor time", two.cpu_seconds, dump.cpu_seconds, "none")
    for label, ours in (("a query", two), ("`ingest`", lake.stored)):
        memory = [measured.memory_bytes_max for measured in (ours, dump)]
        ratio = f"{memory[0] / memory[1]:.1f}x"
        table.add_row(f"memory of all processes, {label}", *map(tables.mebibytes, memory), ratio, "<= 2x")
    scaling = one_core.read_seconds / two.read_seconds
    table.add_row("from one core to two, query", f"{scaling:.2f}x", "", "", ">= 1.8x")
    small = f"{lake.small_clusters:,} clusters of {lake.small_records} records in one job"
    table.add_row(small, f"{lake.small.read_seconds:.1f} s", "", "", "none")
    console = Console(width=110)
    console.print(table)
    paper = estimate(lake)
    console.print(
        f"On paper, {paper.clusters:,} clusters and a year: {paper.records:.2g} records, most of them NoOpRecords, "
        f"in {paper.log_bytes / 1e12:.1f} TB of logs, are read once in {paper.core_hours:,.0f} hours of one core: "
        f"{paper.core_hours / (365 * 24):.2f} cores that read all the time keep up."
    )


def _print_ingests(ingests: Sequence[Ingest]) -> None:
    """Medians, with the least and the most."""
    title = f"quorate lake ingest of {CONTROLLERS} controllers' directories, {INGEST_RECORDS:,} records each"
    table = tables.table(title, "Quorate", "aim")

    def row(label: str, values: Sequence[float], aim: str) -> None:
        cell = f"{median(values):.1f} s ({min(values):.1f} to {max(values):.1f})"
        table.add_row(label, cell, aim)

    row("from the start of the process to its end", [ingest.seconds for ingest in ingests], "<= 8 s")
    row("processor time of all processes", [ingest.cpu_seconds for ingest in ingests], "none")
    row("the same, of the JVM", [ingest.jvm_cpu_seconds for ingest in ingests], "none")
    most = max(ingest.memory_bytes_max for ingest in ingests)
    table.add_row("memory, all processes", tables.mebibytes(most), "none")
    Console(width=110).print(table)


PARTS: Final[Mapping[str, Callable[[Bench], dict[str, object]]]] = {
    "controllers": _controllers,
    "tools": _tools,
    "operator": _operator,
    "entities": _entities,
    "lake": _lake,
    "scale": _scale,
    "authorization": _authorization,
    "size": _size,
}


if __name__ == "__main__":
    sys.exit(main())
