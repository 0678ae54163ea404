"""Running `quorate` tools in this process, against a fake cluster."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from quorate.console import UsageError
from quorate.main import app
from typer.testing import CliRunner


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run left."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """What was printed with `-o json`."""
        return json.loads(self.stdout)


async def run_tool(*arguments: str) -> Ran:
    """`quorate` with these arguments; it has an event loop of its own, in a thread. No traceback may show."""
    ran = await asyncio.to_thread(CliRunner().invoke, app, arguments, prog_name="quorate")
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    assert "Traceback" not in ran.stderr + ran.stdout
    return Ran(ran.exit_code, ran.stdout, ran.stderr)


def usage_error(check_options: Callable[[Sequence[str]], object], options: str) -> str:
    """The message with which a tool's check refuses these options beside --bootstrap-server."""
    with pytest.raises(UsageError) as raised:
        check_options(["--bootstrap-server", *options.split()])
    return raised.value.message
