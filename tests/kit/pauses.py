"""The longest pauses of clients, in the summary of the run: a reader of CI's output finds them."""

from collections.abc import Callable
from typing import Protocol

import pytest

_PROPERTY = "longest pause between acknowledged "
PAUSE_S_MAX = 15.0
"""What a client may wait for an acknowledgement during a change; two JVMs and a broker share two cores here."""


class RecordPause(Protocol):
    """Records how long the longest pause between two acknowledgements was; fails if it was too long."""

    def __call__(self, pause_s: float, what: str = "topics", *, max_s: float = PAUSE_S_MAX) -> None: ...


@pytest.fixture
def record_pause(record_property: Callable[[str, object], None]) -> RecordPause:
    """Record longest pauses; `what` was acknowledged."""

    def record(pause_s: float, what: str = "topics", *, max_s: float = PAUSE_S_MAX) -> None:
        record_property(f"{_PROPERTY}{what}", round(pause_s, 3))
        assert pause_s < max_s, f"{pause_s:.1f} s without acknowledged {what}"

    return record


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the pauses, whichever process ran the tests."""
    reports = [report for result in ("passed", "failed") for report in terminalreporter.getreports(result)]
    pauses = [
        f"{value:6.2f} s  {name.removeprefix(_PROPERTY)}  {report.nodeid}"
        for report in reports
        if report.when == "call"
        for name, value in report.user_properties
        if name.startswith(_PROPERTY)
    ]
    if pauses:
        terminalreporter.section("longest pauses between two acknowledgements")
        for line in pauses:
            terminalreporter.line(line)
