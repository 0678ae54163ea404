"""docs/tools.md says what -o json prints."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.java.tools import JavaTools
from kit.parity.cases import cases_of
from kit.parity.harness import TOOLS, Case, Comparison, Site, Tool, variants

PAGE = (Path(__file__).parents[3] / "docs/tools.md").read_text()
# Other keys are names of features, configs and topics, ids and paths.
KEY = re.compile(r"[a-z]+([A-Z][a-z]+)*|log_dirs")


def reading_cases() -> list[object]:
    """The cases that change nothing, each on one cluster."""
    return [
        pytest.param(tool, case, *next(variants(case, tool)), id=f"{tool.command}-{case.name}")
        for tool in TOOLS.values()
        for case in cases_of(tool)
        if case.reads
    ]


def keys_in(content: object) -> Iterator[str]:
    """The keys of all objects in a JSON document."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield key
            yield from keys_in(value)
    elif isinstance(content, list):
        for value in content:
            yield from keys_in(value)


@pytest.mark.parametrize(("tool", "case", "cluster", "at"), reading_cases())
def test_every_key_is_documented(
    tool: Tool, case: Case, site: Site, java_tool: JavaTools, tmp_path: Path
) -> None:
    section = re.search(rf"<!-- json: {tool.command} -->(.*?)(<!-- json|\Z)", PAGE, re.DOTALL)
    assert section is not None
    documented = set(re.findall(r"`(\w+)`", section[1]))
    comparison = Comparison(case, tool, site, java_tool, tmp_path)
    for printed in comparison.json():
        unknown = {key for key in keys_in(json.loads(printed)) if KEY.fullmatch(key)} - documented
        assert unknown == set(), f"{tool.command} {case.name}: not in docs/tools.md"
