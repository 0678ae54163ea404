"""Regular expressions of client metrics subscriptions: Java compiles them."""

import pytest
from quorate_controller.control.regular_expressions import is_regular_expression


@pytest.mark.parametrize(
    "expression",
    [
        "(?P<name>a)",
        "(?P<name>a)(?P=name)",
        "(?#comment)a",
        "(a)(?(1)b|c)",
        "(?a)b",
        "(?ai)b",
        "(?a:b)",
        r"\U0001F600",
        r"\0",
        r"\08",
        r"[\0]",
        r"[\b]",
        r"[\1]",
        r"[\123]",
        r"[\U00000041]",
        "[[a]",
        "[a[b]",
        "[!-[]",
        "[&&]",
        "a{",
        "{a}",
        "a{}",
        "a{,3}",
        "a{1",
        "a{ 1}",
        "a{2147483648}",
    ],
)
def test_what_only_python_has_is_refused(expression: str) -> None:
    assert not is_regular_expression(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "11.1.*",
        "producer-[0-9]+|consumer-.*",
        r"\\\.\-\/\t\n\d\w\S\b\Bx\Z",
        r"\x41\u00e9\012\07",
        r"(a)\1",
        r"\N{DIGIT ONE}",
        "(?i)a(?:b)(?=c)(?!d)(?<=a)(?<!b)(?>c)",
        "(?i-s:b)(?-i:c)(?m:d)",
        "a{2}b{1,}c{1,2}?d{0,2147483647}",
        "a*+b++c?+d*?",
        "}a]",
        "[]a][^]a][-a][a-]",
        r"[\]\[\d\x41-\x5a\N{DIGIT ONE}]",
        "[a-z&&[^b]]",
        "[a[b]]",
        "[a&b][a&&]",
        "[{}()*+?.^$|]",
    ],
)
def test_what_both_have_is_taken(expression: str) -> None:
    assert is_regular_expression(expression)
