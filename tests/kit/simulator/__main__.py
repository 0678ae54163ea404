"""`python -m kit.simulator --seeds N [--first S] | --seed S [--shape NAME]`: many seeds in a row, or one again."""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from kit.simulator.coverage import Happening, report
from kit.simulator.scenario import run_seed
from kit.simulator.shape import SHAPES, Shape, replay_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

REPORT_EVERY_SECONDS: Final = 10
SEEDS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """How one seed went. `failure` is empty when nothing went wrong, else for people to read."""

    seed: int
    failure: str = ""
    acknowledged: int = 0
    """Requests whose changes were promised to clients, and kept."""
    counts: Counter[Happening] = field(default_factory=Counter)


def attempt(seed: int, shape_of: Callable[[int], Shape] = Shape.of) -> Attempt:
    """Run one seed."""
    try:
        scenario = run_seed(seed, shape_of(seed))
    except Exception:
        return Attempt(seed=seed, failure=traceback.format_exc())
    return Attempt(
        seed=seed,
        acknowledged=scenario.administrator.acknowledged,
        counts=scenario.world.coverage.counts,
    )


def attempts(
    seeds: Sequence[int], jobs: int, shape_of: Callable[[int], Shape] = Shape.of
) -> Iterator[Attempt]:
    """Run all seeds, in their order, in `jobs` processes."""
    run = partial(attempt, shape_of=shape_of)
    if jobs == 1:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        yield from pool.map(run, seeds)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="kit.simulator", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many seeds (default %(default)s)")
    parser.add_argument("--first", type=int, default=1, help="the first of them (default %(default)s)")
    parser.add_argument("--seed", type=int, help="run this one alone")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time (default: %(default)s)"
    )
    parser.add_argument(
        "--shape", choices=SHAPES, default="chance", help="what breaks (default: %(default)s)"
    )
    return parser.parse_args()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Print failures as they come, progress, and at the end what was tried. Exit code 1 when any seed failed."""
    options = _options()
    seeds = range(options.first, options.first + options.seeds)
    if options.seed is not None:
        seeds = range(options.seed, options.seed + 1)
    started_s = reported_s = time.monotonic()
    failed: list[int] = []
    without_quorum: list[int] = []
    acknowledged = 0
    counts: Counter[Happening] = Counter()
    shape_of = SHAPES[options.shape]
    for done, result in enumerate(attempts(seeds, min(options.jobs, len(seeds)), shape_of), start=1):
        acknowledged += result.acknowledged
        counts.update(result.counts)
        if result.counts[Happening.RUN_WITHOUT_QUORUM]:
            without_quorum.append(result.seed)
        if result.failure:
            failed.append(result.seed)
            _say(f"seed {result.seed} failed\n{result.failure}")
        now_s = time.monotonic()
        if now_s - reported_s > REPORT_EVERY_SECONDS:
            reported_s = now_s
            _say(f"{done} of {len(seeds)} seeds, {len(failed)} failed, {now_s - started_s:.0f} s")
    _say(report(counts))
    if without_quorum:
        _say(f"not asked to come back, for the majority of their voters was lost: seeds {without_quorum}")
    elapsed_s = time.monotonic() - started_s
    _say(
        f"{len(seeds)} seeds, {len(failed)} failed, {acknowledged} acknowledged requests kept, {elapsed_s:.1f} s"
    )
    for seed in failed:
        _say(f"replay with: {replay_command(seed, shape_of(seed))}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
