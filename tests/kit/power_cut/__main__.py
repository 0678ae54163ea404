"""`make power-cut`: what tools, doctor, play and operator say after a power cut, beside what is true.

A cell has the first line of what was said, and the seconds; problems are printed below their row. It exits with 1 if
something is false, missing or late.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from kit.kafka import find_kafka_jars
from kit.power_cut.asking import COLUMNS
from kit.power_cut.scenario import ORDERS, Row, cut, powered
from kit.power_cut.truth import Said
from kit.releases import RELEASE

HEADINGS = ("voters", "controllers", "order", "back", "leader", *COLUMNS)
CELL_WIDTH = 80


def main() -> int:
    """Cut the power of each quorum in each order, and print all rows."""
    parser = argparse.ArgumentParser(prog="kit.power_cut", description=__doc__)
    parser.add_argument("--quorum", choices=["static", "dynamic"], help="kind of voters (default: both)")
    parser.add_argument("--implementation", choices=["python", "java"], help="controllers (default: both)")
    parser.add_argument("--order", choices=ORDERS, help="when the former leader comes back (default: both)")
    parser.add_argument("--full", action="store_true", help="print all that was said")
    options = parser.parse_args()
    jars = find_kafka_jars()
    if jars is None and options.implementation != "python":
        sys.stderr.write(f"the jars of Kafka {RELEASE} are missing: give --implementation python\n")
        return 2
    failed = False
    _print(f"| {' | '.join(HEADINGS)} |")
    _print("|" + "---|" * len(HEADINGS))
    with tempfile.TemporaryDirectory(prefix="power-cut-") as scratch:
        for implementation in [options.implementation] if options.implementation else ["python", "java"]:
            for quorum in [options.quorum] if options.quorum else ["static", "dynamic"]:
                where = Path(scratch) / f"{implementation}-{quorum}" / "cluster"
                facts = {"quorum": quorum, "implementation": implementation}
                with powered(where, jars, **facts) as cluster:
                    for order in [options.order] if options.order else ORDERS:
                        for row in cut(cluster, **facts, order=order):
                            _show(row, is_full=options.full)
                            failed = failed or bool(row.problems)
    return int(failed)


def _show(row: Row, *, is_full: bool) -> None:
    leader = "none" if row.truth.leader_id is None else str(row.truth.leader_id)
    cells = [row.quorum, row.implementation, row.order, f"{row.back} of 3", leader]
    _print(f"| {' | '.join([*cells, *map(_cell, row.said)])} |")
    for problem in row.problems:
        _print(f"    PROBLEM {problem}")
    if is_full:
        for said in row.said:
            _print(f"    {said.tool} ({said.exit_code}):")
            _print("".join(f"        {line}\n" for line in said.text.splitlines()))


def _cell(said: Said) -> str:
    lines = [line.strip() for line in said.text.splitlines() if line.strip()]
    text = "asks brokers only" if said.is_unsupported else next(iter(lines), "nothing")
    if said.tool == "doctor" and len(lines) > 1:
        text = lines[1]
    if said.tool == "metadata-quorum" and said.leader_id is not None:
        text = f"LeaderId {said.leader_id}"
    text = text.replace("|", "/")
    shown = text if len(text) <= CELL_WIDTH else f"{text[:CELL_WIDTH]}..."
    return f"{shown} ({said.seconds:.1f} s)"


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
