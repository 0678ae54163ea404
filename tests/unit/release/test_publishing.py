"""What tools/publish.py does with the programs that a release needs, which are stand-ins here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from quorate_protocol.kafka.releases import RELEASES

ROOT = Path(__file__).parents[3]
DIGEST = f"sha256:{'c' * 64}"
REGISTRY = "registry.example.com/kafka"
# Writes down its name, its arguments and its input; docker writes the file with the digest, helm prints one.
STAND_IN = f"""#!{sys.executable}
import json, os, sys
from pathlib import Path
name = Path(sys.argv[0]).name
stdin = sys.stdin.read() if "--password-stdin" in sys.argv else ""
with open(os.environ["CALLS"], "a") as calls:
    print(json.dumps([name, *sys.argv[1:], *([stdin] if stdin else [])]), file=calls)
if name == os.environ.get("FAILS"):
    sys.exit("denied")
for argument in sys.argv:
    option, _, value = argument.partition("=")
    if option == "--metadata-file":
        Path(value).write_text(json.dumps({{"containerimage.digest": "{DIGEST}"}}))
    if option == "--bundle":
        Path(value).write_text("{{}}")
if sys.argv[1:2] == ["push"]:
    print("Pushed: somewhere\\nDigest: {DIGEST}", file=sys.stderr)
if "imagetools" in sys.argv:
    print('{{"SPDX": {{}}}}')
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory with stand-ins for docker, cosign, helm and gh."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name in ("docker", "cosign", "helm", "gh"):
        (directory / name).write_text(STAND_IN)
        (directory / name).chmod(0o755)
    return directory


def publish(programs: Path, *arguments: str, **environment: str) -> tuple[int, list[list[str]], str]:
    """The exit code, the calls and stderr."""
    calls = programs / "calls"
    calls.unlink(missing_ok=True)
    ran = subprocess.run(
        [sys.executable, ROOT / "tools" / "publish.py", *arguments, f"--registry={REGISTRY}"],
        env={"PATH": f"{programs}", "CALLS": f"{calls}", "HOME": os.environ["HOME"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    made = [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []
    return ran.returncode, made, ran.stderr


def test_images_are_built_for_this_machine_with_docker_alone(programs: Path) -> None:
    code, calls, reported = publish(programs, "build")
    assert code == 0, reported
    assert all(call[:2] == ["docker", "build"] for call in calls)
    tags = {option.removeprefix("--tag=") for call in calls for option in call if option.startswith("--tag=")}
    version = subprocess.run(
        [sys.executable, "-m", "quorate", "version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    ours = {f"{REGISTRY}/quorate:{version}", f"{REGISTRY}/quorate-lake:{version}"}
    brokers = {
        f"{REGISTRY}/quorate-broker:{tag}"
        for release in RELEASES
        for tag in (release, f"{release}-{version}")
    }
    assert tags == ours | brokers
    for call in calls:
        (dockerfile,) = (option.removeprefix("--file=") for option in call if option.startswith("--file="))
        assert (ROOT / dockerfile).is_file()


def test_what_is_signed_is_what_was_pushed(programs: Path, tmp_path: Path) -> None:
    """Signature and bill of materials belong to the digest, which can't move."""
    files = tmp_path / "files"
    code, calls, reported = publish(programs, "images", "--only=quorate", f"--directory={files}")
    assert code == 0, reported
    built, signed, inspected = calls
    assert built[:3] == ["docker", "buildx", "build"]
    assert {"--platform=linux/amd64,linux/arm64", "--push", "--sbom=true"} <= set(built)
    assert signed == ["cosign", "sign", "--yes", f"{REGISTRY}/quorate@{DIGEST}"]
    assert f"{REGISTRY}/quorate@{DIGEST}" in inspected
    (bill,) = files.iterdir()
    assert bill.name.startswith("quorate-")
    assert json.loads(bill.read_text()) == {"SPDX": {}}


def test_no_image_is_published_without_the_compiled_codec(programs: Path, tmp_path: Path) -> None:
    """A platform whose wheel is missing fails its build."""
    code, calls, reported = publish(programs, "images", f"--directory={tmp_path / 'files'}")
    assert code == 0, reported
    files = {
        option.removeprefix("--file=")
        for call in calls
        if "--build-arg=NATIVE=required" in call
        for option in call
        if option.startswith("--file=")
    }
    assert files == {"Dockerfile", "docker/lake/Dockerfile"}
    code, calls, reported = publish(programs, "build")
    assert code == 0, reported
    assert not [call for call in calls if "--build-arg=NATIVE=required" in call]


def test_the_chart_is_pushed_and_signed(programs: Path, tmp_path: Path) -> None:
    code, calls, reported = publish(programs, "chart", f"--directory={tmp_path}")
    assert code == 0, reported
    pushed, signed = calls
    assert pushed[-1] == f"oci://{REGISTRY}/charts"
    assert signed[-1] == f"{REGISTRY}/charts/quorate@{DIGEST}"


def test_the_release_has_every_file_and_signed_checksums(programs: Path, tmp_path: Path) -> None:
    directory = tmp_path / "files"
    directory.mkdir()
    for name in ("one.whl", "two.sbom.json"):
        (directory / name).write_text(name)
    code, calls, reported = publish(programs, "files", f"--directory={directory}", "--notes=notes.md")
    assert code == 0, reported
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=directory, check=True)
    assert len((directory / "SHA256SUMS").read_text().splitlines()) == 2
    signed, released = calls
    assert signed[1:3] == ["sign-blob", "--yes"]
    assert signed[-1] == f"{directory / 'SHA256SUMS'}"
    assert released[1:3] == ["release", "create"]
    assert "--verify-tag" in released
    named = {Path(argument).name for argument in released if argument.startswith(f"{directory}")}
    assert named >= {"one.whl", "two.sbom.json", "SHA256SUMS", "SHA256SUMS.sigstore.json"}


def test_the_token_is_no_argument(programs: Path) -> None:
    code, calls, reported = publish(programs, "login", "--user=robot", REGISTRY_TOKEN="secret-token")
    assert code == 0, reported
    assert [call[0] for call in calls] == ["docker", "helm"]
    assert all(call[-1] == "secret-token" and "secret-token" not in call[:-1] for call in calls)
    assert "secret-token" not in reported


@pytest.mark.parametrize(
    ("arguments", "environment", "problem"),
    [
        (("build",), {"FAILS": "docker"}, "error: docker failed with exit code 1: denied"),
        (
            ("build", "--only=other"),
            {},
            "error: there is no image 'other'; there are: quorate, quorate-broker,",
        ),
        (("login", "--user=robot"), {}, "error: login needs --user and the variable REGISTRY_TOKEN"),
        (("build",), {"PATH": ""}, "error: docker does not run: "),
    ],
)
def test_a_failure_is_reported_and_ends_it(
    programs: Path, arguments: tuple[str, ...], environment: dict[str, str], problem: str
) -> None:
    code, calls, reported = publish(programs, *arguments, **environment)
    assert code == 1
    assert problem in reported
    assert len(calls) <= 1
