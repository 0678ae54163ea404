"""Registrations and addresses on a cluster's page. Pure."""

from collections.abc import Sequence

from quorate_protocol.features import METADATA_VERSION

from quorate_operator.planning.cluster import Publication, Reached
from quorate_operator.view.cluster import AddressView, Block, ClusterView, RegistrationView
from quorate_operator.view.texts import UNKNOWN
from quorate_operator.web.controls import moment, said
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
from quorate_operator.web.nodes import nothing_observed


def registration_section(view: ClusterView) -> Html:
    """Returns every registration, ghosts first, and what they block."""
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
        key=lambda one: (not one.is_ghost, one.registration.role, one.registration.node_id),
    )
    columns = ["Node", "Role", "State", "metadata.version", "Endpoints"]
    rows = [_registration_row(one) for one in found[:ROWS_SHOWN_MAX]]
    boxes = [
        element(
            "div",
            element("strong", f"Ghost {one.registration.node_id}"),
            " ",
            _ghost_words(one.blocks),
            class_="box warn",
        )
        for one in found
        if one.is_ghost
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
    one = view.registration
    if view.is_ghost:
        word = said("ghost", "bad")
    elif one.fenced:
        word = said("fenced", "warn")
    elif one.in_controlled_shutdown:
        word = said("leaving", "warn")
    else:
        word = said("in use", "good")
    lowest, highest = one.features.get(METADATA_VERSION, (0, 0))
    ends = [
        element("div", f"{name} ", element("code", str(at))) for name, at in sorted(one.endpoints.items())
    ]
    return row(
        one.node_id, [str(one.role), word, f"{lowest} to {highest}" if highest else UNKNOWN, ends or "none"]
    )


def address_section(view: ClusterView) -> Html:
    """Returns every desired or published address, and where it leads."""
    title = heading("addresses", "Addresses")
    if not view.is_observed:
        return fragment(title, nothing_observed())
    if not view.addresses:
        return fragment(title, element("p", "No address is published.", class_="quiet"))
    cluster_id = view.cluster_id if view.registrations is not None else None
    rows = [_address_row(address, cluster_id) for address in view.addresses[:ROWS_SHOWN_MAX]]
    columns = ["Address", "Node", "Listener", "Window", "Reached", "Clients"]
    return fragment(title, table("Addresses", columns, rows), more(len(view.addresses)))


def _address_row(one: AddressView, cluster_id: str | None) -> Html:
    published = one.publication
    return row(
        element("code", str(one.address)),
        [
            one.node_id,
            one.listener,
            _window(published, one.is_desired),
            _reached(one.reached, one.node_id, cluster_id),
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
    if reached.is_anonymous:
        return said("a node with a trusted certificate", "good")
    if cluster_id is not None and reached.cluster_id not in (None, cluster_id):
        return said(f"another cluster, {reached.cluster_id}", "bad")
    if reached.node_id is None:
        return said("this cluster; the node is unknown", "warn")
    if reached.node_id != node_id:
        return said(f"node {reached.node_id} instead", "bad")
    return said("the right node", "good")
