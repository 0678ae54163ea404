"""Label selectors in Kubernetes' text form: `a=b,c!=d,e in (f,g),h notin (i),j,!k`. Pure.

Grammar and meaning are those of kubectl's `--selector` (k8s.io/apimachinery, pkg/labels/selector.go). Comparisons of
numbers, `a>1`, are refused: no label of Quorate's is a number.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

NAME_LENGTH_MAX = 63
PREFIX_LENGTH_MAX = 253
SELECTOR_LENGTH_MAX = 4096
REQUIREMENTS_MAX = 32

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_COMPARED = re.compile(r"(?P<key>[^=!\s]*)\s*(?P<operator>==|=|!=)\s*(?P<value>.*)", re.DOTALL)
_IN_SET = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_FORMS = "KEY=VALUE, KEY!=VALUE, KEY in (VALUE,...), KEY notin (VALUE,...), KEY or !KEY"


class SelectorError(ValueError):
    """A text is no label selector. The message quotes the part that is wrong, and says what is allowed."""


class Operator(StrEnum):
    """What a requirement demands of a label."""

    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    MISSING = "!"


_OPPOSITES = {
    Operator.IN: Operator.NOT_IN,
    Operator.NOT_IN: Operator.IN,
    Operator.EXISTS: Operator.MISSING,
    Operator.MISSING: Operator.EXISTS,
}


@dataclass(frozen=True, slots=True)
class Requirement:
    """A demand on one label. `values` are those of `in` and `notin`."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet it. A label that does not exist meets `notin`, as in Kubernetes."""
        match self.operator:
            case Operator.IN:
                return self.key in labels and labels[self.key] in self.values
            case Operator.NOT_IN:
                return labels.get(self.key) not in self.values
            case Operator.EXISTS:
                return self.key in labels
            case Operator.MISSING:
                return self.key not in labels

    def opposite(self) -> "Requirement":
        """Return the requirement that all other labels meet."""
        return Requirement(self.key, _OPPOSITES[self.operator], self.values)

    def __str__(self) -> str:
        match self.operator, self.values:
            case Operator.IN, (value,):
                return f"{self.key}={value}"
            case Operator.NOT_IN, (value,):
                return f"{self.key}!={value}"
            case Operator.EXISTS, _:
                return self.key
            case Operator.MISSING, _:
                return f"!{self.key}"
        return f"{self.key} {self.operator} ({','.join(self.values)})"


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Requirements that labels must all meet; without any, all labels match. As text it is what the API takes."""

    requirements: tuple[Requirement, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "LabelSelector":
        """Return the selector of a text; a blank one selects everything. Raises SelectorError."""
        if not text.strip():
            return cls()
        if len(text) > SELECTOR_LENGTH_MAX:
            raise SelectorError(f"a selector of {len(text)} characters; at most {SELECTOR_LENGTH_MAX}")
        parts = _split(text)
        if len(parts) > REQUIREMENTS_MAX:
            raise SelectorError(f"{text!r}: {len(parts)} requirements; at most {REQUIREMENTS_MAX}")
        return cls(tuple(_requirement(part.strip(), text) for part in parts))

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)

    def opposites(self) -> "tuple[LabelSelector, ...]":
        """Return selectors of which labels match at least one exactly if they do not match this selector."""
        return tuple(LabelSelector((requirement.opposite(),)) for requirement in self.requirements)

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


EVERYTHING = LabelSelector()


def _split(text: str) -> list[str]:
    """Return the parts between commas that are not in parentheses."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if depth not in (0, 1):
            break
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    if depth:
        raise SelectorError(f"{text!r}: a parenthesis has no partner")
    return parts


def _requirement(part: str, text: str) -> Requirement:
    """Return the requirement that a part of `text` states."""
    if not part:
        raise SelectorError(f"{text!r}: a part between commas is empty; each must be {_FORMS}")
    if "<" in part or ">" in part:
        raise SelectorError(f"{part!r}: labels can't be compared by < or >; allowed is {_FORMS}")
    if found := _IN_SET.fullmatch(part):
        values = tuple(dict.fromkeys(value.strip() for value in found["values"].split(",")))
        if "" in values:
            raise SelectorError(f"{part!r}: a value in parentheses is empty; write KEY=, if that is meant")
        return Requirement(
            _key(found["key"], part),
            Operator.IN if found["operator"] == "in" else Operator.NOT_IN,
            tuple(_value(value, part) for value in values),
        )
    if found := _COMPARED.fullmatch(part):
        operator = Operator.NOT_IN if found["operator"] == "!=" else Operator.IN
        return Requirement(_key(found["key"], part), operator, (_value(found["value"].strip(), part),))
    if part.startswith("!"):
        return Requirement(_key(part[1:].strip(), part), Operator.MISSING)
    return Requirement(_key(part, part), Operator.EXISTS)


def _key(key: str, part: str) -> str:
    prefix, slash, name = key.rpartition("/")
    if slash and not (len(prefix) <= PREFIX_LENGTH_MAX and _PREFIX.fullmatch(prefix)):
        raise SelectorError(
            f"{part!r}: {prefix!r}: the part of a key before '/' must be a DNS name in lower case, "
            f"of at most {PREFIX_LENGTH_MAX} characters"
        )
    if not (len(name) <= NAME_LENGTH_MAX and _NAME.fullmatch(name)):
        raise SelectorError(
            f"{part!r}: {name!r} is no name of a label: at most {NAME_LENGTH_MAX} letters, digits, '-', '_' and '.', "
            f"with a letter or digit at both ends. A requirement is {_FORMS}"
        )
    return key


def _value(value: str, part: str) -> str:
    if value and not (len(value) <= NAME_LENGTH_MAX and _NAME.fullmatch(value)):
        raise SelectorError(
            f"{part!r}: {value!r} is no value of a label: at most {NAME_LENGTH_MAX} letters, digits, '-', '_' "
            "and '.', with a letter or digit at both ends"
        )
    return value
