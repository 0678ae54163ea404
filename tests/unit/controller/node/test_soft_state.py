"""All state that is in memory alone has a row in `kit.soft_state.table`, and what ends with a leadership does end.

The story consists of requests and raft's messages to a real node: it leads, has every kind of soft state, and loses
the leadership. Slices are of one partition, so that little makes cursors.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any

import pytest
from kit.led_node import PEERS, LedNode, creation, directory_of, level_of
from kit.soft_state.attributes import Attribute, attributes
from kit.soft_state.page import PAGE, rendered
from kit.soft_state.table import TABLE, Kind
from quorate_controller.control import broker_transitions, elections
from quorate_controller.control.api import ControlError
from quorate_controller.control.describe import TOPICS_PER_STEP
from quorate_controller.node.metadata import MetadataState
from quorate_controller.node.slices import STEPS_PER_SLICE_MAX
from quorate_controller.raft.events import Role, Tick
from quorate_controller.raft.roles.leader import Leader
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated.alter_partition_request import AlterPartitionRequest
from quorate_protocol.kafka.generated.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

if TYPE_CHECKING:
    from quorate_controller.node import ControllerNode

CHECK_MS = 1_000
"""How often the periodic tasks run here."""
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "unclean.leader.election.interval.ms": str(CHECK_MS),
    "metadata.max.idle.interval.ms": "0",
    "delegation.token.secret.key": "secret",
}
BROKERS = (1, 2, 3, 4, 5)
TOPICS_OF_EACH = 3
State = dict[tuple[str, str], Any]
OpenLed = Callable[[dict[str, str]], LedNode]


@pytest.fixture
def led(open_led: OpenLed, monkeypatch: pytest.MonkeyPatch) -> LedNode:
    """A node that is active."""
    monkeypatch.setattr(broker_transitions, "CHANGES_PER_SLICE_MAX", 1)
    monkeypatch.setattr(elections, "EXAMINED_PER_STEP_MAX", 1)
    led = open_led(SETTINGS)
    led.lead()
    return led


# What a node is made of


def is_entered(attribute: Attribute) -> bool:
    row = TABLE.get(attribute.key)
    return row is None or row.kind in (Kind.PART, Kind.RESTARTS)


def state_of(node: ControllerNode) -> State:
    """A copy of all attributes, by class and name."""
    return {attribute.key: _copied(attribute.value) for attribute in attributes(node, is_entered)}


def _copied(value: Any) -> Any:
    return copy(value) if isinstance(value, list | dict | set) else value


def of_kind(state: State, kind: Kind) -> State:
    return {key: value for key, value in state.items() if key in TABLE and TABLE[key].kind is kind}


def different(state: State, fresh: State) -> set[tuple[str, str]]:
    """The attributes that end with a leadership, and are not as in a node that never led."""
    return {key for key, value in of_kind(state, Kind.ENDS).items() if not _is_same(value, fresh[key])}


def _is_same(value: Any, fresh: Any) -> bool:
    if isinstance(fresh, int | bool | None):
        return bool(value == fresh)
    return len(value) == len(fresh) == 0


# The story


def populate(led: LedNode) -> None:
    """Controllers, and brokers with topics of their own."""
    for controller_id in PEERS:
        led.register_controller(controller_id)
    for broker_id in BROKERS:
        led.register_broker(broker_id)
        names = (f"t{broker_id}-{number}" for number in range(TOPICS_OF_EACH))
        led.create_topics(*names, broker_ids=(broker_id,))


def have_cursors(led: LedNode) -> None:
    """Have each cursor of decisions that take several turns: brokers that left, leave, came back, lost a disk."""
    image, transitions = led.node.metadata.image, led.node.metadata.control._transitions
    for broker_id in (1, 2, 5):
        led.beat(broker_id, want_fence=True)
        led.wait_until(lambda: transitions.deadline_ms is None)
    assert len(image.index.leaderless) == 3 * TOPICS_OF_EACH
    led.now_ms += CHECK_MS
    led.beat(1)
    led.beat(2)
    led.beat(3, offline_log_dirs=(directory_of(3),))
    led.beat(4, want_fence=True)


def have_responses_waiting(led: LedNode) -> list[int]:
    """Have requests that wait: for a commit, for a broker, for the rest of a long read. Returns their tokens."""
    held = led.asked(creation("held", broker_ids=(1,)), forwarded=True, broker_id=1)
    led.turn(held)
    led.commit()
    assert held.token not in led.responses
    names = (f"unknown{number}" for number in range(2 * TOPICS_PER_STEP * STEPS_PER_SLICE_MAX))
    read = led.asked(
        DescribeConfigsRequest(
            resources=tuple(
                DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None)
                for name in names
            )
        )
    )
    led.turn(read)
    change = led.asked(level_of("group.version", 0))
    led.turn(change)
    return [held.token, read.token, change.token]


def report(led: LedNode) -> AlterPartitionRequest:
    """A broker's request that may be large: it waits until the events of the turn are taken."""
    epoch = led.node.metadata.image.cluster.brokers[1].epoch
    return AlterPartitionRequest(broker_id=1, broker_epoch=epoch, topics=())


def test_what_ends_with_a_leadership_ends(
    led: LedNode, open_led: OpenLed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that leads again does not remember its former leadership."""
    fresh = state_of(open_led(SETTINGS).node)
    has_ended = set(of_kind(fresh, Kind.ENDS))
    lost: list[set[tuple[str, str]]] = []
    abandon = MetadataState.abandon

    def abandon_and_note(metadata: MetadataState) -> Any:
        lost.append(different(state_of(led.node), fresh))
        return abandon(metadata)

    monkeypatch.setattr(MetadataState, "abandon", abandon_and_note)
    populate(led)
    have_cursors(led)
    tokens = have_responses_waiting(led)
    undecided = (led.asked(creation("undecided", broker_ids=(1,))), led.asked(report(led)))
    effects = led.turn(*undecided, led.lead_by_another())
    responses = [control_response.token for control_response in effects.control_responses]
    assert len(responses) == len(set(responses)), "a request was answered twice"
    assert led.node.raft.role is Role.FOLLOWER
    assert different(state_of(led.node), fresh) == set()
    held, *refused = (led.responses[token] for token in (*tokens, *(event.token for event in undecided)))
    assert not isinstance(held, ControlError), "it was committed"
    assert [error.error_code for error in refused] == [ErrorCode.not_controller] * 4

    led.lead()
    with monkeypatch.context() as patch:
        patch.setattr(led.node.metadata.control, "tick", _fail)
        led.now_ms = max(led.now_ms, led.node.metadata.control.deadline_ms or 0)
        decided = led.asked(level_of("group.version", 0))
        led.turn(decided)
    assert led.node.raft.role is Role.RESIGNED
    assert led.responses[decided.token].error_code is ErrorCode.not_controller
    assert different(state_of(led.node), fresh) == set()
    assert len(lost) == 2
    assert lost[0] | lost[1] == has_ended


def _fail(_now_ms: int) -> None:
    raise ZeroDivisionError("a defect in a decision that no request asks for")


def test_each_attribute_has_a_row(led: LedNode) -> None:
    """No attribute is added without a row that names what ends its state."""
    seen: State = {}
    populate(led)
    have_cursors(led)
    have_responses_waiting(led)
    for _ in range(2):
        seen |= state_of(led.node)
        led.turn(led.lead_by_another())
    assert seen.keys() - TABLE.keys() == set(), "add a row to tests/kit/soft_state/table.py"
    assert TABLE.keys() - seen.keys() == set(), "there is no such attribute any more"


def test_what_is_set_at_the_start_never_changes(led: LedNode) -> None:
    before = of_kind(state_of(led.node), Kind.SET)
    populate(led)
    have_cursors(led)
    have_responses_waiting(led)
    led.turn(led.lead_by_another())
    led.lead()
    after = of_kind(state_of(led.node), Kind.SET)
    assert {key for key in before if after[key] is not before[key] and after[key] != before[key]} == set()
    assert len(before) > 40


def test_what_belongs_to_a_role_ends_with_it(led: LedNode) -> None:
    leader = led.node.raft._replica.state
    assert isinstance(leader, Leader)
    led.now_ms += 1_500
    led.turn(Tick())
    requests = led.node.raft._replica.peers._next_request_id
    assert led.node.raft._replica.peers._in_flight
    led.turn(led.lead_by_another())
    everything = list(attributes(led.node, lambda _: True))
    assert not [state.key for state in everything if state.value is leader]
    in_flight = led.node.raft._replica.peers._in_flight.values()
    assert all(request.request_id >= requests for request in in_flight)
    assert led.node.raft._replica.peers._backoff_until_ms == {}
    assert led.node.raft._replica.next_discovery_ms == led.now_ms


def test_periodic_tasks_begin_anew(led: LedNode) -> None:
    """The first check of a leadership comes a whole interval after its beginning."""
    led.turn(led.lead_by_another())
    led.now_ms += 10 * CHECK_MS
    led.lead()
    schedule = led.node.metadata.control._schedule
    assert {task.due_ms - task.interval_ms for task in schedule._tasks} == {led.now_ms}


def test_the_page_is_that_of_the_table() -> None:
    """Docs/soft-state.md is true."""
    assert PAGE.read_text(encoding="utf-8") == rendered(), "run `PYTHONPATH=tests python -m kit.soft_state`"
