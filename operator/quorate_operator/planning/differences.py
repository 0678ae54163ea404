"""What a restart brings, property by property: two renderings of a node, compared. Pure.

A rendering is what the hashes of a node's revision were made of, by the part of the revision. A running node has that
of its start. Values that may be secret are not in it: they have a mark, by which a change is seen.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

NAMED_MAX = 4
"""How many changes of a node are named in one reason."""
SHOWN_LENGTH_MAX = 100
"""Longer values are named without their text."""
RECORD_LENGTH_MAX = 65_536
"""Kubernetes limits the annotations of an object to 256 KiB in all."""


class Withheld(NamedTuple):
    """A value that is not shown: a change of `mark` is a change of it."""

    mark: str


Value = str | Withheld
Rendering = Mapping[str, Mapping[str, Value]]
"""The values of a node by name, by the part of its revision."""


def differences(before: Mapping[str, Value], after: Mapping[str, Value]) -> tuple[str, ...]:
    """Return each change of one part: `log.retention.ms: 1 -> 2`; of what is withheld, only the name."""
    return tuple(
        _in_words(name, before.get(name), after.get(name))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    )


def shortened(changes: Sequence[str]) -> tuple[str, ...]:
    """Return the first of the changes, and how many more there are."""
    more = len(changes) - NAMED_MAX
    if more <= 1:  # to say that there is one more takes as much room as the change itself
        return tuple(changes)
    return (*changes[:NAMED_MAX], f"and {more} more")


def _in_words(name: str, before: Value | None, after: Value | None) -> str:
    if before is None:
        return f"{name}: added" if isinstance(after, Withheld) else f"{name}: {after} added"
    if after is None:
        return f"{name}: removed"
    if isinstance(before, Withheld) or isinstance(after, Withheld):
        return f"{name}: content changed"
    return f"{name}: {before} -> {after}"


def record_of(rendering: Rendering) -> str | None:
    """Return the text in which a rendering is kept; None if it would be too long to be kept."""
    text = json.dumps(
        {part: dict(values) for part, values in rendering.items()}, sort_keys=True, separators=(",", ":")
    )
    return text if len(text) <= RECORD_LENGTH_MAX else None


def rendering_of(record: Mapping[str, Any]) -> Rendering:
    """Return a rendering from its record. Parts that Quorate did not write are ignored."""
    return {
        part: {name: value if isinstance(value, str) else Withheld(*value) for name, value in values.items()}
        for part, values in record.items()
        if isinstance(values, dict) and all(map(_is_value, values.values()))
    }


def _is_value(value: object) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and len(value) == 1 and isinstance(value[0], str)
    )
