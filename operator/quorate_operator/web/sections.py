"""The parts of a cluster's page, each from a snapshot. Pure; the server sends those that changed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from quorate_protocol.features import METADATA_VERSION

from quorate_operator.planning.cluster import (
    Lifecycle,
    NodeState,
    ObservedCluster,
    ObservedNode,
    ObservedRegistration,
    Publication,
    Reached,
    Role,
)
from quorate_operator.planning.steps import Plan, Step, WaitFor
from quorate_operator.runtime.wording import Label
from quorate_operator.web.facts import (
    Ghost,
    Health,
    Replica,
    ghosts,
    health_of,
    label_of,
    next_words,
    quorum_facts,
)
from quorate_operator.web.html import Child, Html, element, fragment
from quorate_operator.web.picture import quorum_picture, spare_words, tone_of
from quorate_operator.web.port import ClusterKey, ClusterSnapshot
from quorate_operator.web.words import (
    UNKNOWN,
    action_words,
    clock_time,
    counted,
    iso_time,
    level_words,
    size_words,
)

STEPS_SHOWN_MAX: Final = 40
ROWS_SHOWN_MAX: Final = 200
EVENTS_SHOWN_MAX: Final = 50
WIDE_FACTS: Final = frozenset({"Cluster id", "Other features"})

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
    """What the reader may do: `csrf` is the word that each form has to bring, None for those who only read."""

    can_unlock: bool = False
    csrf: str | None = None


def cluster_sections(snapshot: ClusterSnapshot, access: Access) -> dict[str, Html]:
    """The contents of each part of the page by its id."""
    observed = snapshot.observed
    parts = {"announcement": announcement(snapshot), "summary": _summary(snapshot, access)}
    parts["plan"] = _plan(snapshot.plan, label_of(snapshot))
    if observed is not None:
        parts["quorum"] = _quorum(snapshot.key, observed, access)
        parts["brokers"] = _brokers(snapshot.key, observed, access)
        parts["registrations"] = _registrations(observed)
        parts["addresses"] = _addresses(snapshot, observed)
    else:
        nothing = element("p", "Nothing was observed yet.", class_="quiet")
        titles = {
            "quorum": "Quorum",
            "brokers": "Brokers",
            "registrations": "Registrations",
            "addresses": "Addresses",
        }
        parts |= {name: fragment(_heading(name, title), nothing) for name, title in titles.items()}
    parts["events"] = _events(snapshot)
    return parts


def announcement(snapshot: ClusterSnapshot) -> Html:
    """One sentence for screen readers, said when it changes."""
    return fragment(f"{snapshot.key.name}: {health_of(snapshot)}; {next_words(snapshot)}.")


def pill(health: Health) -> Html:
    """The cluster's health as a coloured word."""
    return element("span", str(health), class_=f"pill {TONES[health]}")


def moment(at_ms: int) -> Html:
    """A time; the script turns it into "12 s ago"."""
    return element("time", clock_time(at_ms), datetime=iso_time(at_ms))


def _summary(snapshot: ClusterSnapshot, access: Access) -> Html:
    observed, desired = snapshot.observed, snapshot.desired
    quorum = observed.quorum if observed is not None else None
    kafka = observed.kafka if observed is not None else None
    cluster_id = (
        kafka.cluster_id if kafka is not None else desired.cluster_id if desired is not None else None
    )
    facts: list[tuple[str, Child]] = [
        ("Cluster id", element("code", cluster_id) if cluster_id else "not formed yet")
    ]
    if quorum is not None:
        facts += [
            ("Leader", f"{quorum.leader_id} in epoch {quorum.leader_epoch}"),
            ("High watermark", str(quorum.high_watermark)),
        ]
    else:
        facts.append(("Leader", "none answers"))
    if kafka is not None:
        level = kafka.features.get(METADATA_VERSION, 0)
        facts.append(
            ("metadata.version", _metadata_version(level, desired.metadata_version if desired else None))
        )
        others = {name: one for name, one in sorted(kafka.features.items()) if name != METADATA_VERSION}
        if quorum is not None:
            others = {"kraft.version": quorum.kraft_version, **others}
        facts.append(
            ("Other features", ", ".join(f"{name} {level}" for name, level in others.items()) or "none")
        )
        if kafka.offline_partitions:
            offline = counted(kafka.offline_partitions, "partition", "partitions")
            facts.append(("Offline", element("strong", offline, class_="bad")))
    facts.append(("Last look", moment(snapshot.at_ms)))
    return fragment(
        element("p", pill(health_of(snapshot)), " ", next_words(snapshot), class_="lead"),
        element("p", element("strong", "Problem: "), snapshot.problem, class_="box bad")
        if snapshot.problem
        else None,
        element("dl", [_fact(name, value) for name, value in facts]),
        _pause_form(snapshot, access),
    )


def _fact(name: str, value: Child) -> Html:
    return element(
        "div", element("dt", name), element("dd", value), class_="wide" if name in WIDE_FACTS else None
    )


def _metadata_version(level: int, wanted: str | None) -> Child:
    text = level_words(METADATA_VERSION, level)
    name = text.partition("(")[2].rstrip(")")
    is_as_wanted = wanted is None or name == wanted or name.startswith(f"{wanted}-")
    return text if is_as_wanted else f"{text}, asked for: {wanted}"


def _pause_form(snapshot: ClusterSnapshot, access: Access) -> Html | None:
    if access.csrf is None or snapshot.desired is None:
        return None
    is_paused = snapshot.desired.lifecycle is Lifecycle.PAUSED
    verb = "resume" if is_paused else "pause"
    explained = "Go on with the plan" if is_paused else "Change nothing until resumed"
    return _form(snapshot.key, verb, verb.capitalize(), access.csrf, described=explained)


def _form(key: ClusterKey, action: str, label: str, csrf: str, *, described: str, **fields: int) -> Html:
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
    """Where the page of a cluster is. Names of Kubernetes need no quoting."""
    return f"/clusters/{key.namespace}/{key.name}"


def _plan(plan: Plan | None, label: Label) -> Html:
    parts: list[Child] = [_heading("plan", "Plan")]
    if plan is None:
        return fragment(parts, element("p", "There is no plan yet.", class_="quiet"))
    parts += [
        element("div", element("strong", refusal.code), " ", refusal.message, class_="box warn refusal")
        for refusal in plan.refusals
    ]
    if not plan.steps:
        return fragment(parts, element("p", "The cluster is as it is asked to be.", class_="quiet"))
    due = len(plan.due)
    items = [
        _step(step, label, is_due=place < due) for place, step in enumerate(plan.steps[:STEPS_SHOWN_MAX])
    ]
    parts.append(element("ol", items, class_="steps"))
    if (more := len(plan.steps) - STEPS_SHOWN_MAX) > 0:
        parts.append(element("p", f"and {counted(more, 'step', 'steps')} more", class_="quiet"))
    return fragment(parts)


def _step(step: Step, label: Label, *, is_due: bool) -> Html:
    if isinstance(step, WaitFor):
        until = ["; at the latest ", moment(step.until_ms)] if step.until_ms is not None else None
        mark = element("span", "wait", class_="tag")
        return element("li", mark, " ", element("span", step.reason, until, class_="what"), class_="wait")
    mark = element("span", "now" if is_due else "later", class_="tag")
    return element(
        "li",
        mark,
        " ",
        element("span", action_words(step, label), class_="what"),
        " ",
        element("span", step.reason, class_="why"),
        class_="now" if is_due else "later",
    )


def _quorum(key: ClusterKey, observed: ObservedCluster, access: Access) -> Html:
    facts = quorum_facts(observed)
    if not facts.voters:
        nothing = element("p", "There are no controllers yet.", class_="quiet")
        return fragment(_heading("quorum", "Quorum"), nothing)
    columns = ["Controller", "Role", "State", "Lag", "Directory id", *(["Actions"] if access.csrf else [])]
    rows = [_controller_row(key, observed, one, access) for one in (*facts.voters, *facts.observers)]
    known = {one.node_id for one in (*facts.voters, *facts.observers)}
    rows += [
        _idle_controller_row(node, len(columns))
        for node in sorted(observed.nodes.values(), key=lambda node: node.node_id)
        if node.role is Role.CONTROLLER and node.node_id not in known
    ]
    return fragment(
        _heading("quorum", "Quorum"),
        element(
            "div",
            element("figure", quorum_picture(facts), element("figcaption", spare_words(facts))),
            _table("Controllers", columns, rows),
            class_="beside",
        ),
    )


def _controller_row(key: ClusterKey, observed: ObservedCluster, one: Replica, access: Access) -> Html:
    node = observed.nodes.get(one.node_id)
    role = "leader" if one.is_leader else "voter" if one.is_voter else "observer"
    cells: list[Child] = [
        role,
        _state(str(one.state) if one.state is not None else "not here", tone_of(one), node),
        UNKNOWN if one.lag is None else counted(one.lag, "record", "records"),
        element("code", one.directory_id) if one.directory_id else UNKNOWN,
    ]
    if access.csrf is not None:
        cells.append(_restart_form(key, node, access.csrf))
    return _row(one.node_id, cells)


def _idle_controller_row(node: ObservedNode, columns: int) -> Html:
    cells: list[Child] = ["no voter", _state(str(node.state), "warn", node), UNKNOWN]
    cells.append(element("code", node.directory_id) if node.directory_id else UNKNOWN)
    return _row(node.node_id, [*cells, *[""] * (columns - 1 - len(cells))])


def _restart_form(key: ClusterKey, node: ObservedNode | None, csrf: str) -> Child:
    if node is None or not node.state.runs:
        return ""
    described = f"Node {node.node_id}, when the quorum and the partitions allow it"
    return _form(key, "restart", "Restart", csrf, described=described, node=node.node_id)


def _state(text: str, tone: str, node: ObservedNode | None) -> Html:
    """A state with a dot, and what keeps a node from being well."""
    why: list[str] = []
    if node is not None:
        if node.problem:
            why.append(node.problem)
        if node.exit_reason and node.state is NodeState.CRASHED:
            again = f", {node.exits_in_a_row} times in a row" if node.exits_in_a_row > 1 else ""
            why.append(f"{node.exit_reason}{again}")
        if node.unreachable_host:
            why.append("its machine does not answer")
    return fragment(
        element("span", text, class_=f"state {tone}"),
        element("span", "; ".join(why), class_="why") if why else None,
    )


def _brokers(key: ClusterKey, observed: ObservedCluster, access: Access) -> Html:
    nodes = sorted(
        (node for node in observed.nodes.values() if node.role is Role.BROKER), key=lambda node: node.node_id
    )
    heading = _heading("brokers", "Brokers")
    if not nodes:
        return fragment(heading, element("p", "No broker is asked for.", class_="quiet"))
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
    rows = [_broker_row(key, observed, node, access) for node in nodes[:ROWS_SHOWN_MAX]]
    return fragment(heading, _table("Brokers", columns, rows), _more(len(nodes)))


def _broker_row(key: ClusterKey, observed: ObservedCluster, node: ObservedNode, access: Access) -> Html:
    kafka = observed.kafka
    registration = kafka.registrations.get(node.node_id) if kafka is not None else None
    load = kafka.loads.get(node.node_id) if kafka is not None else None
    text, tone = str(node.state), _node_tone(node.state)
    if registration is not None and registration.in_controlled_shutdown:
        text, tone = f"{text}, leaving", "warn"
    elif registration is not None and registration.fenced:
        text, tone = f"{text}, fenced", "warn" if node.state.runs else tone
    cells: list[Child] = [
        _state(text, tone, node),
        load.leaders if load is not None else UNKNOWN,
        load.replicas if load is not None else UNKNOWN,
        size_words(load.used_bytes if load is not None else None),
        size_words(load.free_bytes if load is not None else None),
        (registration.rack if registration is not None else None) or UNKNOWN,
    ]
    if access.csrf is not None:
        cells.append(_restart_form(key, node, access.csrf))
    return _row(node.node_id, cells)


def _node_tone(state: NodeState) -> str:
    if state is NodeState.READY:
        return "good"
    return "bad" if state is NodeState.CRASHED else "warn"


def _registrations(observed: ObservedCluster) -> Html:
    heading = _heading("registrations", "Registrations")
    if observed.kafka is None:
        nothing = element("p", "They are not known while no leader answers.", class_="quiet")
        return fragment(heading, nothing)
    found = {ghost.registration.node_id: ghost for ghost in ghosts(observed)}
    everybody = sorted(
        observed.kafka.registrations.values(),
        key=lambda one: (one.node_id not in found, one.role, one.node_id),
    )
    if not everybody:
        return fragment(heading, element("p", "Nobody is registered yet.", class_="quiet"))
    columns = ["Node", "Role", "State", "metadata.version", "Endpoints"]
    rows = [_registration_row(one, found.get(one.node_id)) for one in everybody[:ROWS_SHOWN_MAX]]
    told = [
        element("div", element("strong", f"Ghost {node_id}"), " ", _ghost_words(ghost), class_="box warn")
        for node_id, ghost in found.items()
    ]
    return fragment(heading, told, _table("Registrations", columns, rows), _more(len(everybody)))


def _ghost_words(ghost: Ghost) -> str:
    if not ghost.blocks:
        return "is registered and gone. It blocks no feature level today."
    blocked = "; ".join(
        f"{feature} above {highest}, the others support {level}" for feature, highest, level in ghost.blocks
    )
    return f"is registered and gone, and blocks {blocked}."


def _registration_row(one: ObservedRegistration, ghost: Ghost | None) -> Html:
    if ghost is not None:
        state = element("span", "ghost", class_="state bad")
    elif one.fenced:
        state = element("span", "fenced", class_="state warn")
    elif one.in_controlled_shutdown:
        state = element("span", "leaving", class_="state warn")
    else:
        state = element("span", "in use", class_="state good")
    lowest, highest = one.features.get(METADATA_VERSION, (0, 0))
    ends = [
        element("div", f"{name} ", element("code", str(at))) for name, at in sorted(one.endpoints.items())
    ]
    return _row(
        one.node_id, [str(one.role), state, f"{lowest} to {highest}" if highest else UNKNOWN, ends or "none"]
    )


def _addresses(snapshot: ClusterSnapshot, observed: ObservedCluster) -> Html:
    heading = _heading("addresses", "Addresses")
    published = {one.address: one for one in observed.publications}
    wanted = {
        address: (node.node_id, listener)
        for node in (snapshot.desired.nodes if snapshot.desired is not None else ())
        for listener, address in node.advertised.items()
    }
    every = sorted({*published, *wanted})
    if not every:
        return fragment(heading, element("p", "No address is published.", class_="quiet"))
    rows = []
    for address in every[:ROWS_SHOWN_MAX]:
        publication = published.get(address)
        if publication is not None:
            node_id, listener = publication.node_id, publication.listener
        else:
            node_id, listener = wanted[address]
        rows.append(
            _row(
                element("code", str(address)),
                [
                    node_id,
                    listener,
                    _window(publication, address in wanted),
                    _reached(observed.probes.get(address), node_id, _cluster_id(observed)),
                    UNKNOWN
                    if publication is None or publication.connections is None
                    else publication.connections,
                ],
            )
        )
    columns = ["Address", "Node", "Listener", "Window", "Reached", "Clients"]
    return fragment(heading, _table("Addresses", columns, rows), _more(len(every)))


def _cluster_id(observed: ObservedCluster) -> str | None:
    return observed.kafka.cluster_id if observed.kafka is not None else None


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
        return element("span", "not looked at", class_="quiet")
    if reached.error is not None:
        return _said(reached.error, "bad long")
    if cluster_id is not None and reached.cluster_id not in (None, cluster_id):
        return _said(f"another cluster, {reached.cluster_id}", "bad")
    if reached.node_id is None:
        return _said("the cluster; which node is not told", "warn")
    if reached.node_id != node_id:
        return _said(f"node {reached.node_id} instead", "bad")
    return _said("the right node", "good")


def _said(text: str, tone: str) -> Html:
    return element("span", text, class_=f"state {tone}")


def _events(snapshot: ClusterSnapshot) -> Html:
    heading = _heading("events", "Recent events")
    if not snapshot.events:
        return fragment(heading, element("p", "Nothing happened since this operator runs.", class_="quiet"))
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
    return fragment(heading, element("ol", items, class_="events"))


def _heading(section: str, title: str) -> Html:
    return element("h2", title, id=f"{section}-title")


def _table(caption: str, columns: Iterable[str], rows: Iterable[Html]) -> Html:
    """A table that scrolls by itself on narrow screens, also with the keyboard."""
    head = element("tr", [element("th", column, scope="col") for column in columns])
    return element(
        "div",
        element(
            "table",
            element("caption", caption, class_="unseen"),
            element("thead", head),
            element("tbody", rows),
        ),
        class_="scroll",
        role="region",
        aria_label=f"{caption}, table",
        tabindex=0,
    )


def _row(head: Child, cells: Iterable[Child]) -> Html:
    return element("tr", element("th", head, scope="row"), [element("td", cell) for cell in cells])


def _more(count: int) -> Html | None:
    if count <= ROWS_SHOWN_MAX:
        return None
    return element("p", f"and {count - ROWS_SHOWN_MAX} more, which are not shown", class_="quiet")
