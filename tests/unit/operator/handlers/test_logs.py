"""The operator's log: kopf's temporary errors, and unprintable text from others."""

import json
import logging
from collections.abc import Iterator

import pytest
from quorate_operator.handlers.logs import KOPF_LOGGER, TemporaryIsNoError, configure_logs

WAITING = "Handler 'deleted' failed temporarily: its pods are being stopped"
BROKEN = "Handler 'deleted' failed with an exception and will try again in 60 seconds: KeyError('spec')"


@pytest.mark.parametrize(
    ("threshold", "message", "expected"),
    [("INFO", WAITING, "INFO"), ("WARNING", WAITING, None), ("WARNING", BROKEN, "ERROR")],
)
def test_a_handler_that_waits_is_no_error(threshold: str, message: str, expected: str | None) -> None:
    ours = logging.getLogger("quorate_operator")
    before = ours.level
    ours.setLevel(threshold)
    try:
        record = logging.LogRecord("kopf.objects", logging.ERROR, __file__, 1, message, (), None)
        assert (record.levelname if TemporaryIsNoError().filter(record) else None) == expected
    finally:
        ours.setLevel(before)


@pytest.fixture
def loggers() -> Iterator[logging.Logger]:
    """The root logger, which gets its handlers and levels back."""
    root, ours, kopf = (logging.getLogger(name) for name in (None, "quorate_operator", KOPF_LOGGER))
    before = root.handlers[:], root.level, ours.level, kopf.filters[:]
    root.handlers[:] = []
    yield root
    root.handlers[:], root.level, ours.level, kopf.filters[:] = before


@pytest.mark.parametrize("is_json", [False, True])
def test_no_character_of_an_event_ends_its_line_or_commands_a_terminal(
    loggers: logging.Logger, capsys: pytest.CaptureFixture[str], is_json: bool
) -> None:
    """A name in a manifest or a response of a node can't forge a line of the log."""
    configure_logs(level="info", is_json=is_json)
    hostile = "a\nb\x85c\x9b1Kd\u2028e\x1bf"
    loggers.error("event of %s", hostile, exc_info=ValueError(hostile.replace("\n", "")))
    lines = capsys.readouterr().err.rstrip("\n").split("\n")
    assert all(line.isprintable() for line in lines)
    assert r"event of a\nb\u0085c\u009b1Kd\u2028e\u001bf" in lines[0]
    assert r"ab\u0085c\u009b1Kd\u2028e\u001bf" in lines[-1]
    if is_json:
        (line,) = lines
        assert json.loads(line)["event"] == f"event of {hostile}"
