"""Tests that failed and then passed: a pytest plugin on top of pytest-rerunfailures.

Each is printed as FLAKY at the end of the run, with the file that keeps the report of its failed attempt.
"""

import re
from pathlib import Path

import pytest

DIRECTORY = Path("test-reports") / "flaky"
"""Where reports are kept, below pytest's root directory."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Keep the reports and list the tests."""
    if hasattr(config, "workerinput"):  # the process that prints has the reports of all
        return
    passed = {report.nodeid for report in terminalreporter.getreports("passed") if report.when == "call"}
    flaky = [report for report in terminalreporter.getreports("rerun") if report.nodeid in passed]
    if not flaky:
        return
    directory = config.rootpath / DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    terminalreporter.section("FLAKY: failed, then passed")
    for report in flaky:
        name = re.sub(r"[^\w.-]+", "_", report.nodeid.removeprefix("tests/"))[:180]
        attempt = sum(1 for _ in directory.glob(f"{name}.*.txt")) + 1
        file = directory / f"{name}.{attempt}.txt"
        sections = [f"----- {title}\n{content}" for title, content in report.sections]
        file.write_text("\n".join([report.nodeid, report.longreprtext, *sections]) + "\n")
        terminalreporter.line(f"FLAKY {report.nodeid}: {file.relative_to(config.rootpath)}")
