"""Java's .properties syntax (java.util.Properties.load and store)."""

import re
from collections.abc import Mapping

_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
_SEPARATORS = "=:#!"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNICODE_DIGITS = 4


def parse_properties(text: str) -> dict[str, str]:
    """Parse comments, separators, escapes and continuation lines as Java does; the last of equal keys wins.

    Raises:
        ValueError: a malformed \\uxxxx escape; the message names the line.
    """
    properties = {}
    for number, line in _logical_lines(text):
        key_end = _key_end(line)
        value_start = key_end
        while value_start < len(line) and line[value_start] in _BLANKS:
            value_start += 1
        if value_start < len(line) and line[value_start] in "=:":
            value_start += 1
            while value_start < len(line) and line[value_start] in _BLANKS:
                value_start += 1
        try:
            properties[_unescape(line[:key_end])] = _unescape(line[value_start:])
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return properties


def format_properties(properties: Mapping[str, str], *, is_plain: bool = False) -> str:
    """Return lines of `key=value`, escaped so that Java reads the same values.

    Separators in values are escaped as Properties.store does it, unless `is_plain`: for files that people read.
    """
    in_values = "" if is_plain else _SEPARATORS
    return "".join(
        f"{_escape(key, _SEPARATORS, is_key=True)}={_escape(value, in_values)}\n"
        for key, value in properties.items()
    )


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Yield lines with their numbers; continuations are joined, blank lines and comments are left out."""
    lines: list[tuple[int, str]] = []
    pending: str | None = None
    first = 0
    for number, raw in enumerate(_LINE_BREAK.split(text), start=1):
        line = raw.lstrip(_BLANKS)
        if pending is None:
            if not line or line[0] in "#!":
                continue
            pending, first = "", number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
        else:
            lines.append((first, pending + line))
            pending = None
    if pending:
        lines.append((first, pending))
    return lines


def _key_end(line: str) -> int:
    is_escaped = False
    for position, character in enumerate(line):
        if is_escaped:
            is_escaped = False
        elif character == "\\":
            is_escaped = True
        elif character in "=:" + _BLANKS:
            return position
    return len(line)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    characters = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == "\\" and position < len(text):
            character = text[position]
            position += 1
            if character == "u":
                digits = text[position : position + _UNICODE_DIGITS]
                if not re.fullmatch(r"[0-9A-Fa-f]{4}", digits):
                    raise ValueError(f"\\u{digits} is not a character: four hexadecimal digits are needed")
                character = chr(int(digits, 16))
                position += _UNICODE_DIGITS
            else:
                character = _ESCAPES.get(character, character)
        characters.append(character)
    return _join_surrogates("".join(characters))


def _join_surrogates(text: str) -> str:
    """Java's characters are UTF-16 units: two escapes that are halves of one character become it."""
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


def _escape(text: str, special: str, *, is_key: bool = False) -> str:
    escaped = []
    for position, character in enumerate(text):
        if character in special + "\\" or (character == " " and (is_key or position == 0)):
            escaped.append("\\" + character)
        elif character in "\t\n\r\f":
            escaped.append("\\" + "tnrf"["\t\n\r\f".index(character)])
        elif " " <= character <= "~":
            escaped.append(character)
        else:
            units = character.encode("utf-16-be", "surrogatepass")
            escaped += [f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2)]
    return "".join(escaped)
