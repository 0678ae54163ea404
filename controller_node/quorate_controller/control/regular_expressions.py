"""Checks regular expressions of client metrics subscriptions, which brokers compile with Java's Pattern.

Accepts expressions that compile here, without syntax that only Python has. Syntax that only Java has is refused. The
expressions are not matched here; `quorate_protocol.java_expressions` translates those that are.
"""

import re
import warnings
from typing import Final

from quorate_protocol.java_expressions import EXPRESSION_LENGTH_MAX

_REPEAT: Final = re.compile(r"\{(\d{1,10})(?:,(\d{0,10}))?\}", re.ASCII)
_REPEATS_MAX: Final = 2**31 - 1
_GROUP: Final = re.compile(r"\(\?(?:[:=!>]|<[=!]|[imsux]*(?:-[imsux]+)?[:)])")
"""The beginnings of groups that both have; Java names groups with (?<name>, Python with (?P<name>."""
_ESCAPE: Final = re.compile(r"\\(?:0[0-7]|N\{[^}]*\}|[^0NU])", re.DOTALL)
_ESCAPE_IN_CLASS: Final = re.compile(r"\\(?:0[0-7]|[^0-9Ub])", re.DOTALL)


def is_regular_expression(text: str) -> bool:
    """Whether Java accepts it, as far as this check can decide, and it compiles in little time and stack."""
    if len(text) > EXPRESSION_LENGTH_MAX or not _is_java(text):
        return False
    try:
        with warnings.catch_warnings():
            # "[a-z&&[^b]]" is a set operation in Java; Python warns that it may become one.
            warnings.simplefilter("ignore", FutureWarning)
            re.compile(text)
    except (re.error, ValueError, OverflowError, RecursionError):
        # A repetition of 2**32 or more overflows, and hundreds of nested groups exceed the recursion limit.
        return False
    return True


def _is_java(text: str) -> bool:
    """Whether an expression that Python compiles has nothing that Java's Pattern refuses.

    Comments of expressions with the flag x are read like the rest.
    """
    at = 0
    while at < len(text):
        end: int | None = at + 1
        if text[at] == "\\":
            end = _end_of(_ESCAPE.match(text, at))
        elif text[at] == "[":
            end = _end_of_class(text, at)
        elif text[at] == "{":
            end = _end_of_repeat(text, at)
        elif text.startswith("(?", at):
            end = _end_of(_GROUP.match(text, at))
        if end is None:
            return False
        at = end
    return True


def _end_of(match: re.Match[str] | None) -> int | None:
    return None if match is None else match.end()


def _end_of_repeat(text: str, at: int) -> int | None:
    """In Java an opening brace is never literal: it begins a number of repetitions."""
    match = _REPEAT.match(text, at)
    if match is None or any(int(number) > _REPEATS_MAX for number in match.groups() if number):
        return None
    return match.end()


def _end_of_class(text: str, at: int) -> int | None:
    """The end of a character class; None for one that Java refuses.

    In Java a bracket inside of a class opens another one, and && intersects. A bracket that closes is literal where
    the class would be empty.
    """
    has_content: list[bool] = []
    while at < len(text):
        if text[at] == "[":
            has_content.append(False)
            at += 2 if text.startswith("^", at + 1) else 1
        elif text[at] == "]" and has_content[-1]:
            has_content.pop()
            at += 1
            if not has_content:
                return at
            has_content[-1] = True
        elif text.startswith("&&", at):
            if not has_content[-1] and text[at + 2 : at + 3] in {"]", "&"}:
                return None
            at += 2
        else:
            end = _end_of(_ESCAPE_IN_CLASS.match(text, at)) if text[at] == "\\" else at + 1
            if end is None:
                return None
            has_content[-1] = True
            at = end
    return None
