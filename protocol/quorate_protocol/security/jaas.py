"""`sasl.jaas.config`: one login module with its options, in the syntax of Java's login configuration files."""

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Final

from quorate_protocol.plain_data import dataclass

_PACKAGE: Final = "org.apache.kafka.common.security"
_SCRAM_LOGIN_MODULE: Final = f"{_PACKAGE}.scram.ScramLoginModule"
LOGIN_MODULES: Final[Mapping[str, str]] = {
    "PLAIN": f"{_PACKAGE}.plain.PlainLoginModule",
    "SCRAM-SHA-256": _SCRAM_LOGIN_MODULE,
    "SCRAM-SHA-512": _SCRAM_LOGIN_MODULE,
    "OAUTHBEARER": f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule",
}
"""The class of the login module, by the name of the SASL mechanism."""

_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})
_TOKEN = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<word>[\w.$\-]+)
      | "(?P<double>(?:[^"\\\n]|\\.)*)"
      | '(?P<single>(?:[^'\\\n]|\\.)*)'
      | (?P<sign>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = str.maketrans({'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r"})
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module: its class name and its options, some of which are secrets."""

    name: str
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str) -> LoginModule:
    """Parse `class required key="value" ...;`. Raises ValueError, whose message has no value of an option."""
    tokens = _tokens(text)
    if not tokens or not tokens[0][0]:
        raise ValueError("a login module is missing")
    name = tokens[0][1]
    if len(tokens) < 2 or tokens[1][1].lower() not in _FLAGS:
        raise ValueError(f"after {name}, `required` or another control flag is missing")
    options: dict[str, str] = {}
    position = 2
    while position < len(tokens) and tokens[position] != (False, ";"):
        is_text, key = tokens[position]
        rest = tokens[position + 1 : position + 3]
        if not is_text or len(rest) < 2 or rest[0] != (False, "=") or not rest[1][0]:
            raise ValueError(f'option {key} has no value: key="value" is needed')
        options[key] = rest[1][1]
        position += 3
    if position == len(tokens):
        raise ValueError("the semicolon at the end is missing")
    if position + 1 < len(tokens):
        raise ValueError("there is more than one login module")
    return LoginModule(name, options)


def format_jaas(mechanism: str, options: Mapping[str, str]) -> str:
    """Return the login module of a SASL mechanism with its options: `class required key="value" ...;`."""
    given = "".join(f' {name}="{value.translate(_ESCAPED)}"' for name, value in options.items())
    return f"{LOGIN_MODULES[mechanism]} required{given};"


def _tokens(text: str) -> list[tuple[bool, str]]:
    """(whether it is a word or a string, its text) for each token."""
    tokens = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"character {position + 1} is out of place: is a quote missing?")
        position = match.end()
        kind = match.lastgroup
        if kind == "sign":
            tokens.append((False, match["sign"]))
        elif kind == "word":
            tokens.append((True, match["word"]))
        elif kind in {"double", "single"}:
            tokens.append((True, _ESCAPE.sub(_unescaped, match[kind])))
    return tokens


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPES.get(escaped, escaped)
