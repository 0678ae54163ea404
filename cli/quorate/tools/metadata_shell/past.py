"""The metadata of a cluster as it was, from a lake: `metadata-shell --lake` and `lake diff`."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from quorate.console import warn

if TYPE_CHECKING:
    from pyspark_quorate.past.image import Moment, Past, Playback
    from quorate_protocol.image import ImageState, Provenance

    from quorate.tools.metadata_shell.tree import Node
    from quorate.tools.metadata_shell.tree.differences import Difference

_OFFSET_MAX = 2**63 - 1


def parse_moment(text: str) -> "Moment":
    """The moment that a user writes: a time in UTC, or an offset, before whose record it is.

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
            f"{text!r} is no moment; write a time such as 2026-01-31 or 2026-01-31T12:00:00Z (UTC), or an offset"
        ) from None
    zoned = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return Moment(time_us=round(zoned.timestamp() * 1_000_000))


def open_history(location: str, cluster_id: str | None) -> "Playback":
    """The history of a cluster in a lake, which needs to be named where the lake has several.

    Raises:
        LakeError: there is no lake, no such cluster, or no name where one is needed.
    """
    from pyspark_quorate.jobs.lake import Lake
    from pyspark_quorate.past.image import Playback
    from pyspark_quorate.past.reading import choose_cluster, read_history

    found = Lake.open(location)
    return Playback(read_history(found, choose_cluster(found, cluster_id)))


def warn_of(past: "Past") -> None:
    """Warns of what makes the metadata uncertain."""
    for note in past.notes:
        warn(note)
    if past.notes_dropped:
        warn(f"{past.notes_dropped} more of these")


@dataclass(frozen=True, slots=True)
class Span:
    """Two moments of a history."""

    before: "Moment"
    after: "Moment"


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed between two places in a cluster's log."""

    before: "Provenance"
    after: "Provenance"
    differences: Sequence["Difference"]


def parse_span(before: str, after: str | None) -> Span:
    """Two moments that a user writes; without the second one, up to the end.

    Raises:
        typer.BadParameter: one of them is no moment, or the second one is earlier.
    """
    from pyspark_quorate.past.image import Moment

    span = Span(parse_moment(before), Moment() if after is None else parse_moment(after))
    for old, new in (
        (span.before.offset, span.after.offset),
        (span.before.time_us, span.after.time_us),
    ):
        if old is not None and new is not None and new < old:
            raise typer.BadParameter(f"{after} is before {before}: give the earlier moment first")
    return span


def find_difference(location: str, cluster_id: str | None, span: Span) -> Changes:
    """What changed in a cluster between two moments. Warns of what is uncertain.

    Raises:
        LakeError: see `open_history`.
    """
    from quorate.tools.metadata_shell.tree.differences import differences

    history = open_history(location, cluster_id)
    past = history.to(span.before)
    old, begins = past.image.copy(), past.image.provenance
    past = history.to(span.after)
    warn_of(past)
    found = tuple(differences(_tree(old, begins), _tree(past.image, past.image.provenance), ""))
    return Changes(begins, past.image.provenance, found)


def _tree(image: "ImageState", where: "Provenance") -> "Node":
    """The tree of the shell without what is in it twice, or differs between any two moments."""
    from quorate.tools.metadata_shell.tree import image_root
    from quorate.tools.metadata_shell.tree.nodes import Directory, without

    root = image_root(image, where, str).child("image")
    assert isinstance(root, Directory), "each image is a directory"
    return without(root, ("provenance",), ("topics", "byId"))


def difference_text(changes: Changes) -> str:
    """The changes for people: `+` for what came, `-` for what went, `~` with each field that differs."""
    lines = [f"from {_place_text(changes.before)}", f"to   {_place_text(changes.after)}"]
    for one in changes.differences:
        lines += _difference_lines(one)
    if not changes.differences:
        lines.append("nothing changed")
    return "\n".join(lines) + "\n"


def _difference_lines(one: "Difference") -> Iterator[str]:
    if one.before is None:
        yield f"+ {one.path}  {_value(one.after)}"
    elif one.after is None:
        yield f"- {one.path}  {_value(one.before)}"
    elif not one.fields:
        yield f"~ {one.path}  {_value(one.before)} -> {_value(one.after)}"
    else:
        yield f"~ {one.path}"
        for name, (old, new) in one.fields.items():
            yield f"    {name}: {_value(old)} -> {_value(new)}"


def _value(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(", ", ": "))


def difference_json(changes: Changes) -> dict[str, Any]:
    """The changes for programs: `from`, `to`, and files by path with their content."""
    found = changes.differences
    return {
        "from": _place_json(changes.before),
        "to": _place_json(changes.after),
        "added": {one.path: one.after for one in found if one.before is None},
        "removed": {one.path: one.before for one in found if one.after is None},
        "changed": {
            one.path: {"before": one.before, "after": one.after}
            for one in found
            if one.before is not None and one.after is not None
        },
    }


def _place_json(where: "Provenance") -> dict[str, Any]:
    return {"offset": where.end_offset, "epoch": where.epoch, "time": _time_text(where.timestamp_ms)}


def _place_text(where: "Provenance") -> str:
    return f"offset {where.end_offset}, epoch {where.epoch}, {_time_text(where.timestamp_ms)}"


def _time_text(time_ms: int) -> str:
    time = datetime.fromtimestamp(time_ms / 1000, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
