"""Common parts of the pages: colours, times, states and forms. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from quorate_operator.planning.cluster import NodeState
from quorate_operator.view.cluster import Health, NodeView
from quorate_operator.view.texts import clock_time, iso_time
from quorate_operator.web.html import Child, Html, element, fragment
from quorate_operator.web.snapshots import ClusterKey

TONES: Final[Mapping[Health, str]] = {
    Health.READY: "good",
    Health.PAUSED: "calm",
    Health.HIBERNATED: "calm",
    Health.WORKING: "busy",
    Health.ATTENTION: "warn",
    Health.NO_QUORUM: "bad",
    Health.UNKNOWN: "warn",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What the user may do. `csrf` is the token for each form; None for users who may only read."""

    can_unlock: bool = False
    csrf: str | None = None


def pill(health: Health) -> Html:
    return element("span", str(health), class_=f"pill {TONES[health]}")


def moment(at_ms: int) -> Html:
    """Return a time; the script turns it into "12 s ago"."""
    return element("time", clock_time(at_ms), datetime=iso_time(at_ms))


def form(key: ClusterKey, action: str, label: str, csrf: str, *, described: str, **fields: int) -> Html:
    """Return a button that sends a command; `fields` are sent along."""
    ident = "-".join(["do", action, *(str(value) for value in fields.values())])
    return element(
        "form",
        element("input", type="hidden", name="csrf", value=csrf),
        [element("input", type="hidden", name=name, value=value) for name, value in fields.items()],
        element(
            "button", label, type="submit", id=ident, title=described, aria_label=f"{label}: {described}"
        ),
        method="post",
        action=f"{cluster_path(key)}/{action}",
    )


def cluster_path(key: ClusterKey) -> str:
    """Return the address of a cluster's page. Kubernetes' names need no quoting."""
    return f"/clusters/{key.namespace}/{key.name}"


def restart_form(key: ClusterKey, node: NodeView | None, csrf: str) -> Child:
    """Return the button that restarts a node; nothing for a node that does not run."""
    if node is None or not node.seen.state.runs:
        return ""
    node_id = node.seen.node_id
    described = f"Node {node_id}, when the quorum and the partitions allow it"
    return form(key, "restart", "Restart", csrf, described=described, node=node_id)


def state(text: str, tone: str, node: NodeView | None) -> Html:
    """Return a coloured state, and the problem of its node."""
    why: list[str] = []
    if node is not None:
        seen = node.seen
        if seen.problem:
            why.append(seen.problem)
        if seen.exit_reason and seen.state is NodeState.CRASHED:
            again = f", {seen.exits_in_a_row} times in a row" if seen.exits_in_a_row > 1 else ""
            why.append(f"{seen.exit_reason}{again}")
        if seen.unreachable_host:
            why.append("its machine does not answer")
    return fragment(
        said(text, tone),
        element("span", "; ".join(why), class_="why") if why else None,
    )


def said(text: str, tone: str) -> Html:
    return element("span", text, class_=f"state {tone}")
