"""The longest pauses of the membership tests, in the summary of the run: a reader of CI's output finds them."""

from collections.abc import Callable

import pytest

_PAUSES = pytest.StashKey[list[str]]()
PAUSE_S_MAX = 15.0
"""What a client may wait for an acknowledgement during a change; two JVMs and a broker share two cores here."""


@pytest.fixture
def tell_pause(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Callable[[float], None]:
    """Tell how long the longest pause between two acknowledged topics was; fails if it was too long."""

    def tell(pause_s: float) -> None:
        record_property("pause_s_max", round(pause_s, 3))
        pauses = request.config.stash.setdefault(_PAUSES, [])
        pauses.append(f"{pause_s:6.2f} s  {request.node.name}")
        assert pause_s < PAUSE_S_MAX

    return tell


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List the pauses."""
    pauses = config.stash.get(_PAUSES, [])
    if pauses:
        terminalreporter.section("longest pause between two acknowledged topics")
        for line in pauses:
            terminalreporter.line(line)
