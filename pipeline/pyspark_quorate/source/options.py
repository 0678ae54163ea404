"""Options of `spark.read.format("quorate")`, parsed and checked."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark_quorate.source.payload import RECORD_NAMES

ALL: Final = "all"
NEWEST: Final = "newest"
NONE: Final = "none"
SNAPSHOTS: Final = (ALL, NEWEST, NONE)

_NAMES: Final = (
    "path",
    "paths",
    "clusters",
    "clusterId",
    "recordTypes",
    "startOffset",
    "endOffset",
    "snapshots",
    "noOps",
    "partitionBytes",
    "pushFilters",
)
_LONG_MAX: Final = 2**63 - 1
_PARTITION_BYTES_DEFAULT: Final = 16 * 1024 * 1024
"""Rows are about seven times as large."""
_PARTITION_BYTES_MIN: Final = 1024


class OptionError(ValueError):
    """An option is missing or invalid; the message names it, its value and the allowed values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The rows to read.

    Log and checkpoint rows have offsets from `start_offset` to `end_offset`, exclusive; gaps may overlap this range.
    """

    paths: tuple[str, ...]
    """Directories, or addresses of directories in an object store: s3://, gs://, hdfs://."""
    clusters: frozenset[str] | None = None
    """Cluster ids to read; None: all."""
    cluster_id: str | None = None
    """The cluster id of directories without meta.properties."""
    record_types: frozenset[str] | None = None
    """Names of records to read; None: all. Gaps are always included."""
    start_offset: int = 0
    end_offset: int | None = None
    snapshots: str = ALL
    """all checkpoints, the newest of each directory, or none."""
    no_ops: bool = False
    """Whether NoOpRecords become rows."""
    partition_bytes: int = _PARTITION_BYTES_DEFAULT
    """The approximate size of the files that one partition reads."""
    push_filters: bool = False
    """Whether the reader accepts filters; needs spark.sql.python.filterPushdown.enabled."""


def parse_options(given: Mapping[str, str]) -> Options:
    """Parse the arguments of `option` and `load`; names are case-insensitive, as in Spark.

    Raises:
        OptionError: for the first option that is missing, unknown or invalid.
    """
    options = lowered(given)
    require_known(options, _NAMES)
    clusters = _names(options, "clusters")
    record_types = _names(options, "recordTypes")
    for name in sorted(record_types or ()):
        if name not in RECORD_NAMES:
            raise OptionError(
                f"option recordTypes: {name!r} is not a record; allowed are {', '.join(sorted(RECORD_NAMES))}"
            )
    start_offset = number(options, "startOffset", at_least=0) or 0
    size = number(options, "partitionBytes", at_least=_PARTITION_BYTES_MIN)
    return Options(
        paths=_paths(options),
        clusters=clusters,
        cluster_id=options.get("clusterid") or None,
        record_types=record_types,
        start_offset=start_offset,
        end_offset=number(options, "endOffset", at_least=start_offset),
        snapshots=choice(options, "snapshots", SNAPSHOTS),
        no_ops=flag(options, "noOps"),
        partition_bytes=size or _PARTITION_BYTES_DEFAULT,
        push_filters=flag(options, "pushFilters"),
    )


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    """`load("DIR")` arrives as path, `load(["A", "B"])` as a JSON list in paths."""
    paths = [options["path"]] if options.get("path") else []
    if "paths" in options:
        try:
            more = json.loads(options["paths"])
        except ValueError:
            more = None
        if not isinstance(more, list) or not all(isinstance(each, str) and each for each in more):
            raise OptionError(f"option paths: {options['paths']!r} is not a JSON list of directories")
        paths += more
    if not paths:
        raise OptionError('option path: missing; pass a directory, as in load("DIR")')
    return tuple(dict.fromkeys(paths))


def _names(options: Mapping[str, str], name: str) -> frozenset[str] | None:
    text = options.get(name.lower())
    if text is None:
        return None
    names = frozenset(each.strip() for each in text.split(",")) - {""}
    if not names:
        raise OptionError(f"option {name}: {text!r} is empty; allowed are comma-separated names")
    return names


# What options of a stream need too


def lowered(given: Mapping[str, str]) -> dict[str, str]:
    """The options by their names in lower case: Spark ignores the case."""
    return {name.lower(): value for name, value in given.items()}


def require_known(options: Mapping[str, str], names: Sequence[str], prefix: str | None = None) -> None:
    """Reject a name that is unknown, in any case, and does not begin with `prefix`. Raises OptionError."""
    known = {name.lower() for name in names}
    for name in sorted(options.keys() - known):
        if prefix is None or not name.startswith(prefix):
            also = "" if prefix is None else f" and {prefix}PROPERTY"
            raise OptionError(f"option {name}: unknown; allowed are {', '.join(names)}{also}")


def number(options: Mapping[str, str], name: str, *, at_least: int) -> int | None:
    """A whole number, of 63 bits at most; None without the option. Raises OptionError."""
    text = options.get(name.lower())
    if text is None:
        return None
    digits = text.strip()
    value = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 20 else -1
    if not at_least <= value <= _LONG_MAX:
        raise OptionError(f"option {name}: {text!r} is not a whole number from {at_least} to {_LONG_MAX}")
    return value


def choice(options: Mapping[str, str], name: str, allowed: Sequence[str]) -> str:
    """The option as one of the allowed words, in any case; without the option, the first word. Raises OptionError."""
    text = options.get(name.lower(), allowed[0])
    value = text.strip().lower()
    if value not in allowed:
        raise OptionError(f"option {name}: {text!r} is not one of {', '.join(allowed)}")
    return value


def flag(options: Mapping[str, str], name: str) -> bool:
    """Whether an option is true; false without it. Raises OptionError."""
    return choice(options, name, ("false", "true")) == "true"
