"""Make the files of a release in dist/release: wheel, sdist, chart, definitions, kubectl's plugin, and SHA256SUMS.

Two runs on one commit give equal bytes. Needs Helm. Images are made by tools/publish.py.
"""

import argparse
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from generated import dump
from quorate_operator.resources.facts import PUBLISHED
from version import version

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "quorate"
TARGET = ROOT / "dist" / "release"
PLUGIN = "kubectl-quorate"
CHECKSUMS = "SHA256SUMS"
_RELATIVE_LINK = re.compile(r"\]\((?!#|[a-z]+:)(?P<path>[^)\s]+)\)")
_PICTURE = re.compile(r"!\[[^\]]*\]\([^)\s]+\.(?:png|svg)(?=\))")
_EPOCH_S = 315_532_800  # 1980, the earliest time in a wheel


class DistError(Exception):
    """A file of the release can't be made; the text says which and why."""


def make(
    target: Path, *, helm: str, registry: str, downloads: str | None, repository: str | None = None
) -> list[Path]:
    """Make all files in `target`. Returns their paths, sorted. Raises DistError.

    `registry` is where the chart finds its images. `downloads` is the URL at which the files will be, for krew;
    without it no manifest for krew is made. `repository` is the URL of the sources at GitHub: a package index shows
    the README, whose links lead there, and the URLs of the project; without it the links stay as they are.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    modified_s = _modified_s(os.environ)
    (target / f"quorate-chart-{version()}.tgz").write_bytes(_chart(helm, registry, modified_s))
    _python_packages(target, modified_s, repository)
    definitions = "".join(f"---\n{path.read_text()}" for path in sorted((ROOT / "crds").glob("*.yaml")))
    (target / f"quorate-crds-{version()}.yaml").write_text(definitions)
    plugin = target / f"{PLUGIN}-{version()}.tar.gz"
    plugin.write_bytes(_plugin(target / f"quorate-{version()}-py3-none-any.whl", modified_s))
    if downloads is not None:
        (target / f"{PLUGIN}.krew.yaml").write_text(_krew(plugin, downloads))
    write_checksums(target)
    return sorted(target.iterdir())


def write_checksums(directory: Path) -> None:
    """Write SHA256SUMS of all other files of a directory, as sha256sum does."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(directory.iterdir())
        if path.name != CHECKSUMS
    ]
    (directory / CHECKSUMS).write_text("".join(lines))


def packed(files: Mapping[str, tuple[bytes, int]], modified_s: int) -> bytes:
    """Return a .tar.gz of files, by name their content and mode, that depends on nothing else."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, (content, mode) in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(content), mode, modified_s
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(tar.getvalue(), mtime=0)


def _modified_s(environment: Mapping[str, str]) -> int:
    """The time of all files: SOURCE_DATE_EPOCH, else that of the commit, else 1980."""
    if given := environment.get("SOURCE_DATE_EPOCH"):
        if not given.isdecimal():
            raise DistError(f"SOURCE_DATE_EPOCH is {given!r}: must be seconds since 1970")
        return max(int(given), _EPOCH_S)
    try:
        committed_s = _run("git", "log", "-1", "--format=%ct")
    except DistError:  # an unpacked archive
        return _EPOCH_S
    return int(committed_s)


def _python_packages(target: Path, modified_s: int, repository: str | None) -> None:
    build = ("-m", "hatchling", "build", "--target", "wheel", "--target", "sdist", "--directory", f"{target}")
    environment = {"SOURCE_DATE_EPOCH": f"{modified_s}"}
    if repository is None:
        _run(sys.executable, *build, environment=environment)
        return
    with tempfile.TemporaryDirectory() as scratch:
        project = _published_project(Path(scratch), repository.rstrip("/"))
        _run(sys.executable, *build, environment=environment, directory=project)


def _published_project(scratch: Path, repository: str) -> Path:
    """Copy the project, with what a package index shows instead of the repository. Returns the copy."""
    text = (ROOT / "pyproject.toml").read_text()
    sources = tomllib.loads(text)["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"]
    for name in (*sources, ".gitignore"):
        source, copy = ROOT / name, scratch / name
        if source.is_dir():
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy)
    tag = f"v{version()}"
    urls = {
        "Source": repository,
        "Documentation": f"{repository}/tree/{tag}/docs",
        "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }
    table = "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    (scratch / "pyproject.toml").write_text(
        text.replace("[project.scripts]", f"[project.urls]\n{table}\n[project.scripts]", 1)
    )
    readme = scratch / "README.md"
    readme.write_text(absolute_links(readme.read_text(), f"{repository}/blob/{tag}"))
    return scratch


def absolute_links(markdown: str, base: str) -> str:
    """Return a page whose links to files begin with `base`, pictures as GitHub serves them."""
    absolute = _RELATIVE_LINK.sub(rf"]({base}/\g<path>)", markdown)
    return _PICTURE.sub(r"\g<0>?raw=true", absolute)


def _chart(helm: str, registry: str, modified_s: int) -> bytes:
    """The chart as `helm package` makes it, but for the time that it writes into the archive."""
    with tempfile.TemporaryDirectory() as scratch:
        chart = shutil.copytree(CHART, Path(scratch) / "quorate")
        values = chart / "values.yaml"
        values.write_text(values.read_text().replace(f"repository: {PUBLISHED}/", f"repository: {registry}/"))
        _run(helm, "package", f"{chart}", "--destination", scratch)
        with tarfile.open(Path(scratch) / f"quorate-{version()}.tgz") as archive:
            members = [member for member in archive.getmembers() if member.isfile()]
            files = {each.name: (_content(archive, each), 0o644) for each in members}
    return packed(files, modified_s)


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    assert file is not None
    return file.read()


def _plugin(wheel: Path, modified_s: int) -> bytes:
    plain = (wheel, ROOT / "constraints.txt", ROOT / "LICENSE")
    files = {path.name: (path.read_bytes(), 0o644) for path in plain}
    files[PLUGIN] = ((ROOT / "tools" / PLUGIN).read_bytes(), 0o755)
    return packed(files, modified_s)


def _krew(plugin: Path, downloads: str) -> str:
    """The manifest with which krew installs the plugin."""
    return dump(
        {
            "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
            "kind": "Plugin",
            "metadata": {"name": "quorate"},
            "spec": {
                "version": f"v{version()}",
                "shortDescription": "Look at and change Kafka clusters that Quorate runs",
                "description": "Shows the quorum, voters and brokers of Kafka clusters that Quorate runs, and what "
                "its operator will do; decommissions and restarts nodes, evens out replicas. At its first "
                "run it installs its packages into an environment of its own in the cache of the user.\n",
                "caveats": "Needs Python 3.11 or newer with venv, and a package index at its first run.\n",
                "platforms": [
                    {
                        "selector": {
                            "matchExpressions": [
                                {"key": "os", "operator": "In", "values": ["linux", "darwin"]}
                            ]
                        },
                        "uri": f"{downloads.rstrip('/')}/{plugin.name}",
                        "sha256": hashlib.sha256(plugin.read_bytes()).hexdigest(),
                        "bin": PLUGIN,
                    }
                ],
            },
        }
    )


def _run(*command: str, environment: Mapping[str, str] | None = None, directory: Path = ROOT) -> str:
    try:
        return subprocess.run(
            command,
            cwd=directory,
            env={**os.environ, **(environment or {})},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    except OSError as error:
        raise DistError(f"{command[0]} does not run: {error}") from error
    except subprocess.CalledProcessError as error:
        raise DistError(f"{' '.join(command)} failed: {error.stderr or error.stdout}") from error


def main(arguments: Iterable[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=TARGET, metavar="DIRECTORY", help="default: dist/release")
    parser.add_argument("--helm", default="helm", metavar="FILE", help="default: that of the PATH")
    parser.add_argument(
        "--registry", default=PUBLISHED, help="where the chart finds its images; default: %(default)s"
    )
    parser.add_argument("--downloads", metavar="URL", help="where the files will be, for krew's manifest")
    parser.add_argument(
        "--repository", metavar="URL", help="the sources at GitHub, for links of the packages"
    )
    parser.add_argument(
        "--checksums", action="store_true", help="only write SHA256SUMS of what is in the directory"
    )
    given = parser.parse_args(None if arguments is None else list(arguments))
    try:
        if given.checksums:
            write_checksums(given.to)
            return 0
        made = make(
            given.to,
            helm=given.helm,
            registry=given.registry,
            downloads=given.downloads,
            repository=given.repository,
        )
    except (DistError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("\n".join(str(path) for path in made))
    return 0


if __name__ == "__main__":
    sys.exit(main())
