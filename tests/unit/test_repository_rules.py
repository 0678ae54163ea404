"""Rules of the repository that no linter knows."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from kit import words

ROOT = Path(__file__).parents[2]
SOURCE_ROOTS = ("admin", "cli", "controller_node", "operator", "pipeline", "protocol")


def tracked_files() -> list[Path]:
    """The files that git knows, or all sources where there is no git (an unpacked archive)."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
        ).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        listed = [
            str(path.relative_to(ROOT)) for root in SOURCE_ROOTS for path in (ROOT / root).rglob("*.py")
        ]
    return [ROOT / name for name in listed if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("root", SOURCE_ROOTS)
def test_source_roots_are_no_packages(root: str) -> None:
    """`operator` stays the standard library's."""
    assert (ROOT / root).is_dir()
    assert not (ROOT / root / "__init__.py").exists()


@pytest.mark.parametrize("root", SOURCE_ROOTS)
def test_each_source_root_holds_one_typed_package(root: str) -> None:
    packages = [path.parent for path in (ROOT / root).glob("*/__init__.py")]
    assert len(packages) == 1
    assert (packages[0] / "py.typed").exists()


def test_tests_are_no_packages() -> None:
    """Pytest's importlib mode finds every test by its path."""
    assert [
        path for path in (ROOT / "tests").rglob("__init__.py") if any(path.parent.glob("test_*.py"))
    ] == []


def test_the_image_has_what_a_controller_may_be_configured_to_need() -> None:
    """OAUTHBEARER and PKCS12 work in the image, in tested versions."""
    extras = re.search(r"'\.\[(.+)\]'", (ROOT / "Dockerfile").read_text())
    assert extras is not None
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    installed = {requirement for extra in extras[1].split(",") for requirement in known[extra]}
    assert {*known["operator"], *known["oauthbearer"], *known["pkcs12"]} <= installed
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert {re.split(r"[^\w-]", requirement)[0] for requirement in installed} <= pinned


def test_constraints_pin_exact_versions_and_name_no_host() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins
    assert [line for line in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line)] == []


def test_no_notes_to_self_are_left() -> None:
    words = ("TO" + "DO", "FIX" + "ME", "XX" + "X")  # in halves, so that this file has none
    marker = re.compile(rf"\b({'|'.join(words)})\b")
    sources = [path for path in tracked_files() if path.suffix in {".py", ".md", ".toml", ".yaml", ".xml"}]
    found = [str(path.relative_to(ROOT)) for path in sources if marker.search(path.read_text())]
    assert found == []


def test_exemptions_from_checks_name_the_rule() -> None:
    of_ruff, of_mypy = (
        r"(?:(?:ruff|flake8):\s*)?noqa(?!:\s*[A-Z])",
        r"type:\s*ignore(?!\[)|mypy:\s*ignore-errors",
    )
    blanket = re.compile(rf"#\s*(?:{of_ruff}|{of_mypy})", re.IGNORECASE)
    sources = [path for path in tracked_files() if path.suffix == ".py"]
    found = [str(path.relative_to(ROOT)) for path in sources if blanket.search(path.read_text())]
    assert found == []


def test_prose_and_names_use_the_fields_words() -> None:
    """`python -m kit.words` prints the places; CONTRIBUTING.md explains the rules."""
    assert [str(place) for path in words.tracked_files() for place in words.places_in(path)] == []


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("# Whoever asks is told.\n", "Whoever"),
        ("# Who does not wait wants it done.\n", "Who"),
        ("# It is dropped after so many seconds.\n", "so many"),
        ("for one in ():\n    pass\n", "one"),
        ("def take() -> None: ...\n", "take"),
        ("reply = None\n", "reply"),
        ("class RaftAnswer: ...\n", "RaftAnswer"),
        ('def size() -> int:\n    """Returns it."""\n', "Returns"),
    ],
)
def test_the_rules_about_words_find(tmp_path: Path, line: str, word: str) -> None:
    path = tmp_path / "module.py"
    path.write_text(line)
    assert word in {place.word for place in words.places_in(path)}


def test_license_is_the_whole_apache_license() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


@pytest.mark.parametrize("root", ["controller_node", "operator", "pipeline"])
def test_no_two_modules_have_names_that_differ_in_an_s(root: str) -> None:
    paths = [path.relative_to(ROOT / root) for path in (ROOT / root).rglob("*.py")]
    names = {path.stem for path in paths} | {part for path in paths for part in path.parts[:-1]}
    assert sorted(name for name in names if f"{name}s" in names) == []


FETCHES = (
    "import aiohttp\n\nsession = aiohttp.ClientSession()\n",
    "from aiohttp import ClientSession\n",
    "from aiohttp import TCPConnector\n",
    "import aiohttp\n\ngot = aiohttp.request('GET', 'http://x')\n",
    "import urllib.request\n\ngot = urllib.request.urlopen('http://x')\n",
    "from urllib.request import urlopen\n",
    "from urllib.request import build_opener\n",
    "from http.client import HTTPSConnection\n",
    "import http.client\n",
    "import requests\n",
    "import httpx\n",
    "import urllib3\n",
    "from kubernetes.aio.client import ApiClient\n",
)


@pytest.mark.parametrize("root", [*SOURCE_ROOTS, "tools"])
def test_only_one_module_fetches_over_http(root: str) -> None:
    """One client with one policy: no redirections, bounds, verified certificates."""
    folder = next((ROOT / root).glob("*/__init__.py"), ROOT / root / "x").parent
    for content in FETCHES:
        linted = subprocess.run(
            [
                *(sys.executable, "-m", "ruff", "check", "--no-cache", "--select", "TID251"),
                *("--output-format", "concise", "--stdin-filename", str(folder / "planted.py"), "-"),
            ],
            input=content,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "TID251" in linted.stdout, (
            f"{content!r} is allowed in {folder}: {linted.stdout}{linted.stderr}"
        )


def test_the_rule_about_http_is_selected() -> None:
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert "TID251" in lint["select"]
    exempt = [path for path, rules in lint["per-file-ignores"].items() if "TID251" in rules]
    assert exempt == [
        "operator/quorate_operator/handlers/kopf_login.py",
        "operator/quorate_operator/runtime/kubernetes/api.py",
        "protocol/quorate_protocol/security/fetching.py",
        "tests/**",
        "benchmarks/**",
    ]
    silenced = "TID" + "251"
    sources = [path for path in tracked_files() if path.suffix == ".py" and path != Path(__file__)]
    assert [path for path in sources if f"noqa: {silenced}" in path.read_text()] == []


MAY_LISTEN = {
    "protocol/quorate_protocol/socket_acceptor.py": "the listeners of controllers, and the HTTP server",
    "protocol/quorate_protocol/bounded_http/server.py": "all HTTP",
    "operator/quorate_operator/runtime/local/control_socket.py": "a Unix socket for one user",
    "operator/quorate_operator/runtime/local/forwarders.py": "addresses in 127.0.0.0/8, bounded there",
    "operator/quorate_operator/runtime/local/loopback.py": "whether a port is free: accepts nothing",
}
LISTENS = re.compile(
    r"AppRunner\(|TCPSite\(|run_app\(|start_server\(|start_unix_server\(|create_server\(|HTTPServer\(|\.listen\("
)


@pytest.mark.parametrize("root", SOURCE_ROOTS)
def test_only_bounded_servers_listen(root: str) -> None:
    """A new server has bounds of connections and time from its first day."""
    found = {
        str(path.relative_to(ROOT))
        for path in (ROOT / root).rglob("*.py")
        if LISTENS.search(path.read_text())
    }
    assert found == {name for name in MAY_LISTEN if name.startswith(f"{root}/")}


@pytest.mark.parametrize("root", SOURCE_ROOTS)
def test_copies_of_files_keep_their_modes(root: str) -> None:
    copies = re.compile(r"\bcopyfile(obj)?\(")
    assert [path for path in (ROOT / root).rglob("*.py") if copies.search(path.read_text())] == []
