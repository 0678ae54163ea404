"""Answers that wait until brokers know what they say: which, for how long, and what ends the wait."""

from dataclasses import replace
from uuid import UUID

import pytest
from kit.controller_parts import caller
from kit.turn_parts import NOW_MS, ScriptedRequest, TurnBench
from quorate_controller.config.own_keys import ResponsePolicy, ResponsesWaitFor
from quorate_controller.control.api import ControlResult
from quorate_controller.node.consistency import BrokerWaits
from quorate_controller.node.events import ControlRequest, Requester
from quorate_controller.node.metadata import Waiter
from quorate_controller.raft.events import ConnectionLost
from quorate_protocol.image import BrokerRegistration
from quorate_protocol.records.generated import RegisterBrokerRecord, TopicRecord

BROKER, OTHER, FENCED = 1, 2, 3
LATER_MS = NOW_MS + 1_000_000
LOST = ConnectionLost(node_id=9)


def registration(broker_id: int, *, fenced: bool = False) -> BrokerRegistration:
    """A broker as the image has it."""
    return BrokerRegistration(
        broker_id=broker_id,
        epoch=5,
        incarnation_id=UUID(int=broker_id),
        listeners={},
        supported_features={},
        fenced=fenced,
    )


BROKERS = {
    BROKER: registration(BROKER),
    OTHER: registration(OTHER),
    FENCED: registration(FENCED, fenced=True),
}


def waiter(end_offset: int = 10, *, broker_id: int | None = BROKER, deadline_ms: int = LATER_MS) -> Waiter:
    """A committed answer to a request that a broker forwarded."""
    return Waiter(end_offset, end_offset, "answer", Requester(broker_id, deadline_ms))  # type: ignore[arg-type]


def waits_for(wait_for: ResponsesWaitFor, max_ms: int = 500) -> BrokerWaits:
    """Return the waits of one policy."""
    return BrokerWaits(ResponsePolicy(wait_for=wait_for, max_ms=max_ms))


def test_an_answer_leaves_when_its_broker_knows_that_the_records_are_committed() -> None:
    waits = waits_for(ResponsesWaitFor.FORWARDER)
    held = waiter(10)
    assert waits.hold_back([held], BROKERS, NOW_MS) == []
    known = {BROKER: 9, OTHER: 50}
    assert list(waits.pop_due(known.__getitem__, NOW_MS)) == []
    known[BROKER] = 10
    assert list(waits.pop_due(known.__getitem__, NOW_MS)) == [held]
    assert (waits.overdue_count, waits.deadline_ms) == (0, None)


@pytest.mark.parametrize(
    ("policy", "asked_by"),
    [
        (ResponsePolicy(wait_for=ResponsesWaitFor.NONE), waiter()),
        (ResponsePolicy(max_ms=0), waiter()),
        (ResponsePolicy(), waiter(broker_id=None)),
        (ResponsePolicy(), waiter(broker_id=77)),
        (ResponsePolicy(), waiter(deadline_ms=NOW_MS + 1)),
        (ResponsePolicy(), replace(waiter(), requester=None)),
        (ResponsePolicy(wait_for=ResponsesWaitFor.BROKERS), replace(waiter(), requester=None)),
    ],
    ids=["none", "no time", "direct", "unknown broker", "timeout", "no records", "no records, all brokers"],
)
def test_these_answers_do_not_wait(policy: ResponsePolicy, asked_by: Waiter) -> None:
    waits = BrokerWaits(policy)
    assert waits.hold_back([asked_by], BROKERS, NOW_MS) == [asked_by]
    assert waits.deadline_ms is None


def test_a_slow_broker_costs_a_bounded_time_that_is_counted() -> None:
    waits = waits_for(ResponsesWaitFor.FORWARDER, max_ms=500)
    waits.hold_back([waiter(10), waiter(11, deadline_ms=NOW_MS + 300)], BROKERS, NOW_MS)
    assert waits.deadline_ms == NOW_MS + 150
    assert [waiter.end_offset for waiter in waits.pop_due(lambda _: -1, NOW_MS + 150)] == [11]
    assert waits.deadline_ms == NOW_MS + 500
    assert list(waits.pop_due(lambda _: -1, NOW_MS + 499)) == []
    assert [waiter.end_offset for waiter in waits.pop_due(lambda _: -1, NOW_MS + 500)] == [10]
    assert waits.overdue_count == 2


def test_cluster_wide_waits_are_for_all_brokers_that_are_not_fenced() -> None:
    """KIP-4's consistent blocking."""
    waits = waits_for(ResponsesWaitFor.BROKERS)
    held = waiter(10, broker_id=None)
    assert waits.hold_back([held], BROKERS, NOW_MS) == []
    known = dict.fromkeys(BROKERS, 0)
    for broker_id in (OTHER, BROKER):
        assert list(waits.pop_due(known.__getitem__, NOW_MS)) == []
        known[broker_id] = 10
    assert list(waits.pop_due(known.__getitem__, NOW_MS)) == [held]


# ------------------------------------------------------------------------------------------- in a turn


@pytest.fixture
def bench() -> TurnBench:
    """An active controller whose log has the registration of a broker."""
    bench = TurnBench()
    bench.lead()
    record = RegisterBrokerRecord(
        broker_id=BROKER,
        incarnation_id=UUID(int=1),
        broker_epoch=0,
        end_points=(),
        features=(),
        rack=None,
        fenced=False,
    )
    bench.control.decisions.append(ControlResult(records=(record,), response="registered"))
    bench.node.turn([request(1)], NOW_MS)
    bench.commit()
    assert [response.token for response in bench.node.turn([], NOW_MS).control_responses] == [1]
    return bench


def request(token: int, broker_id: int | None = None) -> ControlRequest:
    """A request, of a client of that broker."""
    asked_by = replace(caller(), forwarded=broker_id is not None, broker_id=broker_id)
    return ControlRequest(
        token=token, request=ScriptedRequest(f"r{token}"), caller=asked_by, deadline_ms=LATER_MS
    )  # type: ignore[arg-type]


def create_topic(bench: TurnBench, token: int) -> None:
    """A topic that a client of the broker creates; the high watermark passes it, and the broker does not know yet."""
    bench.control.decisions.append(
        ControlResult(records=(TopicRecord(name="t", topic_id=UUID(int=2)),), response="created")
    )
    bench.node.turn([request(token, BROKER)], NOW_MS)
    bench.commit()
    assert bench.node.turn([], NOW_MS).control_responses == []


def test_a_turn_answers_when_the_fetch_has_come(bench: TurnBench) -> None:
    create_topic(bench, 2)
    assert bench.node.deadline_ms == NOW_MS + 500
    bench.raft.known_high_watermarks[BROKER] = bench.raft.high_watermark
    assert [response.token for response in bench.node.turn([LOST], NOW_MS + 1).control_responses] == [2]


def test_reads_and_refusals_do_not_wait(bench: TurnBench) -> None:
    bench.control.decisions.append(ControlResult(response="described"))
    assert [
        control_response.token
        for control_response in bench.node.turn([request(2, BROKER)], NOW_MS).control_responses
    ] == [2]


def test_committed_answers_survive_the_loss_of_leadership(bench: TurnBench) -> None:
    create_topic(bench, 2)
    bench.depose_at(ConnectionLost)
    (response,) = bench.node.turn([LOST], NOW_MS + 1).control_responses
    assert (response.token, response.result) == (2, "created")
    assert bench.node.broker_waits.deadline_ms is None
