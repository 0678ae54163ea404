"""Each threat in docs/threat-model.md has a test that shows what holds. Links are checked with those of all pages."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "threat-model.md"
_TEST = re.compile(r"\]\(\.\./(tests/[\w/]+\.py)\)")


def rows() -> list[list[str]]:
    """The rows of the tables of threats."""
    found, is_threats = [], False
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if cells[:1] == ["threat"]:
            assert cells == ["threat", "what holds", "what does not", "test"]
            is_threats = True
        elif not cells:
            is_threats = False
        elif is_threats and set(cells[0]) != {"-"}:
            found.append(cells)
    return found


def test_each_threat_has_a_test() -> None:
    assert len(rows()) > 20
    for row in rows():
        assert len(row) == 4, row
        assert row[1], f"{row[0]}: what holds?"
        tests = _TEST.findall(row[3])
        assert tests, f"{row[0]}: no test"
        assert all((PAGE.parents[1] / test).is_file() for test in tests), row
