"""`python -m benchmarks --jars DIR [--rounds N] [-o json]`: a row per figure, ours beside stock Kafka's."""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import sys
import tempfile
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table

from benchmarks.controllers import Measurements, measure
from benchmarks.quorum import Implementation, java_implementation, python_implementation

if TYPE_CHECKING:
    from collections.abc import Callable

MEBIBYTE: Final = 1024 * 1024

ROWS: Final[tuple[tuple[str, str, Callable[[float], str], str], ...]] = (
    ("start_seconds", "cold start until all three are registered", lambda value: f"{value:.2f} s", "<= 0.2x"),
    (
        "resident_bytes",
        "idle resident memory of the three",
        lambda value: f"{value / MEBIBYTE:.0f} MiB",
        "<= 0.2x",
    ),
    (
        "failover_seconds",
        "kill -9 of the active one until a commit",
        lambda value: f"{value:.2f} s",
        "<= 0.25x",
    ),
    (
        "create_p50_seconds",
        "CreateTopics, one client, p50",
        lambda value: f"{value * 1000:.2f} ms",
        "<= 0.1x",
    ),
    ("create_p99_seconds", "CreateTopics, one client, p99", lambda value: f"{value * 1000:.2f} ms", "none"),
    ("topics_per_second", "topics per second, pipelined", lambda value: f"{value:.0f} /s", ">= 4x"),
)


def _free_ports(count: int) -> tuple[int, ...]:
    """Ports that nobody listens on; all are held until the last is found, so that they differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = tuple(each.getsockname()[1] for each in sockets)
    for each in sockets:
        each.close()
    return ports


def _median(runs: list[Measurements]) -> Measurements:
    return Measurements(
        **{
            field.name: statistics.median(getattr(run, field.name) for run in runs)
            for field in fields(Measurements)
        }
    )


def main() -> int:
    """Measures in rounds, the two in turn, and prints medians and their ratio."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--jars", type=Path, required=True, help="directory with Kafka's jars")
    parser.add_argument("--python", default=sys.executable, help="interpreter that runs our controllers")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each; medians are printed (default 3)")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    options = parser.parse_args()
    console = Console(stderr=True)
    ours: list[Measurements] = []
    theirs: list[Measurements] = []
    contenders: tuple[tuple[Implementation, list[Measurements]], ...] = (
        (python_implementation(options.python), ours),
        (java_implementation(options.jars.resolve()), theirs),
    )
    with tempfile.TemporaryDirectory(prefix="quorate-bench-") as scratch, console.status("") as status:
        for number in range(options.rounds):
            for implementation, runs in contenders:
                name = f"round {number + 1} of {options.rounds}, {implementation.name}"
                directory = Path(scratch) / f"{implementation.name}-{number}"
                runs.append(
                    measure(
                        implementation,
                        directory,
                        _free_ports(3),
                        lambda part, name=name: status.update(f"{name}: {part}"),
                    )
                )
    _print(_median(ours), _median(theirs), options.rounds, options.output)
    return 0


def _print(ours: Measurements, theirs: Measurements, rounds: int, output: str) -> None:
    if output == "json":
        print(json.dumps({"rounds": rounds, "quorate": asdict(ours), "kafka": asdict(theirs)}, indent=2))
        return
    table = Table(title=f"Three controllers, medians of {rounds} rounds")
    for heading in ("", "Quorate", "Kafka 4.3.1", "ratio", "aim"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, label, text, aim in ROWS:
        our, their = getattr(ours, name), getattr(theirs, name)
        table.add_row(label, text(our), text(their), f"{our / their:.3f}x", aim)
    Console(width=110).print(table)


if __name__ == "__main__":
    sys.exit(main())
