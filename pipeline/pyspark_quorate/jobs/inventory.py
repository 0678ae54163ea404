"""What is new in the sources since they were read last: which directories, and from which offset on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark_quorate.jobs.state import LakeError, Read
from pyspark_quorate.source.layout import (
    LayoutError,
    MetadataDirectory,
    Root,
    UnreadablePlace,
    find_directories,
    open_root,
)

UNREADABLE: Final = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A directory that has something new, or an unreadable place that was not told of yet."""

    address: str
    start: int
    files: Mapping[str, str]
    """All of its files, by address, with their marks: size and time of change."""
    new_files: int
    new_bytes: int


def find_places(
    sources: Sequence[str], known: Mapping[str, str], cluster_id: str | None = None
) -> tuple[list[Place], int]:
    """The places with news, in the order of their addresses; and how many directories there are in all.

    `known` are the marks of what was read. Raises LakeError for a source that is not there.
    """
    places: dict[str, Place] = {}
    seen: set[str] = set()
    for source in dict.fromkeys(sources):
        try:
            root = open_root(source)
            found = find_directories(root, cluster_id)
        except LayoutError as error:
            raise LakeError(str(error).replace("option path", "source")) from error
        except OSError as error:
            raise LakeError(f"source {source}: {error}") from error
        if not found:
            raise LakeError(
                f"source {source}: no metadata log below it; one is a directory __cluster_metadata-0, "
                "or has files like 00000000000000000000.log"
            )
        for one in found:
            if one.address in seen:
                continue
            seen.add(one.address)
            place = _news(root, one, known)
            if place is not None:
                places[one.address] = place
    return [places[address] for address in sorted(places)], len(seen)


def remembered(reads: Sequence[Read], commit: int, start: int) -> list[Read]:
    """The reads of a directory with one more; those that it makes superfluous are left out."""
    return [*(read for read in reads if read.start < start), Read(commit, start)]


def _news(root: Root, found: MetadataDirectory | UnreadablePlace, known: Mapping[str, str]) -> Place | None:
    if isinstance(found, UnreadablePlace):
        if known.get(found.address) == f"{UNREADABLE}: {found.detail}":
            return None
        marks = {found.address: f"{UNREADABLE}: {found.detail}"}
        return Place(address=found.address, start=0, files=marks, new_files=0, new_bytes=0)
    offsets = {one.address: one.base_offset for one in found.segments}
    offsets |= {one.address: one.end_offset for one in found.checkpoints}
    marks, sizes = {}, {}
    for address, mark, size in _marks(root, found):
        marks[address], sizes[address] = mark, size
    new = [address for address, mark in marks.items() if known.get(address) != mark]
    if not new:
        return None
    # A directory that is read for the first time may lack its beginning: that is to be told, too.
    is_first = not any(address in known for address in marks)
    return Place(
        address=found.address,
        start=0 if is_first else min(offsets[address] for address in new),
        files=marks,
        new_files=len(new),
        new_bytes=sum(sizes[address] for address in new),
    )


def _marks(root: Root, found: MetadataDirectory) -> Iterator[tuple[str, str, int]]:
    addresses = [*(one.address for one in found.segments), *(one.address for one in found.checkpoints)]
    paths = [address.removeprefix(root.prefix) for address in addresses]
    for address, entry in zip(addresses, root.file_system.get_file_info(paths), strict=True):
        if entry.size is not None:  # else it was deleted a moment ago
            yield address, f"{entry.size} {entry.mtime_ns}", entry.size
