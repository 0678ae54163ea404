"""Rules of `ssl.principal.mapping.rules` and names of certificates, and what Kafka's own class makes of them."""

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Final

PROGRAM: Final = Path(__file__).parent / "java" / "PrincipalNames.java"
CAPTURED: Final = Path(__file__).parents[1] / "golden" / "principal_mappings.json"
SEED, PAIRS = 39, 3_000
"""Of the captured pairs."""

NAMES: Final = (
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
    *(
        "CN=Ana\\, Lee,OU=x",
        "a b",
        "12",
        "CN=\u00c4rger,O=Stra\u00dfe",
        "cN=K",
        "abab",
        "ABAB",
        "a_1",
        "x" * 30,
    ),
    # Line ends: `.`, `$` and `\\v` of both languages differ in them.
    *(f"CN=a{end}" for end in ("\n", "\r", "\r\n", "\x85", "\u2028", "\u2029", "\v", "\f", "\n\n", "\n\r")),
    *(
        f"CN=a{end}b"
        for end in ("\n", "\r", "\r\n", "\x85", "\u2028", "\v", "\t", "\xa0", "\u2003", "\u3000")
    ),
    *(
        "CN=\U0001f600",
        "e\u0301",
        "\u0660\u0661",
        "\u212a",
        "\u017f",
        "\u0130",
        "\u0391\u03a3",
        "\ufb03",
        "&",
        "[a]",
        "^-]",
        "b-d",
    ),
)
REPEATABLE: Final = (
    *(
        "a",
        "b",
        "C",
        "N",
        "=",
        ",",
        "CN=",
        "CN=(.*)",
        ".",
        ".*",
        ".*?",
        ".+",
        ".*+",
        "x",
        "(a)",
        "(b)",
        "(a|)",
    ),
    *(
        "[a-z]",
        "[^,]",
        "[^,]*",
        "[A-Za-z0-9.]+",
        "[]a]",
        "[^]a]",
        "[a-]",
        "[-a]",
        "[\\w-z]",
        "[a\\-c]",
        "[&^]",
    ),
    *("\\w", "\\W", "\\d", "\\D", "\\s", "\\S", "\\v", "\\V", "\\h", "\\H", "[\\v]", "[\\s\\S]", "[^\\v]"),
    *("(?>a*)", "(?:a|b)", "(?:.|\\n)", "(?<n>a)", "(?i:a)", "(?i:[a-c])", "(?i:CN)", "(?s:.)", "(?i-s:.b)"),
    *(
        "\\p{Alpha}",
        "\\P{Alpha}",
        "\\p{Punct}",
        "\\p{Space}",
        "\\p{ASCII}",
        "\\Qa.b\\E",
        "\\Q(\\E",
        "\\.",
        "\\,",
    ),
    *("\\x41", "\\x{61}", "\\u0061", "\\0141", "\\cA", "\\e", "\\a", "\\t", "}", "]", "\\_", "[^^]", "[\\D]"),
)
ASSERTIONS: Final = (
    "",
    "",
    "",
    "^",
    "$",
    "\\A",
    "\\z",
    "\\Z",
    "(?=a)",
    "(?!a)",
    "(?<=a)",
    "(?<!a)",
    "$\n",
    "\\Z\n",
)
RARE: Final = (
    *(
        "\\b",
        "\\B",
        "\\G",
        "\\R",
        "\\X",
        "[a[b]]",
        "[a-c&&[^b]]",
        "[a&&a]",
        "[^a[b]]",
        "[[a]",
        "[&&a]",
        "[a&&]",
    ),
    *(
        "(?m)a",
        "(?x) a",
        "(?u)a",
        "a(?i)b",
        "(?d).",
        "{",
        "a{",
        "a{,2}",
        "a**",
        "a{2}{3}",
        "\\g",
        "^*",
        "(?=a)+",
    ),
    *("\\1", "\\2", "\\k<n>", "(a)\\1", "\\p{L}", "\\pL", "\\p{IsAlphabetic}", "(?i:\\p{Lower})", "(?P<n>a)"),
)
REPEATS: Final = (
    "",
    "",
    "",
    "",
    "*",
    "+",
    "?",
    "{2}",
    "{1,}",
    "{0,2}",
    "*?",
    "+?",
    "??",
    "*+",
    "++",
    "?+",
    "{1,2}?",
)
REPLACEMENTS: Final = ("$0", "$0", "x", "<$0>", "", "\\$", "$1", "$11", "u-$1-", "${n}")
WHOLE: Final = (
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


def random_rules(rng: Random) -> str:
    """A list of rules, of which few are as an administrator would write them."""
    rules = [
        rng.choice(WHOLE) if rng.random() < 0.2 else _random_rule(rng)
        for _ in range(rng.choice((1, 1, 1, 2, 3)))
    ]
    return rng.choice((",", " , ", ",,")).join(rules)


def _random_rule(rng: Random) -> str:
    flags = rng.choice(("", "", "", "", "(?i)", "(?s)", "(?is)"))
    parts = [_random_atom(rng) for _ in range(rng.randint(1, 3))]
    pattern = rng.choice(("", "", "|")).join(parts)
    whole = rng.choice(("{}", "{}.*", ".*{}.*", ".*{}", "({}).*", "(?s:.*?){}(?s:.*)")).format(pattern)
    return f"RULE:{flags}{whole}/{rng.choice(REPLACEMENTS)}/{rng.choice(('', '', 'L', 'U'))}"


def _random_atom(rng: Random) -> str:
    if rng.random() < 0.08:
        return rng.choice(RARE)
    return rng.choice(REPEATABLE) + rng.choice(REPEATS) + rng.choice(ASSERTIONS)


def random_pairs(seed: int, number: int) -> Iterator[tuple[str, str]]:
    """Rules and names."""
    rng = Random(seed)
    for _ in range(number):
        yield random_rules(rng), rng.choice(NAMES)


def pairs_to_capture() -> list[tuple[str, str]]:
    """The pairs whose principals are captured."""
    return list(dict.fromkeys(random_pairs(SEED, PAIRS)))


def ask_java(jars: Path, questions: Sequence[Sequence[str]]) -> list[str | None]:
    """What Java's and Kafka's classes answer; None for an error. Raises FileNotFoundError without Java."""
    java = shutil.which("java")
    if java is None:
        raise FileNotFoundError("java is missing: install a JRE, version 17 or later")
    run = subprocess.run(
        [java, "-XX:TieredStopAtLevel=1", "-cp", str(jars / "*"), str(PROGRAM)],
        input="".join("\t".join(question) + "\n" for question in questions),
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return [None if line == "!" else base64.b64decode(line).decode() for line in run.stdout.splitlines()]


def map_by_java(jars: Path, pairs: Sequence[tuple[str, str]]) -> list[str | None]:
    """The names of principals that Kafka's SslPrincipalMapper makes; None for an error."""
    return ask_java(jars, [("rule", encoded(rules), encoded(name)) for rules, name in pairs])


def encoded(text: str) -> str:
    """As the program in Java reads a text."""
    return base64.b64encode(text.encode()).decode()


def is_split(name: str, principal: str | None) -> bool:
    """Whether Java has put a replacement between both halves of a character beyond U+FFFF: no text is left of it."""
    return principal is not None and "?" in principal and any(ord(character) > 0xFFFF for character in name)


def captured_mappings() -> list[tuple[str, str, str | None]]:
    """Rules, name and the principal of stock Kafka; None for an error."""
    return [(rules, name, principal) for rules, name, principal in json.loads(CAPTURED.read_text())]
