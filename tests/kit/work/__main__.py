"""`make work`: what each API costs at its legal worst on an image of 200,000 partitions, and each record's replay.

It prints lines of Python, or with `--time` microseconds. It exits with 1 if a step exceeds its budget, or if work
grows faster than the table of cases allows.
"""

from __future__ import annotations

import argparse
import sys

from kit.work.bench import Row, benches, measure
from kit.work.records_and_tasks import REPLAYS, TASKS
from kit.work.requests_of_apis import CASES

HEADINGS = ("API", "what", "items", "steps", "longest step", "all", "undo", "by items", "by cluster")


def main() -> int:
    """Measure and print all cases."""
    parser = argparse.ArgumentParser(prog="kit.work", description=__doc__)
    parser.add_argument(
        "--share", type=float, default=1.0, help="share of the full size (default %(default)s)"
    )
    parser.add_argument("--time", action="store_true", help="processor time in microseconds instead of lines")
    options = parser.parse_args()
    _print(f"| {' | '.join(HEADINGS)} |")
    _print("|" + "---|" * len(HEADINGS))
    failed = 0
    with benches(options.share, timed=options.time) as (large, small):
        for case in (*CASES, *REPLAYS, *TASKS):
            row = measure(case, large, small, options.share)
            _print(_line(row))
            for problem in () if options.time else row.problems:
                _print(f"    {case.api}, {case.what}: {problem}")
                failed = 1
    return failed


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _line(row: Row) -> str:
    measured = row.measured
    cells = (
        row.case.api,
        row.case.what,
        row.items,
        len(measured.steps),
        measured.longest,
        measured.total,
        measured.undo,
        "" if row.by_items is None else f"{row.by_items:.2f}",
        f"{row.by_cluster:.2f}",
    )
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    sys.exit(main())
