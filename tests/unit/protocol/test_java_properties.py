"""Java's .properties syntax."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quorate_protocol.properties import format_properties, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("  a = b  ", {"a": "b  "}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\t=\tb", {"a": "b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("# c\n! d\n\n   # e\na=b", {"a": "b"}),
        ("a=b # no comment", {"a": "b # no comment"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1,\\\n   2,\\\n\t3", {"a": "1,2,3"}),
        ("a=1\\\n# part of it", {"a": "1# part of it"}),
        ("a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        ("a\\=b\\ c=d", {"a=b c": "d"}),
        ("a=\\u00e9\\t\\n\\x", {"a": "é\t\nx"}),
        ("a=\\uD83D\\uDE00", {"a": "\U0001f600"}),
        ("a=\\uD83Dx", {"a": "\ud83dx"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a==b", {"a": "=b"}),
        ("a=1\\", {"a": "1"}),
    ],
)
def test_syntax_is_javas(text: str, expected: dict[str, str]):
    assert parse_properties(text) == expected


@given(st.dictionaries(st.text(), st.text(), max_size=5))
def test_written_properties_read_the_same(properties: dict[str, str]):
    text = format_properties(properties)
    assert text.isascii()
    assert parse_properties(text) == properties


def test_malformed_escape_names_its_line():
    with pytest.raises(ValueError, match=r"line 2: .*four hexadecimal digits"):
        parse_properties("a=b\nc=\\u12")
