"""The workflows in .github: what they run exists, and they may do no more than they need."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from quorate_operator.resources.facts import PUBLISHED

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
WRITES = {
    "images": {"id-token", "packages"},
    "chart": {"id-token", "packages"},
    "release": {"contents", "id-token"},
    "packages": {"id-token"},
}
"""By job of the release, what it may write."""


def workflow(name: str) -> dict[str, Any]:
    """A workflow by the name of its file, without the suffix."""
    found: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yaml").read_text())
    return found


def commands(content: dict[str, Any]) -> list[str]:
    """The texts of all `run` of a workflow."""
    jobs = content["jobs"].values()
    return [step["run"] for job in jobs for step in job.get("steps", []) if "run" in step]


def test_there_is_one_for_changes_one_for_the_night_and_one_for_tags() -> None:
    triggers: dict[str, Any] = {path.stem: workflow(path.stem)[True] for path in WORKFLOWS}  # type: ignore[index]
    assert set(triggers) == {"ci", "nightly", "release"}
    assert "pull_request" in triggers["ci"]
    assert "schedule" in triggers["nightly"]
    assert triggers["release"] == {"push": {"tags": ["v*"]}}
    assert ".ci/run" in commands(workflow("ci"))
    assert ".ci/run nightly" in commands(workflow("nightly"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_what_it_runs_exists(path: Path) -> None:
    """No workflow names a target or a script that is gone."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = "\n".join(commands(workflow(path.stem)))
    assert set(re.findall(r"\bmake ([a-z-]+)", text)) <= targets
    for name in re.findall(r"(?:^|\s)((?:tools|\.ci)/\S+)", text):
        assert (ROOT / name).is_file(), name


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_of_one_commit(path: Path) -> None:
    used = re.findall(r"uses: (.+)", path.read_text())
    ours = r"\./\.github/workflows/[a-z]+\.yaml"
    assert used
    assert [
        action for action in used if not re.fullmatch(rf"\S+@[0-9a-f]{{40}} # v[\d.]+|{ours}", action)
    ] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_jobs_may_write_only_what_they_have_to(path: Path) -> None:
    content = workflow(path.stem)
    assert content["permissions"] == {"contents": "read"}
    for name, job in content["jobs"].items():
        writes = {what for what, level in job.get("permissions", {}).items() if level != "read"}
        assert writes == (WRITES.get(name, set()) if path.stem == "release" else set()), name


def test_every_image_is_released_by_its_published_name() -> None:
    content = workflow("release")
    assert PUBLISHED in content["env"]["REGISTRY"]
    ran = subprocess.run(
        [sys.executable, ROOT / "tools" / "publish.py", "build", "--only", "none"],
        env={"PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    (reported,) = re.findall(r"there are: (.+)", ran.stderr)
    assert sorted(content["jobs"]["images"]["strategy"]["matrix"]["image"]) == reported.split(", ")
    values = yaml.safe_load((ROOT / "charts/quorate/values.yaml").read_text())
    assert values["image"]["repository"] == f"{PUBLISHED}/quorate"
    assert values["lake"]["image"]["repository"] == f"{PUBLISHED}/quorate-lake"


def test_our_images_have_a_full_name_wherever_they_are_named() -> None:
    """No Docker or Kubernetes looks for them in a registry of its choice."""
    folders = ("charts", "docker", "docs", "examples", "kustomize")
    files = [
        ROOT / "Dockerfile",
        ROOT / "README.md",
        *(path for folder in folders for path in (ROOT / folder).rglob("*")),
    ]
    short = re.compile(r"(?<![\w./-])quorate(?:-lake|-broker)?:(?:\d+\.\d|<version>)")
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in files
        if path.is_file() and path.suffix in {"", ".md", ".yaml", ".sh"}
        for match in short.finditer(path.read_text())
    ]
    assert found == []
