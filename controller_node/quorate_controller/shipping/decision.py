"""Decides which files to ship. Pure.

A closed segment is final, with one exception: a controller that had not committed its end may have to truncate
it and append other records (KIP-595, log truncation). Such a segment has the name of a shipped segment, and other
content; so have a replaced disk's segments, which end at other offsets, and an active segment that has grown.
"""

import re
from collections.abc import Iterable, Mapping
from enum import Enum, auto

from quorate_protocol.plain_data import dataclass

_SEGMENT = re.compile(r"(\d{20})\.log")
_CHECKPOINT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """An entry of a directory listing. A shipped file keeps the modification time of its source."""

    name: str
    size_bytes: int
    modified_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipment:
    """A file to copy; if a file of its name was shipped, `verdict_on` decides.

    Of an active segment, which is being written to, whole batches are copied.
    """

    file: FileFacts
    is_active: bool = False
    is_shipped: bool = False


class Verdict(Enum):
    """The decision about a shipped file that differs from its source."""

    KEEP = auto()
    """It is complete."""
    EXTEND = auto()
    """The source has more: a new copy replaces it."""
    SUPERSEDE = auto()
    """The source differs: a new copy replaces the shipped file, which is put aside."""


def plan_shipments(
    source: Iterable[FileFacts],
    shipped: Iterable[FileFacts],
    *,
    include_active: bool = False,
    settled: Mapping[str, FileFacts] | None = None,
) -> tuple[Shipment, ...]:
    """The files to ship, the lowest offset first: a log loses its beginning first.

    The segment with the highest base offset is the active one. A checkpoint never changes under its name. `settled`
    are completely shipped files of the source, by name, whose facts differ from those of the copy.
    """
    there = {file.name: file for file in shipped}
    done = settled or {}
    segments = {int(found[1]): file for file in source if (found := _SEGMENT.fullmatch(file.name))}
    active = max(segments, default=None)
    wanted: list[tuple[int, Shipment]] = []
    for base_offset, file in segments.items():
        known = there.get(file.name)
        if base_offset == active and not include_active:
            continue
        if done.get(file.name) == file or file == known or not file.size_bytes:
            continue
        shipment = Shipment(file=file, is_active=base_offset == active, is_shipped=known is not None)
        wanted.append((base_offset, shipment))
    for file in source:
        found = _CHECKPOINT.fullmatch(file.name)
        if found and file.name not in there and file.size_bytes:
            wanted.append((int(found[1]), Shipment(file=file)))
    return tuple(shipment for _, shipment in sorted(wanted, key=lambda entry: (entry[0], entry[1].file.name)))


def verdict_on(*, common_bytes: int, source_bytes: int, shipped_bytes: int) -> Verdict:
    """Decide about a shipped file whose first `common_bytes` are those of its source."""
    assert common_bytes <= min(source_bytes, shipped_bytes), (common_bytes, source_bytes, shipped_bytes)
    if common_bytes == source_bytes:
        return Verdict.KEEP
    return Verdict.EXTEND if common_bytes == shipped_bytes else Verdict.SUPERSEDE
