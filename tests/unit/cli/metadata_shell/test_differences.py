"""What differs between two trees of the metadata shell."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from quorate.tools.metadata_shell.nodes import Difference, Directory, Leaf, Node, differences, fixed, without


def tree(content: Any) -> Node:
    """A directory of a mapping, a file of anything else."""
    if isinstance(content, Mapping):
        return _directory(content)
    return Leaf(lambda: str(content), lambda: content)


def _later(content: Any) -> Callable[[], Node]:
    return lambda: tree(content)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"A": {"B": 1}}, {"A": {"B": 1}}, []),
        ({"A": {"B": 1}}, {"A": {"B": 2}}, [Difference("/A/B", 1, 2)]),
        ({"A": {}}, {"A": {"B": 1, "C": 2}}, [Difference("/A/B", None, 1), Difference("/A/C", None, 2)]),
        ({"A": {"B": 1}, "C": 3}, {"C": 3}, [Difference("/A/B", 1, None)]),
        # a file that becomes a directory: the file goes, and what is in the directory comes
        ({"A": 1}, {"A": {"B": 2}}, [Difference("/A", 1, None), Difference("/A/B", None, 2)]),
        ({"A": {"B": 2}}, {"A": 1}, [Difference("/A/B", 2, None), Difference("/A", None, 1)]),
        # in Kafka's order of names: by UTF-16 code units
        (
            {},
            {"\uffee": 1, "\U00010000": 2},
            [Difference("/\U00010000", None, 2), Difference("/\uffee", None, 1)],
        ),
    ],
)
def test_files_that_came_went_or_changed_are_reported_by_path(
    before: Any, after: Any, expected: list[Difference]
) -> None:
    assert list(differences(_directory(before), _directory(after), "")) == expected


def _directory(content: Mapping[str, Any]) -> Directory:
    return fixed({name: _later(node) for name, node in content.items()})


def test_of_records_the_fields_that_differ_are_reported() -> None:
    changed = Difference("/x", {"leader": 1, "isr": [1, 2]}, {"leader": 2, "isr": [1, 2], "elr": []})
    assert changed.fields == {"leader": (1, 2), "elr": (None, [])}
    assert Difference("/x", None, {"leader": 2}).fields == {}
    assert Difference("/x", "a", "b").fields == {}


def test_a_directory_can_be_shown_without_some_paths() -> None:
    whole = _directory({"A": {"B": 1, "C": {"D": 2}}, "E": 3})
    part = without(whole, ("E",), ("A", "C"))
    assert part.sorted_names() == ["A"]
    assert part.child("E") is None
    below = part.child("A")
    assert isinstance(below, Directory)
    assert (below.sorted_names(), below.child("C")) == (["B"], None)
