"""The line of a log that says why a process ended: of Kafka, of a JVM, of Quorate in text or JSON. Pure."""

import json
import re
from collections.abc import Iterator

LENGTH_MAX = 300
"""Longer lines are cut: conditions and reasons quote them."""

_STACK = re.compile(r"\s+at |\s*\.\.\. \d+ more|\s+File \"|\s+\^+$")
_EXCEPTION = re.compile(
    r"(Caused by: |Exception in thread \"[^\"]*\" )?(?P<text>[\w.$]+(Exception|Error)\b(:.*)?)$"
)
_MARKED = re.compile(r"(^|\W)(ERROR|FATAL|CRITICAL)\W+(?P<text>.*)|^([\w-]+: )?(?P<plain>[Ee]rror: .*)")
_LOGGER = re.compile(r" \([\w.$]+\)$")
"""What Kafka's layout has at the end of a line."""


def last_error(log: str, *, marked_only: bool = False) -> str | None:
    """Return the last line of a log that is marked as an error or names an exception.

    Otherwise, unless `marked_only`, return the last line that is no part of a stack trace; None for an empty log.
    """
    lines = [line for line in log.splitlines() if line.strip() and not _STACK.match(line)]
    found = next(_errors(reversed(lines)), None)
    if found is None and lines and not marked_only:
        found = lines[-1]
    return None if found is None else _printable(found)


def _errors(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        if line.startswith("{"):
            yield from _event(line)
        elif match := _EXCEPTION.match(line.strip()):
            yield match["text"]
        elif match := _MARKED.search(line):
            yield _LOGGER.sub("", match["text"] or match["plain"] or line)


def _event(line: str) -> Iterator[str]:
    """Yield the event of a line of JSON that is an error and has details."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return
    if isinstance(fields, dict) and fields.get("level") in ("ERROR", "FATAL", "CRITICAL"):
        texts = [str(fields[name]).strip() for name in ("event", "error", "traceback") if fields.get(name)]
        details = [text.splitlines()[-1] for text in texts if text]
        if details:
            yield ": ".join(details)


def _printable(line: str) -> str:
    text = "".join(character if character.isprintable() else " " for character in line.strip())
    return text if len(text) <= LENGTH_MAX else f"{text[: LENGTH_MAX - 1]}…"
