"""Controllers and brokers on a cluster's page. Pure."""

from quorate_operator.planning.cluster import NodeState, Role
from quorate_operator.view.cluster import ClusterView, NodeView, ReplicaView
from quorate_operator.view.texts import UNKNOWN, counted, size_words
from quorate_operator.web.controls import Access, restart_form, state
from quorate_operator.web.html import (
    ROWS_SHOWN_MAX,
    Child,
    Html,
    element,
    fragment,
    heading,
    more,
    row,
    table,
)
from quorate_operator.web.picture import quorum_picture, spare_words, tone_of
from quorate_operator.web.port import ClusterKey


def quorum_section(key: ClusterKey, view: ClusterView, access: Access) -> Html:
    """Returns a picture of the quorum, and a row for each controller."""
    title = heading("quorum", "Quorum")
    quorum = view.quorum
    if quorum is None:
        return fragment(title, nothing_observed())
    if not quorum.voters:
        return fragment(title, element("p", "There are no controllers yet.", class_="quiet"))
    columns = ["Controller", "Role", "State", "Lag", "Directory id", *(["Actions"] if access.csrf else [])]
    nodes = {node.seen.node_id: node for node in view.nodes if node.seen.role is Role.CONTROLLER}
    replicas = (*quorum.voters, *quorum.observers)
    rows = [_controller_row(key, nodes.get(replica.node_id), replica, access) for replica in replicas]
    idle = sorted(nodes.keys() - {replica.node_id for replica in replicas})
    rows += [_idle_controller_row(nodes[node_id], len(columns)) for node_id in idle]
    return fragment(
        title,
        element(
            "div",
            element("figure", quorum_picture(quorum), element("figcaption", spare_words(quorum))),
            table("Controllers", columns, rows),
            class_="beside",
        ),
    )


def nothing_observed() -> Html:
    return element("p", "Nothing was observed yet.", class_="quiet")


def _controller_row(key: ClusterKey, node: NodeView | None, one: ReplicaView, access: Access) -> Html:
    role = "leader" if one.is_leader else "voter" if one.is_voter else "observer"
    cells: list[Child] = [
        role,
        state(str(one.state) if one.state is not None else "not here", tone_of(one), node),
        UNKNOWN if one.lag is None else counted(one.lag, "record", "records"),
        element("code", one.directory_id) if one.directory_id else UNKNOWN,
    ]
    if access.csrf is not None:
        cells.append(restart_form(key, node, access.csrf))
    return row(one.node_id, cells)


def _idle_controller_row(node: NodeView, columns: int) -> Html:
    seen = node.seen
    cells: list[Child] = ["no voter", state(str(seen.state), "warn", node), UNKNOWN]
    cells.append(element("code", seen.directory_id) if seen.directory_id else UNKNOWN)
    return row(seen.node_id, [*cells, *[""] * (columns - 1 - len(cells))])


def broker_section(key: ClusterKey, view: ClusterView, access: Access) -> Html:
    title = heading("brokers", "Brokers")
    if not view.is_observed:
        return fragment(title, nothing_observed())
    nodes = sorted(
        (node for node in view.nodes if node.seen.role is Role.BROKER), key=lambda one: one.seen.node_id
    )
    if not nodes:
        return fragment(title, element("p", "No broker is desired.", class_="quiet"))
    columns = [
        "Broker",
        "State",
        "Leads",
        "Replicas",
        "Used",
        "Free",
        "Rack",
        *(["Actions"] if access.csrf else []),
    ]
    rows = [_broker_row(key, node, access) for node in nodes[:ROWS_SHOWN_MAX]]
    return fragment(title, table("Brokers", columns, rows), more(len(nodes)))


def _broker_row(key: ClusterKey, node: NodeView, access: Access) -> Html:
    seen, registration, load = node.seen, node.registration, node.load
    text, tone = str(seen.state), _tone(seen.state)
    if registration is not None and registration.in_controlled_shutdown:
        text, tone = f"{text}, leaving", "warn"
    elif registration is not None and registration.fenced:
        text, tone = f"{text}, fenced", "warn" if seen.state.runs else tone
    cells: list[Child] = [
        state(text, tone, node),
        load.leaders if load is not None else UNKNOWN,
        load.replicas if load is not None else UNKNOWN,
        size_words(load.used_bytes if load is not None else None),
        size_words(load.free_bytes if load is not None else None),
        (registration.rack if registration is not None else None) or UNKNOWN,
    ]
    if access.csrf is not None:
        cells.append(restart_form(key, node, access.csrf))
    return row(seen.node_id, cells)


def _tone(node_state: NodeState) -> str:
    if node_state is NodeState.READY:
        return "good"
    return "bad" if node_state is NodeState.CRASHED else "warn"
