"""docs/comparison.md: what it says of us is shown by tests, and what it says of others has a source."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "comparison.md"
_TEST = re.compile(r"\[`(\w+)\.(\w+)`\]\((\.\./tests/[^)]+)\)")


def rows() -> list[list[str]]:
    """The cells of each row: what it is about, ours, and the others'."""
    lines = [
        line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "| Quorate |" not in line
    ]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_each_yes_of_ours_has_a_test() -> None:
    assert len(rows()) > 20
    for about, ours, *_ in rows():
        word = re.match(r"(yes|partly|no)\b", ours)
        assert word is not None, about
        links = _TEST.findall(ours)
        assert links or word[0] != "yes", f"{about}: no test"
        for module, name, path in links:
            text = (PAGE.parent / path).read_text()
            wanted = r"def test_" if name == "py" else rf"def {name}\("
            assert Path(path).stem == module, f"{about}: {path} is not {module}"
            assert re.search(wanted, text), f"{about}: {path} has no {name}"


def test_what_others_do_has_a_source() -> None:
    for about, _, *others in rows():
        assert len(others) == 4, about
        for cell in others:
            has_source = re.match(r"\[(yes|no|partly|no mention)\]\(https://", cell) or cell == "n/a"
            assert has_source, f"{about}: {cell}"
            assert "/blob/main/" not in cell, f"{about}: {cell} names no version"


def test_where_we_are_behind_comes_first() -> None:
    first = PAGE.read_text().split("\n## ")[1]
    assert first.startswith("Where Quorate is behind")
    behind = [ours for about, ours, *_ in rows() if f"| {about} |" in first]
    assert behind
    assert not any(ours.startswith("yes") for ours in behind)
