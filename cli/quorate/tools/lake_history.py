"""Reading a lake by the command that has what it takes, in a process of its own: this package has no Arrow."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from quorate_admin.diagnosis.history import HistoryError, Row, parse_tables, show_arguments

from quorate.console import CommandError

TIMEOUT_S = 300
_HOW_TO_GET = "reading a lake needs what `pip install 'quorate[lake]'` installs"


def read_lake(lake: str, cluster_id: str) -> Mapping[str, Sequence[Row]]:
    """The tables that tell the past of one cluster. Raises CommandError and HistoryError."""
    # -P: nothing is imported from the directory that somebody happens to be in.
    command = [sys.executable, "-P", "-m", "quorate", *show_arguments(lake, cluster_id)]
    try:
        ran = subprocess.run(  # noqa: S603 - ours
            command,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            env={**os.environ, "NO_COLOR": "1"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(f"--history {lake}: it could not be read: {error}") from error
    if ran.returncode != 0:
        raise CommandError(f"--history {lake}: {_told(ran.stderr)}")
    try:
        return parse_tables(json.loads(ran.stdout))
    except json.JSONDecodeError as error:
        raise HistoryError(f"what was read is no JSON: {error}") from error


def _told(errors: str) -> str:
    """The last thing that the command said; a traceback's last line names what is missing."""
    lines = [line.removeprefix("error: ") for line in errors.splitlines() if line.strip()]
    last = lines[-1] if lines else "it could not be read"
    return f"{last}: {_HOW_TO_GET}" if last.startswith("ModuleNotFoundError") else last
