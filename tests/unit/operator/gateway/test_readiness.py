"""Whether a node that runs is in service, by Kafka's facts."""

from dataclasses import replace

import pytest
from quorate_operator.gateway.readiness import state_of
from quorate_operator.planning.cluster import (
    KafkaFacts,
    NodeState,
    ObservedNode,
    ObservedQuorum,
    ObservedRegistration,
    ObservedVoter,
    Role,
)

STARTED_MS = 1_000
CONTROLLER = ObservedNode(
    node_id=3001,
    role=Role.CONTROLLER,
    state=NodeState.STARTING,
    directory_id="disk",
    started_at_ms=STARTED_MS,
)
BROKER = ObservedNode(node_id=1, role=Role.BROKER, state=NodeState.STARTING, started_at_ms=STARTED_MS)
REPLICA = ObservedVoter(
    node_id=3001,
    directory_id="disk",
    log_end_offset=10,
    last_fetch_ms=STARTED_MS + 1,
    last_caught_up_ms=None,
    caught_up=True,
)
REGISTRATION = ObservedRegistration(node_id=1, role=Role.BROKER, endpoints={}, features={})


def led(
    *voters: ObservedVoter, observers: tuple[ObservedVoter, ...] = (), leader_id: int = 3000
) -> KafkaFacts:
    """What a leader says of controllers."""
    quorum = ObservedQuorum(
        leader_id=leader_id,
        leader_epoch=1,
        high_watermark=10,
        kraft_version=1,
        voters={voter.node_id: voter for voter in voters},
        observers=observers,
    )
    return KafkaFacts(quorum=quorum, cluster_id="c")


@pytest.mark.parametrize(
    ("kafka", "is_ready"),
    [
        (led(REPLICA), True),
        (led(observers=(REPLICA,)), True),
        (led(), False),
        (None, False),
        (led(replace(REPLICA, caught_up=False)), False),
        (led(replace(REPLICA, last_fetch_ms=STARTED_MS - 1)), False),
        (led(replace(REPLICA, directory_id="former disk")), False),
        (led(replace(REPLICA, directory_id=None)), True),
        (led(replace(REPLICA, directory_id="former disk"), observers=(REPLICA,)), True),
        (led(replace(REPLICA, last_fetch_ms=None, caught_up=False), leader_id=3001), True),
    ],
    ids=[
        "voter",
        "observer that may become one",
        "unknown to the leader",
        "no leader",
        "behind",
        "heard of before it was started",
        "its former disk",
        "a quorum without directory ids",
        "its new disk beside the former one",
        "the leader",
    ],
)
def test_a_controller_is_ready_by_its_leaders_word(kafka: KafkaFacts | None, is_ready: bool) -> None:
    expected = NodeState.READY if is_ready else NodeState.STARTING
    assert state_of(CONTROLLER, kafka, was_ready=False) is expected
    assert state_of(CONTROLLER, kafka, was_ready=True) is (expected if is_ready else NodeState.UNREADY)


def test_a_controller_whose_process_has_not_begun_is_not_ready() -> None:
    """A roll waits for a pod that still formats its volume."""
    waiting = replace(CONTROLLER, started_at_ms=None)
    assert state_of(waiting, led(REPLICA), was_ready=False) is NodeState.STARTING
    assert state_of(waiting, led(REPLICA), was_ready=True) is NodeState.UNREADY


@pytest.mark.parametrize(
    ("registration", "answering", "is_ready"),
    [
        (REGISTRATION, {1}, True),
        (replace(REGISTRATION, fenced=True), {1}, False),
        (REGISTRATION, set(), False),
        (None, {1}, False),
        (replace(REGISTRATION, role=Role.CONTROLLER), {1}, False),
    ],
    ids=["in service", "fenced", "silent", "not registered", "a controller of that id"],
)
def test_a_broker_is_ready_when_registered_unfenced_and_answering(
    registration: ObservedRegistration | None, answering: set[int], is_ready: bool
) -> None:
    registrations = {1: registration} if registration else {}
    kafka = replace(led(), registrations=registrations, answering=frozenset(answering))
    expected = NodeState.READY if is_ready else NodeState.STARTING
    assert state_of(BROKER, kafka, was_ready=False) is expected


def test_without_a_leader_a_broker_stays_what_it_was() -> None:
    assert state_of(BROKER, None, was_ready=True) is NodeState.READY
    assert state_of(BROKER, None, was_ready=False) is NodeState.STARTING


@pytest.mark.parametrize("state", [NodeState.ABSENT, NodeState.STOPPED, NodeState.CRASHED])
def test_what_does_not_run_is_not_ready(state: NodeState) -> None:
    """The leader's memory of a process counts for nothing."""
    assert state_of(replace(CONTROLLER, state=state), led(REPLICA), was_ready=True) is state
