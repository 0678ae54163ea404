"""Log lines: text, JSON, repeats."""

import io
import json
import logging
import sys
from collections.abc import Callable, Iterable, Iterator

import pytest
from quorate_controller.structured_logs import (
    RESOURCES_MAX,
    BoundedStreamHandler,
    JsonFormatter,
    LogFormat,
    LogLevel,
    Repeats,
    TextFormatter,
    configure_logs,
    report_repeats,
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
    """What others send can't forge a line or command a terminal."""
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
    """The level is for our events; libraries log from warnings on."""
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


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def denied(principal: str, **facts: object) -> logging.LogRecord:
    """A denial as the audit log has it."""
    return record("authorization_denied", **{"principal": principal, "host": "10.0.0.1", **facts})


def written(repeats: Repeats, events: Iterable[logging.LogRecord]) -> int:
    """How many of the events are admitted."""
    return sum(repeats.admits(event) for event in events)


def test_repeats_are_dropped_and_counted():
    """Past the number per interval events are dropped, errors too, and a line counts them."""
    clock = Clock()
    repeats = Repeats(clock)
    assert [repeats.admits(record("down", node=n)) for n in range(22)] == [True] * 20 + [False] * 2
    assert repeats.admits(record("other"))
    error = record("down")
    error.levelno = logging.ERROR
    assert [repeats.admits(error) for _ in range(29)] == [True] * 20 + [False] * 9
    clock.now_s = 9.9
    assert repeats.ended() == []
    clock.now_s = 10.0
    summaries = [(summary.levelno, summary.getMessage(), summary.facts) for summary in repeats.ended()]
    assert summaries == [
        (logging.INFO, "repeats_dropped", {"repeated_event": "down", "dropped": 2}),
        (logging.ERROR, "repeats_dropped", {"repeated_event": "down", "dropped": 9}),
    ]
    assert repeats.ended() == []
    assert repeats.admits(record("down", node=9))


@pytest.mark.parametrize(
    "other",
    [
        {"principal": "User:bob"},
        {"host": "10.0.0.2"},
        {"operation": "ALTER"},
        {"resource_type": "CLUSTER"},
        {"resource_name": "payroll"},
    ],
)
def test_nobody_hides_the_denial_of_another_subject_or_resource(other: dict[str, str]):
    repeats = Repeats(Clock())
    denial = {"operation": "READ", "resource_type": "TOPIC", "resource_name": "junk"}
    assert written(repeats, (denied("User:mallory", **denial) for _ in range(1000))) == 20
    assert repeats.admits(denied(**{"principal": "User:mallory", **denial, **other}))


@pytest.mark.parametrize(
    "event",
    ["authentication_failed", "connection_refused", "envelope_refused", "tls_handshake_failed"],
)
def test_nobody_hides_the_failures_of_another_host(event: str):
    repeats = Repeats(Clock())
    flood = (record(event, peer=f"10.0.0.1:{port}", reason="x") for port in range(1000))
    assert written(repeats, flood) == 20
    assert repeats.admits(record(event, peer="10.0.0.2:1", reason="x"))
    assert repeats.admits(record(event, peer="fd00::1:1", reason="x"))


def test_a_subject_has_a_bound_over_all_resources():
    """Ever new names of resources do not fill the disk, and do not hide other operations."""
    clock = Clock()
    repeats = Repeats(clock)
    flood = [denied("User:mallory", operation="READ", resource_name=f"{number}") for number in range(1000)]
    assert written(repeats, flood) == RESOURCES_MAX
    assert repeats.admits(denied("User:mallory", operation="ALTER", resource_name="x"))
    clock.now_s = 10.0
    (summary,) = repeats.ended()
    assert summary.facts == {
        "repeated_event": "authorization_denied",
        "dropped": 1000 - RESOURCES_MAX,
        "principal": "User:mallory",
        "host": "10.0.0.1",
        "operation": "READ",
    }


def test_a_summary_is_written_without_another_event(stream: io.StringIO):
    clock = Clock()
    handler = BoundedStreamHandler(stream, Repeats(clock))
    handler.setFormatter(TextFormatter())
    logging.getLogger().handlers[:] = [handler]
    for _ in range(25):
        handler.handle(denied("User:mallory"))
    assert stream.getvalue().count("\n") == 20
    clock.now_s = 11.0
    report_repeats()
    assert [" ".join(line.split()[1:]) for line in stream.getvalue().splitlines()[20:]] == [
        "INFO repeats_dropped repeated_event=authorization_denied dropped=5 principal=User:mallory host=10.0.0.1"
    ]
    for _ in range(21):
        handler.handle(denied("User:mallory"))
    handler.close()
    assert stream.getvalue().splitlines()[-1].endswith("dropped=1 principal=User:mallory host=10.0.0.1")


def test_an_error_is_known_by_where_it_was_raised():
    """A library's texts have addresses and values; its error repeats all the same. Another place is another error."""
    repeats = Repeats()

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

    texts = [f"Exception in callback <Handle at {number:#x}>" for number in range(26)]
    assert [repeats.admits(failed(text, divide)) for text in texts] == [True] * 20 + [False] * 6
    assert repeats.admits(failed(texts[0], divide_elsewhere))
    assert repeats.admits(failed(texts[0], lambda: 2.0**9999))


def test_repeats_take_bounded_memory_and_pressure_hides_nothing():
    """Many events push the oldest ones out, whose dropped lines are counted all the same."""
    repeats = Repeats(Clock())
    assert written(repeats, (denied("User:mallory") for _ in range(30))) == 20
    for number in range(5000):
        assert repeats.admits(record(f"event {number}", principal="x" * 10_000))
    assert len(repeats._intervals) <= 1024
    assert [summary.facts["dropped"] for summary in repeats.ended()] == [10]
    assert all(
        len(text) < 300 for interval in repeats._intervals.values() for text in interval.subject.values()
    )
    for principal in range(1000):
        for resource in range(100):
            assert repeats.admits(denied(f"User:{principal}", resource_name=f"{resource}"))
    assert repeats._resources == sum(
        len(interval.lines_of_resource) for interval in repeats._intervals.values()
    )
    assert repeats._resources <= 16_384
