"""Our tools beside Kafka's: the same cluster, the same arguments, the same output."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.java.tools import JavaTools
from kit.parity.cases import cases_of
from kit.parity.harness import TOOLS, Case, Comparison, Site, Tool, variants


def every_case() -> Iterator[Any]:
    """A parameter set for each case, cluster and side."""
    for tool in TOOLS.values():
        for case in cases_of(tool):
            for cluster, at in variants(case, tool):
                yield pytest.param(tool, case, cluster, at, id=f"{tool.command}-{case.name}-{cluster}-{at}")


@pytest.mark.parametrize(("tool", "case", "cluster", "at"), list(every_case()))
def test_same_as_kafka(tool: Tool, case: Case, site: Site, java_tool: JavaTools, tmp_path: Path) -> None:
    """For the same arguments, our tool prints and changes what Kafka's does."""
    Comparison(case, tool, site, java_tool, tmp_path).run()
