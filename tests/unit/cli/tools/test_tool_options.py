"""The way of Kafka's option-based tools: one action, and what goes with it."""

import pytest
from kit.scripted_admin import ScriptedAdmin
from kit.tool_runner import run_tool
from quorate.console import UsageError
from quorate.console.jopt import one_action, only_with, refuse, require

ACTIONS = ("--go", "--stop")
TOOLS = ("topics", "configs", "acls", "delegation-tokens", "reassign-partitions")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "no action is given; give exactly one of --go, --stop"),
        (["--go", "--stop"], "--go and --stop can't be given together; give exactly one of --go, --stop"),
        (["--go"], "--go needs --bootstrap-server"),
    ],
)
def test_one_action_at_one_cluster(given: list[str], told: str) -> None:
    """Goal: it is never guessed what to do, and where. Method: no action, two, no cluster."""
    with pytest.raises(UsageError, match=told):
        one_action(given, ACTIONS)


def test_a_tool_without_controllers_does_not_propose_them() -> None:
    """Goal: what the message names can be typed. Method: no cluster for a tool that asks brokers alone."""
    with pytest.raises(UsageError, match=r"--go needs --bootstrap-server$"):
        one_action(["--go"], ACTIONS, controllers=False)


def test_the_action_is_found() -> None:
    """Goal: either side will do, and a flag may come twice. Method: both bootstrap options."""
    assert one_action(["--bootstrap-server", "--go", "--go"], ACTIONS) == "--go"
    assert one_action(["--stop", "--bootstrap-controller"], ACTIONS) == "--stop"


def test_rules_name_both_options() -> None:
    """Goal: a message says what to change. Method: one breach of each kind of rule, and none."""
    with pytest.raises(UsageError, match="--go needs --name"):
        require(["--go"], "--go", "--name")
    with pytest.raises(UsageError, match="--go can't be used with --slow"):
        refuse(["--go", "--slow"], "--go", ["--slow"])
    with pytest.raises(UsageError, match="--slow can be used with --stop only"):
        only_with(["--go", "--slow"], "--slow", ["--stop"])
    require(["--stop"], "--go", "--name")
    refuse(["--stop", "--slow"], "--go", ["--slow"])
    only_with(["--stop", "--slow"], "--slow", ["--stop"])


@pytest.mark.parametrize("tool", TOOLS)
async def test_a_tool_without_arguments_prints_its_help(tool: str) -> None:
    """Goal: as with Kafka's tools, nothing is a question. Method: run each without arguments."""
    ran = await run_tool(tool)
    assert ran.exit_code == 2
    assert "Actions" in ran.stdout + ran.stderr


@pytest.mark.parametrize("tool", TOOLS)
async def test_a_second_value_is_refused(tool: str, admin: ScriptedAdmin) -> None:
    """Goal: no value is silently dropped. Method: the bootstrap option twice."""
    ran = await run_tool(tool, "--list", "--bootstrap-server", "a:1", "-b", "b:2")
    assert ran.exit_code == 2
    if tool in {"topics", "acls", "reassign-partitions"}:  # which have --list
        assert "--bootstrap-server is given 2 times; it takes one value" in ran.stderr
    assert admin.calls == []
