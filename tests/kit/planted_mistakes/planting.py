"""Copies of the product's sources, each with one mistake, and the tests that are run against them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kit.planted_mistakes.mistake import Mistake

REPOSITORY: Final = Path(__file__).parents[3]
SOURCE_ROOTS: Final = ("protocol", "controller_node", "operator", "pipeline")
TESTS_FAILED: Final = 1
"""pytest's exit status; others, as after errors of collection, mean that no test judged the code."""
TIMEOUT_S: Final = 300
"""A mistake may make the code loop; each single test ends after TEST_TIMEOUT_S."""
TEST_TIMEOUT_S: Final = 60
SEEDS_AT_ONCE: Final = 5
_FAILED: Final = re.compile(r"^FAILED (\S+)", re.MULTILINE)
_SEED_FAILED: Final = re.compile(r"^seed (\d+) failed$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What the tests, or the simulator, made of a mistake."""

    found_by: str | None
    """A test, or a seed; None if the mistake survived."""
    seconds: float
    output: str

    @property
    def is_found(self) -> bool:
        return self.found_by is not None


class SourceCopy:
    """A copy of the sources that python prefers to those of the repository."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for root in SOURCE_ROOTS:
            shutil.copytree(
                REPOSITORY / root,
                directory / root,
                ignore=shutil.ignore_patterns("__pycache__"),
                symlinks=True,
            )

    def tests_that_fail(self, tests: Sequence[str]) -> Finding:
        """Run these tests against the copy as it is.

        Raises:
            RuntimeError: they could not be run.
        """
        begun_s = time.monotonic()
        command = [
            "-m",
            "pytest",
            "-q",
            "-x",
            "--tb=line",
            "-p",
            "no:cacheprovider",
            f"--timeout={TEST_TIMEOUT_S}",
        ]
        command += [f"tests/{test}" for test in tests]
        completed = self._python(command)
        if completed is None:
            return Finding(found_by="no end within the timeout", seconds=TIMEOUT_S, output="")
        status, output = completed
        failed = _FAILED.search(output)
        if status not in (0, TESTS_FAILED) or (status == TESTS_FAILED and failed is None):
            raise RuntimeError(f"pytest ended with {status}:\n{output}")
        found_by = failed[1].removeprefix("tests/") if failed is not None else None
        return Finding(found_by=found_by, seconds=time.monotonic() - begun_s, output=output)

    def seed_that_fails(self, shape: str, seeds: int) -> Finding:
        """Run the simulator's first seeds of a shape against the copy as it is, until one fails."""
        begun_s = time.monotonic()
        found_by, output = None, ""
        for first in range(1, seeds + 1, SEEDS_AT_ONCE):
            count = min(SEEDS_AT_ONCE, seeds + 1 - first)
            command = [
                "-m",
                "kit.simulator",
                "--jobs",
                "1",
                "--shape",
                shape,
                f"--first={first}",
                f"--seeds={count}",
            ]
            completed = self._python(command)
            if completed is None:
                found_by = f"{shape}, seeds from {first} have no end"
                break
            output = completed[1]
            failed = _SEED_FAILED.search(output)
            if failed is not None:
                found_by = f"{shape}, seed {failed[1]}"
                break
        return Finding(found_by=found_by, seconds=time.monotonic() - begun_s, output=output)

    def plant(self, mistake: Mistake) -> None:
        """Put a mistake in the copy."""
        path = self._path(mistake)
        path.write_text(mistake.planted_in(path.read_text(encoding="utf-8")), encoding="utf-8")
        self._forget_compiled(path)

    def mend(self, mistake: Mistake) -> None:
        """Take the mistake out again."""
        path = self._path(mistake)
        shutil.copyfile(REPOSITORY / mistake.file, path)
        self._forget_compiled(path)

    def _path(self, mistake: Mistake) -> Path:
        return self.directory / mistake.file

    @staticmethod
    def _forget_compiled(path: Path) -> None:
        # Python compares whole seconds and sizes: a mistake may have both of them like the source before it.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()

    def _python(self, arguments: Sequence[str], timeout_s: int = TIMEOUT_S) -> tuple[int, str] | None:
        """Run python with the copy before everything else. Returns exit status and output, None after the timeout."""
        roots = [str(self.directory / root) for root in SOURCE_ROOTS]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([*roots, str(REPOSITORY / "tests")])}
        try:
            completed = subprocess.run(
                [sys.executable, *arguments],
                cwd=REPOSITORY,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None
        return completed.returncode, completed.stdout

    def check_is_used(self) -> None:
        """Assert that python imports the copy, not the repository.

        Raises:
            RuntimeError: it does not, so that no mistake would be seen.
        """
        names = ("quorate_controller", "quorate_protocol", "pyspark_quorate")
        for name in names:
            completed = self._python(["-c", f"import {name}; print({name}.__file__)"])
            if completed is None or not completed[1].startswith(str(self.directory)):
                raise RuntimeError(f"{name} is not imported from {self.directory}: {completed}")
