"""The part of a plan about one concern. The planner merges the parts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from quorate_operator.planning.cluster import Role
from quorate_operator.planning.steps import Action, Postponed, Refusal, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """`due` may be done now. `rest` begins with a wait; the steps after it are those known so far."""

    due: tuple[Action, ...] = ()
    rest: tuple[Step, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    postponed: tuple[Postponed, ...] = ()


def merge(parts: Iterable[Part]) -> Part:
    """Returns several parts as one, in their order."""
    parts = tuple(parts)
    return Part(
        due=tuple(action for part in parts for action in part.due),
        rest=tuple(step for part in parts for step in part.rest),
        refusals=tuple(refusal for part in parts for refusal in part.refusals),
        postponed=tuple(one for part in parts for one in part.postponed),
    )


def labels(role: Role, node_ids: Iterable[int]) -> str:
    """Returns `controller-3000, controller-3001`."""
    return ", ".join(role.label(node_id) for node_id in node_ids)


def listed(node_ids: Iterable[int]) -> str:
    """Returns `3000, 3001 and 3002`, or `none`."""
    names: Sequence[str] = [str(node_id) for node_id in node_ids]
    if len(names) < 2:
        return names[0] if names else "none"
    return f"{', '.join(names[:-1])} and {names[-1]}"
