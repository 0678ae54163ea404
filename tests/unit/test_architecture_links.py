"""The documentation names files and symbols that exist.

The text of a link is a path (`raft/replica.py`), a symbol of the file that it leads to (`votes.handle_vote`),
a command line, or prose.
"""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(page for folder in ("argocd", "docs", "examples") for page in (ROOT / folder).rglob("*.md")),
    ]
)
FOLDERS = tuple(
    "admin benchmarks cli controller_node docs examples operator pipeline protocol tests tools".split()  # noqa: SIM905
)

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_SYMBOL = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_PATH = re.compile(rf"(?:{'|'.join(FOLDERS)})/[\w./-]*")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def prose(document: Path) -> str:
    """A document without its diagrams and listings."""
    return _FENCE.sub("", document.read_text())


def anchors(document: Path) -> set[str]:
    """What a link may name behind `#`: the headings, as GitHub spells them."""
    headings = _HEADING.findall(prose(document))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def names_in(nodes: list[ast.stmt]) -> dict[str, list[ast.stmt]]:
    """Classes, functions, variables and fields that these statements define; classes with their bodies."""
    names: dict[str, list[ast.stmt]] = {}
    for node in nodes:
        match node:
            case ast.ClassDef(name=name, body=body):
                names[name] = body
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names[name] = []
            case ast.AnnAssign(target=ast.Name(id=name)):
                names[name] = []
            case ast.Assign(targets=targets):
                names |= {target.id: [] for target in targets if isinstance(target, ast.Name)}
    return names


def defines(file: Path, path: list[str]) -> bool:
    """Whether a module defines `Class`, `function`, `Class.method` or `CONSTANT`."""
    nodes = ast.parse(file.read_text()).body
    for name in path:
        names = names_in(nodes)
        if name not in names:
            return False
        nodes = names[name]
    return True


def fault_of(document: Path, text: str, target: str) -> str | None:
    """What is wrong with one link; None when it leads to what it names."""
    path, _, anchor = target.partition("#")
    file = (document.parent / path).resolve() if path else document
    if not file.exists():
        return f"{target} does not exist"
    if anchor and anchor not in anchors(file):
        return f"{target}: there is no such heading"
    label = text.strip("`")
    if not text.startswith("`") or " " in label:  # prose, or a command line
        return None
    if "/" in label or file.name == label or file.is_dir():
        return None if file.as_posix().endswith(label.rstrip("/")) else f"{label} is not {target}"
    if _SYMBOL.fullmatch(label) and file.suffix == ".py":
        module, *symbol = label.split(".")
        owner = file.parent.name if file.name == "__init__.py" else file.stem
        if module == owner and defines(file, symbol):
            return None
    return f"{target} has no {label}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_what_they_name(document: Path) -> None:
    links = [match for match in _LINK.finditer(prose(document)) if "://" not in match["target"]]
    faults = [fault_of(document, match["text"], match["target"]) for match in links]
    assert [fault for fault in faults if fault] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_in_the_text_names_what_exists(document: Path) -> None:
    missing = []
    for name in _CODE.findall(_LINK.sub("", prose(document))):
        if _PATH.fullmatch(name) and not (ROOT / name).exists():
            missing.append(name)
        if name.startswith(("quorate_admin", "quorate_controller", "quorate_operator", "quorate_protocol")):
            module, *symbol = _module_of(name)
            if symbol and not defines(Path(importlib.import_module(module).__file__ or ""), symbol):
                missing.append(name)
    assert missing == []


def _module_of(name: str) -> list[str]:
    """`package.module.Class.method` as the module that can be imported, and the names in it."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        return [".".join(parts[:end]), *parts[end:]]
    return ["builtins", name]


def test_the_documents_are_found() -> None:
    names = {document.name for document in DOCUMENTS}
    assert {"README.md", "architecture.md", "where-to-find.md", "protocol-differences.md"} <= names


def test_a_wrong_link_is_noticed() -> None:
    document = ROOT / "docs" / "architecture.md"
    module = "../controller_node/quorate_controller/driver.py"
    assert fault_of(document, "`driver.Driver.control`", module) is None
    assert fault_of(document, "prose", "../nowhere.py")
    assert fault_of(document, "`driver.Driver.steer`", module)
    assert fault_of(document, "`raft/driver.py`", module)
    assert fault_of(document, "prose", "architecture.md#no-such-heading")
