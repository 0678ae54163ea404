r"""Regular expressions in the syntax of Java (java.util.regex.Pattern), as Python's `re` matches them.

Both languages write much alike that means something else: `.` and `$` know other line ends in Java, `\v` is a class
there, brackets within a class are a union, and `\b` differs between releases. An expression is therefore parsed as
Java parses it, and rewritten: characters and classes as explicit sets of code points, the rest in Python's words.
What both can't do alike is refused with its position: `\b` (unless all texts are ASCII), `\G`, `\R`, `\X`, unions and
intersections of classes, most of `\p{...}`, flags other than `i` and `s` or in the middle of a group, and groups
within possessive repetitions.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, NoReturn

EXPRESSION_LENGTH_MAX: Final = 1_000
"""Kafka has no limit but that of the value. A longer expression may take seconds to compile."""

Ranges = Sequence[tuple[int, int]]
"""Code points from the first to the last of each pair, sorted and apart from each other."""

_LAST: Final = 0x10FFFF
_REPEATS_MAX: Final = 2**31 - 1
_REPEAT: Final = re.compile(r"\{([0-9]{1,10})(,([0-9]{0,10}))?\}")
_FLAGS: Final = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_NAME: Final = re.compile(r"<([a-zA-Z][a-zA-Z0-9]*)>")
_POSIX: Final = re.compile(r"\{([A-Za-z]+)\}")
_HEXADECIMAL: Final = {
    "x": re.compile(r"([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,6})\}"),
    "u": re.compile(r"([0-9A-Fa-f]{4})()"),
}
_OCTAL: Final = re.compile(r"[0-3][0-7]{2}|[0-7]{1,2}")

_BETWEEN_CASES: Final = ord("a") - ord("A")
_LINE_ENDS: Final = "\n\r\x85\u2028\u2029"
_END: Final = r"(?=(?:\r\n|(?<!\r)\n|[\r\x85\u2028\u2029])?\Z)"
"""The end, or before the last line end."""
_LETTERS: Final = ((ord("A"), ord("Z")), (ord("a"), ord("z")))
_DIGITS: Final = ((ord("0"), ord("9")),)
_CONTROLS: Final = {"a": 7, "e": 27, "f": 12, "n": 10, "r": 13, "t": 9}


def union(*ranges: Ranges) -> Ranges:
    """The code points that are in any of the sets."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(pair for range_ in ranges for pair in range_):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return merged


def complement(ranges: Ranges) -> Ranges:
    """The code points that are not in a set."""
    left, at = [], 0
    for first, last in ranges:
        if first > at:
            left.append((at, first - 1))
        at = last + 1
    return [*left, (at, _LAST)] if at <= _LAST else left


def _of(characters: Iterable[str]) -> Ranges:
    return union([(ord(character), ord(character)) for character in characters])


_BLANK: Final = _of(" \t\n\x0b\f\r")
_PREDEFINED: Final = {
    "d": _DIGITS,
    "h": union(_of(" \t\xa0\u1680\u180e\u202f\u205f\u3000"), [(0x2000, 0x200A)]),
    "s": _BLANK,
    "v": union([(10, 13)], _of("\x85\u2028\u2029")),
    "w": union(_LETTERS, _DIGITS, _of("_")),
}
_OF_CASE: Final = {"Lower": (_LETTERS[1],), "Upper": (_LETTERS[0],)}
_POSIX_CLASSES: Final = {
    "ASCII": ((0, 0x7F),),
    "Alnum": union(_LETTERS, _DIGITS),
    "Alpha": _LETTERS,
    "Blank": _of(" \t"),
    "Cntrl": ((0, 0x1F), (0x7F, 0x7F)),
    "Digit": _DIGITS,
    "Graph": ((0x21, 0x7E),),
    "Print": ((0x20, 0x7E),),
    "Punct": ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)),
    "Space": _BLANK,
    "XDigit": union(_DIGITS, [(ord("A"), ord("F")), (ord("a"), ord("f"))]),
    **_OF_CASE,
}


class UnsupportedExpressionError(ValueError):
    """Java refuses the expression, or Python can't match what Java does. The message has the reason and the place."""


class _Character(NamedTuple):
    value: str
    is_literal: bool
    """Whether it was quoted by \\Q and \\E."""


class _Flags(NamedTuple):
    ignores_case: bool = False
    dot_is_all: bool = False


def compile_java(text: str, *, is_for_ascii: bool = False) -> re.Pattern[str]:
    r"""Compile an expression of Java. Groups have Java's numbers.

    With `is_for_ascii`, `\b` and `\B` are supported: of texts that are ASCII alone all releases of Java think alike.

    Raises:
        UnsupportedExpressionError: Java refuses it, or Python can't match what Java does.
    """
    if len(text) > EXPRESSION_LENGTH_MAX:
        raise UnsupportedExpressionError(
            f"it has {len(text)} characters; at most {EXPRESSION_LENGTH_MAX} are allowed"
        )
    try:
        return re.compile(_Translation(text, is_for_ascii=is_for_ascii).result())
    except (re.error, OverflowError) as error:
        raise UnsupportedExpressionError(str(error)) from None
    except RecursionError:
        raise UnsupportedExpressionError("its groups are nested too deeply") from None


class _Translation:
    """Parses an expression once, from left to right."""

    def __init__(self, text: str, *, is_for_ascii: bool) -> None:
        self._characters = _unquoted(text)
        self._text = "".join(
            "\0" if character.is_literal else character.value for character in self._characters
        )
        """In which quoted characters can't be taken for syntax."""
        self._is_for_ascii = is_for_ascii
        self._at = 0
        self._groups = 0
        self._names: dict[str, int] = {}
        self._open_groups: set[int] = set()

    def result(self) -> str:
        flags = _Flags()
        match = _FLAGS.match(self._text)
        if match is not None and match[3] == ")":
            self._at = match.end()
            flags = self._changed(flags, match)
        written = self._alternatives(flags)
        if self._at < len(self._text):
            self._refuse("a parenthesis closes that was not opened")
        return written

    def _refuse(self, reason: str) -> NoReturn:
        raise UnsupportedExpressionError(f"{reason} (at character {self._at + 1})")

    # ------------------------------------------------------------------------------------ structure

    def _alternatives(self, flags: _Flags) -> str:
        parts = [self._sequence(flags)]
        while self._text.startswith("|", self._at):
            self._at += 1
            parts.append(self._sequence(flags))
        return "|".join(parts)

    def _sequence(self, flags: _Flags) -> str:
        parts = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            groups = self._groups
            written, is_repeatable = self._atom(flags)
            repeat = self._repeat()
            if self._groups > groups and (written.startswith("(?>") or repeat[1:].endswith("+")):
                # Java keeps what such a group matched where Python forgets it.
                self._refuse("a group in what is matched at once and kept is not supported")
            if repeat and not is_repeatable:
                self._refuse("an assertion can't be repeated")
            if repeat and self._repeat():
                self._refuse("a repetition can't be repeated")
            parts.append(written + repeat)
        return "".join(parts)

    def _repeat(self) -> str:
        """The repetition that begins here, in the same words as in Java; nothing if none does."""
        begin = self._at
        character = self._text[begin : begin + 1]
        if not character or character not in "*+?{":
            return ""
        if character == "{":
            match = _REPEAT.match(self._text, begin)
            numbers = [int(number) for number in match.group(1, 3) if number] if match else []
            if match is None or max(numbers) > _REPEATS_MAX or numbers != sorted(numbers):
                self._refuse("a brace opens without numbers of repetitions")
            self._at = match.end()
        else:
            self._at += 1
        if self._text[self._at : self._at + 1] in ("?", "+"):
            self._at += 1
        return self._text[begin : self._at]

    def _atom(self, flags: _Flags) -> tuple[str, bool]:
        """Translate what a repetition would repeat; whether it may be repeated."""
        character, is_literal = self._characters[self._at]
        match "" if is_literal else character:
            case "(":
                return self._group(flags)
            case "[":
                return _written(self._class(flags)), True
            case "\\":
                return self._escape(flags)
            case "*" | "+" | "?" | "{":
                self._refuse("nothing is there to repeat")
            case "^":
                self._at += 1
                return r"\A", False
            case "$":
                self._at += 1
                return _END, False
            case ".":
                self._at += 1
                return _written(complement([] if flags.dot_is_all else _of(_LINE_ENDS))), True
        self._at += 1
        return _written(_with_cases(_of(character), flags)), True

    def _group(self, flags: _Flags) -> tuple[str, bool]:
        if not self._text.startswith("(?", self._at):
            self._at += 1
            return self._capture(flags), True
        for opening in ("(?:", "(?>", "(?=", "(?!", "(?<=", "(?<!"):
            if self._text.startswith(opening, self._at):
                self._at += len(opening)
                return opening + self._rest_of_group(flags), opening in ("(?:", "(?>")
        name = _NAME.match(self._text, self._at + 2)
        if name is not None:
            if name[1] in self._names:
                self._refuse(f"the group {name[1]} is there twice")
            self._names[name[1]] = self._groups + 1
            self._at = name.end()
            return self._capture(flags), True
        match = _FLAGS.match(self._text, self._at)
        if match is None or match[3] == ")":
            self._refuse("a group begins with what is not supported here")
        changed = self._changed(flags, match)
        self._at = match.end()
        return "(?:" + self._rest_of_group(changed), True

    def _capture(self, flags: _Flags) -> str:
        self._groups += 1
        number = self._groups
        self._open_groups.add(number)
        written = "(" + self._rest_of_group(flags)
        self._open_groups.discard(number)
        return written

    def _rest_of_group(self, flags: _Flags) -> str:
        written = self._alternatives(flags)
        if not self._text.startswith(")", self._at):
            self._refuse("a group has no end")
        self._at += 1
        return written + ")"

    def _changed(self, flags: _Flags, match: re.Match[str]) -> _Flags:
        for letters, is_on in ((match[1], True), (match[2] or "", False)):
            for letter in letters:
                if letter == "i":
                    flags = flags._replace(ignores_case=is_on)
                elif letter == "s":
                    flags = flags._replace(dot_is_all=is_on)
                else:
                    self._refuse(f"the flag {letter} is not supported; allowed are i and s")
        return flags

    # -------------------------------------------------------------------------------------- escapes

    def _escape(self, flags: _Flags) -> tuple[str, bool]:
        letter = self._text[self._at + 1 : self._at + 2]
        if letter in ("A", "z", "Z"):
            self._at += 2
            return {"A": r"\A", "z": r"\Z", "Z": _END}[letter], False
        if letter in ("b", "B") and self._is_for_ascii and not self._text.startswith("{", self._at + 2):
            self._at += 2
            return rf"(?a:\{letter})", False
        if letter == "k" or (letter and letter in "123456789"):
            return self._reference(flags), True
        found = self._escaped_class(flags)
        if found is None:
            code = self._escaped_character()
            found = _with_cases([(code, code)], flags)
        return _written(found), True

    def _reference(self, flags: _Flags) -> str:
        """A reference to a group: as many digits as make the number of one that exists."""
        self._at += 1
        if self._text[self._at] == "k":
            name = _NAME.match(self._text, self._at + 1)
            number = self._names.get(name[1], 0) if name else 0
            if name is None or not number:
                self._refuse("a reference names no group")
            self._at = name.end()
        else:
            number = int(self._text[self._at])
            self._at += 1
            while self._at < len(self._text) and self._text[self._at] in "0123456789":
                longer = 10 * number + int(self._text[self._at])
                if longer > self._groups:
                    break
                number, self._at = longer, self._at + 1
        if flags.ignores_case or number > self._groups or number in self._open_groups:
            self._refuse("a reference to a group that has not ended, or without case, is not supported")
        return rf"(?:\{number})"

    def _escaped_class(self, flags: _Flags) -> Ranges | None:
        """The predefined class that an escape names; None if it names a character."""
        letter = self._text[self._at + 1 : self._at + 2]
        if letter.lower() in _PREDEFINED and letter:
            self._at += 2
            ranges = _PREDEFINED[letter.lower()]
        elif letter in ("p", "P"):
            match = _POSIX.match(self._text, self._at + 2)
            if match is None or match[1] not in _POSIX_CLASSES:
                self._refuse(f"of classes with names, {', '.join(_POSIX_CLASSES)} are supported")
            if match[1] in _OF_CASE and flags.ignores_case:
                self._refuse(f"releases of Java differ in {match[0]} without case")
            self._at = match.end()
            ranges = _POSIX_CLASSES[match[1]]
        else:
            return None
        return complement(ranges) if letter.isupper() else ranges

    def _escaped_character(self) -> int:
        """The code point that an escape names."""
        self._at += 1
        letter = self._text[self._at : self._at + 1]
        self._at += 1
        if letter in _CONTROLS and letter:
            return _CONTROLS[letter]
        if letter in _HEXADECIMAL and letter:
            return self._hexadecimal(_HEXADECIMAL[letter])
        if letter == "0":
            octal = _OCTAL.match(self._text, self._at)
            if octal is None:
                self._refuse("an octal number has no digit")
            self._at = octal.end()
            return int(octal[0], 8)
        if letter == "c":
            following = self._text[self._at : self._at + 1]
            self._at += 1
            if following:
                return ord(following) ^ 64
        if not letter or (letter.isascii() and letter.isalnum()) or letter == "\0":
            self._refuse("an escape is not supported")
        return ord(letter)

    def _hexadecimal(self, digits: re.Pattern[str]) -> int:
        match = digits.match(self._text, self._at)
        code = int(match[1] or match[2], 16) if match else -1
        if match is None or code > _LAST or 0xD800 <= code <= 0xDFFF:
            self._refuse("a hexadecimal number is no character")
        self._at = match.end()
        return code

    # -------------------------------------------------------------------------------------- classes

    def _class(self, flags: _Flags) -> Ranges:
        self._at += 1
        is_negated = self._text.startswith("^", self._at)
        self._at += is_negated
        parts: list[Ranges] = []
        while True:
            character = self._text[self._at : self._at + 1]
            if not character:
                self._refuse("a class has no end")
            if character == "]" and parts:
                self._at += 1
                ranges = _with_cases(union(*parts), flags)
                return complement(ranges) if is_negated else ranges
            if character == "[" or self._text.startswith("&&", self._at):
                self._refuse("unions and intersections of classes are not supported")
            parts.append(self._part_of_class(flags))

    def _part_of_class(self, flags: _Flags) -> Ranges:
        """A predefined class, a character, or a range of characters."""
        if self._text[self._at] == "\\":
            found = self._escaped_class(flags)
            if found is not None:
                return found
        first = last = self._character_of_class()
        is_range = self._text.startswith("-", self._at)
        if is_range and self._text[self._at + 1 : self._at + 2] not in ("]", "[", ""):
            self._at += 1
            last = self._character_of_class()
            if last < first:
                self._refuse("a range ends before it begins")
        return [(first, last)]

    def _character_of_class(self) -> int:
        character, is_literal = self._characters[self._at]
        if character == "\\" and not is_literal:
            return self._escaped_character()
        self._at += 1
        return ord(character)


def _unquoted(text: str) -> list[_Character]:
    r"""The characters of an expression without \Q and \E. What is between them is literal."""
    characters = []
    at, is_literal = 0, False
    while at < len(text):
        pair = text[at : at + 2]
        if is_literal and pair == r"\E":
            is_literal = False
            at += 2
        elif not is_literal and pair == r"\Q":
            is_literal = True
            at += 2
        elif not is_literal and pair[0] == "\\":
            characters += [_Character(unit, is_literal=False) for unit in pair]
            at += 2
        else:
            characters.append(_Character(text[at], is_literal))
            at += 1
    return characters


def _with_cases(ranges: Ranges, flags: _Flags) -> Ranges:
    """The set with both cases of its ASCII letters, if case is ignored: Java ignores that of no others."""
    if not flags.ignores_case:
        return ranges
    other_cases = [
        (max(first, begin) + shift, min(last, end) + shift)
        for first, last in ranges
        for (begin, end), shift in zip(_LETTERS, (_BETWEEN_CASES, -_BETWEEN_CASES), strict=True)
        if max(first, begin) <= min(last, end)
    ]
    return union(ranges, other_cases)


def _written(ranges: Ranges) -> str:
    """A set as Python writes it. What a large set lacks is written: Python compiles that faster."""
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return re.escape(chr(ranges[0][0]))
    is_large = bool(ranges) and ranges[-1][1] == _LAST
    rest = complement(ranges) if is_large else ranges
    if not rest:
        return r"[\s\S]" if is_large else r"[^\s\S]"
    parts = (f"\\U{first:08x}" if first == last else f"\\U{first:08x}-\\U{last:08x}" for first, last in rest)
    return ("[^" if is_large else "[") + "".join(parts) + "]"
