"""Commands that need no extra start where no package of an extra is installed, as after `make play`."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
IMPORTED = {"pyjwt": "jwt", "pyspark[sql]": "pyspark", "quorate-native": "quorate_native"}
"""The names of modules that differ from those of their packages."""
WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
sys.argv = ["quorate", *{arguments!r}]
from quorate.main import main
main()
"""


def extras() -> set[str]:
    """The modules of packages that only extras have."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    packages = {
        re.split(r"[<>=;]", requirement)[0].strip()
        for name, requirements in project["optional-dependencies"].items()
        if name not in ("dev", "fuzz")
        for requirement in requirements
    }
    return {IMPORTED.get(package, package) for package in packages}


def run_without_extras(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of quorate where these modules are missing, in the directory of the project."""
    text = WITHOUT.format(names=extras(), arguments=arguments)
    return subprocess.run(
        [sys.executable, "-c", text],
        cwd=PROJECT.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_each_extra_is_known() -> None:
    assert extras() >= {"cryptography", "jwt", "kopf", "kubernetes", "pyspark", "pyarrow"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("play", "--help"),
        ("play", "status", "--help"),
        ("play", "plan", "-f", "examples/quickstart.yaml", "--without-brokers"),
        ("doctor", "--help"),
        ("topics", "--help"),
        ("controller", "run", "--help"),
    ],
)
def test_a_command_starts_without_the_packages_of_extras(arguments: tuple[str, ...]) -> None:
    ran = run_without_extras(*arguments)
    assert ran.returncode == 0, ran.stderr


def test_a_certificate_that_cannot_be_issued_is_refused_with_the_way_on(tmp_path: Path) -> None:
    manifest = (
        "-f",
        "examples/own-certificates.yaml",
        "--without-brokers",
        "--dir",
        str(tmp_path / "cluster"),
    )
    ran = run_without_extras("play", "plan", *manifest)
    assert ran.returncode == 1, ran.stdout
    assert (
        "spec.listeners[0].tls: cryptography is missing: pip install 'quorate[tls]', or name a Secret"
        in ran.stderr
    )
    assert "Traceback" not in ran.stderr
