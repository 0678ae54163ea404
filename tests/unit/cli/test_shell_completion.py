"""Completion of the `quorate` command, in real shells where there are any."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from quorate.main import COMMANDS, app
from typer.testing import CliRunner

TIMEOUT_S = 60


def offered_for(words: str) -> list[str]:
    """What the command offers for the last word."""
    environment = {
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
        "_QUORATE_COMPLETE": "complete_bash",
    }
    ran = CliRunner().invoke(app, [], prog_name="quorate", env=environment)
    assert ran.exit_code == 0, ran.output
    return ran.stdout.split()


def bash_completes(tmp_path: Path, line: str) -> set[str]:
    """What bash offers for the last word of a line, having read our script."""
    command = tmp_path / "quorate"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m quorate "$@"\n')
    command.chmod(0o755)
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    script = f"""
        eval "$(quorate completion bash)"
        function=$(complete -p quorate | sed -E 's/.* -F ([^ ]+).*/\\1/')
        COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; COMP_LINE='{line}'; COMP_POINT={len(line)}
        "$function" quorate '{words[-1]}' '{words[-2]}'
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    ran = subprocess.run(
        ["bash", "--norc", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    assert ran.stderr == ""
    return set(ran.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("quorate metadata-s", {"metadata-shell"}),
        ("quorate compl", {"completion"}),
        ("quorate completion ", {"bash", "zsh", "fish"}),
        ("quorate metadata-shell --b", {"--bootstrap-server", "--bootstrap-controller"}),
        ("quorate metadata-shell --output ", {"table", "json"}),
        ("quorate metadata-quorum desc", {"describe"}),
        ("quorate metadata-quorum describe --rep", {"--replication"}),
    ],
)
def test_bash_completes_commands_subcommands_and_options(
    tmp_path: Path, line: str, offered: set[str]
) -> None:
    """The tab key works for parts that are loaded lazily, down to their options."""
    assert bash_completes(tmp_path, line) == offered


@pytest.mark.parametrize("part", sorted(COMMANDS))
def test_every_part_completes_its_options(part: str) -> None:
    assert "--help" in offered_for(f"quorate {part} --")


def test_every_command_is_offered() -> None:
    assert {*COMMANDS, "version"} <= set(offered_for("quorate "))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_that_it_can_read(shell: str) -> None:
    script = CliRunner().invoke(app, ["completion", shell]).stdout
    assert "quorate" in script
    assert "_QUORATE_COMPLETE" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True, timeout=TIMEOUT_S)
