"""Check that the tests that `make test` does not all run, and their kit, use attributes and names that exist.

A rename would otherwise break a nightly test unnoticed: nothing else checks the types of tests. With mypy's cache of
the packages it takes some seconds.
"""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("kit", "integration", "kubernetes", "pipeline", "browser")
"""Below tests/: what `make test` does not run, or not all of it."""
CODES = ("[attr-defined]", "[name-defined]")
IMPORTED_ELSEWHERE = "does not explicitly export attribute"


def main() -> int:
    """Print the lines about what does not exist. Returns the exit code."""
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--explicit-package-bases"),
            *(f"tests/{folder}" for folder in FOLDERS),
        ],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": "tests"},
        capture_output=True,
        text=True,
        check=False,
    )
    if "(checked " not in ran.stdout and not ran.stdout.startswith("Success"):
        sys.stderr.write(f"{ran.stdout}{ran.stderr}")
        return 1
    found = list(undefined(ran.stdout.splitlines()))
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


def undefined(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of mypy about attributes and names that nothing defines."""
    for line in lines:
        if ": error: " in line and line.endswith(CODES) and IMPORTED_ELSEWHERE not in line:
            yield line


if __name__ == "__main__":
    raise SystemExit(main())
