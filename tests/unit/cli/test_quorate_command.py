"""The `quorate` command: what it lists, loads and refuses, and the options of `quorate play`."""

import importlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer
from quorate.clusters.command import app as clusters
from quorate.console import parse_duration_s
from quorate.main import COMMANDS, app
from quorate.play import command as play
from quorate_operator.runtime.local.directory import PlayDirectory
from quorate_operator.runtime.local.errors import PlayError
from typer.main import get_command
from typer.testing import CliRunner

pytestmark = pytest.mark.usefixtures("own_ports")

runner = CliRunner()

MODULES_MAX = 420  # 319 when this was written; kio alone has thousands

TOOLS = sorted(name for name, command in COMMANDS.items() if command.module.startswith("quorate.tools."))

MANIFEST = """\
apiVersion: quorate.dev/v1alpha1
kind: KafkaController
metadata: {name: tiny}
spec: {replicas: 1}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def played() -> PlayDirectory:
    """A directory as a play that was stopped before its nodes were created leaves it."""
    prepared = play.play_session.prepare(MANIFEST, "tiny.yaml", None, {}, lambda _: None)
    prepared.layout.directory.release()
    return prepared.layout.directory


def test_help_names_every_part_and_loads_none() -> None:
    heavy = ("quorate_operator", "quorate_controller", "kio", "pydantic", "aiohttp", "asyncio")
    text, loaded = loaded_by("--help")
    assert loaded.isdisjoint(heavy)
    assert len(loaded) < MODULES_MAX
    assert [part for part in COMMANDS if part not in text] == []


@pytest.mark.parametrize("tool", TOOLS)
def test_help_of_a_tool_loads_nothing_of_the_client(tool: str) -> None:
    needed = {"acls": {"quorate_admin.types.acls", "quorate_protocol.kafka.enums"}}  # it lists the operations
    heavy = re.compile(
        r"asyncio|quorate_admin\.(client|operations|network|types\..+)|quorate_protocol\.kafka\.(enums|apis)"
    )
    text, loaded = loaded_by(tool, "--help")
    assert f"quorate {tool}" in text
    assert {name for name in loaded if heavy.fullmatch(name)} == needed.get(tool, set())


@pytest.mark.parametrize(
    ("missing", "arguments", "extra"),
    [
        ("kubernetes", ["kubectl", "status"], "kubectl"),
        ("kopf", ["operator", "run"], "operator"),
        ("pyspark", ["metadata-shell", "--lake", ".", "ls"], "lake"),
        ("pyspark", ["lake", "diff", ".", "1", "2"], "lake"),
    ],
)
def test_a_missing_package_is_one_line_with_the_command_that_installs_it(
    missing: str, arguments: list[str], extra: str
) -> None:
    module = "kubectl" if arguments[0] == "kubectl" else "main"
    code = f"import sys\nsys.modules[{missing!r}] = None\nfrom quorate.{module} import main\nmain()"
    arguments = arguments[1:] if module == "kubectl" else arguments
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    expected = f"error: {missing} is missing: pip install 'quorate[{extra}]'\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", expected)


def loaded_by(*arguments: str) -> tuple[str, set[str]]:
    """What `quorate` prints, and the modules that it has loaded."""
    code = (
        "import json, sys\nfrom quorate.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "json.dump(list(sys.modules), sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return ran.stdout, set(json.loads(ran.stderr))


@pytest.mark.parametrize("part", sorted(COMMANDS))
def test_every_part_can_be_called(part: str) -> None:
    ran = runner.invoke(app, [part, "--help"], prog_name="quorate")
    assert ran.exit_code == 0
    assert f"quorate {part}" in ran.stdout


@pytest.mark.parametrize("part", sorted(COMMANDS))
def test_help_has_each_name_once_and_whole_and_needs_no_unicode(part: str) -> None:
    """At 80 columns, which is also the width of a pipe."""
    found = COMMANDS[part]
    command = get_command(importlib.import_module(found.module).app)
    for path, described in paths_below(command, part):
        text = runner.invoke(
            app, [*path.split(), "--help"], prog_name="quorate", env={"COLUMNS": "80"}
        ).stdout
        names = [name for parameter in described.params for name in option_names(parameter)]
        assert [name for name in names if names.count(name) > 1] == [], path
        assert set(names) <= set(re.findall(r"--?[\w.-]+", text)), path
        assert max(map(len, text.splitlines())) <= 80
        text.encode("iso-8859-1")


EXAMPLE = re.compile(r"^ {4}((?:kubectl )?quorate (?:.*\\\n)*.*)$", re.MULTILINE)


@pytest.mark.parametrize("part", sorted(COMMANDS))
def test_help_has_examples_that_parse(part: str) -> None:
    command: Any = get_command(importlib.import_module(COMMANDS[part].module).app)
    text = runner.invoke(app, [part, "--help"], prog_name="quorate", env={"COLUMNS": "80"}).stdout
    if part == "completion":
        assert 'eval "$(quorate completion bash)"' in text
        return
    check_examples(text, command, ("quorate", part))


@pytest.mark.parametrize("name", [command.callback.__name__ for command in clusters.registered_commands])
def test_help_of_kubectl_quorate_has_examples_that_parse(name: str) -> None:
    text = runner.invoke(
        clusters, [name, "--help"], prog_name="kubectl quorate", env={"COLUMNS": "80"}
    ).stdout
    command: Any = get_command(clusters)
    check_examples(text, command.commands[name], ("kubectl", "quorate", name))


def check_examples(text: str, command: Any, beginning: tuple[str, ...]) -> None:
    """Assert that there are examples of a command, and that it accepts them."""
    examples = [shlex.split(found.replace("\\\n", "")) for found in EXAMPLE.findall(text)]
    assert examples
    for words in examples:
        assert tuple(words[: len(beginning)]) == beginning
        context, described = command.make_context(beginning[-1], words[len(beginning) :]), command
        while hasattr(described, "commands") and context._protected_args:
            _, described, rest = described.resolve_command(context, [*context._protected_args, *context.args])
            context = described.make_context(described.name, rest, parent=context)


def paths_below(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """A command and its subcommands, with what calls each."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from paths_below(below, f"{path} {name}")


def option_names(parameter: Any) -> list[str]:
    """The names of an option; none for an argument and for a hidden option."""
    names = [*parameter.opts, *parameter.secondary_opts]
    return [] if getattr(parameter, "hidden", False) else [name for name in names if name.startswith("-")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["topcis"], "No such command 'topcis'. Did you mean 'topics'?\nTry 'quorate -h' for help."),
        (["topics", "--nonsense"], "No such option: --nonsense\nTry 'quorate topics -h' for help."),
        (
            ["topics", "--create", "--topic", "payments", "--bootstrap-controller", "localhost:9093"],
            "--create needs --bootstrap-server; controllers list and describe topics only",
        ),
        (["play", "logs", "--nonsense"], "No such option: --nonsense\nTry 'quorate play logs -h' for help."),
        (["play", "-o", "xml"], "Invalid value for '--output' / '-o': 'xml' is not one of 'table', 'json'."),
    ],
)
def test_what_is_wrong_with_a_command_line_is_one_line(arguments: list[str], message: str) -> None:
    ran = runner.invoke(app, arguments, prog_name="quorate", env={"COLUMNS": "40"})
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"error: {message}\n")


def test_a_character_that_the_locale_lacks_is_escaped() -> None:
    code = "from quorate.command_line import prepare_text\nprepare_text()\nprint('1 \u2265 0')"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "iso-8859-1"},
    )
    assert ran.stdout == b"1 \\u2265 0\n"


def test_json_is_json_where_the_locale_lacks_its_characters() -> None:
    content = {"\xe9": "\xe9 \u2265 \U0001f600 \udcff \\ \x07"}
    code = (
        "from quorate.command_line import prepare_text\nfrom quorate.console import print_json\n"
        f"prepare_text()\nprint_json({content!a})"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert json.loads(ran.stdout.decode("ascii")) == content


def test_it_runs_as_a_module() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "quorate", "version"], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip().count(".") == 2


@pytest.mark.parametrize("entry", ["quorate", "quorate.kubectl", "quorate.spark_main"])
def test_an_argument_that_is_not_utf8_is_named(entry: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", entry, "topics", b"--topic=\xff"], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "error: argument 2, '--topic=\\udcff', is not UTF-8 text\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["--nonsense"],
        ["play", "--wait", "soon"],
        ["play", "-o", "xml"],
        ["play", "kill"],
        ["play", "kill", "3000", "--signal", "WAVE"],
    ],
)
def test_a_wrong_command_line_exits_with_2(arguments: list[str]) -> None:
    """Usage errors differ from failures."""
    assert runner.invoke(app, arguments).exit_code == 2


@pytest.mark.parametrize("command", ["plan", "status", "decommission", "pause", "resume", "restart"])
def test_what_is_for_played_clusters_or_for_kubernetes_says_so_by_its_name(command: str) -> None:
    assert runner.invoke(app, [command, "--help"]).exit_code == 2


@pytest.mark.parametrize("command", [["status"], ["stop"], ["logs"], ["kill", "3000"]])
def test_without_a_cluster_commands_fail_with_1(here: Path, command: list[str]) -> None:
    ran = runner.invoke(app, ["play", *command])
    assert ran.exit_code == 1
    assert "error: no cluster was played in" in ran.stderr
    assert list(here.iterdir()) == []


def test_a_missing_manifest_fails_with_1() -> None:
    ran = runner.invoke(app, ["play", "-f", "none.yaml"])
    assert ran.exit_code == 1
    assert "none.yaml can't be read" in ran.stderr


def test_a_wrong_manifest_fails_with_1_and_creates_nothing(here: Path) -> None:
    (here / "m.yaml").write_text(MANIFEST.replace("replicas: 1", "replicas: 0"))
    ran = runner.invoke(app, ["play", "-f", "m.yaml"])
    assert ran.exit_code == 1
    assert "m.yaml: document 1: KafkaController tiny: spec.replicas: 0: must be" in ran.stderr
    assert [path.name for path in here.iterdir()] == ["m.yaml"]


BROKER = """\
---
apiVersion: quorate.dev/v1alpha1
kind: KafkaBroker
metadata: {name: brokers}
spec: {controllers: tiny}
"""


@pytest.mark.parametrize("output", [[], ["--detach", "-o", "json"]])
def test_brokers_that_cannot_run_fail_the_play_with_what_is_missing(
    here: Path, monkeypatch: pytest.MonkeyPatch, output: list[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    (here / "m.yaml").write_text(MANIFEST + BROKER)
    ran = runner.invoke(app, ["play", "-f", "m.yaml", *output])
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "error: no java in JAVA_HOME (/nowhere): install Java 17 or newer" in ran.stderr
    assert "; --without-brokers runs the controllers alone, without Java\n" in ran.stderr
    assert [path.name for path in here.iterdir()] == ["m.yaml"]


def test_brokers_are_left_out_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    prepare = partial(play.play_session.prepare, without_brokers=True)
    prepared = prepare(MANIFEST + BROKER, "m.yaml", None, {}, lambda _: None)
    prepared.layout.directory.release()
    assert [node.label for node in prepared.layout.desired.nodes] == ["controller-3000"]
    stock = MANIFEST.replace("replicas: 1", "replicas: 1, nodes: [{nodeId: 3000, implementation: java}]")
    with pytest.raises(PlayError, match="controller 3000 of the manifest is stock Kafka's"):
        prepare(stock + BROKER, "m.yaml", None, {}, lambda _: None)


def test_status_of_a_stopped_cluster_has_the_documented_shape(played: PlayDirectory) -> None:
    ran = runner.invoke(app, ["play", "status", "-o", "json"])
    assert ran.exit_code == 0
    content = json.loads(ran.stdout)
    (node,) = content.pop("nodes")
    cluster_id = content.pop("clusterId")
    address = content.pop("bootstrapControllers")
    assert content == {
        "name": "tiny",
        "ready": False,
        "settled": False,
        "bootstrapServers": None,
        "quorum": None,
        "plan": {"steps": [], "refusals": []},
        "addresses": [],
        "trouble": None,
        "clientConfig": None,
        "controllersClientConfig": None,
        "java": None,
    }
    assert len(cluster_id) == 22
    assert node == {
        "nodeId": 3000,
        "role": "controller",
        "pid": None,
        "state": "absent",
        "directoryId": None,
        "address": address,
        "dir": str(played.node("controller-3000")),
        "rssBytes": None,
        "problem": None,
    }


@pytest.mark.usefixtures("played")
def test_commands_find_the_only_cluster_the_named_one_and_the_given_one(here: Path) -> None:
    (here / "m.yaml").write_text(MANIFEST)
    for options in ([], ["-f", "m.yaml"], ["--dir", ".quorate/tiny"]):
        assert "tiny" in runner.invoke(app, ["play", "status", *options]).stdout
        assert "tiny" in runner.invoke(app, ["play", *options, "status"]).stdout


@pytest.mark.usefixtures("played")
def test_several_clusters_ask_for_a_choice() -> None:
    second = play.play_session.prepare(
        MANIFEST.replace("tiny", "other"), "other.yaml", None, {}, lambda _: None
    )
    second.layout.directory.release()
    ran = runner.invoke(app, ["play", "stop"])
    assert ran.exit_code == 1
    assert (
        "there are several played clusters (.quorate/other, .quorate/tiny); choose one with --dir"
        in ran.stderr
    )


@pytest.mark.usefixtures("played")
def test_stopping_what_does_not_run_is_no_failure() -> None:
    ran = runner.invoke(app, ["play", "stop"])
    assert ran.exit_code == 0
    assert "is not running" in ran.stderr


@pytest.mark.usefixtures("played")
def test_an_unknown_node_is_reported_with_those_there_are() -> None:
    ran = runner.invoke(app, ["play", "logs", "7"])
    assert ran.exit_code == 1
    assert "there is no node '7'; there are controller-3000" in ran.stderr


def test_logs_are_printed_by_id_and_by_name(played: PlayDirectory) -> None:
    log = played.node_log("controller-3000")
    log.parent.mkdir()
    log.write_text("1\n2\n3\n")
    for name in ("3000", "controller-3000"):
        assert runner.invoke(app, ["play", "logs", name, "-n", "2"]).stdout == "2\n3\n"


def test_ctrl_c_ends_followed_logs_with_130(played: PlayDirectory) -> None:
    log = played.node_log("controller-3000")
    log.parent.mkdir()
    log.write_text("1\n")
    command = [sys.executable, "-m", "quorate", "play", "logs", "3000", "-f"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "1\n"
        following.send_signal(signal.SIGINT)
        assert following.communicate() == ("", "")
    assert following.returncode == 130


def test_a_running_cluster_is_not_played_twice(
    played: PlayDirectory, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(play, "SUPERVISOR_TIMEOUT_S", 0)
    (here / "m.yaml").write_text(MANIFEST)
    played.lock()
    ran = runner.invoke(app, ["play", "-f", "m.yaml"])
    played.release()
    assert ran.exit_code == 1
    assert "is already running" in ran.stderr


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("2m", 120), ("500ms", 0.5), ("1.5s", 1.5)]
)
def test_durations_are_read_with_their_units(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "-1s", "1d", "9" * 400, f"{2**53}s"])
def test_no_durations_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a duration; write 500ms, 90s or 2m"):
        parse_duration_s(text)
