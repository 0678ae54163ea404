"""Structured logs: one line per event, `key=value` for people or JSON for machines.

The message is the event; its details come as `extra={"facts": {...}}`. Repeats of the same event
within an interval are dropped and counted, so that a peer that is down for a day does not fill a disk.
"""

import json
import logging
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import TextIO

from quorate_protocol.printable import printable

LOGGER_NAME = "quorate_controller"
REPEATS_MAX = 20
REPEAT_INTERVAL_S = 10.0
_EVENTS_KEPT_MAX = 1024


class LogFormat(StrEnum):
    """How a line looks."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """From which level on events are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO event key=value …`; an exception follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        facts = "".join(f" {key}={_quoted(value)}" for key, value in _facts(record).items())
        line = f"{_timestamp(record)} {record.levelname:<7} {printable(record.getMessage())}{facts}"
        if not record.exc_info:
            return line
        return "\n".join([line, *map(printable, _traceback(record).split("\n"))])


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, event, the facts, and perhaps a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": _timestamp(record),
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
            **_facts(record),
        }
        if record.exc_info:
            fields["traceback"] = _traceback(record)
        return printable(json.dumps(fields, default=str, ensure_ascii=False))


class RepeatFilter(logging.Filter):
    """Lets an event through a few times per interval; the first one after it has the number of dropped ones.

    Events are the same when logger, level and message are; facts do not count. Those with an exception are the same
    when it is of the same type and was raised at the same line: the messages of libraries differ each time.
    """

    def __init__(
        self,
        *,
        repeats_max: int = REPEATS_MAX,
        interval_s: float = REPEAT_INTERVAL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._repeats_max = repeats_max
        self._interval_s = interval_s
        self._clock = clock
        self._seen: dict[tuple[str, int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        key = record.name, record.levelno, _origin(record) or str(record.msg)
        now_s = self._clock()
        since_s, count = self._seen.get(key, (now_s, 0))
        dropped = 0
        if now_s - since_s >= self._interval_s:
            dropped = max(0, count - self._repeats_max)
            since_s, count = now_s, 0
        if key not in self._seen and len(self._seen) == _EVENTS_KEPT_MAX:
            del self._seen[next(iter(self._seen))]
        self._seen[key] = since_s, count + 1
        if dropped:
            record.facts = {**_facts(record), "repeats_dropped": dropped}
        return count < self._repeats_max


def configure_logs(
    *,
    level: LogLevel = LogLevel.INFO,
    log_format: LogFormat = LogFormat.TEXT,
    stream: TextIO | None = None,
) -> None:
    """Send the events of this process to a stream (stderr); libraries' from warnings on."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format is LogFormat.JSON else TextFormatter())
    handler.addFilter(RepeatFilter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger(LOGGER_NAME).setLevel(level.upper())


def _facts(record: logging.LogRecord) -> Mapping[str, object]:
    facts = getattr(record, "facts", None)
    return facts if isinstance(facts, Mapping) else {}


def _origin(record: logging.LogRecord) -> str | None:
    """Type and place of the exception of an event, None without one."""
    if not record.exc_info or record.exc_info[0] is None:
        return None
    error_type, _, frame = record.exc_info
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = "" if frame is None else f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}"
    return f"{error_type.__name__} {place}"


def _timestamp(record: logging.LogRecord) -> str:
    text = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _traceback(record: logging.LogRecord) -> str:
    return "".join(traceback.format_exception(*record.exc_info)).rstrip() if record.exc_info else ""


def _quoted(value: object) -> str:
    text = str(value)
    if text and not any(character in ' "=\\' or not character.isprintable() for character in text):
        return text
    return printable(json.dumps(text, ensure_ascii=False))
