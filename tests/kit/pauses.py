"""The longest pauses of the membership tests, in the summary of the run: a reader of CI's output finds them."""

from collections.abc import Callable

import pytest

_PROPERTY = "pause_s_max"
PAUSE_S_MAX = 15.0
"""What a client may wait for an acknowledgement during a change; two JVMs and a broker share two cores here."""


@pytest.fixture
def tell_pause(record_property: Callable[[str, object], None]) -> Callable[[float], None]:
    """Record how long the longest pause between two acknowledged topics was; fails if it was too long."""

    def tell(pause_s: float) -> None:
        record_property(_PROPERTY, round(pause_s, 3))
        assert pause_s < PAUSE_S_MAX

    return tell


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the pauses, whichever process ran the tests."""
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.getreports(outcome)]
    pauses = [
        f"{value:6.2f} s  {report.nodeid}"
        for report in reports
        if report.when == "call"
        for name, value in report.user_properties
        if name == _PROPERTY
    ]
    if pauses:
        terminalreporter.section("longest pause between two acknowledged topics")
        for line in pauses:
            terminalreporter.line(line)
