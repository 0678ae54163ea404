"""The quorum as inline SVG, coloured by the page's style sheet. Pure."""

from math import cos, pi, sin
from typing import Final

from quorate_operator.planning.cluster import NodeState
from quorate_operator.view.quorum import QuorumView, ReplicaView
from quorate_operator.view.texts import counted
from quorate_operator.web.html import Html, element

WIDTH: Final = 520
GAUGE_RADIUS: Final = 58
OBSERVERS_IN_A_ROW: Final = 5


def quorum_picture(quorum: QuorumView) -> Html:
    """Return voters in a ring, the leader on top; in the middle the number of caught-up voters; observers below."""
    count = len(quorum.voters)
    radius, node_radius = (158, 36) if count <= 5 else (175, 30)
    centre_x, centre_y = WIDTH / 2, radius + node_radius + 14
    # The leader on top, the others clockwise behind it by id.
    lead = next((place for place, replica in enumerate(quorum.voters) if replica.is_leader), 0)
    ring = (*quorum.voters[lead:], *quorum.voters[:lead])
    spokes, nodes = [], []
    for place, voter in enumerate(ring):
        angle = 2 * pi * place / count - pi / 2
        x, y = centre_x + radius * cos(angle), centre_y + radius * sin(angle)
        spokes.append(_spoke(voter, (centre_x, centre_y), angle, (GAUGE_RADIUS + 8, radius - node_radius)))
        nodes.append(_node(voter, x, y, node_radius))
    lowest = max(
        (centre_y + radius * sin(2 * pi * place / count - pi / 2) for place in range(count)), default=0
    )
    below = max(lowest + node_radius, centre_y + GAUGE_RADIUS) + 34
    rows = [
        quorum.observers[at : at + OBSERVERS_IN_A_ROW]
        for at in range(0, len(quorum.observers), OBSERVERS_IN_A_ROW)
    ]
    observers: list[Html] = []
    for row in rows:
        gap = WIDTH / (len(row) + 1)
        observers += [
            _node(replica, gap * place, below + 30, 26) for place, replica in enumerate(row, start=1)
        ]
        below += 88
    return element(
        "svg",
        element("title", "The controller quorum", id="picture-title"),
        element("desc", describe(quorum), id="picture-desc"),
        spokes,
        _gauge(quorum, centre_x, centre_y),
        nodes,
        observers,
        viewBox=f"0 0 {WIDTH} {below + 4:.0f}",
        role="img",
        aria_labelledby="picture-title",
        aria_describedby="picture-desc",
        class_="quorum",
    )


def describe(quorum: QuorumView) -> str:
    """Return the picture in words, for screen readers."""
    leader = next((voter for voter in quorum.voters if voter.is_leader), None)
    led = f"Controller {leader.node_id} leads." if leader is not None else "No controller leads."
    text = (
        f"{led} {quorum.caught_up} of {counted(len(quorum.voters), 'voter', 'voters')} caught up; "
        f"a majority is {quorum.majority}. {spare_words(quorum)}"
    )
    if quorum.observers:
        ids = ", ".join(str(observer.node_id) for observer in quorum.observers)
        text += f" Observers: {ids}."
    return text


def spare_words(quorum: QuorumView) -> str:
    """Return how many voters may be lost before there is no majority."""
    if quorum.spare < 0:
        return f"A majority is missing: {counted(-quorum.spare, 'voter', 'voters')} more must catch up."
    if quorum.spare == 0:
        return "No further voter may be lost."
    return f"{counted(quorum.spare, 'voter', 'voters')} may be lost."


def replica_words(replica: ReplicaView) -> str:
    """Return the state of a controller in two words."""
    if replica.is_leader:
        return "leader"
    if replica.state is not None and not replica.state.runs:
        return str(replica.state)
    if replica.caught_up:
        return "caught up"
    if replica.lag:
        return f"{replica.lag} behind"
    return str(replica.state) if replica.state is not None else "unknown"


def tone_of(replica: ReplicaView) -> str:
    """Return the CSS class: good, warn or bad."""
    if replica.state is NodeState.CRASHED:
        return "bad"
    if replica.caught_up:
        return "good"
    return "warn" if replica.state is None or replica.state.runs or not replica.is_voter else "bad"


def _node(replica: ReplicaView, x: float, y: float, radius: float) -> Html:
    kind = "leader" if replica.is_leader else "voter" if replica.is_voter else "observer"
    label = str(replica.node_id)
    size = min(20, int(2.9 * radius / max(len(label), 4)))
    halo = (
        element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=radius + 6, class_="halo")
        if replica.is_leader
        else None
    )
    return element(
        "g",
        halo,
        element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=radius),
        element("text", label, x=f"{x:.1f}", y=f"{y + size * 0.35:.1f}", class_="id", font_size=size),
        element(
            "text",
            replica_words(replica),
            x=f"{x:.1f}",
            y=f"{y + radius + (28 if replica.is_leader else 22):.1f}",
            class_="state",
        ),
        class_=f"{kind} {tone_of(replica)}",
        aria_hidden="true",
    )


def _spoke(
    replica: ReplicaView, centre: tuple[float, float], angle: float, reach: tuple[float, float]
) -> Html:
    (x, y), (inner, outer) = centre, reach
    return element(
        "line",
        x1=f"{x + inner * cos(angle):.1f}",
        y1=f"{y + inner * sin(angle):.1f}",
        x2=f"{x + outer * cos(angle):.1f}",
        y2=f"{y + outer * sin(angle):.1f}",
        class_=f"spoke {'good' if replica.caught_up else 'broken'}",
        aria_hidden="true",
    )


def _gauge(quorum: QuorumView, x: float, y: float) -> Html:
    """Return a ring with one part for each voter, filled for those caught up, and a mark at the majority."""
    count = max(len(quorum.voters), 1)
    length = 2 * pi * GAUGE_RADIUS
    part = length / count
    gap = 4 if count > 1 else 0
    arcs = [
        element(
            "circle",
            cx=f"{x:.1f}",
            cy=f"{y:.1f}",
            r=GAUGE_RADIUS,
            class_=f"part {'full' if place < quorum.caught_up else 'empty'}",
            stroke_dasharray=f"{part - gap:.2f} {length - part + gap:.2f}",
            stroke_dashoffset=f"{-place * part - gap / 2:.2f}",
            transform=f"rotate(-90 {x:.1f} {y:.1f})",
        )
        for place in range(count)
    ]
    angle = 2 * pi * quorum.majority / count - pi / 2
    mark = element(
        "line",
        x1=f"{x + (GAUGE_RADIUS - 11) * cos(angle):.1f}",
        y1=f"{y + (GAUGE_RADIUS - 11) * sin(angle):.1f}",
        x2=f"{x + (GAUGE_RADIUS + 11) * cos(angle):.1f}",
        y2=f"{y + (GAUGE_RADIUS + 11) * sin(angle):.1f}",
        class_="majority",
    )
    return element(
        "g",
        arcs,
        mark,
        element(
            "text", f"{quorum.caught_up}/{len(quorum.voters)}", x=f"{x:.1f}", y=f"{y + 3:.1f}", class_="count"
        ),
        element("text", f"majority {quorum.majority}", x=f"{x:.1f}", y=f"{y + 25:.1f}", class_="note"),
        class_=f"gauge {'bad' if quorum.spare < 0 else 'tight' if quorum.spare == 0 and count > 1 else 'good'}",
        aria_hidden="true",
    )
