"""`python -m kit.words [PATH ...]`: words and names that CONTRIBUTING.md rules out, with the place of each.

Prose is comments and docstrings, strings of the product that have several words, and Markdown outside of code. Names
are those that a Python module binds, and its own.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT: Final = Path(__file__).parents[2]
PROSE_RULES: Final[tuple[tuple[str, str], ...]] = (
    (r"(?i)\b(?:no|some|any)body\b|\bwho(?:m|ever|mever)\b", "name the user, client, node or mechanism"),
    (r"\b(?:of|to|from|by|for|with) who\b", "name the user, client, node or mechanism"),
    (r"(?:^|(?<=[.;:!?]\s))(?:Who|Whose)\b(?![^.]*\?)", "begin with a subject"),
    (r"(?:^|(?<=[.;:!?]\s))(?:That of|One (?:whose|that|which|of))\b", "begin with a noun"),
    (r"(?i)\bso (?:many|long|much)\b", "name the quantity"),
    (r"(?i)\b(?:tells?|told|hears?|heard)\b", "mechanisms report, return, receive"),
    (r"\bwants\b", "requests, needs"),
    (r"\b(?:is|are|was|were) none\b", "say what there is not"),
    (r"\banew\b", "again"),
    (r"\bas (?:it|they) should be\b", "say how it has to be"),
    (r"\bnevertheless\b", "still"),
    (r"\bgo(?:es)? on\b", "continue"),
    (r"\b(?:an|the|its|their|this|each|every|no) (?:answer|reply|outcome)\b", "response"),
)
NAME_RULES: Final[tuple[tuple[str, str], ...]] = (
    (r"one|ones", "the noun of what it holds"),
    (r"(?:.*_)?(?:answer|answers|answered|reply|replies|replied|outcome|outcomes)(?:_.*)?", "response"),
    (r".*(?:Answer|Reply|Outcome)(?:[A-Z].*)?s?", "Response"),
    (r"(?:.*_)?told(?:_.*)?", "reported, expected"),
)
FUNCTION_RULES: Final[tuple[tuple[str, str], ...]] = (
    (r"_?(?:take|keep|look|tell|hear|knock)", "the verb of what it does"),
)
KAFKA_TEXTS: Final = ("The broker wants a version between",)
"""Texts of stock Kafka's responses."""
THIRD_PERSON: Final = frozenset(
    {
        *(
            "Adds",
            "Applies",
            "Asks",
            "Begins",
            "Closes",
            "Creates",
            "Deletes",
            "Finds",
            "Gives",
            "Keeps",
            "Makes",
        ),
        *(
            "Opens",
            "Prints",
            "Publishes",
            "Puts",
            "Raises",
            "Refuses",
            "Registers",
            "Removes",
            "Replaces",
            "Returns",
        ),
        *(
            "Sends",
            "Tries",
            "Waits",
            "Yields",
            "Decides",
            "Replays",
            "Continues",
            "Observes",
            "Reverts",
            "Grants",
            "Revokes",
            "Hands",
            "Carries",
            "Has",
            "Does",
            "Places",
            "Excludes",
            "Proposes",
            "Lets",
            "Reconciles",
            "Clears",
            "Repeats",
            "Exchanges",
            "Reduces",
            "Retires",
            "Unregisters",
            "Cordons",
            "Names",
            "Points",
            "Annotates",
            "Configures",
            "Listens",
            "Trims",
            "Supervises",
            "Binds",
        ),
    }
)
"""How a function's docstring does not begin: it is in the imperative, as in PEP 257."""
MODULES: Final = frozenset(
    {
        *(
            "arrivals",
            "served",
            "held",
            "told",
            "examining",
            "surroundings",
            "rehearsals",
            "verifying",
            "folding",
        ),
        *(
            "standing",
            "watching",
            "following",
            "observing",
            "sharing",
            "wiring",
            "wording",
            "registered",
            "assigned",
        ),
        *(
            "building",
            "collecting",
            "drawing",
            "storing",
            "replaced",
            "fetched",
            "keyed",
            "reading",
            "writing",
        ),
        *(
            "exporting",
            "probing",
            "bootstrapping",
            "spreading",
            "accepting",
            "switching",
            "unexamined",
            "pulse",
        ),
    }
)
"""Participles and metaphors that were module names; a module is named by a noun."""


@dataclass(frozen=True, slots=True)
class Place:
    """A word in a line of a file, and what to write instead."""

    path: Path
    line: int
    word: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.word!r}: {self.advice}"


def main() -> int:
    """Print all places in the given files and folders, or in the whole repository; 1 if there is one."""
    paths = [Path(argument).resolve() for argument in sys.argv[1:]] or [ROOT]
    places = [place for path in tracked_files() if _below(path, paths) for place in places_in(path)]
    for place in places:
        sys.stdout.write(f"{place}\n")
    sys.stderr.write(f"{len(places)} places\n")
    return 1 if places else 0


def tracked_files() -> list[Path]:
    """Files of git that have prose or names, without generated ones and this one."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "*.py", "*.md"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout.split("\0")
    paths = [ROOT / name for name in listed if name]
    return [
        path
        for path in paths
        if path.is_file() and "generated" not in path.parts and path != Path(__file__).resolve()
    ]


def places_in(path: Path) -> list[Place]:
    """What the rules find in one file."""
    text = path.read_text()
    if path.suffix == ".md":
        return list(_in_prose(path, _markdown_prose(text)))
    is_product = not path.is_relative_to(ROOT / "tests")
    tree = ast.parse(text)
    places = [*_in_prose(path, _python_prose(text, tree, with_strings=is_product)), *_in_names(path, tree)]
    if path.stem in MODULES:
        places.append(Place(path, 1, path.stem, "name the module by a noun"))
    return sorted(places, key=lambda place: place.line)


def _below(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _in_prose(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[Place]:
    for number, text in lines:
        if any(quote in text for quote in KAFKA_TEXTS):
            continue
        for pattern, advice in PROSE_RULES:
            for match in re.finditer(pattern, text, re.MULTILINE):
                yield Place(path, number + text.count("\n", 0, match.start()), match[0], advice)


def _markdown_prose(text: str) -> Iterator[tuple[int, str]]:
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, re.sub(r"`[^`]*`|\]\([^)]*\)", "", line)


def _python_prose(text: str, tree: ast.Module, *, with_strings: bool) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], re.sub(r"`[^`]*`", "", token.string.lstrip("# "))
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_sentence = len(node.value.split()) > 2
            if id(node) in docstrings or (with_strings and is_sentence):
                yield node.lineno, re.sub(r"`[^`]*`", "", node.value)


def _in_names(path: Path, tree: ast.Module) -> Iterator[Place]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_property(node):
            first, *_ = (ast.get_docstring(node) or "").split(" ", 1)
            if first in THIRD_PERSON:
                yield Place(path, node.lineno, first, "the imperative")
        for name, line, rules in _bound(node):
            for pattern, advice in rules:
                if re.fullmatch(pattern, name):
                    yield Place(path, line, name, advice)


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(by, ast.Name) and by.id.endswith("property") for by in node.decorator_list)


def _bound(node: ast.AST) -> Iterator[tuple[str, int, tuple[tuple[str, str], ...]]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        is_test = node.name.startswith("test_")  # a sentence
        yield from [] if is_test else [(node.name, node.lineno, (*NAME_RULES, *FUNCTION_RULES))]
    elif isinstance(node, ast.ClassDef):
        yield node.name, node.lineno, NAME_RULES
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id, node.lineno, NAME_RULES
    elif isinstance(node, ast.arg):
        yield node.arg, node.lineno, NAME_RULES
    elif isinstance(node, ast.alias) and node.asname:
        yield node.asname, node.lineno, NAME_RULES
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr, node.lineno, NAME_RULES


if __name__ == "__main__":
    raise SystemExit(main())
