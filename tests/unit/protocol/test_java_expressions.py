"""Regular expressions of Java, matched by Python. `tests/golden/principal_mappings.json` has Java's own answers."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quorate_protocol.java_expressions import UnsupportedExpressionError, compile_java


@pytest.mark.parametrize(
    ("expression", "matched", "not_matched"),
    [
        ("a.b", ["axb", "a\tb", "a\vb"], ["a\nb", "a\rb", "a\x85b", "a\u2028b", "a\u2029b"]),
        ("(?s)a.b", ["a\nb", "a\u2028b"], ["ab"]),
        ("a(?s:.)b.", ["a\nbx"], ["a\nb\n"]),
        (r"a\vb", ["a\vb", "a\nb", "a\u2029b"], ["avb", "a b"]),
        (r"a[\v-]b", ["a\rb", "a-b"], ["avb"]),
        (r"a\hb", ["a b", "a\xa0b", "a\u3000b"], ["a\nb"]),
        (r"\w+", ["a_9"], ["é", "\u0660"]),
        (r"\d\D\s\S", ["1a b"], ["\u0660a b", "1a\xa0b"]),
        ("(?i)k", ["K", "k"], ["\u212a"]),
        ("(?i)[^a-c]", ["d"], ["B"]),
        ("(?i:a)b", ["Ab"], ["AB"]),
        ("(?i)stra\u00dfe", ["STRA\u00dfE"], ["STRASSE"]),
        (r"[]a]+[\]x]", ["]a]", "ax"], ["b"]),
        (r"[\w-z]", ["-", "z"], ["!"]),
        (r"\Qa.b*\E+", ["a.b*", "a.b**"], ["axb*"]),
        (r"[\Q^]\E]+", ["^]"], ["a"]),
        (r"(a)(b)\12", ["aba2"], ["abab"]),
        (r"(?<first>a)\k<first>", ["aa"], ["a"]),
        (r"\x41\x{1F600}\u0042\0103\cA\e", ["A\U0001f600BC\x01\x1b"], ["A"]),
        (r"\p{Upper}\P{Digit}", ["Aé"], ["é1"]),
        ("a{2,3}+x", ["aax"], ["aaaa"]),
        ("[^\\s\\S]|b", ["b"], ["a"]),
    ],
)
def test_expressions_match_what_they_match_in_java(
    expression: str, matched: list[str], not_matched: list[str]
) -> None:
    pattern = compile_java(expression)
    assert [text for text in matched if pattern.fullmatch(text) is None] == []
    assert [text for text in not_matched if pattern.fullmatch(text) is not None] == []


@pytest.mark.parametrize("anchor", ["$", r"\Z"])
def test_the_end_is_also_before_the_last_line_end(anchor: str) -> None:
    pattern = compile_java(f"a{anchor}")
    for end in ("", "\n", "\r", "\r\n", "\x85", "\u2028", "\u2029"):
        assert pattern.search(f"a{end}"), repr(end)
    for end in ("\n\n", "\n\r", "\v", "\nb"):
        assert not pattern.search(f"a{end}"), repr(end)
    assert not compile_java(f"\r{anchor}").search("\r\n")
    assert not compile_java(r"a\z").search("a\n")


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        (r"a\b", r"an escape is not supported \(at character 4\)"),
        (r"\G|\R|\X", "an escape is not supported"),
        ("[a[b]]", "unions and intersections"),
        ("[a-c&&[^b]]", "unions and intersections"),
        (r"\p{L}", "of classes with names, ASCII, "),
        (r"\pL", "of classes with names, ASCII, "),
        (r"(?i)\p{Lower}", "releases of Java differ"),
        ("(?x)a", "the flag x is not supported"),
        ("a(?i)b", "a group begins"),
        ("(?P<n>a)", "a group begins"),
        ("(?#comment)", "a group begins"),
        ("(?<n>a)(?<n>b)", "the group n is there twice"),
        (r"\1(a)", "a reference to a group"),
        (r"(a\1)", "a reference to a group"),
        (r"(?i)(a)\1", "a reference to a group"),
        (r"\k<n>", "names no group"),
        ("(?:(a)b)*+", "a group in what is matched at once"),
        ("(?>(a))", "a group in what is matched at once"),
        ("a**", "a repetition can't be repeated"),
        ("^*", "an assertion can't be repeated"),
        ("(?=a)+", "an assertion can't be repeated"),
        ("*a", "nothing is there to repeat"),
        ("a{,3}", "a brace opens"),
        ("{", "nothing is there to repeat"),
        ("a{3,2}", "a brace opens"),
        ("a{2147483648}", "a brace opens"),
        ("(a", "a group has no end"),
        ("a)", "a parenthesis closes"),
        ("[a", "a class has no end"),
        ("[]", "a class has no end"),
        ("[b-a]", "a range ends before it begins"),
        (r"[a-\d]", "an escape is not supported"),
        (r"\xg", "a hexadecimal number is no character"),
        (r"\x{110000}", "a hexadecimal number is no character"),
        (r"\uD800", "a hexadecimal number is no character"),
        (r"\0", "an octal number has no digit"),
        ("a\\", "an escape is not supported"),
        ("(?<=a+)b", "look-behind requires fixed-width"),
        ("a" * 1001, "it has 1001 characters"),
        ("(" * 400 + ")" * 400, "nested too deeply|too many"),
    ],
)
def test_what_is_not_matched_alike_is_refused(expression: str, reason: str) -> None:
    with pytest.raises(UnsupportedExpressionError, match=reason):
        compile_java(expression)


def test_bounds_of_words_are_supported_in_ascii() -> None:
    pattern = compile_java(r".*\bapp\B.*", is_for_ascii=True)
    assert pattern.fullmatch("my-app1")
    assert not pattern.fullmatch("my-app")
    assert not pattern.fullmatch("myapp1")


PIECES = st.sampled_from(
    [
        *"ab.^$|?*+()[]{}-&\\,:<>=!123",
        "(?",
        "(?<",
        "[^",
        "&&",
        "\\Q",
        "\\E",
        "\\x",
        "\\p{",
        "(?i)",
        "{1,2}",
        "\\1",
    ]
)


@given(st.one_of(st.lists(PIECES, max_size=12).map("".join), st.text(max_size=40)))
def test_any_text_is_compiled_or_refused(expression: str) -> None:
    with suppress(UnsupportedExpressionError):
        compile_java(expression)
