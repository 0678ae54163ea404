"""Counts work in a way that is the same on every machine: the lines of Python that run.

A loop counts each of its iterations, also in a comprehension, and a call counts one more. Work inside the interpreter
does not count: sorting, building a set, copying a list. To walk through a table of the image counts all the same,
because its iterators are replaced by such of Python while work is counted (`visible`). What is left out is therefore
at most proportional to what a step has itself put together, or to a row. The counts are compared with each other and
with budgets of the same kind; a line takes some 50 to 100 nanoseconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from quorate_protocol.image.state import Table
from quorate_protocol.image.topics import TopicImage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

    from quorate_protocol.image import MetadataImage


class Stopwatch:
    """Measures the microseconds of what it runs, for a comparison with the lines on a machine."""

    def __init__(self) -> None:
        self.counted = 0

    def run(self, work: Callable[[], Any]) -> Any:
        """Run it, and set `counted` to its processor time."""
        began_s = time.process_time()
        try:
            return work()
        finally:
            self.counted = int((time.process_time() - began_s) * 1_000_000)


class WorkCounter:
    """Counts the lines of what it runs."""

    def __init__(self) -> None:
        self.counted = 0

    def run(self, work: Callable[[], Any]) -> Any:
        """Run it, and set `counted` to its number of lines."""
        lines = 0

        def local(_frame: FrameType, _event: str, _argument: Any) -> Any:
            nonlocal lines
            lines += 1
            return local

        before = sys.gettrace()
        sys.settrace(local)
        try:
            return work()
        finally:
            sys.settrace(before)
            self.counted = lines


@contextmanager
def counting_calls(*directories: Path) -> Iterator[list[int]]:
    """Count the calls of Python functions whose source is below one of these. The only item has the count."""
    calls = [0]
    roots = tuple(f"{directory}/" for directory in directories)

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(roots):
            calls[0] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def _walk(rows: Iterable[Any]) -> Iterator[Any]:
    for row in rows:  # noqa: UP028 - each step of a generator counts
        yield row


class _Keys(KeysView[Any]):
    def __iter__(self) -> Iterator[Any]:
        return _walk(dict.keys(self._mapping))  # type: ignore[attr-defined]  # typeshed has no such name


class _Values(ValuesView[Any]):
    def __iter__(self) -> Iterator[Any]:
        return _walk(dict.values(self._mapping))  # type: ignore[attr-defined]  # typeshed has no such name


class _Items(ItemsView[Any, Any]):
    def __iter__(self) -> Iterator[Any]:
        return _walk(dict.items(self._mapping))  # type: ignore[attr-defined]  # typeshed has no such name


_REPLACED: dict[str, Callable[[Any], Any]] = {
    "__iter__": lambda table: _walk(dict.keys(table)),
    # A class would not become a method.
    "keys": lambda table: _Keys(table),  # noqa: PLW0108
    "values": lambda table: _Values(table),  # noqa: PLW0108
    "items": lambda table: _Items(table),  # noqa: PLW0108
}
_Visible = type("_Visible", (dict,), dict(_REPLACED))


@contextmanager
def visible(*images: MetadataImage) -> Iterator[None]:
    """Have each step through a table of these images count, and through the partitions of their largest topics."""
    for image in images:
        topics = image.topics
        large = max(topics.by_id.values(), key=lambda topic: len(topic.partitions))
        # The attribute is final for others.
        TopicImage.partitions.__set__(large, _Visible(large.partitions))  # type: ignore[attr-defined]
        topics.by_id, topics.by_name = _Visible(topics.by_id), _Visible(topics.by_name)
    for name, replacement in _REPLACED.items():
        setattr(Table, name, replacement)
    try:
        yield
    finally:
        for name in _REPLACED:
            delattr(Table, name)
