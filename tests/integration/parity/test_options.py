"""That nothing of Kafka's tools is left out: each of their options is in a case, or excused with a reason."""

import re

import pytest
from kit.java.tools import JavaTools
from kit.parity.cases import cases_of
from kit.parity.harness import TOOLS, Tool
from kit.releases import IS_NEWEST

# Subcommands print options of their own.
SUBCOMMANDS = {
    "cluster": (
        *("cluster-id", "unregister", "list-endpoints"),
        *(("unregister-controller", "api-versions") if IS_NEWEST else ()),
    ),
    "features": ("describe", "upgrade", "downgrade", "disable", "version-mapping", "feature-dependencies"),
    "metadata-quorum": ("describe", "add-controller", "remove-controller"),
}
NEEDED_BEFORE = {"metadata-quorum": ("--bootstrap-server", "127.0.0.1:1")}
EXEMPT = {
    "*": {"--version": "prints the version of Kafka; `quorate version` prints ours"},
}
"""Options that no case has: by command, with the reason."""
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z.-]*[a-z]|-[a-zA-Z])(?![\w.-])")


def options_of(tool: Tool, java_tool: JavaTools) -> set[str]:
    """Every option in the help of Kafka's tool, as far as it stands where options are defined."""
    before = NEEDED_BEFORE.get(tool.command, ())
    helps = [java_tool(tool.main_class, "--help")]
    helps += [
        java_tool(tool.main_class, *before, command, "--help")
        for command in SUBCOMMANDS.get(tool.command, ())
    ]
    found = set()
    for text in (ran.stdout + ran.stderr for ran in helps):
        for line in text.splitlines():
            # What is explained stands further to the right than what is defined.
            defined = re.match(r" {0,2}(-\S.*?)(?: {2,}|$)", line)
            if defined is not None:
                found.update(OPTION.findall(defined[1]))
    return found


def used_by(tool: Tool) -> set[str]:
    """Every option in the cases of a tool."""
    text = " ".join(step.arguments for case in cases_of(tool) for step in case.steps)
    used = set(OPTION.findall(text))
    if "$at" in text:
        used |= {"--bootstrap-server", *(["--bootstrap-controller"] if tool.controllers else [])}
    return used


@pytest.mark.parametrize("command", TOOLS)
def test_every_option_is_compared(command: str, java_tool: JavaTools) -> None:
    """No option of Kafka's is forgotten, now or with its next release."""
    tool = TOOLS[command]
    options = options_of(tool, java_tool)
    excused = set(EXEMPT.get(command, {})) | set(EXEMPT["*"])
    assert options, "no options found in the help"
    assert options - used_by(tool) - excused == set(), f"{command}: not in cases/, and without a reason"
    assert set(EXEMPT.get(command, {})) <= options, f"{command}: reasons for what Kafka's tool does not have"


@pytest.mark.parametrize("command", SUBCOMMANDS)
def test_every_subcommand_is_compared(command: str, java_tool: JavaTools) -> None:
    ran = java_tool(TOOLS[command].main_class, "--help")
    listed = re.search(r"\{([a-z,\s-]+)\}", ran.stdout + ran.stderr)
    assert listed is not None
    names = {name.strip() for name in listed[1].split(",")}
    assert names == set(SUBCOMMANDS[command])
    text = " ".join(step.arguments for case in cases_of(TOOLS[command]) for step in case.steps)
    assert {name for name in names if re.search(rf"(?<![\w-]){name}(?![\w-])", text) is None} == set()
