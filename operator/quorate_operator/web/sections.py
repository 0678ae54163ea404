"""The sections of a cluster's page: plan, quorum, brokers, registrations, addresses, events. Pure."""

from collections.abc import Sequence
from typing import Final

from quorate_protocol.features import KRAFT_VERSION, METADATA_VERSION

from quorate_operator.planning.cluster import Lifecycle, NodeState, Publication, Reached, Role
from quorate_operator.planning.steps import WaitFor, some_of
from quorate_operator.view.clients import ClientsView
from quorate_operator.view.cluster import (
    AddressView,
    ClusterView,
    NodeView,
    StepView,
)
from quorate_operator.view.quorum import Block, RegistrationView, ReplicaView
from quorate_operator.view.texts import UNKNOWN, counted, level_words, size_words
from quorate_operator.web.controls import Access, form, moment, pill, restart_form, said, state
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
from quorate_operator.web.snapshots import ClusterKey, ClusterSnapshot

STEPS_SHOWN_MAX: Final = 40
EVENTS_SHOWN_MAX: Final = 50
WIDE_FACTS: Final = frozenset({"Cluster id", "Other features"})


def cluster_sections(snapshot: ClusterSnapshot, access: Access) -> dict[str, Html]:
    """Return the content of each part of the page by its id."""
    key, view = snapshot.key, snapshot.view()
    return {
        "announcement": fragment(f"{view.name}: {view.health}; {view.next}."),
        "summary": _summary(snapshot, view, access),
        "plan": _plan(view),
        "quorum": quorum_section(key, view, access),
        "brokers": broker_section(key, view, access),
        "registrations": registration_section(view),
        "addresses": address_section(view),
        "events": _events(snapshot),
    }


def _summary(snapshot: ClusterSnapshot, view: ClusterView, access: Access) -> Html:
    quorum = view.described
    facts: list[tuple[str, Child]] = [
        ("Cluster id", element("code", view.cluster_id) if view.cluster_id else "not formed yet")
    ]
    if quorum is not None:
        facts += [
            ("Leader", f"{quorum.leader_id} in epoch {quorum.leader_epoch}"),
            ("High watermark", str(quorum.high_watermark)),
        ]
    else:
        facts.append(("Leader", "none answers"))
    if view.levels:
        facts.append(("metadata.version", _metadata_version(view)))
        others = {KRAFT_VERSION: view.levels[KRAFT_VERSION], **dict(sorted(view.levels.items()))}
        named = ", ".join(f"{name} {level}" for name, level in others.items() if name != METADATA_VERSION)
        facts.append(("Other features", named))
    if view.offline_partitions:
        offline = counted(view.offline_partitions, "partition", "partitions")
        facts.append(("Offline", element("strong", offline, class_="bad")))
    facts.append(("Last observation", moment(snapshot.at_ms)))
    return fragment(
        element("p", pill(view.health), " ", view.next, class_="lead"),
        element("p", element("strong", "Problem: "), view.problem, class_="box bad")
        if view.problem
        else None,
        element("dl", [_fact(name, value) for name, value in facts]),
        _pause_form(snapshot, view, access),
    )


def _fact(name: str, value: Child) -> Html:
    return element(
        "div", element("dt", name), element("dd", value), class_="wide" if name in WIDE_FACTS else None
    )


def _metadata_version(view: ClusterView) -> Child:
    wanted = view.asked_metadata_version
    text = level_words(METADATA_VERSION, view.levels.get(METADATA_VERSION, 0))
    name = text.partition("(")[2].rstrip(")")
    is_as_wanted = wanted is None or name == wanted or name.startswith(f"{wanted}-")
    return text if is_as_wanted else f"{text}, desired: {wanted}"


def _pause_form(snapshot: ClusterSnapshot, view: ClusterView, access: Access) -> Html | None:
    if access.csrf is None or view.lifecycle is None:
        return None
    is_paused = view.lifecycle is Lifecycle.PAUSED
    verb = "resume" if is_paused else "pause"
    explained = "Continue with the plan" if is_paused else "Change nothing until resumed"
    return form(snapshot.key, verb, verb.capitalize(), access.csrf, described=explained)


def _plan(view: ClusterView) -> Html:
    parts: list[Child] = [heading("plan", "Plan")]
    if not view.is_planned:
        return fragment(parts, element("p", "There is no plan yet.", class_="quiet"))
    parts += [
        element("div", element("strong", refusal.code), " ", refusal.message, class_="box warn refusal")
        for refusal in view.refusals
    ]
    if not view.steps:
        return fragment(parts, element("p", "The cluster is as desired.", class_="quiet"))
    parts.append(element("ol", [_step(step) for step in view.steps[:STEPS_SHOWN_MAX]], class_="steps"))
    if (count := len(view.steps) - STEPS_SHOWN_MAX) > 0:
        parts.append(element("p", f"and {counted(count, 'step', 'steps')} more", class_="quiet"))
    return fragment(parts)


def _step(view: StepView) -> Html:
    step = view.step
    if isinstance(step, WaitFor):
        until = ["; at the latest ", moment(step.until_ms)] if step.until_ms is not None else None
        mark = element("span", "wait", class_="tag")
        return element("li", mark, " ", element("span", step.reason, until, class_="what"), class_="wait")
    when = "now" if view.is_due else "later"
    return element(
        "li",
        element("span", when, class_="tag"),
        " ",
        element("span", view.what, class_="what"),
        " ",
        element("span", step.reason, class_="why"),
        class_=when,
    )


def _events(snapshot: ClusterSnapshot) -> Html:
    title = heading("events", "Recent events")
    if not snapshot.events:
        return fragment(
            title, element("p", "Nothing has happened since this operator started.", class_="quiet")
        )
    latest = snapshot.events[-EVENTS_SHOWN_MAX:]
    items = [
        element(
            "li",
            moment(event.at_ms),
            " ",
            element("span", event.text),
            class_="warn" if event.is_warning else None,
        )
        for event in reversed(latest)
    ]
    return fragment(title, element("ol", items, class_="events"))


def quorum_section(key: ClusterKey, view: ClusterView, access: Access) -> Html:
    """Return a picture of the quorum, and a row for each controller."""
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


def _controller_row(key: ClusterKey, node: NodeView | None, replica: ReplicaView, access: Access) -> Html:
    role = "leader" if replica.is_leader else "voter" if replica.is_voter else "observer"
    cells: list[Child] = [
        role,
        state(str(replica.state) if replica.state is not None else "not here", tone_of(replica), node),
        UNKNOWN if replica.lag is None else counted(replica.lag, "record", "records"),
        element("code", replica.directory_id) if replica.directory_id else UNKNOWN,
    ]
    if access.csrf is not None:
        cells.append(restart_form(key, node, access.csrf))
    return row(replica.node_id, cells)


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
        (node for node in view.nodes if node.seen.role is Role.BROKER), key=lambda node: node.seen.node_id
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
    lost = [_lost_clients(pool, clients) for pool, clients in view.clients.items() if clients.lost]
    return fragment(title, table("Brokers", columns, rows), more(len(nodes)), *lost)


def _lost_clients(pool: str, clients: ClientsView) -> Html:
    when = "are about to change" if clients.hosts_change else "change"
    text = f"do not start again when all hosts of {pool} {when}: {some_of(clients.lost)}"
    return element("p", element("strong", "Clients"), " ", text, class_="box warn")


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


def registration_section(view: ClusterView) -> Html:
    """Return every registration, ghosts first, and what they block."""
    title = heading("registrations", "Registrations")
    if not view.is_observed:
        return fragment(title, nothing_observed())
    if view.registrations is None:
        nothing = element("p", "They are not known while no leader answers.", class_="quiet")
        return fragment(title, nothing)
    if not view.registrations:
        return fragment(title, element("p", "No node is registered yet.", class_="quiet"))
    found = sorted(
        view.registrations,
        key=lambda found: (not found.is_ghost, found.registration.role, found.registration.node_id),
    )
    columns = ["Node", "Role", "State", "metadata.version", "Endpoints"]
    rows = [_registration_row(registration) for registration in found[:ROWS_SHOWN_MAX]]
    boxes = [
        element(
            "div",
            element("strong", f"Ghost {ghost.registration.node_id}"),
            " ",
            _ghost_words(ghost.blocks),
            class_="box warn",
        )
        for ghost in found
        if ghost.is_ghost
    ]
    return fragment(title, boxes, table("Registrations", columns, rows), more(len(found)))


def _ghost_words(blocks: Sequence[Block]) -> str:
    if not blocks:
        return "is registered and gone. It blocks no feature level today."
    blocked = "; ".join(
        f"{block.feature} above {block.highest}, other nodes support up to {block.target}" for block in blocks
    )
    return f"is registered and gone, and blocks {blocked}."


def _registration_row(view: RegistrationView) -> Html:
    registration = view.registration
    if view.is_ghost:
        word = said("ghost", "bad")
    elif registration.fenced:
        word = said("fenced", "warn")
    elif registration.in_controlled_shutdown:
        word = said("leaving", "warn")
    else:
        word = said("in use", "good")
    lowest, highest = registration.features.get(METADATA_VERSION, (0, 0))
    ends = [
        element("div", f"{name} ", element("code", str(at)))
        for name, at in sorted(registration.endpoints.items())
    ]
    return row(
        registration.node_id,
        [str(registration.role), word, f"{lowest} to {highest}" if highest else UNKNOWN, ends or "none"],
    )


def address_section(view: ClusterView) -> Html:
    """Return every desired or published address, and where it leads."""
    title = heading("addresses", "Addresses")
    if not view.is_observed:
        return fragment(title, nothing_observed())
    if not view.addresses:
        return fragment(title, element("p", "No address is published.", class_="quiet"))
    cluster_id = view.cluster_id if view.registrations is not None else None
    rows = [_address_row(address, cluster_id) for address in view.addresses[:ROWS_SHOWN_MAX]]
    columns = ["Address", "Node", "Listener", "Window", "Reached", "Clients"]
    return fragment(title, table("Addresses", columns, rows), more(len(view.addresses)))


def _address_row(view: AddressView, cluster_id: str | None) -> Html:
    published = view.publication
    return row(
        element("code", str(view.address)),
        [
            view.node_id,
            view.listener,
            _window(published, view.is_desired),
            _reached(view.reached, view.node_id, cluster_id),
            UNKNOWN if published is None or published.connections is None else published.connections,
        ],
    )


def _window(publication: Publication | None, is_wanted: bool) -> Child:
    if publication is None:
        return element("span", "not published here", class_="quiet")
    if publication.retired_at_ms is not None:
        return [element("span", "retired", class_="state calm"), " ", moment(publication.retired_at_ms)]
    word = "current" if is_wanted else "leaving"
    return [
        element("span", word, class_="state good" if is_wanted else "state warn"),
        " ",
        moment(publication.since_ms),
    ]


def _reached(reached: Reached | None, node_id: int, cluster_id: str | None) -> Child:
    if reached is None:
        return element("span", "not probed", class_="quiet")
    if reached.error is not None:
        return said(reached.error, "bad long")
    if reached.is_resolved:
        return said("its name resolves", "quiet")
    if reached.is_anonymous:
        return said("a node with a trusted certificate", "good")
    if cluster_id is not None and reached.cluster_id not in (None, cluster_id):
        return said(f"another cluster, {reached.cluster_id}", "bad")
    if reached.node_id is None:
        return said("this cluster; the node is unknown", "warn")
    if reached.node_id != node_id:
        return said(f"node {reached.node_id} instead", "bad")
    return said("the right node", "good")
