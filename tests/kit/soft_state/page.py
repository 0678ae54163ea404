"""docs/soft-state.md, from the table."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kit.soft_state.table import TABLE, Kind
from quorate_controller.raft.replica import RoleState
from quorate_controller.raft.roles.candidate import Candidate, Prospective, Unattached
from quorate_controller.raft.roles.follower import Follower
from quorate_controller.raft.roles.leader import Leader, Resigned

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = Path(__file__).parents[3] / "docs" / "soft-state.md"

_INTRODUCTION: Final = """# Soft state

A controller keeps this state in memory alone: it is neither in the log nor on disk. State that outlives its
leadership misleads the next one, so each attribute of the objects of a node has a row in
[`table.TABLE`](../tests/kit/soft_state/table.py), from which `python -m kit.soft_state` makes this page.
[`test_soft_state.py`](../tests/unit/controller/node/test_soft_state.py) finds the attributes of a running node, and
fails on an attribute without a row. It has the node lead, fills all state that has to end, ends the leadership, and
compares with a node that never led.

Attributes that are set at the start, that are replayed from the log, or that live for one turn are in the table, but
not on this page. The server has no state that depends on the leader: its futures wait for responses of the node,
which responds to all requests when it loses the leadership.
"""

_SECTIONS: Final = {
    Kind.ENDS: (
        "State that ends with a leadership",
        "Empty again as soon as the leadership is lost: `test_what_ends_with_a_leadership_ends`.",
    ),
    Kind.RESTARTS: (
        "State that starts again with the next leadership",
        (
            "Not read in between: `test_periodic_tasks_begin_anew`, "
            "`test_an_active_controller_hears_of_the_others_anew_in_each_epoch`."
        ),
    ),
    Kind.ROLE: (
        "State that ends with a role of raft",
        "Each transition makes a new role: `test_what_belongs_to_a_role_ends_with_it`.",
    ),
    Kind.STAYS: ("State that outlives a leadership", "On purpose, for the reason in the last column."),
}

_ROLES: Final = (Unattached, Prospective, Candidate, Leader, Resigned, Follower)


def rendered() -> str:
    """The page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    for kind, (title, text) in _SECTIONS.items():
        yield f"## {title}\n\n{text}\n"
        yield "| class | attribute | what it is |\n|---|---|---|"
        for (owner, name), row in TABLE.items():
            if row.kind is kind:
                yield f"| `{owner}` | `{name}` | {row.note} |"
        yield ""
    yield "## The state of each role\n"
    common = {field.name for field in dataclasses.fields(RoleState)}
    yield f"All roles have {', '.join(f'`{name}`' for name in sorted(common))}.\n"
    yield "| role | attributes |\n|---|---|"
    for role in _ROLES:
        own = [field.name for field in dataclasses.fields(role) if field.name not in common]
        yield f"| {role.role.value} | {', '.join(f'`{name}`' for name in own)} |"
