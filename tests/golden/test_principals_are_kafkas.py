"""Names in certificates and the principals that are made of them are those of Java and Kafka."""

import base64
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from kit.kafka import jars_of
from quorate_controller.control.regular_expressions import is_regular_expression
from quorate_controller.security.distinguished_names import name_of
from quorate_controller.security.principal_rules import parse_rules, principal_name
from quorate_protocol.kafka.releases import NEWEST_RELEASE

PROGRAM = Path(__file__).resolve().parents[1] / "kit" / "java" / "PrincipalNames.java"
NAMES, RULES = 2_000, 2_000
TYPES = (
    *("550403", "550406", "550407", "550408", "550409", "55040a", "55040b", "550404", "55042a", "550405"),
    *("0992268993f22c640101", "0992268993f22c640119", "2a864886f70d010901", "2b0601040182370201", "883703"),
)
"""DER of object identifiers: those with a keyword in RFC 2253, and others."""
ENCODINGS = {0x0C: "utf-8", 0x13: "latin-1", 0x14: "latin-1", 0x16: "latin-1", 0x1E: "utf-16-be"}
CHARACTERS = " \r\tab,=+<>#;\"\\/Zé€ß\0-.*'()"
PRINTABLE = " abYZ019'()+,-./:=?"
TEXTS = (
    *(
        "CN=a",
        "cn=",
        "CN=x.y,OU=a+b,O=Z",
        "OU=Service,CN=kafka1,O=Z",
        "",
        "aaa",
        "ab/c\\d",
        "$1",
        "CN=Duke,C=us",
    ),
    *("CN=Ana\\, Lee,OU=x", "a b", "12"),
)
PARTS = (
    *("DEFAULT", "RULE:^CN=(.*?),OU=(.*?)$/$1@$2/L", "RULE:(.*)/$1/U", "RULE:a*/x/", "RULE:CN=(\\w+)/$1$2/"),
    *(
        "RULE:.*/$0/",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L",
        "RULE:(a)(b)?.*/$2$1$12\\$/",
        "RULE:(x|)/\\\\/",
    ),
    *("", " ", "RULE:a/b", "RULE:a/b/L extra", "default", "RULE:/x/", "RULE:[0-9]+/n/", "RULE:.*?/y/L"),
    *("RULE:(C)(N).*/$3-$10-$1/", "RULE:(.)(.).*/$22$11/U", "RULE:a\\/b/c\\/d/", "RULE:(a)b.*/\\$1$$/"),
)

pytestmark = pytest.mark.integration


def answers_of_java(questions: Sequence[Sequence[str]]) -> list[str | None]:
    """What Java's and Kafka's classes answer; None for an error."""
    if shutil.which("java") is None:
        pytest.skip("java is missing: install a JRE, version 17 or later")
    run = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", "-cp", str(jars_of(NEWEST_RELEASE) / "*"), str(PROGRAM)],
        input="".join("\t".join(question) + "\n" for question in questions),
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return [None if one == "!" else base64.b64decode(one).decode() for one in run.stdout.splitlines()]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


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


def test_names_are_printed_as_java_prints_them() -> None:
    """Goal: the same certificate is the same principal. Method: random names in DER, to Java and to us."""
    if answers_of_java([("name", name_of_text(0x1E, b"\0a").hex())]) != ["L=a"]:
        pytest.skip(
            "this JDK takes each kind of text in names for UTF-8: 17.0.21.1 or one of its siblings is missing"
        )
    rng = Random(11)
    names = [any_name(rng) for _ in range(NAMES)]
    theirs = answers_of_java([("name", name.hex()) for name in names])
    ours = [name_of(name) for name in names]
    different = [
        (name.hex(), our, their) for name, our, their in zip(names, ours, theirs, strict=True) if our != their
    ]
    assert not different, min(different, key=lambda one: len(one[0]))


def test_mapping_rules_do_what_kafkas_do() -> None:
    """Goal: a configuration means the same here. Method: random lists of rules and names, to Kafka and to us.

    What fails in Kafka when a client comes may be refused here at once: then Kafka's class must fail, too.
    """
    rng = Random(12)
    questions = [
        (rng.choice((",", " , ", ",,")).join(rng.choices(PARTS, k=rng.randint(1, 3))), rng.choice(TEXTS))
        for _ in range(RULES)
    ]
    theirs = answers_of_java([("rule", encoded(rules), encoded(text)) for rules, text in questions])
    different, refused = [], 0
    for (rules, text), their in zip(questions, theirs, strict=True):
        try:
            our = principal_name(parse_rules(rules, is_regular_expression), text)
        except ValueError as error:
            refused += 1
            # Kafka notices a wrong replacement when the rule matches, and not before.
            if their is not None and "replacement" not in str(error):
                different.append((rules, text, str(error), their))
            continue
        if our != their:
            different.append((rules, text, our, their))
    assert not different, min(different, key=lambda one: len(one[0]))
    assert refused < RULES / 2
