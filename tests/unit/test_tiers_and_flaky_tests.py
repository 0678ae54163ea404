"""The plugins that say which test runs when, and which tests passed only at the second attempt."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kit.tiers import FAST, NIGHTLY, RUNGS, SMOKE, pytest_ignore_collect, tier_of

TESTS = Path(__file__).parents[1]
FAILS_ONCE = """
from pathlib import Path

def test_that_fails_once():
    mark = Path(__file__).with_name("mark")
    is_first = not mark.exists()
    mark.touch()
    assert not is_first, "the first attempt"

def test_that_passes():
    pass
"""


@pytest.mark.parametrize(
    ("node_id", "tier"),
    [
        ("tests/unit/test_repository_rules.py::test_source_roots_are_no_packages[cli]", "quick"),
        ("tests/simulation/test_simulation.py::test_seeds_keep_all_promises[1]", "quick"),
        ("tests/simulation/test_simulation.py::test_seeds_keep_all_promises_and_try_everything", "nightly"),
        ("tests/integration/test_client_libraries.py::test_transactions_commit_and_abort", "quick"),
        ("tests/integration/test_auto_join.py::test_any", None),
        ("tests/kubernetes/kind/test_life_of_a_cluster.py::test_any", "nightly"),
    ],
)
def test_a_test_has_one_tier(node_id: str, tier: str | None) -> None:
    """Folders and rows decide, and a row is no beginning of another name."""
    assert tier_of(node_id) == tier


def test_every_row_names_a_file() -> None:
    places = [row.partition("::")[0] for row in (*SMOKE, *NIGHTLY)]
    assert [place for place in places if not any(TESTS.parent.glob(f"{place.rstrip('/')}*"))] == []


def test_the_rungs_collect_no_fast_folder(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = ("tests/unit", "tests/simulation", "tests/unit/operator", "tests/pipeline", "tests")

    def ignored(expression: str) -> list[str]:
        monkeypatch.setattr(pytestconfig.option, "markexpr", expression)
        return [
            folder
            for folder in folders
            if pytest_ignore_collect(pytestconfig.rootpath / folder, pytestconfig)
        ]

    assert ignored(RUNGS) == ["tests/unit", "tests/simulation"]
    assert ignored("nightly") == []
    assert f"-m '{RUNGS}'" in (TESTS.parent / "Makefile").read_text()
    assert not any(tier_of(f"{folder}test_any.py::test_any") is None for folder in FAST)


@pytest.mark.parametrize("processes", ["0", "1"], ids=["alone", "in a worker"])
def test_what_passes_at_the_second_attempt_is_reported(tmp_path: Path, processes: str) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ("kit.flaky",)\n')
    (tmp_path / "test_one.py").write_text(FAILS_ONCE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "--reruns", "1", "-n", processes, "-p", "no:cacheprovider"]
    ran = subprocess.run(
        command,
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (file,) = (tmp_path / "test-reports" / "flaky").iterdir()
    assert f"FLAKY test_one.py::test_that_fails_once: test-reports/flaky/{file.name}" in ran.stdout
    assert "the first attempt" in file.read_text()
