"""`quorate operator run`: wrong options are refused before the operator looks for an API server."""

from pathlib import Path

import pytest
from quorate.main import app
from quorate_operator.handlers import logs, process
from typer.testing import CliRunner


@pytest.mark.parametrize(("content", "length"), [(b"", 0), (b"fifteen letters\n", 15)])
def test_a_short_token_of_the_status_page_is_refused(tmp_path: Path, content: bytes, length: int) -> None:
    """A token that can be guessed is refused at the start, without being shown."""
    file = tmp_path / "token"
    file.write_bytes(content)
    ran = CliRunner().invoke(app, ["operator", "run", f"--web-token-file={file}"], prog_name="quorate")
    reported = " ".join(ran.stderr.replace("\u2502", " ").split())
    assert ran.exit_code == 2
    assert f"has {length} characters; at least 16 are needed" in reported
    assert "fifteen letters" not in reported


@pytest.mark.parametrize("image", ["kafka:4.4.0", "", "kafka:{version}-{version}", "a kafka:{version}"])
def test_an_image_of_kafka_without_its_release_is_refused(image: str) -> None:
    ran = CliRunner().invoke(app, ["operator", "run", f"--kafka-image={image}"], prog_name="quorate")
    reported = " ".join(ran.stderr.replace("\u2502", " ").split())
    assert ran.exit_code == 2
    assert f"--kafka-image: {image!r}: must be an image with {{version}}" in reported


def test_the_operator_gets_its_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry of one's own serves every pod."""
    reported = []

    async def run_operator(options: process.OperatorOptions) -> None:
        reported.append(options.images)

    monkeypatch.setattr(process, "run_operator", run_operator)
    monkeypatch.setattr(logs, "configure_logs", lambda **_: None)  # of this process, and of every test in it
    variables = {
        "QUORATE_IMAGE": "mine/quorate:1",
        "QUORATE_KAFKA_IMAGE": "mine/kafka:{version}",
        "QUORATE_LAKE_IMAGE": "mine/lake:1",
    }
    ran = CliRunner().invoke(app, ["operator", "run"], env=variables, prog_name="quorate")
    assert ran.exit_code == 0, ran.output
    (images,) = reported
    assert (images.quorate, images.kafka, images.lake) == tuple(variables.values())
    assert images.user_id == 1000
    ran = CliRunner().invoke(app, ["operator", "run"], env={"QUORATE_USER_ID": "none"}, prog_name="quorate")
    assert ran.exit_code == 0, ran.output
    assert reported[-1].user_id is None


@pytest.mark.parametrize("text", ["0", "root", "-1", "2147483648", ""])
def test_what_is_no_user_id_is_refused(text: str) -> None:
    ran = CliRunner().invoke(app, ["operator", "run", f"--user-id={text}"], prog_name="quorate")
    reported = " ".join(ran.stderr.replace("\u2502", " ").split())
    assert ran.exit_code == 2
    assert f"--user-id: {text!r}: must be a number from 1 to 2147483647, or none" in reported


def test_the_operator_gets_its_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[process.OperatorOptions] = []

    async def run_operator(options: process.OperatorOptions) -> None:
        reported.append(options)

    monkeypatch.setattr(process, "run_operator", run_operator)
    monkeypatch.setattr(logs, "configure_logs", lambda **_: None)  # of this process, and of every test in it
    blue = "quorate.dev/operator=blue"
    for arguments, variables in (
        ([f"--selector={blue}", "--lease-name=blue"], {}),
        ([], {"QUORATE_SELECTOR": blue, "QUORATE_LEASE_NAME": "blue"}),
        ([], {"QUORATE_SELECTOR": ""}),
    ):
        ran = CliRunner().invoke(app, ["operator", "run", *arguments], env=variables, prog_name="quorate")
        assert ran.exit_code == 0, ran.output
    assert [(str(options.selector), options.lease_name) for options in reported] == [
        (blue, "blue"),
        (blue, "blue"),
        ("", "quorate-operator"),
    ]


def test_what_is_no_selector_is_refused() -> None:
    ran = CliRunner().invoke(app, ["operator", "run", "--selector=a in (b"], prog_name="quorate")
    reported = " ".join(ran.stderr.replace("\u2502", " ").split())
    assert ran.exit_code == 2
    assert "--selector: 'a in (b': a parenthesis has no partner" in reported


@pytest.mark.parametrize(
    ("arguments", "namespaces"),
    [
        ([], ("quorate-system",)),
        (["--namespace=a", "-n", "b"], ("a", "b")),
        (["--all-namespaces"], None),
    ],
)
def test_all_namespaces_have_to_be_asked_for(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], namespaces: tuple[str, ...] | None
) -> None:
    """By default the operator manages the namespace of its own pod."""
    reported: list[process.OperatorOptions] = []

    async def run_operator(options: process.OperatorOptions) -> None:
        reported.append(options)

    monkeypatch.setattr(process, "run_operator", run_operator)
    monkeypatch.setattr(logs, "configure_logs", lambda **_: None)  # of this process, and of every test in it
    variables = {"POD_NAMESPACE": "quorate-system", "QUORATE_POLICY": "images: [a/*]"}
    ran = CliRunner().invoke(app, ["operator", "run", *arguments], env=variables, prog_name="quorate")
    assert ran.exit_code == 0, ran.output
    (options,) = reported
    assert options.namespaces == namespaces
    assert options.policy.images == ("a/*",)


def test_an_unusable_policy_is_refused() -> None:
    ran = CliRunner().invoke(app, ["operator", "run", "--policy={image: [a]}"], prog_name="quorate")
    assert ran.exit_code == 2
    reported = " ".join(ran.stderr.replace("\u2502", " ").split())
    assert "--policy: image: Extra inputs are not permitted; allowed are images, podSecurity" in reported
