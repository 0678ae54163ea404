"""The tables of `make bench`: Quorate beside Kafka with each linger, the ratio, and which is ahead.

A ratio is ours : that of Kafka with whichever linger is better in that row. Quorate is ahead if its worst round is
better than the best of that Kafka, behind if its best is worse than Kafka's worst, and level otherwise.
"""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from quorate_protocol.wire.codec.native import CODEC

from benchmarks import tables
from benchmarks.controllers import CREATE_REQUESTS, HEARTBEAT_CONNECTIONS, OBSERVERS, WITHOUT_LINGER
from benchmarks.figures import numbers, spread
from benchmarks.quorum import KAFKA, OURS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from quorate_operator.runtime.local.stock_kafka import Kafka

    from benchmarks.figures import Figures
    from benchmarks.tools import ToolRuns

Cells = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A figure in a table."""

    name: str
    label: str
    text: Callable[[float], str]
    phase: str
    """What has to work for it."""
    higher_is_better: bool = False
    compares: bool = True
    """False for what is not of the implementation, as the cost of the load generator."""


ONE_CLIENT: Final = (
    Row("start_seconds", "cold start until all three are registered", tables.seconds, "start"),
    Row("resident_bytes", "idle resident memory of the three", tables.mebibytes, "start"),
    Row("idle_share", "idle processor time of the three, of one core", tables.percent, "start"),
    Row("failover_seconds", "`kill -9` of the active one until a commit", tables.seconds, "failover"),
    Row("create_1_p50_seconds", "CreateTopics, one client, p50", tables.milliseconds, "create 1"),
    Row("create_1_p99_seconds", "the same, p99", tables.milliseconds, "create 1"),
    Row(
        "create_1_cpu_seconds", "the same, processor time of the active one", tables.microseconds, "create 1"
    ),
    Row(
        "forwarded_p50_seconds", "CreateTopics that a broker forwards, p50", tables.milliseconds, "forwarded"
    ),
    Row("forwarded_p99_seconds", "the same, p99", tables.milliseconds, "forwarded"),
)


def _load_rows(name: str, label: str, phase: str) -> tuple[Row, ...]:
    return (
        Row(f"{name}_rate", f"{label}: each second", tables.count, phase, higher_is_better=True),
        Row(f"{name}_p50_seconds", "p50", tables.milliseconds, phase),
        Row(f"{name}_p99_seconds", "p99", tables.milliseconds, phase),
        Row(f"{name}_cpu_seconds", "processor time of the active one, each", tables.microseconds, phase),
        Row(f"{name}_all_cpu_seconds", "processor time of the three, each", tables.microseconds, phase),
        Row(f"{name}_generator_seconds", "load generator, each", tables.microseconds, phase, compares=False),
    )


UNDER_LOAD: Final = (
    *(
        row
        for connections in CREATE_REQUESTS
        if connections > 1
        for row in _load_rows(
            f"create_{connections}", f"CreateTopics, {connections} connections", f"create {connections}"
        )
    ),
    *(
        row
        for connections in sorted(HEARTBEAT_CONNECTIONS)
        for row in _load_rows(
            f"heartbeat_{connections}", f"heartbeats, {connections} connections", "heartbeats"
        )
    ),
    Row(
        "observed_p50_seconds",
        f"CreateTopics while {OBSERVERS} observers follow: p50",
        tables.milliseconds,
        "observed",
    ),
    Row("observed_cpu_seconds", "processor time of the active one, each", tables.milliseconds, "observed"),
    Row(
        "observed_generator_seconds",
        "the observers themselves, each",
        tables.milliseconds,
        "observed",
        compares=False,
    ),
)


def controller_tables(
    runs: Mapping[str, Sequence[Figures]], release: str, rounds: int
) -> list[tuple[str, Cells, list[Cells]]]:
    """Title, headings and rows of what was measured of controllers."""
    headings = (OURS, f"{KAFKA} {release}", "with linger 0", "ratio", "Quorate is")
    note = f"medians of {rounds} rounds (least to most)"
    return [
        (f"{title}, {note}", headings, [comparison(row, runs) for row in rows])
        for title, rows in (("One client", ONE_CLIENT), ("Under load", UNDER_LOAD))
    ]


def tool_table(measured: Mapping[str, ToolRuns], kafka: Kafka, pairs: int) -> tuple[str, Cells, list[Cells]]:
    """The same of tools."""
    title = (
        f"Tools from start to end, on a node of Kafka {kafka.version}, "
        f"medians of {pairs} pairs (least to most)"
    )
    rows = []
    for label, seconds in measured.items():
        ours, theirs = (_cell(values, tables.seconds) for values in (seconds.ours, seconds.theirs))
        rows.append((f"`{label}`", ours, theirs, *_judged(seconds.ours, seconds.theirs)))
    return title, (OURS, f"{KAFKA} {kafka.version}", "ratio", "Quorate is"), rows


def comparison(row: Row, runs: Mapping[str, Sequence[Figures]]) -> Cells:
    """Return the cells of a row, of rounds by name of the implementation."""
    values = {name: numbers(runs[name], row.name) for name in (OURS, KAFKA, WITHOUT_LINGER)}
    cells = tuple(
        _cell(found, row.text) if found else _reason(runs[name], row.phase) for name, found in values.items()
    )
    kafkas = [found for name, found in values.items() if name != OURS and found]
    if not row.compares or not values[OURS] or not kafkas:
        return (row.label, *cells, "", "")
    best = max if row.higher_is_better else min
    better = best(kafkas, key=lambda found: spread(found).median)
    return (row.label, *cells, *_judged(values[OURS], better, higher_is_better=row.higher_is_better))


def _judged(ours: Sequence[float], theirs: Sequence[float], *, higher_is_better: bool = False) -> Cells:
    """The ratio of medians, and which is ahead."""
    theirs_median = spread(theirs).median
    ratio = f"{spread(ours).median / theirs_median:.2f}x" if theirs_median else ""
    return (ratio, verdict(ours, theirs, higher_is_better=higher_is_better))


def verdict(ours: Sequence[float], theirs: Sequence[float], *, higher_is_better: bool) -> str:
    """Return ahead, behind, or level where the rounds of the two overlap."""
    our, their = spread(ours), spread(theirs)
    if our.most < their.least:
        return "behind" if higher_is_better else "ahead"
    if our.least > their.most:
        return "ahead" if higher_is_better else "behind"
    return "level"


def _cell(values: Sequence[float], text: Callable[[float], str]) -> str:
    """The median with its unit, and the least and the most without."""
    found = spread(values)
    if len(values) == 1:
        return text(found.median)
    least, most = (text(value).split(" ")[0] for value in (found.least, found.most))
    return f"{text(found.median)} ({least} to {most})"


def _reason(runs: Sequence[Figures], phase: str) -> str:
    failures = (run[key] for run in runs for key in (f"{phase} failed", "start failed") if key in run)
    return str(next(failures, "not measured"))


def controllers_json(runs: Mapping[str, Sequence[Figures]]) -> dict[str, object]:
    """Spreads and rounds of each figure, by implementation."""
    return {
        name: {
            figure: {**asdict(spread(values)), "rounds": values}
            for figure in dict.fromkeys(key for run in rounds for key in run)
            if (values := numbers(rounds, figure))
        }
        | {key: value for run in rounds for key, value in run.items() if isinstance(value, str)}
        for name, rounds in runs.items()
    }


def circumstances(kafka: Kafka) -> dict[str, str]:
    """What figures depend on, before anything is measured."""
    load = ", ".join(f"{average:.2f}" for average in os.getloadavg())
    return {
        "commit": _first_line("git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"),
        "python": platform.python_version(),
        "codec": CODEC,
        "java": _first_line(kafka.java, "-version"),
        "kafka": kafka.version,
        "cores": str(os.cpu_count()),
        "load averages before": load,
    }


def _first_line(*command: str) -> str:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return next(iter((ran.stdout + ran.stderr).splitlines()), "unknown")
