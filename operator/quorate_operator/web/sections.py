"""The parts of a cluster's page, each from its view. Pure; the server sends those that changed."""

from typing import Final

from quorate_protocol.features import KRAFT_VERSION, METADATA_VERSION

from quorate_operator.planning.cluster import Lifecycle
from quorate_operator.planning.steps import WaitFor
from quorate_operator.view.cluster import ClusterView, StepView
from quorate_operator.view.texts import counted, level_words
from quorate_operator.web.controls import Access, form, moment, pill
from quorate_operator.web.html import Child, Html, element, fragment, heading
from quorate_operator.web.nodes import broker_section, quorum_section
from quorate_operator.web.port import ClusterSnapshot
from quorate_operator.web.registrations import address_section, registration_section

STEPS_SHOWN_MAX: Final = 40
EVENTS_SHOWN_MAX: Final = 50
WIDE_FACTS: Final = frozenset({"Cluster id", "Other features"})


def cluster_sections(snapshot: ClusterSnapshot, access: Access) -> dict[str, Html]:
    """Returns the content of each part of the page by its id."""
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
    facts.append(("Last look", moment(snapshot.at_ms)))
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
