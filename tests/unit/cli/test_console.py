"""The console kit: options, errors, output."""

import signal
from pathlib import Path

import pytest
import typer
from kit.fake_cluster import CLUSTER_ID, FakeCluster
from kit.tool_runner import run_tool
from quorate.console import CommandError, report_failures, table_text, warn
from quorate.main import COMMANDS, TOOLS
from quorate_admin.errors import ServerError, UnreachableError
from quorate_protocol.errors import ErrorCode

CLUSTER_ID_LINE = f"Cluster ID: {CLUSTER_ID}\n"


@pytest.mark.parametrize(
    "part", sorted(name for name, part in COMMANDS.items() if part.module.startswith(TOOLS))
)
async def test_every_tool_has_a_help_with_its_options(part: str) -> None:
    ran = await run_tool(part, "--help")
    assert ran.exit_code == 0
    assert f"Usage: quorate {part}" in ran.stdout
    assert "--output" in ran.stdout or part == "metadata-shell"
    assert "--bootstrap-" in ran.stdout


async def test_help_shows_defaults() -> None:
    """Rich takes what is in brackets for markup."""
    ran = await run_tool("topics", "--help")
    text = " ".join(ran.stdout.split())
    assert "(default: that of the cluster)" in text
    assert "(default: 2000)" in text
    assert "(default: table)" in text


async def test_options_may_stand_before_and_behind_the_subcommand() -> None:
    """Lines written for either habit of Kafka's tools work."""
    async with FakeCluster() as cluster:
        bootstrap = ("--bootstrap-server", cluster.bootstrap[0])
        assert (await run_tool("cluster", *bootstrap, "cluster-id")).stdout == CLUSTER_ID_LINE
        assert (await run_tool("cluster", "cluster-id", *bootstrap)).stdout == CLUSTER_ID_LINE
        split = await run_tool("cluster", *bootstrap, "cluster-id", "-o", "json")
        assert split.json == {"clusterId": CLUSTER_ID}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["cluster-id"], "give --bootstrap-server or --bootstrap-controller"),
        (["cluster-id", "-b", "h:1", "-C", "h:2"], "can't be given together"),
        (["-b", "h:1", "cluster-id", "-C", "h:2"], "can't be given together"),
        (["cluster-id", "-b", "h:1", "--config", "a", "--command-config", "b"], "can't be given together"),
        (["cluster-id", "-b", "h:1", "-o", "xml"], "'xml' is not one of table, json"),
        (["no-such-command"], "No such command"),
    ],
)
async def test_a_wrong_command_line_exits_with_2(arguments: list[str], expected: str) -> None:
    """Usage errors differ from failures."""
    ran = await run_tool("cluster", *arguments)
    assert ran.exit_code == 2
    assert expected in " ".join(ran.stderr.split())
    assert ran.stdout == ""


async def test_an_address_that_is_none_is_named() -> None:
    ran = await run_tool("cluster", "cluster-id", "-b", "localhost")
    assert ran.exit_code == 1
    assert ran.stderr.startswith("error: bootstrap.servers: 'localhost' is not host:port")


async def test_no_server_there_is_reported_by_address(tmp_path: Path) -> None:
    config = tmp_path / "admin.properties"
    # The second attempt would come after the end of the call, so it is not made.
    config.write_text("reconnect.backoff.ms=120000\nreconnect.backoff.max.ms=120000\n")
    async with FakeCluster() as cluster:
        address = cluster.bootstrap[0]
    ran = await run_tool("cluster", "cluster-id", "-b", address, "-c", str(config))
    assert ran.exit_code == 1
    assert ran.stderr.startswith("error: ")
    assert address in ran.stderr


async def test_a_broker_is_no_bootstrap_controller() -> None:
    """The wrong kind of endpoint is an error of its own (KIP-919)."""
    async with FakeCluster() as cluster:
        ran = await run_tool("cluster", "cluster-id", "-C", cluster.bootstrap[0])
    assert ran.exit_code == 1
    assert "is a broker, not a controller" in ran.stderr


async def test_properties_come_from_the_file_and_the_flag_is_above_it(tmp_path: Path) -> None:
    """KIP-919: --bootstrap-server clears what the file says of either kind."""
    config = tmp_path / "admin.properties"
    config.write_text("bootstrap.servers=nobody:1\nbootstrap.controllers=nobody:2\nclient.id=from-the-file\n")
    async with FakeCluster() as cluster:
        ran = await run_tool(
            "cluster", "cluster-id", "-b", cluster.bootstrap[0], "--command-config", str(config)
        )
        assert ran.stdout == CLUSTER_ID_LINE
        assert cluster.received("DescribeCluster")[0].client_id == "from-the-file"


async def test_a_deprecated_option_works_and_says_so(tmp_path: Path) -> None:
    config = tmp_path / "admin.properties"
    config.write_text("client.id=from-the-file\n")
    async with FakeCluster() as cluster:
        ran = await run_tool("cluster", "cluster-id", "-b", cluster.bootstrap[0], "--config", str(config))
        assert cluster.received("DescribeCluster")[0].client_id == "from-the-file"
    assert ran.stdout == CLUSTER_ID_LINE
    assert ran.stderr == "warning: --config is deprecated and will be removed; use --command-config\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "No such file or directory"),
        (b"\xff\xfe\x00", "it is not UTF-8 text"),
        (b"a=\\uzzzz", "line 1: "),
        (b"request.timeout.ms=soon", "request.timeout.ms"),
    ],
)
async def test_a_bad_properties_file_is_named(tmp_path: Path, content: bytes | None, expected: str) -> None:
    config = tmp_path / "admin.properties"
    if content is not None:
        config.write_bytes(content)
    ran = await run_tool("cluster", "cluster-id", "-b", "h:1", "--command-config", str(config))
    assert ran.exit_code == 1
    assert ran.stderr.startswith("error: ")
    assert expected in ran.stderr
    assert content == b"request.timeout.ms=soon" or str(config) in ran.stderr


@pytest.mark.parametrize(
    "address", ["[::1", "[::1:9092", "::1]:9092", "[host]:9092", f"{'a' * 64}:9092", "a..b:9092"]
)
async def test_hosts_that_can_not_be_are_refused_at_once(address: str) -> None:
    ran = await run_tool("cluster", "cluster-id", "-b", address)
    assert ran.exit_code == 1
    assert ran.stderr.startswith(f"error: bootstrap.servers: {address!r} is not host:port; allowed is a list")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("cluster", "cluster-id", "-b", "h:1", "-c", "/dev/urandom"), "--command-config /dev/urandom: "),
        (("play", "-f", "/dev/zero"), "/dev/zero can't be read: "),
        (("play", "plan", "-f", "/dev/zero"), "/dev/zero can't be read: "),
    ],
)
async def test_a_file_without_end_is_refused(arguments: tuple[str, ...], expected: str) -> None:
    ran = await run_tool(*arguments)
    assert ran.exit_code == 1
    assert f"error: {expected}it has more than " in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "content"),
    [
        (("leader-election", "-b", "h:1", "--election-type", "preferred", "--path-to-json-file"), "["),
        (("reassign-partitions", "-b", "h:1", "--verify", "--reassignment-json-file"), '{"a":'),
        (("play", "plan", "-f"), "["),
    ],
)
async def test_a_file_that_is_nested_too_deeply_is_named(
    tmp_path: Path, arguments: tuple[str, ...], content: str
) -> None:
    file = tmp_path / "nested"
    file.write_text(content * 100_000)
    ran = await run_tool(*arguments, str(file))
    assert ran.exit_code == 1
    assert str(file) in ran.stderr
    assert "nested too deeply" in ran.stderr


async def test_text_in_a_file_that_is_no_unicode_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "partitions.json"
    file.write_text('{"partitions": [{"topic": "\\ud800", "partition": 0}]}')
    ran = await run_tool(
        "leader-election", "-b", "h:1", "--election-type", "preferred", "--path-to-json-file", str(file)
    )
    assert ran.exit_code == 1
    assert f"error: --path-to-json-file {file}: a text in it is not Unicode" in ran.stderr


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (CommandError("no"), "error: no\n"),
        (ServerError(ErrorCode.not_controller, "elsewhere"), "error: NOT_CONTROLLER: elsewhere\n"),
        (UnreachableError({"a:1": "down", "b:2": "gone"}), "error: a:1: down; b:2: gone\n"),
        (FileNotFoundError(2, "No such file", "x"), "error: x: No such file\n"),
        (KeyError("given"), "error: 'given'\n"),
    ],
)
def test_what_can_go_wrong_becomes_a_message_and_exit_code_1(
    capsys: pytest.CaptureFixture[str], error: Exception, expected: str
) -> None:
    with pytest.raises(typer.Exit) as exited, report_failures(KeyError):
        raise error
    assert exited.value.exit_code == 1
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(
    ("interrupt", "code"), [(KeyboardInterrupt(), 130), (KeyboardInterrupt(signal.SIGTERM), 143)]
)
def test_a_signal_has_the_exit_code_that_shells_report(interrupt: KeyboardInterrupt, code: int) -> None:
    with pytest.raises(typer.Exit) as exited, report_failures():
        raise interrupt
    assert exited.value.exit_code == code


def test_our_own_bugs_are_not_hidden() -> None:
    with pytest.raises(AssertionError), report_failures():
        raise AssertionError("bug")


def test_warnings_have_no_colours_where_nobody_sees_them(capsys: pytest.CaptureFixture[str]) -> None:
    warn("careful")
    assert capsys.readouterr().err == "warning: careful\n"


def test_tables_are_padded_and_each_column_ends_with_a_tab() -> None:
    assert table_text(("Id", "Name"), [(1, "a"), (3000, "longer")]) == (
        "Id  \tName  \t\n1   \ta     \t\n3000\tlonger\t\n"
    )


async def test_warnings_of_the_client_are_warnings_of_the_tool(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("no.such.key=1\n")
    async with FakeCluster() as cluster:
        ran = await run_tool("cluster", "cluster-id", "-b", cluster.bootstrap[0], "-c", str(config))
    assert ran.stdout == CLUSTER_ID_LINE
    assert ran.stderr.startswith("warning: ")
    assert "no.such.key" in ran.stderr
