"""The operator's log: what kopf calls an error and is none."""

import logging

import pytest
from quorate_operator.handlers.logs import TemporaryIsNoError

WAITING = "Handler 'deleted' failed temporarily: its pods are being stopped"
BROKEN = "Handler 'deleted' failed with an exception and will try again in 60 seconds: KeyError('spec')"


@pytest.mark.parametrize(
    ("threshold", "message", "told"),
    [("INFO", WAITING, "INFO"), ("WARNING", WAITING, None), ("WARNING", BROKEN, "ERROR")],
)
def test_a_handler_that_waits_is_no_error(threshold: str, message: str, told: str | None) -> None:
    """Goal: a log without errors means that nothing failed. Method: kopf's words, with the filter, by threshold."""
    ours = logging.getLogger("quorate_operator")
    before = ours.level
    ours.setLevel(threshold)
    try:
        record = logging.LogRecord("kopf.objects", logging.ERROR, __file__, 1, message, (), None)
        assert (record.levelname if TemporaryIsNoError().filter(record) else None) == told
    finally:
        ours.setLevel(before)
