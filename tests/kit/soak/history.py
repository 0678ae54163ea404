"""The history of a soak: events as JSON lines, which the runner appends and the checker reads."""

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class What(StrEnum):
    """The kind of an event."""

    RUN = "run"
    FAULT = "fault"
    FAULT_ENDED = "fault ended"
    REFUSED = "refused"
    OPERATION = "operation"
    STATUS = "status"
    LEADER = "leader"
    VOTERS = "voters"
    ENDED = "ended"
    BROKEN = "broken"
    CALM = "calm"
    PRODUCED = "produced"
    CONSUMED = "consumed"
    FINAL = "final"
    RESOURCES = "resources"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that was done or seen, `at_s` seconds after the start. `facts` are JSON values."""

    at_s: float
    what: What
    facts: Mapping[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        """The event as one line of JSON."""
        return json.dumps({"at_s": round(self.at_s, 3), "what": self.what, **self.facts})

    @classmethod
    def parse(cls, line: str) -> "Event":
        """The event of a line."""
        facts = json.loads(line)
        return cls(facts.pop("at_s"), What(facts.pop("what")), facts)


class Recorder:
    """Appends events to a file, and keeps them. Threads share it. Close it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.events: list[Event] = []
        self._file = path.open("w")
        self._lock = threading.Lock()
        self._started_s = time.monotonic()

    def now_s(self) -> float:
        """Seconds since the start, by a clock that is never set."""
        return time.monotonic() - self._started_s

    def note(self, what: What, **facts: Any) -> None:
        """Append an event of now."""
        with self._lock:
            event = Event(self.now_s(), what, facts)
            self.events.append(event)
            self._file.write(event.line() + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read(path: Path) -> list[Event]:
    """The events of a file."""
    return [Event.parse(line) for line in path.read_text().splitlines()]


def of(events: Iterable[Event], *kinds: What) -> Iterator[Event]:
    """The events of some kinds, in order."""
    return (event for event in events if event.what in kinds)


def ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Numbers as ranges, first and last, in their order: a short form of long runs of numbers."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


def numbers_of(found: Iterable[Iterable[int]]) -> Iterator[int]:
    """The numbers of ranges."""
    for first, last in found:
        yield from range(first, last + 1)
