"""`quorate play plan`: brokers that can't be played, and what an operator with `--policy` would refuse."""

import json
from pathlib import Path

import pytest
from quorate.main import app
from quorate_operator.models.tenant_policy import POLICY_SIZE_BYTES_MAX
from typer.testing import CliRunner

QUORUM = """
apiVersion: quorate.dev/v1alpha1
kind: KafkaController
metadata: {name: quorum}
spec:
  template:
    serviceAccountName: admin
    affinity:
      nodeAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms: [{matchExpressions: [{key: team, operator: Exists}]}]
"""

BROKERS = """
---
apiVersion: quorate.dev/v1alpha1
kind: KafkaBroker
metadata: {name: brokers}
spec: {controllers: quorum, replicas: 1}
"""


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a machine that can play."""

    async def plan(*_: object, **_settings: object) -> dict[str, list[object]]:
        return {"steps": [], "refusals": []}

    monkeypatch.setattr("quorate.play.plan_command._local_plan", plan)


@pytest.mark.usefixtures("planned")
@pytest.mark.parametrize(
    ("policy", "refused"),
    [
        ("", ["serviceAccountName", "affinity.nodeAffinity"]),
        ("serviceAccounts: [admin]", ["affinity.nodeAffinity"]),
        ("{serviceAccounts: [admin], nodeLabels: [team]}", []),
    ],
)
def test_a_plan_has_what_the_policy_refuses(tmp_path: Path, policy: str, refused: list[str]) -> None:
    manifest, file = tmp_path / "quorum.yaml", tmp_path / "policy.yaml"
    manifest.write_text(QUORUM)
    file.write_text(policy)
    command = ["play", "plan", f"--file={manifest}", f"--policy={file}"]
    lines = CliRunner().invoke(app, command, prog_name="quorate").stdout.splitlines()
    if not refused:
        assert lines == ["Nothing to do."]
        return
    assert len(lines) == len(refused)
    for line, field in zip(lines, refused, strict=True):
        assert line.startswith(f"refused (NotAllowed): KafkaController quorum: spec.template.{field}")


@pytest.mark.usefixtures("planned")
def test_an_unusable_policy_is_refused(tmp_path: Path) -> None:
    manifest, file = tmp_path / "quorum.yaml", tmp_path / "policy.yaml"
    manifest.write_text(QUORUM)
    file.write_text("image: [a]")
    ran = CliRunner().invoke(
        app, ["play", "plan", f"--file={manifest}", f"--policy={file}"], prog_name="quorate"
    )
    assert ran.exit_code == 1
    assert "allowed are images, podSecurity" in ran.stderr


@pytest.mark.usefixtures("planned")
@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (b"#" * (POLICY_SIZE_BYTES_MAX + 1), f"it has more than {POLICY_SIZE_BYTES_MAX} bytes"),
        (b"secrets: ['\xff']", "it is not UTF-8 text"),
        (b"image: [a]", "image: Extra inputs are not permitted; allowed are images, podSecurity"),
        (b"secrets: [2024-13-01]", "can't be read as YAML: month must be in 1..12"),
        (None, "No such file or directory"),
    ],
)
def test_an_unusable_file_with_a_policy_is_named(tmp_path: Path, policy: bytes | None, reason: str) -> None:
    manifest, file = tmp_path / "quorum.yaml", tmp_path / "policy.yaml"
    manifest.write_text(QUORUM)
    if policy is not None:
        file.write_bytes(policy)
    ran = CliRunner().invoke(
        app, ["play", "plan", f"--file={manifest}", f"--policy={file}"], prog_name="quorate"
    )
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.startswith(f"error: --policy {file}: {reason}")


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory with a manifest that has brokers, on a machine without Java."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    file = tmp_path / "quorum.yaml"
    file.write_text(QUORUM + BROKERS)
    return file


@pytest.mark.parametrize("output", [[], ["-o", "json"]])
def test_brokers_that_cannot_be_played_fail_the_plan_as_the_play(no_java: Path, output: list[str]) -> None:
    planned, played = (
        CliRunner().invoke(app, [*command, f"--file={no_java}", *output], prog_name="quorate")
        for command in (["play", "plan"], ["play"])
    )
    assert (planned.exit_code, planned.stdout) == (1, "")
    assert planned.stderr.startswith("error: no java in JAVA_HOME (/nowhere): install Java 17 or newer")
    assert planned.stderr.endswith("; --without-brokers runs the controllers alone, without Java\n")
    assert played.stderr.endswith(planned.stderr)
    assert [path.name for path in no_java.parent.iterdir()] == ["quorum.yaml"]


def test_a_plan_without_brokers_has_the_steps_of_the_controllers(no_java: Path) -> None:
    command = ["play", "plan", "--without-brokers", f"--file={no_java}", "-o", "json"]
    ran = CliRunner().invoke(app, command, prog_name="quorate")
    assert (ran.exit_code, ran.stderr) == (0, "")
    nodes = {step["nodeId"] for step in json.loads(ran.stdout)["steps"]}
    assert nodes >= {3000, 3001, 3002}
    assert 0 not in nodes
