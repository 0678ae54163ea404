"""`python -m kit.fuzz [--target NAME ...] [--inputs N]`: tries each target by coverage.

`--replay FILE ...` tries inputs again. An input that breaks a target is written to test-reports/fuzz, with those
before it (a controller keeps state), and the command that tries them again is printed.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kit.fuzz.targets import targets

INPUTS: Final = 1_000_000
INPUTS_BESIDE_LEAKS: Final = 100_000
"""The inputs of one process, because its instrumentation leaks memory. The next process continues with its corpus."""


def main(arguments: Sequence[str]) -> int:
    """Run the command. Returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m kit.fuzz", description=__doc__)
    parser.add_argument("--target", action="append", choices=sorted(targets()), help="all by default")
    parser.add_argument("--inputs", type=int, default=INPUTS, help=f"for each target; {INPUTS} by default")
    parser.add_argument(
        "--replay", type=Path, nargs="+", help="inputs to try in this order, with one --target"
    )
    options = parser.parse_args(arguments)
    names = options.target or sorted(targets())
    if options.replay:
        if len(names) != 1:
            parser.error("--replay needs one --target")
        for path in options.replay:
            targets()[names[0]].attempt(path.read_bytes())
        return 0
    broken = [name for name in names if not _is_clean(name, options.inputs)]
    print(f"{len(names) - len(broken)} targets clean; broken: {', '.join(broken) or 'none'}")  # noqa: T201
    return 1 if broken else 0


def _is_clean(name: str, inputs: int) -> bool:
    print(f"== {name}: {inputs} inputs", flush=True)  # noqa: T201
    at_once = INPUTS_BESIDE_LEAKS if targets()[name].compares_arrays else inputs
    while inputs > 0:
        command = [sys.executable, "-m", "kit.fuzz.by_coverage", name, str(min(inputs, at_once))]
        if subprocess.run(command, check=False).returncode != 0:
            return False
        inputs -= at_once
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
