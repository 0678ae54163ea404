"""The command lines of a page of documentation, to be run as a reader would."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from kit.cluster import TOOL_TIMEOUT_S

_HEADING = re.compile(r"## (?P<title>.+)")
_FENCE = "```"
_SHELL = "```sh"


def shell_blocks(page: Path) -> dict[str, list[str]]:
    """The blocks marked `sh` below each heading of the second level, for those that have any."""
    blocks: dict[str, list[str]] = {}
    title, lines, inside = "", [], None
    for line in page.read_text().splitlines():
        if inside is None and (heading := _HEADING.fullmatch(line)):
            title = heading["title"]
        elif inside is None and line.startswith(_FENCE):
            inside, lines = line, []
        elif inside is not None and line == _FENCE:
            if inside == _SHELL:
                blocks.setdefault(title, []).append("\n".join(lines))
            inside = None
        else:
            lines.append(line)
    assert inside is None, f"{page}: a block below {title!r} has no end"
    return blocks


def run_block(block: str, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a block with bash, which stops at the first command that fails or variable that is unknown."""
    # The `quorate` beside this Python is the one under test.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        env={**os.environ, **variables, "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )
