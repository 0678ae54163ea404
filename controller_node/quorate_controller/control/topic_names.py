"""Which topic names are allowed: characters, length, and no collision in metric names (KAFKA-13743)."""

import re
from collections.abc import Container, Iterable
from itertools import product
from typing import Final, Protocol

NAME_LENGTH_MAX: Final = 249

_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
_COLLISION_CHARACTERS: Final = re.compile(r"[._]")
_PROBED_CHARACTERS_MAX: Final = 8


class Names(Container[str], Iterable[str], Protocol):
    """The names of the existing topics: fast to probe, slow to scan."""


def why_invalid(name: str) -> str | None:
    """Kafka's text for a name that no topic may have, or None for a valid one."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in {".", ".."}:
        reason = f"'{name}' is not allowed"
    elif len(name) > NAME_LENGTH_MAX:
        reason = f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    elif not _LEGAL_NAME.fullmatch(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return None
    return f"Topic name is invalid: {reason}"


def colliding_name(name: str, existing: Names) -> str | None:
    """An existing name that differs from `name` at most in '.' against '_', or None.

    Metrics replace '.' by '_', so two such topics would share their metrics. With few of these characters
    all spellings are probed, which does not depend on how many topics there are; with many, the names are
    scanned.
    """
    parts = _COLLISION_CHARACTERS.split(name)
    places = len(parts) - 1
    if not places:
        return None
    if places <= _PROBED_CHARACTERS_MAX:
        for separators in product("._", repeat=places):
            spelling = parts[0] + "".join(map("".join, zip(separators, parts[1:], strict=True)))
            if spelling in existing:
                return spelling
        return None
    unified = name.replace(".", "_")
    return next((other for other in existing if other.replace(".", "_") == unified), None)
