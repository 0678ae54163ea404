"""Values of options, parsed in the same way by every command."""

import re

import typer

INT32_MAX = 2**31 - 1
"""The highest id of a node, number of a partition, or count in Kafka's protocol."""
DURATION_MS_MAX = 2**53
"""The longest duration that is accepted, in milliseconds: 285,000 years, which fit into a `timedelta`."""
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|)")
_UNIT_S = {"ms": 0.001, "s": 1, "": 1, "m": 60, "h": 3600}


def parse_ids(text: str, separator: str) -> list[int]:
    """Ids from 0 to INT32_MAX. Raises ValueError."""
    return [parse_id(part) for part in text.split(separator)]


def parse_id(text: str) -> int:
    """An id from 0 to INT32_MAX. Raises ValueError."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10 and int(digits) <= INT32_MAX):
        raise ValueError(f"{text!r} is not a number from 0 to {INT32_MAX}")
    return int(digits)


def parse_duration_s(text: str) -> float:
    """Seconds, from `500ms`, `90`, `120s`, `2m` or `1h`. Raises typer.BadParameter."""
    found = _DURATION.fullmatch(text)
    seconds = float(found[1]) * _UNIT_S[found[2]] if found else None
    if seconds is None or seconds > DURATION_MS_MAX / 1000:
        raise typer.BadParameter(f"{text!r} is not a duration; write 500ms, 90s or 2m")
    return seconds
