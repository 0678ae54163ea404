"""Log lines: text, JSON, repeats."""

import io
import json
import logging
import sys
from collections.abc import Callable, Iterator

import pytest
from quorate_controller.structured_logs import (
    JsonFormatter,
    LogFormat,
    LogLevel,
    RepeatFilter,
    TextFormatter,
    configure_logs,
)

logger = logging.getLogger("quorate_controller.test")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where the lines go; the root logger is as before afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)


def record(message: str, **facts: object) -> logging.LogRecord:
    """An event with facts."""
    made = logging.LogRecord("quorate_controller.x", logging.INFO, "x.py", 1, message, (), None)
    made.created = 1_700_000_000.123
    made.facts = facts
    return made


def test_text_is_one_line_of_words():
    """Values with blanks, quotes and line breaks are quoted, so that an event stays one line."""
    line = TextFormatter().format(
        record("became\nleader", epoch=3, why="a b", empty="", lines="x\ny", quote='"')
    )
    assert line == (
        "2023-11-14T22:13:20.123Z INFO    became\\nleader "
        'epoch=3 why="a b" empty="" lines="x\\ny" quote="\\""'
    )


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_no_character_ends_a_line_or_moves_the_cursor(formatter: logging.Formatter):
    """Goal: what others send can't forge a line or command a terminal. Method: line ends and control characters that
    are none of ASCII's, in the event, in a fact and in the message of an exception.
    """
    hostile = "a\x85b\x9b1Kc\u2028d\u2029e\x1bf"
    event = record(hostile, fact=hostile)
    event.exc_info = (ValueError, ValueError(hostile), None)
    lines = formatter.format(event).split("\n")
    assert all(line.isprintable() for line in lines)
    assert "".join(lines).count("a\\u0085b\\u009b1Kc\\u2028d\\u2029e\\u001bf") == 3
    assert len(lines) == (1 if isinstance(formatter, JsonFormatter) else 2)


def test_json_is_one_object():
    """Facts are members beside the event; what JSON has no type for becomes text."""
    line = JsonFormatter().format(record("became_leader", epoch=3, path=object))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.123Z",
        "level": "INFO",
        "logger": "quorate_controller.x",
        "event": "became_leader",
        "epoch": 3,
        "path": "<class 'object'>",
    }


def test_levels_and_libraries(stream: io.StringIO):
    """The level is for our events; libraries are heard from warnings on."""
    configure_logs(level=LogLevel.DEBUG, log_format=LogFormat.TEXT, stream=stream)
    logger.debug("ours", extra={"facts": {"a": 1}})
    logging.getLogger("asyncio").info("theirs")
    logging.getLogger("asyncio").warning("loud")
    assert [line.split(maxsplit=2)[1:] for line in stream.getvalue().splitlines()] == [
        ["DEBUG", "ours a=1"],
        ["WARNING", "loud"],
    ]


@pytest.mark.parametrize("log_format", LogFormat)
def test_exceptions_are_shown(stream: io.StringIO, log_format: LogFormat):
    """A traceback is kept in both formats."""
    configure_logs(log_format=log_format, stream=stream)
    try:
        raise KeyError("x")  # noqa: TRY301 - what is under test
    except KeyError:
        logger.exception("failed")
    text = stream.getvalue()
    assert "KeyError: 'x'" in (json.loads(text)["traceback"] if log_format is LogFormat.JSON else text)


def test_repeats_are_dropped_and_counted():
    """Past the number per interval events are dropped, errors too; the next one tells how many."""
    now_s = 0.0
    repeats = RepeatFilter(repeats_max=3, interval_s=10, clock=lambda: now_s)
    assert [repeats.filter(record("down", node=n)) for n in range(5)] == [True, True, True, False, False]
    assert repeats.filter(record("other"))
    error = record("down")
    error.levelno = logging.ERROR
    assert [repeats.filter(error) for _ in range(9)] == [True] * 3 + [False] * 6
    now_s = 10.0
    again = record("down", node=9)
    assert repeats.filter(again)
    assert again.facts == {"node": 9, "repeats_dropped": 2}  # type: ignore[attr-defined]


def test_an_error_is_known_by_where_it_was_raised():
    """A library's texts have addresses and values; its error repeats all the same. Another place is another error."""
    repeats = RepeatFilter(repeats_max=3)

    def divide() -> float:
        return 1 / 0

    def divide_elsewhere() -> float:
        return 1 / 0

    def failed(text: str, act: Callable[[], object]) -> logging.LogRecord:
        error = record(text)
        error.levelno = logging.ERROR
        try:
            act()
        except ArithmeticError:
            error.exc_info = sys.exc_info()
        return error

    texts = [f"Exception in callback <Handle at {number:#x}>" for number in range(6)]
    assert [repeats.filter(failed(text, divide)) for text in texts] == [True] * 3 + [False] * 3
    assert repeats.filter(failed(texts[0], divide_elsewhere))
    assert repeats.filter(failed(texts[0], lambda: 2.0**9999))


def test_repeats_of_many_events_take_bounded_memory():
    """Events with ever new texts push the oldest ones out."""
    repeats = RepeatFilter()
    for number in range(5000):
        assert repeats.filter(record(f"event {number}"))
    assert len(repeats._seen) <= 1024
