"""Label selectors: what they match, how they are written, and what is refused."""

import pytest
from quorate_operator.models.selectors import LabelSelector, SelectorError

BLUE = {"quorate.dev/operator": "blue", "team": "payments"}
GREEN = {"quorate.dev/operator": "green"}
NONE: dict[str, str] = {}


@pytest.mark.parametrize(
    ("text", "matched"),
    [
        ("", (BLUE, GREEN, NONE)),
        ("quorate.dev/operator=blue", (BLUE,)),
        ("quorate.dev/operator == blue", (BLUE,)),
        ("quorate.dev/operator!=blue", (GREEN, NONE)),
        ("quorate.dev/operator in (blue, green)", (BLUE, GREEN)),
        ("quorate.dev/operator in (blue, green), team", (BLUE,)),
        ("quorate.dev/operator notin (green)", (BLUE, NONE)),
        ("quorate.dev/operator", (BLUE, GREEN)),
        ("!quorate.dev/operator", (NONE,)),
        ("! team,quorate.dev/operator", (GREEN,)),
        ("team=", ()),
        ("team!=", (BLUE, GREEN, NONE)),
        ("team=payments,team=search", ()),
    ],
)
def test_what_a_selector_matches(text: str, matched: tuple[dict[str, str], ...]) -> None:
    selector = LabelSelector.parse(text)
    for labels in (BLUE, GREEN, NONE):
        assert selector.matches(labels) == (labels in matched), labels
        others = selector.opposites()
        assert any(other.matches(labels) for other in others) == (labels not in matched), labels
    assert LabelSelector.parse(str(selector)) == selector
    assert bool(selector) == bool(text)


def test_an_empty_value_is_a_value() -> None:
    selector = LabelSelector.parse("team=")
    assert selector.matches({"team": ""})
    assert not selector.matches({})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b,", "'a=b,': a part between commas is empty; each must be KEY=VALUE, KEY!=VALUE"),
        ("a b", "'a b': 'a b' is no name of a label"),
        ("a=b c", "'a=b c': 'b c' is no value of a label"),
        ("=b", "'=b': '' is no name of a label"),
        ("a=b=c", "'b=c' is no value of a label"),
        ("Quorate.dev/a=b", "'Quorate.dev': the part of a key before '/' must be a DNS name in lower case"),
        ("/a=b", "'': the part of a key before '/'"),
        ("a in (b", "'a in (b': a parenthesis has no partner"),
        ("a in b)", "'a in b)': a parenthesis has no partner"),
        ("a in ((b))", "a parenthesis has no partner"),
        ("a in ()", "'a in ()': a value in parentheses is empty; write KEY="),
        ("a in (b,,c)", "a value in parentheses is empty"),
        ("a within (b)", "is no name of a label"),
        ("!a=b", "'!a=b': 'a=b' is no name of a label"),
        ("a>1", "'a>1': labels can't be compared by < or >; allowed is KEY=VALUE"),
        (f"a={'b' * 64}", "is no value of a label: at most 63 letters"),
        (f"{'a' * 64}", "is no name of a label: at most 63 letters"),
        (",".join("a" * 33), "33 requirements; at most 32"),
        ("a" * 5000, "a selector of 5000 characters; at most 4096"),
    ],
)
def test_what_is_no_selector_is_quoted(text: str, expected: str) -> None:
    with pytest.raises(SelectorError) as raised:
        LabelSelector.parse(text)
    assert expected in str(raised.value)
