"""A pytest plugin that counts the tests that ran beside a release of Kafka, for each combination.

A run writes `test-reports/compatibility/<release>.json`, from which `tools/compatibility.py` makes the table in
docs/compatibility.md.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from kit.releases import RELEASE

REPORTS: Final = Path("test-reports") / "compatibility"
"""Where the reports are written, below pytest's root directory."""
COUNTERPARTS: Final = {
    "brokers of the release, Quorate's controllers": (
        "tests/integration/admin/test_operations_python.py",
        "tests/integration/gateway/",
        "tests/integration/identity/test_rebootstrap_at_stock_brokers.py",
        "tests/integration/test_client_libraries.py",
        "tests/integration/test_failures_of_nodes.py",
        "tests/integration/test_shipping.py",
    ),
    "Java controllers and Quorate's in one quorum": (
        "tests/integration/identity/",
        "tests/integration/membership/",
        "tests/integration/test_images_of_mixed_quorums.py",
        "tests/integration/test_membership_responses.py",
        "tests/integration/test_mixed_quorums.py",
        "tests/integration/test_truncated_logs.py",
    ),
    "directories that one wrote and the other starts": (
        "tests/integration/storage/",
        "tests/integration/test_java_reads_our_directories.py",
    ),
    "stock command line tools, Quorate's controllers": (
        "tests/integration/parity/test_same_scripts.py",
        "tests/integration/test_stock_tools.py",
    ),
    "stock command line tools, compared with Quorate's": ("tests/integration/parity/",),
    "Quorate's tools and admin client, stock clusters": (
        "tests/integration/admin/",
        "tests/integration/test_unregister_controller_java.py",
        "tests/integration/tools/",
    ),
}
"""Combination of parts -> the tests that run it; the first row that matches counts."""


def counterpart_of(node_id: str) -> str | None:
    """The row that a test counts for; None for tests of other things."""
    return next((name for name, rows in COUNTERPARTS.items() if node_id.startswith(rows)), None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Write the report, if tests of a counterpart ran."""
    if hasattr(config, "workerinput"):  # the process that prints has the reports of all
        return
    found: dict[str, Counter[str]] = {}
    for result in ("passed", "failed", "error"):
        for report in terminalreporter.getreports(result):
            name = counterpart_of(report.nodeid)
            if name is not None and (report.when == "call" or result == "error"):
                found.setdefault(name, Counter())["passed" if result == "passed" else "failed"] += 1
    if found:
        file = config.rootpath / REPORTS / f"{RELEASE}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(found, indent=2) + "\n")
