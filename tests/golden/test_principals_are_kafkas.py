"""Names in certificates and the principals that are made of them are those of Java and Kafka."""

from collections.abc import Iterable, Sequence
from random import Random

import pytest
from kit.kafka import jars_of
from kit.principal_mappings import (
    ask_java,
    captured_mappings,
    encoded,
    is_split,
    pairs_to_capture,
    random_pairs,
)
from quorate_controller.security.certificates import name_of
from quorate_controller.security.principal_rules import parse_rules, principal_name
from quorate_protocol.kafka.releases import NEWEST_RELEASE

NAMES, MAPPINGS = 2_000, 10_000
TYPES = (
    *("550403", "550406", "550407", "550408", "550409", "55040a", "55040b", "550404", "55042a", "550405"),
    *("0992268993f22c640101", "0992268993f22c640119", "2a864886f70d010901", "2b0601040182370201", "883703"),
)
"""DER of object identifiers: those with a keyword in RFC 2253, and others."""
ENCODINGS = {0x0C: "utf-8", 0x13: "latin-1", 0x14: "latin-1", 0x16: "latin-1", 0x1E: "utf-16-be"}
CHARACTERS = " \r\tab,=+<>#;\"\\/Zé€ß\0-.*'()"
PRINTABLE = " abYZ019'()+,-./:=?"


def javas_results(questions: Sequence[Sequence[str]]) -> list[str | None]:
    """What Java's and Kafka's classes return; None for an error."""
    try:
        return ask_java(jars_of(NEWEST_RELEASE), questions)
    except FileNotFoundError as error:
        pytest.skip(str(error))


def der(tag: int, content: bytes) -> bytes:
    length = len(content)
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    sizes = bytes((length,)) if length < 0x80 else bytes((0x80 | len(size),)) + size
    return bytes((tag,)) + sizes + content


def name_of_text(tag: int, text: bytes) -> bytes:
    """A name with one attribute, its locality."""
    return der(0x30, der(0x31, der(0x30, der(0x06, bytes.fromhex("550407")) + der(tag, text))))


def any_name(rng: Random) -> bytes:
    """A name of parts that happen to be."""
    parts = []
    for _ in range(rng.randint(0, 4)):
        attributes = []
        for _ in range(rng.choice((1, 1, 1, 2))):
            tag = rng.choice(tuple(ENCODINGS))
            letters = CHARACTERS if tag in (0x0C, 0x1E) else PRINTABLE + "é"
            text = "".join(rng.choice(letters) for _ in range(rng.choice((0, 1, 3, 8, 150))))
            identifier = der(0x06, bytes.fromhex(rng.choice(TYPES)))
            attributes.append(der(0x30, identifier + der(tag, text.encode(ENCODINGS[tag]))))
        parts.append(der(0x31, b"".join(attributes)))
    return der(0x30, b"".join(parts))


@pytest.mark.integration
def test_names_are_printed_as_java_prints_them() -> None:
    if javas_results([("name", name_of_text(0x1E, b"\0a").hex())]) != ["L=a"]:
        pytest.skip(
            "this JDK takes each kind of text in names for UTF-8: 17.0.21.1 or one of its siblings is missing"
        )
    rng = Random(11)
    names = [any_name(rng) for _ in range(NAMES)]
    theirs = javas_results([("name", name.hex()) for name in names])
    ours = [name_of(name) for name in names]
    different = [
        (name.hex(), our, their) for name, our, their in zip(names, ours, theirs, strict=True) if our != their
    ]
    assert not different, min(different, key=lambda difference: len(difference[0]))


def ours(rules: str, name: str) -> tuple[str | None, str | None]:
    """Our principal, and why the rules are refused."""
    try:
        return principal_name(parse_rules(rules), name), None
    except ValueError as error:
        return None, str(error)


REFUSED = (
    *(
        "unions and intersections",
        "of classes with names",
        "an escape is not",
        "the flag",
        "releases of Java differ",
    ),
    *(
        "a group begins with",
        "a reference to a group",
        "a repetition can't",
        "an assertion can't",
        "a group in what",
    ),
    "refers to a group that the pattern does not have",
)
"""What is refused though Kafka takes it. It notices a wrong replacement when the rule matches, and not before."""


def compare(pairs: Iterable[tuple[str, str, str | None]]) -> None:
    """Compare our principals with Kafka's; none is another one, and few rules are refused."""
    different, refused, compared = [], 0, 0
    for rules, name, their in pairs:
        our, refusal = ours(rules, name)
        if refusal is None:
            compared += 1
        elif their is not None:
            refused += 1
            assert any(reason in refusal for reason in REFUSED), (rules, name, refusal, their)
        if refusal is None and our != their and not is_split(name, their):
            different.append((rules, name, our, their))
    assert not different, min(different, key=lambda difference: len(difference[0]))
    assert refused < compared / 4


def test_mapping_rules_do_what_kafkas_did() -> None:
    assert [(rules, name) for rules, name, _ in captured_mappings()] == pairs_to_capture()
    compare(captured_mappings())


@pytest.mark.integration
def test_mapping_rules_do_what_kafkas_do() -> None:
    pairs = list(random_pairs(12, MAPPINGS))
    theirs = javas_results([("rule", encoded(rules), encoded(name)) for rules, name in pairs])
    compare((*pair, their) for pair, their in zip(pairs, theirs, strict=True))
