"""The way of Kafka's option-based tools: one action, and what goes with it."""

from pathlib import Path

import pytest
from kit.scripted_admin import ScriptedAdmin
from kit.tool_runner import run_tool
from quorate.console import UsageError
from quorate.console.jopt import one_action, only_with, refuse, require

ACTIONS = ("--go", "--stop")
TOOLS = ("topics", "configs", "acls", "delegation-tokens", "reassign-partitions")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], "no action is given; give exactly one of --go, --stop"),
        (["--go", "--stop"], "--go and --stop can't be given together; give exactly one of --go, --stop"),
        (["--go"], "--go needs --bootstrap-server"),
    ],
)
def test_one_action_at_one_cluster(given: list[str], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        one_action(given, ACTIONS)


def test_a_tool_without_controllers_does_not_propose_them() -> None:
    with pytest.raises(UsageError, match=r"--go needs --bootstrap-server$"):
        one_action(["--go"], ACTIONS, controllers=False)


def test_the_action_is_found() -> None:
    """Either side will do, and a flag may come twice."""
    assert one_action(["--bootstrap-server", "--go", "--go"], ACTIONS) == "--go"
    assert one_action(["--stop", "--bootstrap-controller"], ACTIONS) == "--stop"


def test_rules_name_both_options() -> None:
    with pytest.raises(UsageError, match="--go needs --name"):
        require(["--go"], "--go", "--name")
    with pytest.raises(UsageError, match="--go can't be used with --slow"):
        refuse(["--go", "--slow"], "--go", ["--slow"])
    with pytest.raises(UsageError, match="--slow can be used with --stop only"):
        only_with(["--go", "--slow"], "--slow", ["--stop"])
    require(["--stop"], "--go", "--name")
    refuse(["--stop", "--slow"], "--go", ["--slow"])
    only_with(["--stop", "--slow"], "--slow", ["--stop"])


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["cluster", "unregister", "--id"], "--id"),
        (["cluster", "unregister-controller", "--controller-id"], "--controller-id"),
        (["cluster", "refresh-controller", "--controller-id"], "--controller-id"),
        (["features", "describe", "--node-id"], "--node-id"),
        (
            ["metadata-quorum", "remove-controller", "--controller-directory-id", "x", "--controller-id"],
            "--controller-id",
        ),
        (["leader-election", "--election-type", "preferred", "--topic", "t", "--partition"], "--partition"),
        (["topics", "--create", "--topic", "t", "--partitions"], "--partitions"),
        (
            ["topics", "--describe", "--partition-size-limit-per-response"],
            "--partition-size-limit-per-response",
        ),
        (["topics", "--create", "--topic", "t", "--replica-assignment"], "--replica-assignment"),
        (["configs", "--describe", "--broker"], "brokers"),
        (
            ["reassign-partitions", "--generate", "--topics-to-move-json-file", "t", "--broker-list"],
            "--broker-list",
        ),
    ],
)
@pytest.mark.parametrize("number", ["2147483648", "9" * 30])
async def test_numbers_beyond_those_of_the_protocol_are_refused(
    arguments: list[str], option: str, number: str
) -> None:
    ran = await run_tool(*arguments, number, "-b", "h:1")
    assert (ran.exit_code, ran.stdout) == (2, "")
    reported = " ".join(ran.stderr.split())
    assert option in reported
    assert number[:20] in reported
    assert "2147483647" in reported


@pytest.mark.parametrize("option", ["--max-life-time-period", "--renew-time-period", "--expiry-time-period"])
async def test_times_beyond_those_of_the_protocol_are_refused(tmp_path: Path, option: str) -> None:
    action = {"-m": "--create", "-r": "--renew", "-e": "--expire"}[option[1:3]]
    hmac = () if action == "--create" else ("--hmac", "AAAA")
    ran = await run_tool(
        "delegation-tokens", "-b", "h:1", action, *hmac, "-c", str(tmp_path), option, "9" * 25
    )
    assert ran.exit_code == 2
    assert option in ran.stderr


@pytest.mark.parametrize("tool", TOOLS)
async def test_a_tool_without_arguments_prints_its_help(tool: str) -> None:
    ran = await run_tool(tool)
    assert ran.exit_code == 2
    assert "Actions" in ran.stdout + ran.stderr


@pytest.mark.parametrize("tool", TOOLS)
async def test_a_second_value_is_refused(tool: str, admin: ScriptedAdmin) -> None:
    ran = await run_tool(tool, "--list", "--bootstrap-server", "a:1", "-b", "b:2")
    assert ran.exit_code == 2
    if tool in {"topics", "acls", "reassign-partitions"}:  # which have --list
        assert "--bootstrap-server is given 2 times; it takes one value" in ran.stderr
    assert admin.calls == []
