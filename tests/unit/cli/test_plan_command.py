"""`quorate plan --policy`: what an operator would refuse of manifests, before they are applied."""

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


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a machine that can play."""

    async def plan(*_: object) -> dict[str, list[object]]:
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
    command = ["plan", f"--file={manifest}", f"--policy={file}"]
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
    ran = CliRunner().invoke(app, ["plan", f"--file={manifest}", f"--policy={file}"], prog_name="quorate")
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
    ran = CliRunner().invoke(app, ["plan", f"--file={manifest}", f"--policy={file}"], prog_name="quorate")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.startswith(f"error: --policy {file}: {reason}")
