"""How the compiled codec gets into images: wheels, who builds them, and what installs them."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
DOCKERFILES = (ROOT / "Dockerfile", ROOT / "docker" / "lake" / "Dockerfile")
INSTALL = "docker/install-native.sh"
PROCESSORS = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
"""By platform of an image, its processor as Rust and wheels name it."""


def install(directory: Path, *arguments: str, **programs: str) -> subprocess.CompletedProcess[str]:
    """Run the script with stand-ins for programs, each a shell command."""
    for name, command in programs.items():
        (directory / name).write_text(f"#!/bin/sh\n{command}\n")
        (directory / name).chmod(0o755)
    return subprocess.run(
        [f"{ROOT / INSTALL}", *arguments],
        env={"PATH": f"{directory}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("argument", ["optional", "required"])
def test_a_wheel_that_fits_is_installed_and_tried(tmp_path: Path, argument: str) -> None:
    tried = install(tmp_path, argument, pip='echo pip "$@"', python='echo python "$@"')
    assert tried.returncode == 0
    assert "--find-links=dist/native" in tried.stdout
    assert "quorate_protocol.wire.codec.native" in tried.stdout
    refused = install(tmp_path, argument, pip="exit 0", python="echo 'undefined symbol' >&2; exit 1")
    assert refused.returncode != 0
    assert "undefined symbol" in refused.stderr


def test_without_a_wheel_python_runs_unless_one_is_required(tmp_path: Path) -> None:
    optional = install(tmp_path, "optional", pip="exit 1", python="exit 1")
    assert optional.returncode == 0
    assert "the codec in Python runs" in optional.stdout
    required = install(tmp_path, "required", pip="exit 1", python="exit 1")
    assert required.returncode == 1
    assert "the image must have one" in required.stderr


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_builds_require_the_wheel_or_not(dockerfile: Path) -> None:
    stages = re.split(r"^FROM ", dockerfile.read_text(), flags=re.MULTILINE)
    (stage,) = (candidate for candidate in stages if INSTALL in candidate)
    assert re.search(r"^ARG NATIVE=optional$", stage, re.MULTILINE)
    assert f'{INSTALL} "$NATIVE"' in stage
    assert f"!{INSTALL}" in (ROOT / ".dockerignore").read_text().splitlines()


def test_there_is_a_wheel_for_each_platform_of_a_release() -> None:
    published = re.search(
        r"^PLATFORMS = \((.+)\)$", (ROOT / "tools" / "publish.py").read_text(), re.MULTILINE
    )
    assert published is not None
    reported = _dry_run("native-wheels", os.environ["PATH"])
    for platform in re.findall(r'"(.+?)"', published[1]):
        # The bases of the images are Debian's, so glibc.
        assert f"{PROCESSORS[platform]}-unknown-linux-gnu:manylinux_2_17" in reported
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yaml").read_text())["jobs"]
    built, images = jobs["native"]["steps"], jobs["images"]["steps"]
    assert "make native-wheels" in [step.get("run") for step in built]
    (kept,) = (step["with"] for step in built if "upload-artifact" in step.get("uses", ""))
    (taken,) = (step["with"] for step in images if "download-artifact" in step.get("uses", ""))
    assert "native" in jobs["images"]["needs"]
    assert taken["name"] == kept["name"]
    assert taken["path"] == kept["path"] == "dist/native"


def _dry_run(target: str, path: str) -> str:
    """What `make` would run for a target if nothing were made yet."""
    return subprocess.run(
        [shutil.which("make") or "make", "--dry-run", "--always-make", f"--directory={ROOT}", target],
        env={"PATH": path},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
