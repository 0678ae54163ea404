"""The files of a release: `make dist`, twice, and what is in them installed and run."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.local_kubernetes.golang import cache
from kit.requirements import missing
from quorate_operator.resources.facts import PUBLISHED

ROOT = Path(__file__).parents[2]
REGISTRY = "registry.example.com/kafka"
SOURCES = "https://sources.example.com/quorate"
PLACES = ("--downloads", "https://downloads.example.com/v1", "--repository", SOURCES)
TIMEOUT_S = 240

Helm = Callable[..., subprocess.CompletedProcess[str]]


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program that has to end well, in the repository."""
    ran = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert ran.returncode == 0, ran.stderr
    return ran


def program(name: str) -> str:
    """A program that `make control-plane` builds, or that of the PATH; skips without it."""
    built = cache(os.environ) / "bin" / name
    found = str(built) if built.is_file() else shutil.which(name)
    if found is None:
        missing("kubernetes", f"{name} is missing: run `make control-plane`, which builds it")
    return found


def make_dist(directory: Path, *options: str) -> dict[str, Path]:
    """The files of a release, by name."""
    dist = ROOT / "tools" / "dist.py"
    run(sys.executable, dist, "--helm", program("helm"), "--to", directory, *options)
    return {path.name: path for path in directory.iterdir()}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files of a release, by name."""
    return make_dist(tmp_path_factory.mktemp("dist") / "release", *PLACES)


def only(files: dict[str, Path], beginning: str, end: str) -> Path:
    """The one file with a name like this."""
    (found,) = [path for name, path in files.items() if name.startswith(beginning) and name.endswith(end)]
    return found


def test_two_runs_make_the_same_bytes(files: dict[str, Path], tmp_path: Path) -> None:
    """A user can build a release again and compare the files."""
    umask = os.umask(0o077)
    try:
        again = make_dist(tmp_path / "again", *PLACES)
    finally:
        os.umask(umask)
    assert len(files) == 7
    assert {name: path.read_bytes() for name, path in files.items()} == {
        name: path.read_bytes() for name, path in again.items()
    }
    directory = files["SHA256SUMS"].parent
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=directory, check=True)


def test_the_wheel_runs_without_the_sources(files: dict[str, Path], tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path)
    (place,) = tmp_path.glob("lib/python*/site-packages")
    pip = (
        sys.executable,
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "--python",
        tmp_path / "bin/python",
    )
    run(*pip, "install", "--no-deps", "--no-index", only(files, "quorate-", ".whl"))
    (place / "needed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    home = {"HOME": f"{tmp_path}", "PYTHONPATH": ""}
    python, scripts = tmp_path / "bin" / "python", tmp_path / "bin"
    where = run(python, "-c", "import quorate; print(quorate.__file__)", **home).stdout
    assert where.startswith(str(place))
    version = only(files, "quorate-", ".whl").name.split("-")[1]
    assert run(scripts / "quorate", "--version", **home).stdout == f"{version}\n"
    assert run(scripts / "kubectl-quorate", "--version", **home).stdout == f"{version}\n"
    for command in ("doctor", "play", "topics", "metadata-shell", "lake", "controller", "operator"):
        assert "Usage" in run(scripts / "quorate", command, "--help", **home).stdout, command
    quickstart = ("-f", ROOT / "examples" / "quickstart.yaml", "--without-brokers")
    planned = run(scripts / "quorate", "play", "plan", *quickstart, **home).stdout
    assert "format" in planned.lower()


def test_a_package_index_shows_links_that_lead_to_the_sources(files: dict[str, Path]) -> None:
    wheel = only(files, "quorate-", ".whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = archive.read(name).decode()
    tag = f"v{wheel.name.split('-')[1]}"
    assert f"Project-URL: Source, {SOURCES}\n" in metadata
    links = re.findall(r"\]\(([^)]+)\)", metadata)
    assert f"{SOURCES}/blob/{tag}/docs/doctor.md" in links
    assert f"{SOURCES}/blob/{tag}/docs/images/status-page.png?raw=true" in links
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


def test_the_sdist_has_what_the_wheel_is_built_from(files: dict[str, Path], tmp_path: Path) -> None:
    with tarfile.open(only(files, "quorate-", ".tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        tmp_path,
        source,
    )
    (built,) = tmp_path.glob("*.whl")

    def names(wheel: Path) -> list[str]:
        return sorted(run(sys.executable, "-m", "zipfile", "--list", wheel).stdout.split())

    listed = {word for word in names(built) if "/" in word}
    assert listed == {word for word in names(only(files, "quorate-", ".whl")) if "/" in word}


def test_the_chart_finds_the_images_of_its_registry(helm: Helm, tmp_path: Path) -> None:
    def images(*options: str) -> set[str]:
        directory = tmp_path / f"{len(options)}"
        chart = only(make_dist(directory, *options), "quorate-chart-", ".tgz")
        rendered = helm("template", "quorate", str(chart), "--kube-version=1.34.0")
        assert rendered.returncode == 0, rendered.stderr
        objects: list[dict[str, Any]] = [
            document for document in yaml.safe_load_all(rendered.stdout) if document
        ]
        (deployment,) = [manifest for manifest in objects if manifest["kind"] == "Deployment"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        environment = {variable["name"]: variable.get("value") for variable in container["env"]}
        named = (container["image"], environment["QUORATE_IMAGE"], environment["QUORATE_LAKE_IMAGE"])
        return {name.rpartition(":")[0] for name in named}

    assert images() == {f"{PUBLISHED}/quorate", f"{PUBLISHED}/quorate-lake"}
    assert images("--registry", REGISTRY) == {f"{REGISTRY}/quorate", f"{REGISTRY}/quorate-lake"}


def test_actionlint_finds_nothing_in_the_workflows() -> None:
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
    ran = subprocess.run(
        [program("actionlint"), "-no-color", *workflows], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "")


def test_the_plugin_needs_nothing_but_its_archive(files: dict[str, Path], tmp_path: Path) -> None:
    plugin, links, cached = tmp_path / "plugin", tmp_path / "links", tmp_path / "cache"
    links.mkdir()
    with tarfile.open(only(files, "kubectl-quorate-", ".tar.gz")) as archive:
        archive.extractall(plugin, filter="data")
    command = links / "kubectl-quorate"
    command.symlink_to(plugin / "kubectl-quorate")
    environment = {"XDG_CACHE_HOME": f"{cached}", "PYTHONPATH": "", "QUORATE_PYTHON": sys.executable}
    wheel = only({path.name: path for path in plugin.iterdir()}, "quorate-", ".whl")
    first = run(command, "--version", **environment)
    assert first.stdout == f"{wheel.name.split('-')[1]}\n"
    assert "once" in first.stderr
    assert run(command, "--version", **environment).stderr == ""
    assert "Usage: kubectl quorate status" in run(command, "status", "--help", **environment).stdout
    (made,) = (cached / "quorate").iterdir()
    no_config = {"KUBECONFIG": f"{tmp_path / 'none'}", **environment}
    ran = subprocess.run(
        [command, "status"], env={**os.environ, **no_config}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert "error: no way to a Kubernetes API server" in ran.stderr
    run(made / "bin" / "python", "-m", "pip", "uninstall", "--quiet", "--yes", "kubernetes")
    ran = subprocess.run(
        [command, "status"], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert "pip install 'quorate[kubectl]'" in ran.stderr
    wheel.write_bytes(b"cut off")
    ran = subprocess.run(
        [command, "status"], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert "the packages could not be installed" in ran.stderr
    assert list((cached / "quorate").iterdir()) == [made]
