"""`ssl.principal.mapping.rules`: distinguished names to names of principals, as Kafka's SslPrincipalMapper does it.

The rules are tried in their order; the first one that matches the whole name decides.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

from quorate_protocol.java_expressions import UnsupportedExpressionError, compile_java
from quorate_protocol.plain_data import dataclass

_RULE: Final = r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.ASCII)
_PARSER: Final = re.compile(_RULE, re.ASCII)
_BACK_REFERENCE: Final = re.compile(r"\$(\d+)", re.ASCII)
_BLANKS: Final = "".join(map(chr, range(33)))
"""What Java's String.trim removes."""

_CASES: Final[dict[str, Callable[[str], str]]] = {"": str, "L": str.lower, "U": str.upper}


@dataclass(frozen=True, slots=True)
class PrincipalRule:
    """One rule. Without a pattern it is DEFAULT, and takes the name as it is."""

    pattern: re.Pattern[str] | None = None
    replacement: Sequence[str | int] = ()
    """Texts, and the numbers of the groups between them."""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """Return the mapped name; None if the rule does not match it."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        return _CASES[self.case](self._replace_all(self.pattern, name))

    def _replace_all(self, pattern: re.Pattern[str], name: str) -> str:
        """As Java's String.replaceAll: after an empty match it continues behind the next character, unlike re.sub."""
        done, parts, at = 0, [], 0
        while at <= len(name) and (match := pattern.search(name, at)) is not None:
            parts += [name[done : match.start()], self._replaced(match)]
            done = match.end()
            at = done + (match.start() == done)
        return "".join((*parts, name[done:]))

    def _replaced(self, match: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else match[part] or "" for part in self.replacement)


DEFAULT_RULES: Final = (PrincipalRule(),)


def parse_rules(text: str) -> tuple[PrincipalRule, ...]:
    """Parse `RULE:pattern/replacement/[LU]` and `DEFAULT`, separated by commas.

    Patterns are regular expressions of Java, see `java_expressions` for what is supported of them. Raises ValueError.
    """
    rules = []
    for part in _SPLITTER.finditer(text.strip(_BLANKS)):
        rule = part[1]
        parsed = _PARSER.match(rule)
        if parsed is None or parsed.end() != len(rule):
            rest = rule if parsed is None else rule[parsed.end() :]
            raise ValueError(f"{rule} is no rule, because of {rest}; rules are RULE:pattern/replacement/[LU]")
        if parsed[1] is not None:
            rules.append(PrincipalRule())
        elif parsed[2] is not None:
            try:
                pattern = compile_java(parsed[2])
            except UnsupportedExpressionError as error:
                raise ValueError(f"{parsed[2]} is no regular expression that is supported: {error}") from None
            replacement = _parts(_literal_back_references(parsed[4], pattern.groups), pattern.groups)
            rules.append(PrincipalRule(pattern, replacement, parsed[6]))
    return tuple(rules)


def principal_name(rules: Sequence[PrincipalRule], name: str) -> str | None:
    """Return the name of the principal with a distinguished name; None if no rule matches."""
    mapped = (rule.apply(name) for rule in rules)
    return next((result for result in mapped if result is not None), None)


def _literal_back_references(text: str, groups: int) -> str:
    """Escape references to groups that do not exist, as Kafka does, which takes them literally."""
    if not groups:
        return text
    for reference in list(_BACK_REFERENCE.finditer(text)):
        digits = reference[1]
        if digits.startswith("0"):
            continue
        index = int(digits)
        while index > groups and index >= 10:
            index //= 10
        if index > groups:
            # Kafka uses the positions of the original text here, too.
            start = reference.start(1)
            text = text[: start - 1] + "\\" + text[start - 1 :]
    return text


def _parts(text: str, groups: int) -> tuple[str | int, ...]:
    """Parse a replacement as Java's Matcher.appendReplacement does. Raises ValueError."""
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        character = text[at]
        if character == "\\":
            if at + 1 == len(text):
                raise ValueError(
                    f"the replacement {text} ends with a backslash: the character to be escaped is missing"
                )
            parts.append(text[at + 1])
            at += 2
        elif character == "$":
            digits = re.match(r"[0-9]+", text[at + 1 :])
            if digits is None or int(digits[0][0]) > groups:
                raise ValueError(f"the replacement {text} refers to a group that the pattern does not have")
            length = 1
            while length < len(digits[0]) and int(digits[0][: length + 1]) <= groups:
                length += 1
            parts.append(int(digits[0][:length]))
            at += 1 + length
        else:
            parts.append(character)
            at += 1
    return tuple(parts)
