"""Pages of the status page: valid HTML, usable without eyes, and what they say in each situation."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from kit.snapshots import CLUSTER_ID, CONTROLLERS, NOW_MS, busy, new_host, replica, well
from quorate_operator.planning.cluster import (
    Address,
    DesiredCluster,
    Lifecycle,
    NodeState,
    ObservedCluster,
    Publication,
    Reached,
)
from quorate_operator.planning.steps import Plan, Refusal, StartNode, WaitFor
from quorate_operator.view.cluster import Health
from quorate_operator.view.quorum import Block, QuorumView, RegistrationView
from quorate_operator.view.texts import size_words
from quorate_operator.web.controls import Access
from quorate_operator.web.html import VOID, Html
from quorate_operator.web.pages import cluster_list, cluster_page, list_page, not_found_page
from quorate_operator.web.picture import quorum_picture
from quorate_operator.web.sections import cluster_sections
from quorate_operator.web.snapshots import ClusterEvent, ClusterKey, ClusterSnapshot

READ_ONLY = Access()
UNLOCKED = Access(can_unlock=True, csrf="genuine")
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
UNKNOWN = ClusterSnapshot(key=ClusterKey("kafka", "new"), at_ms=NOW_MS, problem="spec.replicas: 0: too few")


class Checker(HTMLParser):
    """Collects what is wrong with a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.headings: list[int] = []
        self.faults: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        given = dict(attrs)
        self.tags.append(tag)
        if len(set(names)) != len(names):
            self.faults.append(f"{tag} has an attribute twice")
        if any(name.startswith("on") or name == "style" for name in names):
            self.faults.append(f"{tag} has code or style of its own, which the policy forbids")
        if tag == "th" and "scope" not in given:
            self.faults.append("a th without scope")
        if tag == "input" and given.get("type") != "hidden" and "id" not in given:
            self.faults.append("an input that no label can name")
        if tag == "svg" and "aria-labelledby" not in given:
            self.faults.append("a picture without a name")
        if tag == "script" and "src" not in given:
            self.faults.append("a script in the page")
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if given.get("id"):
            self.ids.append(str(given["id"]))
        for name in ("aria-labelledby", "aria-describedby", "for"):
            self.references += (given.get(name) or "").split()
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes something else")

    def problems(self) -> list[str]:
        """All of them, after the whole page was fed."""
        found = [*self.faults, *(f"<{tag}> stays open" for tag in self.open)]
        found += [f"id {id_} is there more than once" for id_ in set(self.ids) if self.ids.count(id_) > 1]
        found += [
            f"{reference} refers to nothing" for reference in self.references if reference not in self.ids
        ]
        for before, after in zip([0, *self.headings], self.headings, strict=False):
            if after > before + 1:
                found.append(f"h{after} follows h{before}")
        if self.headings.count(1) != 1:
            found.append("a page has one h1")
        return found


def problems(page: Html) -> list[str]:
    """What is wrong with a page."""
    checker = Checker()
    checker.feed(page)
    checker.close()
    return checker.problems()


def text_of(html: Html) -> str:
    """What a person reads, with single spaces."""
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def observed_of(snapshot: ClusterSnapshot) -> ObservedCluster:
    """What was observed."""
    assert snapshot.observed is not None
    return snapshot.observed


def quorum_of(snapshot: ClusterSnapshot) -> QuorumView:
    """The quorum as it is shown."""
    quorum = snapshot.view().quorum
    assert quorum is not None
    return quorum


def ghosts_of(snapshot: ClusterSnapshot) -> list[RegistrationView]:
    """The ghosts that are shown."""
    return [registration for registration in snapshot.view().registrations or () if registration.is_ghost]


def desired_of(snapshot: ClusterSnapshot) -> DesiredCluster:
    """What is desired."""
    assert snapshot.desired is not None
    return snapshot.desired


@pytest.mark.parametrize(
    "access", [READ_ONLY, Access(can_unlock=True), UNLOCKED], ids=["read", "locked", "unlocked"]
)
def test_every_page_is_valid_html_and_usable_without_eyes(access: Access) -> None:
    snapshots = (busy(), well(), UNKNOWN)
    pages = [cluster_page(snapshot, access, "paused") for snapshot in snapshots]
    pages += [list_page(snapshots, access), list_page((), access), not_found_page(None, access)]
    assert [problems(page) for page in pages] == [[]] * len(pages)
    for page in pages:
        for landmark in ("<header>", "<main ", "<footer>", '<html lang="en">', 'name="viewport"'):
            assert landmark in page


def test_names_from_outside_never_become_html() -> None:
    snapshot = busy()
    observed = observed_of(snapshot)
    address = Address(HOSTILE, 1)
    kafka = observed.kafka
    assert kafka is not None
    hostile = replace(
        snapshot,
        problem=HOSTILE,
        plan=Plan(
            steps=(StartNode(node_id=1, reason=HOSTILE), WaitFor(reason=HOSTILE)),
            refusals=(Refusal(HOSTILE, HOSTILE),),
        ),
        events=(ClusterEvent(at_ms=NOW_MS, text=HOSTILE),),
        observed=replace(
            observed,
            nodes={
                node_id: replace(node, problem=HOSTILE, directory_id=HOSTILE)
                for node_id, node in observed.nodes.items()
            },
            kafka=replace(
                kafka,
                cluster_id=HOSTILE,
                features={HOSTILE: 1},
                registrations={
                    node_id: replace(registration, rack=HOSTILE, endpoints={HOSTILE: address})
                    for node_id, registration in kafka.registrations.items()
                },
            ),
            publications=(Publication(address=address, node_id=1, listener=HOSTILE, since_ms=NOW_MS),),
            probes={address: Reached(at_ms=NOW_MS, error=HOSTILE)},
        ),
    )
    pages = [cluster_page(hostile, UNLOCKED, HOSTILE), list_page((hostile,), UNLOCKED, HOSTILE)]
    pages.append(not_found_page(ClusterKey(HOSTILE, HOSTILE), READ_ONLY))
    for page in pages:
        checker = Checker()
        checker.feed(page)
        assert "img" not in checker.tags
        assert "onerror=alert" not in re.sub(r"&[a-z#0-9]+;|>[^<]*<", "", page)
        assert problems(page) == []


def test_a_page_that_only_shows_has_no_buttons() -> None:
    assert "<button" not in cluster_page(busy(), READ_ONLY)
    assert "<form" not in cluster_page(busy(), READ_ONLY)
    locked = cluster_page(busy(), Access(can_unlock=True))
    assert re.findall(r'action="([^"]+)"', locked) == ["/unlock"]
    unlocked = cluster_page(busy(), UNLOCKED)
    assert "/clusters/kafka/quorum/pause" in unlocked
    assert unlocked.count("/clusters/kafka/quorum/restart") == 6, "each node that runs: 3000-3003, 0 and 1"
    assert unlocked.count('name="csrf" value="genuine"') == unlocked.count("<form")


@pytest.mark.parametrize(
    ("snapshot", "health"),
    [
        (well(), Health.READY),
        (busy(), Health.ATTENTION),
        (UNKNOWN, Health.UNKNOWN),
        (replace(well(), plan=Plan(steps=(WaitFor(reason="x"),))), Health.WORKING),
        (replace(well(), problem="no route"), Health.ATTENTION),
        (replace(well(), observed=replace(observed_of(well()), quorum=None, kafka=None)), Health.NO_QUORUM),
        (
            replace(
                well(),
                desired=replace(desired_of(well()), lifecycle=Lifecycle.PAUSED),
                plan=Plan(steps=(), refusals=(Refusal("Paused", "it is paused"),)),
            ),
            Health.PAUSED,
        ),
        (
            replace(well(), desired=replace(desired_of(well()), lifecycle=Lifecycle.HIBERNATED)),
            Health.WORKING,
        ),
    ],
)
def test_the_word_for_a_cluster_is_the_worst_that_is_true(snapshot: ClusterSnapshot, health: Health) -> None:
    assert snapshot.view().health is health


def test_hibernated_means_that_nothing_runs() -> None:
    observed = observed_of(well())
    nodes = {node_id: replace(node, state=NodeState.STOPPED) for node_id, node in observed.nodes.items()}
    asleep = replace(
        well(),
        desired=replace(desired_of(well()), lifecycle=Lifecycle.HIBERNATED),
        observed=replace(observed, nodes=nodes, quorum=None, kafka=None),
    )
    assert asleep.view().health is Health.HIBERNATED


def test_the_quorum_is_counted_as_raft_counts() -> None:
    facts = quorum_of(busy())
    assert [voter.node_id for voter in facts.voters] == list(CONTROLLERS)
    assert [observer.node_id for observer in facts.observers] == [3003]
    assert (facts.majority, facts.caught_up, facts.spare) == (2, 2, 0)
    assert [voter.lag for voter in (*facts.voters, *facts.observers)] == [0, 0, 192, 483]


def test_brokers_are_not_drawn_although_they_observe_the_log() -> None:
    observed = observed_of(well())
    assert observed.quorum is not None
    quorum = replace(observed.quorum, observers=tuple(replica(broker, 1) for broker in (0, 1, 2)))
    assert quorum_of(replace(well(), observed=replace(observed, quorum=quorum))).observers == ()


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 9])
def test_the_picture_has_room_for_every_quorum(count: int) -> None:
    observed = observed_of(well())
    assert observed.quorum is not None
    voters = {3000 + place: replica(3000 + place, 10) for place in range(count)}
    quorum = replace(
        observed.quorum,
        voters=voters,
        leader_id=3000,
        observers=tuple(replica(node_id, 9) for node_id in range(4000, 4007)),
    )
    picture = quorum_picture(
        quorum_of(replace(well(), observed=replace(observed, quorum=quorum, kafka=None)))
    )
    width, height = map(int, re.findall(r'viewBox="0 0 (\d+) (\d+)"', picture)[0])
    circles = [
        (float(x), float(y), float(r))
        for x, y, r in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="([\d.]+)"></circle>', picture)
    ]
    assert len(circles) == count + 7
    for place, (x, y, r) in enumerate(circles):
        assert r <= x <= width - r
        assert r <= y <= height - r - 22
        for other_x, other_y, other_r in circles[:place]:
            assert ((x - other_x) ** 2 + (y - other_y) ** 2) ** 0.5 > r + other_r
    assert f"{count} of {count}" in text_of(picture) or f"{count} of 1 voter" in text_of(picture)


def test_ghosts_are_told_with_what_they_block() -> None:
    (ghost,) = ghosts_of(busy())
    assert ghost.registration.node_id == 3099
    assert ghost.blocks == (Block(feature="metadata.version", highest=27, target=30),)
    shown = text_of(cluster_sections(busy(), READ_ONLY)["registrations"])
    assert "Ghost 3099 is registered and gone, and blocks metadata.version above 27" in shown
    assert ghosts_of(well()) == []


def test_addresses_say_where_they_lead() -> None:
    """Wrong, right, silent, foreign, and one that can't be asked."""
    shown = text_of(cluster_sections(busy(), READ_ONLY)["addresses"])
    for part in (
        "the right node",
        "node 2 instead",
        "the name does not resolve",
        "the node is unknown",
        "retired",
    ):
        assert part in shown
    probes = {new_host(0): Reached(at_ms=NOW_MS, node_id=0, cluster_id="Other")}
    foreign = replace(busy(), observed=replace(observed_of(busy()), probes=probes))
    unnamed = {new_host(0): Reached(at_ms=NOW_MS)}
    anonymous = replace(busy(), observed=replace(observed_of(busy()), probes=unnamed))
    assert "a node with a trusted certificate" in text_of(cluster_sections(anonymous, READ_ONLY)["addresses"])
    assert "another cluster, Other" in text_of(cluster_sections(foreign, READ_ONLY)["addresses"])
    assert CLUSTER_ID not in text_of(cluster_sections(foreign, READ_ONLY)["addresses"])


def test_the_plan_shows_what_is_due_what_waits_and_what_is_refused() -> None:
    shown = text_of(cluster_sections(busy(), READ_ONLY)["plan"])
    for part in (
        "UpgradeBlocked metadata.version 4.3-IV0 (30)",
        "now Start broker-2 it died",
        "wait b1.kafka.example.com:9094 to reach broker 1",
        "later Stop broker-1",
        "at the latest",
    ):
        assert part in shown
    assert "The cluster is as desired" in text_of(cluster_sections(well(), READ_ONLY)["plan"])
    assert well().view().next == "nothing to do"
    assert UNKNOWN.view().next == "nothing is known yet"


def test_long_lists_are_cut_and_say_so() -> None:
    observed = observed_of(well())
    broker = observed.nodes[0]
    nodes = {**observed.nodes, **{index: replace(broker, node_id=index) for index in range(10_000, 11_000)}}
    steps = tuple(StartNode(node_id=index, reason="x") for index in range(100))
    big = replace(well(), observed=replace(observed, nodes=nodes), plan=Plan(steps=steps))
    sections = cluster_sections(big, UNLOCKED)
    assert "and 803 more, which are not shown" in text_of(sections["brokers"])
    assert "and 60 steps more" in text_of(sections["plan"])
    assert sum(map(len, sections.values())) < 400_000


def test_nothing_about_a_cluster_is_told_by_colour_alone() -> None:
    for html in cluster_sections(busy(), READ_ONLY).values():
        for shown in re.findall(r'class="state[^"]*">([^<]*)<', html):
            assert shown.strip()
    assert "needs attention" in cluster_list([busy()])


@pytest.mark.parametrize(
    ("size", "words"),
    [(None, "\N{EN DASH}"), (0, "0 B"), (1536, "1.5 KiB"), (38_654_705_664, "36.0 GiB"), (2**45, "32.0 TiB")],
)
def test_sizes_are_short(size: int | None, words: str) -> None:
    assert size_words(size) == words
