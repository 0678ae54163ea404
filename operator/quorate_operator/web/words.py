"""Steps, times and sizes in words. Pure."""

from datetime import UTC, datetime
from typing import Final

from quorate_protocol.features import METADATA_VERSION, metadata_version_name

from quorate_operator.planning.relocation import format_bytes
from quorate_operator.planning.steps import Action
from quorate_operator.runtime.wording import Label, in_words

UNKNOWN: Final = "\N{EN DASH}"
"""Stands in a table for what is not known."""


def action_words(action: Action, label: Label) -> str:
    """What an action does and to whom, without its reason: `Remove voter controller-3002`."""
    words = in_words(action, label).removesuffix(f": {action.reason}")
    return words[:1].upper() + words[1:]


def level_words(feature: str, level: int) -> str:
    """A feature's level, that of metadata.version with its name: `30 (4.3-IV0)`."""
    return (
        f"{level} ({metadata_version_name(level)})" if feature == METADATA_VERSION and level else str(level)
    )


def iso_time(at_ms: int) -> str:
    """`2026-11-22T02:14:05Z`, for machines."""
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def clock_time(at_ms: int) -> str:
    """`02:14:05 UTC`, for people; the script of the page adds how long ago that is."""
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).strftime("%H:%M:%S UTC")


def size_words(size_bytes: int | None) -> str:
    """`12.3 GiB`; UNKNOWN for what could not be asked."""
    return UNKNOWN if size_bytes is None else format_bytes(size_bytes)


def counted(count: int, one: str, several: str) -> str:
    """`1 record`, `2 records`."""
    return f"{count} {one if count == 1 else several}"
