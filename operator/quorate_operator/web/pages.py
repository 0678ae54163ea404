"""Whole pages. Pure."""

from collections.abc import Sequence
from typing import Final

from quorate_operator.web.controls import Access, cluster_path, moment, pill
from quorate_operator.web.html import Child, Html, element, fragment
from quorate_operator.web.sections import cluster_sections
from quorate_operator.web.snapshots import ClusterKey, ClusterSnapshot

SECTIONS: Final = ("plan", "quorum", "brokers", "registrations", "addresses", "events")
"""The parts of a cluster's page that have a heading, in the order of the page."""

NOTICES: Final = {
    "paused": "Paused. The operator changes nothing until you resume.",
    "resumed": "Resumed.",
    "restarting": "The restart was requested; it happens when the quorum and the partitions allow it.",
    "unlocked": "Unlocked: you can pause clusters and restart nodes.",
    "locked": "Locked: the page is read-only.",
}
"""The message after a command, by the `notice` in the address."""


def list_page(clusters: Sequence[ClusterSnapshot], access: Access, notice: str | None = None) -> Html:
    """Return the page of all clusters; `clusters-list` is kept up to date."""
    count = len(clusters)
    return _page(
        title="Clusters",
        access=access,
        notice=notice,
        stream="/events",
        body=fragment(
            element("h1", "Clusters"),
            element("p", list_announcement(clusters), id="announcement", role="status", class_="unseen"),
            element("section", cluster_list(clusters), id="clusters-list", aria_label=f"Clusters: {count}"),
        ),
    )


def list_announcement(clusters: Sequence[ClusterSnapshot]) -> Html:
    """Return the number of clusters by health, for screen readers."""
    states = [cluster.view().health for cluster in clusters]
    return fragment(
        ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)) or "No cluster"
    )


def cluster_list(clusters: Sequence[ClusterSnapshot]) -> Html:
    if not clusters:
        return element("p", "There is no cluster yet: apply a KafkaController.", class_="quiet")
    return element("ul", [_card(cluster) for cluster in clusters], class_="cards")


def _card(snapshot: ClusterSnapshot) -> Html:
    key, view = snapshot.key, snapshot.view()
    quorum = view.quorum
    voters = (
        "not observed yet"
        if quorum is None
        else f"{quorum.caught_up} of {len(quorum.voters)} voters caught up"
    )
    return element(
        "li",
        element("h2", element("a", key.name, href=cluster_path(key)), " ", element("small", key.namespace)),
        element("p", pill(view.health), " ", voters),
        element("p", view.next, class_="why"),
        element("p", "seen ", moment(snapshot.at_ms), class_="quiet"),
    )


def cluster_page(snapshot: ClusterSnapshot, access: Access, notice: str | None = None) -> Html:
    key = snapshot.key
    parts = cluster_sections(snapshot, access)
    return _page(
        title=key.name,
        access=access,
        notice=notice,
        stream=f"{cluster_path(key)}/events",
        body=fragment(
            element("nav", element("a", "Clusters", href="/"), aria_label="Breadcrumb", class_="crumbs"),
            element("h1", key.name, " ", element("small", key.namespace)),
            element("p", parts["announcement"], id="announcement", role="status", class_="unseen"),
            element("section", parts["summary"], id="summary", aria_label="Summary"),
            [
                element("section", parts[name], id=name, aria_labelledby=f"{name}-title", class_="card")
                for name in SECTIONS
            ],
        ),
    )


def not_found_page(key: ClusterKey | None, access: Access) -> Html:
    text = (
        f"There is no cluster {key.name} in {key.namespace}." if key is not None else "There is no such page."
    )
    return _page(title="Not found", access=access, body=_message("Not found", text))


def refused_page(title: str, text: str, access: Access) -> Html:
    return _page(title=title, access=access, body=_message(title, text))


def _message(title: str, text: str) -> Html:
    back = element("p", element("a", "All clusters", href="/"))
    return fragment(element("h1", title), element("p", text, class_="box warn", role="alert"), back)


def _page(
    *, title: str, access: Access, body: Html, stream: str | None = None, notice: str | None = None
) -> Html:
    said = NOTICES.get(notice or "")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title} · Quorate"),
        element("link", rel="icon", href="/assets/icon.svg", type="image/svg+xml"),
        element("link", rel="stylesheet", href="/assets/style.css"),
        element("script", src="/assets/live.js", defer=True) if stream is not None else None,
    )
    header = element(
        "header",
        element("a", "Quorate", href="/", class_="brand"),
        element("p", "not live", id="live", class_="quiet", hidden=stream is None),
    )
    box = element("p", said, class_="box good", role="status") if said else None
    return fragment(
        Html("<!DOCTYPE html>\n"),
        element(
            "html",
            head,
            element(
                "body",
                element("a", "Skip to the content", href="#main", class_="skip"),
                header,
                element("main", box, body, id="main", tabindex=-1, data_stream=stream),
                element("footer", _access(access)),
            ),
            lang="en",
        ),
    )


def _access(access: Access) -> Child:
    if access.csrf is not None:
        return element(
            "form",
            element("input", type="hidden", name="csrf", value=access.csrf),
            element("button", "Lock", type="submit"),
            method="post",
            action="/lock",
        )
    if not access.can_unlock:
        return element("p", "This page is read-only.", class_="quiet")
    return element(
        "form",
        element("label", "Token to pause and restart", for_="token"),
        element("input", type="password", id="token", name="token", required=True, autocomplete="off"),
        element("button", "Unlock", type="submit"),
        method="post",
        action="/unlock",
        class_="unlock",
    )
