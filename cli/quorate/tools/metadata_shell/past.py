"""The metadata of a cluster at a moment in the past, from a lake: `metadata-shell --lake` and `lake diff`."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from pyspark_quorate.past.image import Moment, Playback
    from quorate_protocol.image import ImageState, Provenance

    from quorate.tools.metadata_shell.nodes import Difference, Node

_OFFSET_MAX = 2**63 - 1


def parse_moment(text: str) -> "Moment":
    """Parse a moment: a time, in UTC unless it has a zone, or an offset, whose record is after the moment.

    Raises:
        typer.BadParameter: it is neither.
    """
    from pyspark_quorate.past.image import Moment

    if text.isascii() and text.isdigit() and int(text) <= _OFFSET_MAX:
        return Moment(offset=int(text))
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is neither a time, such as 2026-01-31 or 2026-01-31T12:00:00Z (UTC), nor an offset"
        ) from None
    zoned = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return Moment(time_us=round(zoned.timestamp() * 1_000_000))


def open_history(location: str, cluster_id: str | None) -> "Playback":
    """Open the history of a cluster in a lake. `cluster_id` may be None if the lake has only one cluster.

    Raises:
        LakeError: there is no lake or no such cluster, or the lake has several and `cluster_id` is None.
    """
    from pyspark_quorate.jobs.lake import Lake
    from pyspark_quorate.past.image import Playback, choose_cluster, read_end, read_history

    found = Lake.open(location)
    chosen = choose_cluster(found, cluster_id)
    return Playback(read_history(found, chosen), read_end(found, chosen))


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """Two moments of a history."""

    before: "Moment"
    after: "Moment"


@dataclass(frozen=True, slots=True)
class Changes:
    """The differences of the metadata between two positions in a cluster's log."""

    before: "Provenance"
    after: "Provenance"
    differences: Sequence["Difference"]


def parse_span(before: str, after: str | None) -> TimeSpan:
    """Parse two moments. Without the second one, the span ends with the history.

    Raises:
        typer.BadParameter: one of them is not a moment, or the second one is earlier.
    """
    from pyspark_quorate.past.image import Moment

    span = TimeSpan(parse_moment(before), Moment() if after is None else parse_moment(after))
    for old, new in (
        (span.before.offset, span.after.offset),
        (span.before.time_us, span.after.time_us),
    ):
        if old is not None and new is not None and new < old:
            raise typer.BadParameter(f"{after} is before {before}: give the earlier moment first")
    return span


def find_difference(location: str, cluster_id: str | None, span: TimeSpan) -> Changes:
    """Find what changed in a cluster between two moments. Prints warnings about what is uncertain.

    Raises:
        LakeError: as `open_history`.
    """
    from quorate.tools.metadata_shell.nodes import differences
    from quorate.tools.metadata_shell.sources import warn_of

    history = open_history(location, cluster_id)
    past = history.to(span.before)
    old, begins = past.image.copy(), past.image.provenance
    past = history.to(span.after)
    warn_of(past)
    found = tuple(differences(_tree(old, begins), _tree(past.image, past.image.provenance), ""))
    return Changes(begins, past.image.provenance, found)


def _tree(image: "ImageState", where: "Provenance") -> "Node":
    """The shell's tree without provenance and without topics by id: one always differs, the other is also by name."""
    from quorate.tools.metadata_shell.nodes import Directory, without
    from quorate.tools.metadata_shell.tree import image_root

    root = image_root(image, where, str).child("image")
    assert isinstance(root, Directory), "each image is a directory"
    return without(root, ("provenance",), ("topics", "byId"))


def difference_text(changes: Changes) -> str:
    """The changes as text: `+` for an added file, `-` for a removed one, `~` with each field that differs."""
    lines = [f"from {_place_text(changes.before)}", f"to   {_place_text(changes.after)}"]
    for difference in changes.differences:
        lines += _difference_lines(difference)
    if not changes.differences:
        lines.append("nothing changed")
    return "\n".join(lines) + "\n"


def _difference_lines(difference: "Difference") -> Iterator[str]:
    if difference.before is None:
        yield f"+ {difference.path}  {_value(difference.after)}"
    elif difference.after is None:
        yield f"- {difference.path}  {_value(difference.before)}"
    elif not difference.fields:
        yield f"~ {difference.path}  {_value(difference.before)} -> {_value(difference.after)}"
    else:
        yield f"~ {difference.path}"
        for name, (old, new) in difference.fields.items():
            yield f"    {name}: {_value(old)} -> {_value(new)}"


def _value(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(", ", ": "))


def difference_json(changes: Changes) -> dict[str, Any]:
    """The changes as JSON, for programs: `from`, `to`, and the content of the files by path."""
    found = changes.differences
    return {
        "from": _place_json(changes.before),
        "to": _place_json(changes.after),
        "added": {difference.path: difference.after for difference in found if difference.before is None},
        "removed": {difference.path: difference.before for difference in found if difference.after is None},
        "changed": {
            difference.path: {"before": difference.before, "after": difference.after}
            for difference in found
            if difference.before is not None and difference.after is not None
        },
    }


def _place_json(where: "Provenance") -> dict[str, Any]:
    return {"offset": where.end_offset, "epoch": where.epoch, "time": _time_text(where.timestamp_ms)}


def _place_text(where: "Provenance") -> str:
    return f"offset {where.end_offset}, epoch {where.epoch}, {_time_text(where.timestamp_ms)}"


def _time_text(time_ms: int) -> str:
    time = datetime.fromtimestamp(time_ms / 1000, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
