"""How far features can go: by the registrations of the log, and by probing."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quorate_admin.diagnosis import (
    Blocker,
    FeatureOutlook,
    NodeKind,
    RegisteredNode,
    parse_refusal,
    probe_outlook,
    registered_outlooks,
)

PREFIX = "Invalid update version 30 for feature metadata.version. "


@pytest.mark.parametrize(
    ("message", "blocker"),
    [
        (
            "Controller 99 only supports versions 7-27",
            Blocker(kind=NodeKind.CONTROLLER, node_id=99, lowest=7, highest=27),
        ),
        ("Broker 0 only supports versions 7", Blocker(kind=NodeKind.BROKER, node_id=0, lowest=7, highest=7)),
        (
            "Local controller 3000 only supports versions 0-1",
            Blocker(kind=NodeKind.CONTROLLER, node_id=3000, lowest=0, highest=1),
        ),
        ("Broker 12 does not support this feature.", Blocker(kind=NodeKind.BROKER, node_id=12)),
        (
            "controller 3 has not registered, and may not support this feature",
            Blocker(kind=NodeKind.CONTROLLER, node_id=3, is_registered=False),
        ),
        ("Can't downgrade to a newer version.", None),
        ("", None),
    ],
)
def test_refusals_of_kafka_are_understood(message: str, blocker: Blocker | None) -> None:
    assert parse_refusal(message) == blocker
    assert parse_refusal(f"The update failed for all features. {PREFIX}{message}") == blocker


def probe(refusals: Mapping[int, str], finalized: int, target: int) -> tuple[FeatureOutlook, list[int]]:
    """The outlook, and the levels that were asked for; `refusals` has the message by level."""
    asked = []
    probing = probe_outlook("metadata.version", finalized, target)
    try:
        question = next(probing)
        while True:
            asked.append(question.level)
            question = probing.send(refusals.get(question.level))
    except StopIteration as end:
        return end.value, asked


def test_nothing_is_asked_where_nothing_can_be_gained() -> None:
    outlook, asked = probe({}, 30, 30)
    assert (outlook.reachable, asked) == (30, [])


def test_one_probe_is_enough_where_nothing_blocks() -> None:
    outlook, asked = probe({}, 7, 30)
    assert (outlook.reachable, outlook.blockers, asked) == (30, (), [30])


def test_each_blocker_leads_to_the_next() -> None:
    refusals = {
        30: "Broker 2 only supports versions 7-29",
        29: "Controller 99 only supports versions 7-27",
        28: "Controller 99 only supports versions 7-27",
    }
    outlook, asked = probe(refusals, 20, 30)
    assert asked == [30, 29, 27]
    assert outlook.reachable == 27
    assert [(blocker.node_id, blocker.highest) for blocker in outlook.blockers] == [(2, 29), (99, 27)]


def test_a_voter_that_has_not_registered_ends_the_search() -> None:
    outlook, asked = probe({30: "controller 3 has not registered, and may not"}, 25, 30)
    assert (outlook.reachable, asked) == (25, [30])
    assert not outlook.blockers[0].is_registered


def test_another_reason_is_kept_in_the_words_of_the_controller() -> None:
    outlook, asked = probe({2: "x could not be set to 2 because it depends on y"}, 0, 2)
    assert (outlook.reachable, asked) == (1, [2, 1])
    assert outlook.obstacle == "x could not be set to 2 because it depends on y"


def test_a_ghost_below_the_finalized_level_blocks_all_that_is_left() -> None:
    outlook, asked = probe({30: "Controller 99 only supports versions 7-20"}, 25, 30)
    assert (outlook.reachable, outlook.blockers[0].highest, asked) == (25, 20, [30])


def node(kind: NodeKind, node_id: int, **features: tuple[int, int]) -> RegisteredNode:
    """A registration; `mv` and `kv` stand for the names of features."""
    names = {"mv": "metadata.version", "kv": "kraft.version", "elr": "eligible.leader.replicas.version"}
    return RegisteredNode(
        kind=kind, node_id=node_id, features={names[key]: range_ for key, range_ in features.items()}
    )


def test_all_blockers_are_known_from_the_log() -> None:
    nodes = [
        node(NodeKind.CONTROLLER, 1, mv=(7, 33)),
        node(NodeKind.CONTROLLER, 99, mv=(7, 27)),
        node(NodeKind.CONTROLLER, 98, mv=(7, 28)),
        node(NodeKind.BROKER, 1, mv=(7, 33)),
    ]
    (outlook,) = registered_outlooks({"metadata.version": 26}, {"metadata.version": 33}, nodes, [1])
    assert (outlook.finalized, outlook.reachable, outlook.target) == (26, 27, 33)
    assert [blocker.node_id for blocker in outlook.blockers] == [98, 99]


def test_a_feature_at_its_highest_level_is_blocked_by_nobody() -> None:
    nodes = [node(NodeKind.CONTROLLER, 99, mv=(7, 27))]
    (outlook,) = registered_outlooks({"metadata.version": 30}, {"metadata.version": 30}, nodes, [])
    assert (outlook.blockers, outlook.reachable) == ((), 30)


def test_voters_have_to_be_registered_from_15_on() -> None:
    nodes = [node(NodeKind.CONTROLLER, 1, mv=(7, 30))]
    (before,) = registered_outlooks({"metadata.version": 14}, {"metadata.version": 30}, nodes, [1, 2])
    (after,) = registered_outlooks({"metadata.version": 15}, {"metadata.version": 30}, nodes, [1, 2])
    assert (before.reachable, before.blockers) == (30, ())
    assert (after.reachable, after.blockers) == (
        15,
        (Blocker(kind=NodeKind.CONTROLLER, node_id=2, is_registered=False),),
    )


def test_a_dependency_on_metadata_version_is_an_obstacle() -> None:
    nodes = [node(NodeKind.BROKER, 1, mv=(7, 30), elr=(0, 1))]
    supported = {"eligible.leader.replicas.version": 1}
    (below,) = registered_outlooks({"metadata.version": 22}, supported, nodes, [])
    (there,) = registered_outlooks({"metadata.version": 23}, supported, nodes, [])
    assert (below.reachable, there.reachable) == (0, 1)
    assert below.obstacle == "eligible.leader.replicas.version depends on metadata.version 23"


@given(st.lists(st.integers(min_value=0, max_value=33), max_size=6), st.integers(min_value=15, max_value=33))
def test_probing_reaches_what_the_log_says(highest: list[int], finalized: int) -> None:
    """The two ways agree on how far it goes."""
    nodes = [node(NodeKind.BROKER, number, mv=(7, high)) for number, high in enumerate(highest)]
    target = max(finalized, 33)
    refusals = {
        level: f"Broker {number} only supports versions 7-{high}"
        for level in range(target, 0, -1)
        for number, high in reversed(list(enumerate(highest)))
        if high < level
    }
    (outlook,) = registered_outlooks({"metadata.version": finalized}, {"metadata.version": target}, nodes, [])
    probed, asked = probe(refusals, finalized, target)
    assert probed.reachable == outlook.reachable
    assert len(asked) <= len(highest) + 1
    assert {blocker.node_id for blocker in probed.blockers} <= {
        blocker.node_id for blocker in outlook.blockers
    }
