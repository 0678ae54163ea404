"""Structured logs: one line per event, `key=value` for people or JSON for machines.

The message is the event; its details come as `extra={"facts": {...}}`. Repeats of the same event within an interval
are dropped, so that a peer that is down for a day does not fill a disk, and a line `repeats_dropped` counts them.
Events of different principals, hosts, operations and types of resources are never repeats of each other, so that no
client can hide the events of another one.
"""

import json
import logging
import sys
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, TextIO

from quorate_protocol.printable import printable

LOGGER_NAME = "quorate_controller"
REPEATS_MAX = 20
"""Lines of the same event with the same subject and resource in an interval."""
RESOURCES_MAX = 200
"""Lines of the same event with the same subject in an interval, whatever the resources."""
REPEAT_INTERVAL_S = 10.0
_SUBJECT = ("principal", "host", "peer", "operation", "resource_type")
"""The facts that make two events different, beside the name of the resource."""
_RESOURCE = "resource_name"
_EVENTS_KEPT_MAX = 1024
_RESOURCES_KEPT_MAX = 16_384
"""In all intervals together. A resource takes about 100 bytes."""
_SUBJECT_LENGTH_MAX = 256

log = logging.getLogger(__name__)

_LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG // 2,
}
"""Most severe first. Nothing is logged below DEBUG: with TRACE a logger writes the same."""
_ROOT: Final = "root"


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


class _Interval:
    """The lines of one event with one subject since the first one: written and dropped."""

    __slots__ = ("began_s", "dropped", "event", "level", "lines_of_resource", "logger", "subject", "written")

    def __init__(
        self, logger: str, level: int, event: str, subject: Mapping[str, str], began_s: float
    ) -> None:
        self.logger = logger
        self.level = level
        self.event = event
        self.subject = subject
        self.began_s = began_s
        self.written = 0
        self.dropped = 0
        self.lines_of_resource: dict[int, int] = {}

    def admits(self, resource: int) -> bool:
        """Whether one more line may be written about a resource; counts it, written or dropped."""
        lines = self.lines_of_resource.get(resource, 0)
        if lines >= REPEATS_MAX or self.written >= RESOURCES_MAX:
            self.dropped += 1
            return False
        self.lines_of_resource[resource] = lines + 1
        self.written += 1
        return True

    def summary(self) -> logging.LogRecord:
        """Return the line with the number of the dropped lines."""
        record = logging.LogRecord(self.logger, self.level, __file__, 0, "repeats_dropped", (), None)
        record.facts = {"repeated_event": self.event, "dropped": self.dropped, **self.subject}
        return record


class Repeats:
    """Admits each event a few times per interval, and makes the lines that count the dropped ones.

    Events are the same when logger, level, message and subject are: the principal, the host (of a peer without its
    port), the operation and the type of the resource. Other facts do not count, but the names of resources have
    bounds of their own. Events with an exception are the same when it is of the same type and was raised at the same
    line: the messages of libraries differ each time.

    The memory is bounded. An event that is forgotten early, because of many others, is counted early, too, and then
    admitted again: pressure makes more lines, never less.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._intervals: OrderedDict[int, _Interval] = OrderedDict()
        self._resources = 0
        self._summaries: list[logging.LogRecord] = []

    def admits(self, record: logging.LogRecord) -> bool:
        """Whether a record is to be written. Call `ended` before."""
        facts = _facts(record)
        subject = {key: _subject_value(key, facts[key]) for key in _SUBJECT if key in facts}
        origin = _origin(record) or str(record.msg)
        # Texts of clients may be long: their hashes are kept.
        key = hash((record.name, record.levelno, origin, *subject.items()))
        interval = self._intervals.get(key)
        if interval is None:
            shown = {name: _shortened(value) for name, value in subject.items()}
            interval = _Interval(record.name, record.levelno, _shortened(origin), shown, self._clock())
            self._intervals[key] = interval
        kept = len(interval.lines_of_resource)
        is_admitted = interval.admits(hash(facts.get(_RESOURCE)))
        self._resources += len(interval.lines_of_resource) - kept
        while len(self._intervals) > _EVENTS_KEPT_MAX or self._resources > _RESOURCES_KEPT_MAX:
            self._end_oldest()
        return is_admitted

    def ended(self, *, all_of_them: bool = False) -> list[logging.LogRecord]:
        """Return the summaries of the intervals that have ended since the last time, or end all now."""
        ended_s = self._clock() - REPEAT_INTERVAL_S
        while self._intervals and (all_of_them or next(iter(self._intervals.values())).began_s <= ended_s):
            self._end_oldest()
        summaries, self._summaries = self._summaries, []
        return summaries

    def _end_oldest(self) -> None:
        _, interval = self._intervals.popitem(last=False)
        self._resources -= len(interval.lines_of_resource)
        if interval.dropped:
            self._summaries.append(interval.summary())


class BoundedStreamHandler(logging.StreamHandler[TextIO]):
    """Writes lines to a stream, within the bounds of `Repeats`."""

    def __init__(self, stream: TextIO, repeats: Repeats | None = None) -> None:
        super().__init__(stream)
        self._repeats = repeats or Repeats()

    def handle(self, record: logging.LogRecord) -> bool:
        self.acquire()
        try:
            self.report_repeats()
            return self._repeats.admits(record) and bool(super().handle(record))
        finally:
            self.release()

    def report_repeats(self, *, all_of_them: bool = False) -> None:
        """Write the summaries of the intervals that have ended, or of all."""
        self.acquire()
        try:
            for summary in self._repeats.ended(all_of_them=all_of_them):
                super().handle(summary)
        finally:
            self.release()

    def close(self) -> None:
        self.report_repeats(all_of_them=True)
        super().close()


def report_repeats() -> None:
    """Write the summaries of the intervals that have ended, also if nothing else is logged."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, BoundedStreamHandler):
            handler.report_repeats()


def configure_logs(
    *,
    level: LogLevel = LogLevel.INFO,
    log_format: LogFormat = LogFormat.TEXT,
    stream: TextIO | None = None,
) -> None:
    """Send the events of this process to a stream (stderr); libraries' from warnings on."""
    handler = BoundedStreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format is LogFormat.JSON else TextFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger(LOGGER_NAME).setLevel(level.upper())


def _facts(record: logging.LogRecord) -> Mapping[str, object]:
    facts = getattr(record, "facts", None)
    return facts if isinstance(facts, Mapping) else {}


def _subject_value(key: str, value: object) -> str:
    """The text by which subjects are compared: of a peer its host, because each connection has another port."""
    return str(value).rpartition(":")[0] if key == "peer" else str(value)


def _shortened(text: str) -> str:
    return text if len(text) <= _SUBJECT_LENGTH_MAX else f"{text[:_SUBJECT_LENGTH_MAX]}..."


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


class ProcessLoggers:
    """Python's loggers, and the packages that they are in. Implements `broker_loggers.Loggers`."""

    def levels(self) -> Mapping[str, str]:
        """The effective level of each logger and package, by name."""
        names = (_ROOT, *logging.root.manager.loggerDict)
        return {name: _kafka_name(_effective_level(name)) for name in sorted(names)}

    def set_level(self, name: str, level: str | None) -> None:
        """Set a level; with None the logger takes that of its parent."""
        logging.getLogger(name).setLevel(logging.NOTSET if level is None else _LEVELS[level])
        log.warning("log_level_changed", extra={"facts": {"changed_logger": name, "to": level or "unset"}})


def _effective_level(name: str) -> int:
    """The level of a logger, or of the nearest one above it; does not create one for a package."""
    while name != _ROOT:
        known = logging.root.manager.loggerDict.get(name)
        if isinstance(known, logging.Logger) and known.level != logging.NOTSET:
            return known.level
        name = name.rpartition(".")[0] or _ROOT
    return logging.root.level


def _kafka_name(level: int) -> str:
    """The name of the most severe level that is not above this one."""
    return next((name for name, number in _LEVELS.items() if number <= level), "TRACE")
