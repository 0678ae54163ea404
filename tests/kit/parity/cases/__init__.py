"""The tables of cases, a module for each tool."""

import importlib
from collections.abc import Sequence

from kit.parity.harness import Case, Tool


def cases_of(tool: Tool) -> Sequence[Case]:
    """The cases of a tool."""
    cases: Sequence[Case] = importlib.import_module(
        f"kit.parity.cases.{tool.command.replace('-', '_')}"
    ).CASES
    return cases
