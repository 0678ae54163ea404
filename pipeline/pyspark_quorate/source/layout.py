"""Finds metadata logs: directories with segments and checkpoints.

A metadata log is a directory `__cluster_metadata-0`, or a directory with such files that is a root or contains
meta.properties. The cluster id is read from meta.properties beside or in the directory.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import fs
from quorate_protocol.kafka.metadata_log import META_PROPERTIES, METADATA_DIRECTORY
from quorate_protocol.properties import parse_properties

_DEPTH_MAX: Final = 16
_META_PROPERTIES_BYTES_MAX: Final = 1 << 20
_STORES: Final = {"s3a": "s3", "s3n": "s3"}
"""Names of Hadoop for stores -> names of Arrow."""
_SEGMENT: Final = re.compile(r"(\d{20})\.log")
_CHECKPOINT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class LayoutError(ValueError):
    """A root does not exist, or has no metadata log."""


@dataclass(frozen=True, slots=True)
class Root:
    """A place to search: a file system, a path in it, and the prefix that makes paths addresses."""

    file_system: fs.FileSystem
    path: str
    prefix: str

    def address(self, path: str) -> str:
        """The address of a path, as a user writes it."""
        return self.prefix + path


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFile:
    """`<base offset>.log`."""

    address: str
    size_bytes: int
    base_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFile:
    """`<end offset>-<epoch>.checkpoint`: the state before the record at `end_offset`."""

    address: str
    size_bytes: int
    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataDirectory:
    """One node's metadata log; files are ordered by offset."""

    address: str
    cluster_id: str
    segments: tuple[SegmentFile, ...]
    checkpoints: tuple[CheckpointFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadablePlace:
    """A directory that could not be listed, or whose cluster id is unknown."""

    address: str
    cluster_id: str
    detail: str
    is_error: bool = False
    """Whether reading failed, which may succeed later, as opposed to a directory that lacks its cluster id."""


def open_root(address: str) -> Root:
    """The file system of a path or of an address such as s3://bucket/path. Raises LayoutError."""
    scheme, separator, rest = address.partition("://")
    try:
        if not separator:
            return Root(fs.LocalFileSystem(), str(Path(address).expanduser().absolute()), "")
        file_system, path = fs.FileSystem.from_uri(f"{_STORES.get(scheme, scheme)}://{rest}")
    except (OSError, pa.ArrowException, ValueError) as error:
        raise LayoutError(f"option path: {address}: {in_one_line(error)}") from error
    if isinstance(file_system, fs.LocalFileSystem):
        return Root(file_system, path, "")
    return Root(
        file_system, path, address[: len(address) - len(path)] if address.endswith(path) else f"{scheme}://"
    )


def in_one_line(error: Exception) -> str:
    """The message of an error, whose lines are joined: libraries of stores report several."""
    return " ".join(str(error).split())


def find_directories(root: Root, cluster_id: str | None = None) -> list[MetadataDirectory | UnreadablePlace]:
    """The metadata logs below a root, ordered by path. Raises LayoutError if the root is not a directory.

    `cluster_id` is for directories without meta.properties.
    """
    try:
        kind = root.file_system.get_file_info(root.path).type
    except (OSError, pa.ArrowException) as error:  # a store without login, for example
        raise LayoutError(f"option path: {root.address(root.path)}: {in_one_line(error)}") from error
    if kind != fs.FileType.Directory:
        raise LayoutError(f"option path: {root.address(root.path)}: not a directory")
    return list(_search(root, root.path, cluster_id, depth=0))


def _search(
    root: Root, path: str, cluster_id: str | None, depth: int
) -> Iterator[MetadataDirectory | UnreadablePlace]:
    """Search a directory.

    In a log directory of Kafka, with thousands of partitions, visit only the metadata partition.
    """
    address = root.address(path)
    try:
        entries = sorted(root.file_system.get_file_info(fs.FileSelector(path)), key=lambda entry: entry.path)
    except (OSError, pa.ArrowException) as error:
        yield UnreadablePlace(
            address=address,
            cluster_id=cluster_id or "",
            detail=f"can't be listed: {in_one_line(error)}",
            is_error=True,
        )
        return
    files = {entry.base_name: entry for entry in entries if entry.type == fs.FileType.File}
    is_named = depth == 0 or META_PROPERTIES in files
    if _last_part(path) == METADATA_DIRECTORY or (is_named and any(map(_is_data, files))):
        yield _directory(root, path, files, cluster_id)
        return
    directories = [entry.path for entry in entries if entry.type == fs.FileType.Directory]
    if META_PROPERTIES in files:
        directories = [each for each in directories if _last_part(each) == METADATA_DIRECTORY]
    if directories and depth == _DEPTH_MAX:
        detail = f"not searched: it is more than {_DEPTH_MAX} directories below the root"
        yield UnreadablePlace(address=address, cluster_id=cluster_id or "", detail=detail)
        return
    for directory in directories:
        yield from _search(root, directory, cluster_id, depth + 1)


def _directory(
    root: Root, path: str, files: dict[str, fs.FileInfo], cluster_id: str | None
) -> MetadataDirectory | UnreadablePlace:
    parent = path.rstrip("/").rpartition("/")[0]
    places = [path] if META_PROPERTIES in files else []
    if _last_part(path) == METADATA_DIRECTORY:
        places.append(parent)
    found, detail, is_error = None, f"no {META_PROPERTIES} beside it", False
    for place in places:
        try:
            found = _cluster_id(root, f"{place}/{META_PROPERTIES}")
        except FileNotFoundError:
            continue
        except (OSError, ValueError, pa.ArrowException) as error:
            detail, is_error = f"{META_PROPERTIES}: {in_one_line(error)}", not isinstance(error, ValueError)
        if found is not None:
            break
    cluster_id = found or cluster_id
    address = root.address(path)
    if cluster_id is None:
        advice = "set the option clusterId"
        return UnreadablePlace(
            address=address, cluster_id="", detail=f"{detail}; {advice}", is_error=is_error
        )
    segments = [
        SegmentFile(address=root.address(file.path), size_bytes=file.size, base_offset=int(match[1]))
        for name, file in files.items()
        if (match := _SEGMENT.fullmatch(name))
    ]
    checkpoints = [
        CheckpointFile(
            address=root.address(file.path),
            size_bytes=file.size,
            end_offset=int(match[1]),
            epoch=int(match[2]),
        )
        for name, file in files.items()
        if (match := _CHECKPOINT.fullmatch(name))
    ]
    return MetadataDirectory(
        address=address, cluster_id=cluster_id, segments=tuple(segments), checkpoints=tuple(checkpoints)
    )


def _cluster_id(root: Root, path: str) -> str | None:
    with root.file_system.open_input_file(path) as file:
        text = file.read(_META_PROPERTIES_BYTES_MAX).decode()
    return parse_properties(text).get("cluster.id") or None


def _is_data(name: str) -> bool:
    return _SEGMENT.fullmatch(name) is not None or _CHECKPOINT.fullmatch(name) is not None


def _last_part(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
