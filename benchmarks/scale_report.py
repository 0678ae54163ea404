"""Runs the measurements of `make bench ONLY=scale` in rounds, and prints them."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Final

from rich.console import Console

from benchmarks import tables
from benchmarks.figures import medians
from benchmarks.quorum import KAFKA, OURS, free_ports, java_implementation, python_implementation
from benchmarks.scale import BROKER_COUNTS, ScaleRun, measure_many_brokers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from quorate_operator.runtime.local.stock_kafka import Kafka
    from rich.table import Table

    from benchmarks.figures import Figures
    from benchmarks.quorum import Implementation

PARTITIONS: Final = (10_000, 100_000, 500_000, 1_000_000)
LARGE_HEAP_SINCE: Final = 500_000
SMALL_HEAP, LARGE_HEAP = "1G", "3G"
"""Kafka's own, and one that holds 1,000,000 partitions, both images of them, and a snapshot."""


Row = tuple[str, str, "Callable[[float], str]", str]
"""Name of the figure, label, text of a value, phase that it is of."""

ROWS: Final[tuple[Row, ...]] = (
    ("create_seconds", "create them, 2,000 a request", tables.seconds, "create"),
    ("create_cpu_seconds", "the same, processor time of the three", tables.seconds, "create"),
    ("create_max_seconds", "the slowest of these requests", tables.seconds, "create"),
    ("create_elections", "changes of the active controller meanwhile", tables.count, "create"),
    ("large_topic_seconds", "create a topic of 5,000 partitions", tables.seconds, "large topic"),
    ("large_topic_elections", "changes of the active controller meanwhile", tables.count, "large topic"),
    ("resident_bytes", "resident memory of the three", tables.mebibytes, "memory"),
    ("heartbeat_idle_p50_seconds", "heartbeat, p50", tables.milliseconds, "snapshot"),
    ("heartbeat_idle_p99_seconds", "heartbeat, p99", tables.milliseconds, "snapshot"),
    ("heartbeat_idle_max_seconds", "heartbeat, longest", tables.milliseconds, "snapshot"),
    ("heartbeat_snapshot_p50_seconds", "heartbeat during snapshots, p50", tables.milliseconds, "snapshot"),
    ("heartbeat_snapshot_p99_seconds", "heartbeat during snapshots, p99", tables.milliseconds, "snapshot"),
    (
        "heartbeat_snapshot_max_seconds",
        "heartbeat during snapshots, longest",
        tables.milliseconds,
        "snapshot",
    ),
    ("snapshot_seconds", "write a snapshot", tables.seconds, "snapshot"),
    ("snapshot_cpu_seconds", "the same, processor time of one", tables.seconds, "snapshot"),
    ("fence_seconds", "fence one of 30 brokers, all moves committed", tables.seconds, "fence"),
    ("fence_cpu_seconds", "the same, processor time of the three", tables.seconds, "fence"),
    ("fence_elections", "changes of the active controller meanwhile", tables.count, "fence"),
    ("load_seconds", "restart of a standby until it is caught up", tables.seconds, "load"),
    ("load_cpu_seconds", "the same, its processor time", tables.seconds, "load"),
    ("failover_seconds", "kill -9 of the active one until a commit", tables.seconds, "failover"),
)
MANY_BROKERS_ROWS: Final[tuple[Row, ...]] = (
    *(
        row
        for brokers in BROKER_COUNTS
        for row in (
            (
                f"heartbeats_{brokers}_cpu_seconds",
                f"{brokers:,} brokers: processor time",
                tables.microseconds,
                "",
            ),
            (f"heartbeats_{brokers}_p50_seconds", f"{brokers:,} brokers: p50", tables.milliseconds, ""),
            (f"heartbeats_{brokers}_p99_seconds", f"{brokers:,} brokers: p99", tables.milliseconds, ""),
        )
    ),
)

Results = dict[str, "Figures"]
"""Figures by name of the implementation."""


def measure_scale(
    python: str,
    kafka: Kafka,
    scratch: Path,
    *,
    sizes: Sequence[int],
    rounds: int,
    linger_ms: int | None,
    progress: Callable[[str], None],
) -> Iterator[tuple[int, Results]]:
    """Yield each number of partitions with its figures, which are medians of the rounds; 0: many brokers."""
    for size in (0, *sizes):
        runs: dict[str, list[Figures]] = {}
        heap = LARGE_HEAP if size >= LARGE_HEAP_SINCE else SMALL_HEAP
        contenders = (
            python_implementation(python, kafka.version),
            java_implementation(kafka, heap=heap, linger_ms=linger_ms),
        )
        for number in range(rounds):
            for contender in contenders:
                directory = scratch / f"{contender.name}-{size}-{number}"
                what = f"{size:,} partitions" if size else "many brokers"
                label = f"{what}, round {number + 1} of {rounds}, {contender.name}"
                figures = _measure(
                    contender,
                    directory,
                    free_ports(3),
                    size=size,
                    progress=lambda part, label=label: progress(f"{label}: {part}"),
                )
                runs.setdefault(contender.name, []).append(figures)
        yield size, {name: medians(figures) for name, figures in runs.items()}


def _measure(
    implementation: Implementation,
    directory: Path,
    ports: tuple[int, ...],
    *,
    size: int,
    progress: Callable[[str], None],
) -> Figures:
    if not size:
        return measure_many_brokers(implementation, directory, ports, progress)
    run = ScaleRun(implementation, directory, ports, partitions=size, progress=progress)
    return run.measure()


def exponent(values: dict[int, float]) -> float | None:
    """The growth of a figure: the slope of its logarithm over that of the partitions. None below two values."""
    points = [(math.log(size), math.log(value)) for size, value in values.items() if value > 0]
    if len(points) < 2:
        return None
    return statistics.linear_regression([x for x, _ in points], [y for _, y in points]).slope


def scale_json(results: dict[int, Results]) -> dict[str, object]:
    """The figures, and the exponents of those that grow."""
    sizes = {size: figures for size, figures in results.items() if size}
    exponents = {
        name: {row: value for row, *_ in ROWS if (value := exponent(_numbers(sizes, name, row))) is not None}
        for name in (OURS, KAFKA)
    }
    return {"many_brokers": results.get(0), "partitions": sizes, "exponents": exponents}


def _numbers(results: dict[int, Results], implementation: str, row: str) -> dict[int, float]:
    figures = {size: by_name[implementation].get(row) for size, by_name in results.items()}
    return {size: value for size, value in figures.items() if isinstance(value, int | float)}


def print_size(size: int, by_name: Results, rounds: int, release: str) -> None:
    """The table of one number of partitions, or of many brokers."""
    if size:
        title = f"{size:,} partitions, 30 brokers, medians of {rounds} rounds"
        table = _table(title, ROWS, by_name, release)
    else:
        title = f"Heartbeats, 500 a second, medians of {rounds} rounds"
        table = _table(title, MANY_BROKERS_ROWS, by_name, release)
    Console(width=120).print(table)


def print_growth(results: dict[int, Results], release: str) -> None:
    """The exponents, if there are two numbers of partitions."""
    sizes = {size: by_name for size, by_name in results.items() if size}
    if len(sizes) < 2:
        return
    table = tables.table("Exponent of growth with the number of partitions", OURS, f"{KAFKA} {release}")
    for row, label, *_ in ROWS:
        values = [exponent(_numbers(sizes, name, row)) for name in (OURS, KAFKA)]
        if any(value is not None for value in values):
            table.add_row(label, *("" if value is None else f"{value:.2f}" for value in values))
    Console(width=120).print(table)


def _table(title: str, rows: Sequence[Row], by_name: Results, release: str) -> Table:
    ours, theirs = by_name[OURS], by_name[KAFKA]
    table = tables.table(title, OURS, f"{KAFKA} {release}", "Kafka/Quorate")
    for name, label, text, phase in rows:
        our, their = ours.get(name), theirs.get(name)
        ratio = ""
        if isinstance(our, int | float) and isinstance(their, int | float) and our:
            ratio = f"{their / our:.2f}x"
        table.add_row(label, _cell(ours, name, text, phase), _cell(theirs, name, text, phase), ratio)
    return table


def _cell(figures: Figures, name: str, text: Callable[[float], str], phase: str) -> str:
    value = figures.get(name)
    if value is None:
        failures = (figures.get(key) for key in (f"{phase} failed", "create failed", "failed"))
        value = next((failure for failure in failures if failure is not None), "not measured")
    return text(value) if isinstance(value, int | float) else value
