"""Globs of the metadata shell."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quorate.tools.metadata_shell.paths import parse_glob

GLOBS = [
    *(("*", ".*"), ("a?b", "a.b"), ("{x,yz}", "(?:(?:x)|(?:yz))"), ("a,b*", "a,b.*"), ("\\{*", "\\{.*")),
    *(("x}*", "x\\}.*"), ("*{ab,}{b,c?}*", ".*(?:(?:ab)|(?:))(?:(?:b)|(?:c.)).*"), ("{*\\,,\\}}", ".*,|\\}")),
]
"""Globs, and what Kafka's GlobComponent makes of each: a regular expression."""


@pytest.mark.parametrize("text", ["name", "a.b+c", "a\\*", "{a{b}}", "{a", "a\\", ""])
def test_what_is_no_glob(text: str) -> None:
    assert parse_glob(text) is None


@pytest.mark.parametrize(("text", "expression"), GLOBS)
@given(name=st.text(alphabet="abcxyz,{}\\", max_size=6))
def test_globs(text: str, expression: str, name: str) -> None:
    glob = parse_glob(text)
    assert glob is not None
    assert glob.matches(name) == (re.fullmatch(expression, name) is not None)


def test_a_glob_of_many_stars_takes_no_time() -> None:
    glob = parse_glob("*a" * 40 + "b")
    assert glob is not None
    started = time.process_time()
    assert not glob.matches("a" * 200)
    assert time.process_time() - started < 1
