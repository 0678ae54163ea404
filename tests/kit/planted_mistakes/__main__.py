"""`python -m kit.planted_mistakes [--only TEXT] [--simulate SEEDS]`: which test finds each planted mistake.

The exit status is 1 if a mistake survives, or if tests fail without one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kit.planted_mistakes.catalogue import MISTAKES
from kit.planted_mistakes.planting import SourceCopy

if TYPE_CHECKING:
    from kit.planted_mistakes.mistake import Mistake


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="kit.planted_mistakes", description=__doc__)
    parser.add_argument("--only", default="", help="only mistakes with this text in their name or file")
    parser.add_argument(
        "--simulate",
        type=int,
        default=0,
        metavar="SEEDS",
        help="also run this many seeds of the simulator against each; a mistake that they miss does not fail the run",
    )
    parser.add_argument("--output", action="store_true", help="print what pytest said of those that survive")
    return parser.parse_args()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Print a Markdown table: mistake, file, the rung and the test or seed that finds it, seconds."""
    options = _options()
    chosen = [mistake for mistake in MISTAKES if options.only in mistake.name or options.only in mistake.file]
    if not chosen:
        _say(f"no mistake has '{options.only}' in its name or file")
        return 1
    with tempfile.TemporaryDirectory() as directory:
        copy = SourceCopy(Path(directory))
        copy.check_is_used()
        sound = copy.tests_that_fail(sorted({test for mistake in chosen for test in mistake.tests}))
        if sound.is_found:
            _say(f"{sound.found_by} fails without any mistake:\n{sound.output}")
            return 1
        survivors = _survivors(copy, chosen, options)
    names = "".join(f"\n  {name}" for name in survivors)
    _say(f"\n{len(chosen)} mistakes, {len(survivors)} survived{':' if names else ''}{names}")
    return 1 if survivors else 0


def _survivors(copy: SourceCopy, chosen: list[Mistake], options: argparse.Namespace) -> list[str]:
    """Plant each mistake, and print a row. Returns the names of those that no test found."""
    survivors = []
    _say("| mistake | file | found by | seconds |\n|---|---|---|---:|")
    for mistake in chosen:
        copy.plant(mistake)
        finding = copy.tests_that_fail(mistake.tests)
        found_by = finding.found_by or "**nothing**"
        if options.simulate:
            seed = copy.seed_that_fails(mistake.shape, options.simulate)
            found_by += (
                f"; simulation: {seed.found_by or f'not by {options.simulate} seeds of {options.shape}'}"
            )
        copy.mend(mistake)
        file = mistake.file.split("/", 2)[2]
        _say(f"| {mistake.name} | {file} | {found_by} | {finding.seconds:.1f} |")
        if not finding.is_found:
            survivors.append(mistake.name)
            if options.output:
                _say(finding.output)
    return survivors


if __name__ == "__main__":
    sys.exit(main())
