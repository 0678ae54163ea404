"""Jobs of a lake that are killed, lack files or have company: a few runs of `make lake-faults`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(600)

TESTS = Path(__file__).parents[2]
RUNS = 6


def test_disturbed_jobs_make_the_lake_of_undisturbed_ones() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "kit.lake.faults", "--runs", str(RUNS)],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{RUNS} runs" in ran.stdout
    for ending in ("kill: killed", "open: failed", "vanish: failed", "writers: failed", "clock: ended"):
        assert ending in ran.stdout, "a fault of this kind did harm"
