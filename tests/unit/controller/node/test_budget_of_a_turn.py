"""A turn decides on a bounded part of what clients ask for; the rest waits for the next turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from kit.led_node import LedNode, creation
from kit.work.counter import WorkCounter
from quorate_controller.node.events import Principal
from quorate_controller.node.request_processor import DECISIONS_MS_MAX
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated import alter_partition_request as alter_partition
from quorate_protocol.kafka.generated.broker_heartbeat_request import BrokerHeartbeatRequest
from quorate_protocol.kafka.generated.describe_configs_request import DescribeConfigsRequest

if TYPE_CHECKING:
    from quorate_controller.node import ControlRequest

OpenLed = Callable[[dict[str, str]], LedNode]
BROKER = 1
LARGE = 1_000
"""Topics of a request that takes more than one step."""


@pytest.fixture
def led(open_led: OpenLed) -> LedNode:
    """A node that is active, with a broker."""
    led = open_led({})
    led.lead()
    led.register_broker(BROKER)
    return led


def large(led: LedNode, name: str, **known: Any) -> ControlRequest:
    """A request for more topics than a step creates."""
    names = (f"{name}-{number}" for number in range(LARGE))
    return led.asked(creation(*names, broker_ids=(BROKER,)), **known)


def small(led: LedNode, name: str, **known: Any) -> ControlRequest:
    return led.asked(creation(name, broker_ids=(BROKER,)), **known)


def heartbeat(led: LedNode) -> ControlRequest:
    epoch = led.node.metadata.image.cluster.brokers[BROKER].epoch
    return led.asked(
        BrokerHeartbeatRequest(
            broker_id=BROKER,
            broker_epoch=epoch,
            current_metadata_offset=led.node.raft.log_end_offset,
            want_fence=False,
            want_shut_down=False,
        )
    )


def report(led: LedNode, partitions: int) -> ControlRequest:
    """A broker's request to change the ISRs of partitions that do not exist."""
    topic = alter_partition.TopicData(
        topic_id=led.node.storage.directory_id,
        partitions=tuple(
            alter_partition.PartitionData(
                partition_index=index, leader_epoch=0, new_isr_with_epochs=(), partition_epoch=0
            )
            for index in range(partitions)
        ),
    )
    epoch = led.node.metadata.image.cluster.brokers[BROKER].epoch
    request = alter_partition.AlterPartitionRequest(broker_id=BROKER, broker_epoch=epoch, topics=(topic,))
    return led.asked(request)


def begun(led: LedNode) -> list[str]:
    """The requests of which topics exist, in the order in which they began."""
    return list(dict.fromkeys(name.split("-")[0] for name in led.node.metadata.image.topics.by_name))


def turns_until_response(led: LedNode, *events: ControlRequest) -> list[int]:
    """Lines of Python of each turn until all are answered."""
    counter = WorkCounter()
    counter.run(lambda: led.turn(*events))
    lines = [counter.counted]
    while not all(event.token in led.responses for event in events):
        assert len(lines) < 1_000
        counter.run(led.turn)
        lines.append(counter.counted)
        led.commit()
    return lines


def test_the_longest_turn_does_not_grow_with_the_requests(led: LedNode) -> None:
    """Many clients that ask for much at the same time do not delay votes, fetches and heartbeats."""
    longest = max(turns_until_response(led, large(led, "alone")))
    together = [large(led, f"r{number}", connection=number) for number in range(8)]
    assert max(turns_until_response(led, *together)) < 1.5 * longest
    for event in together:
        assert {topic.error_code for topic in led.responses[event.token].topics} == {ErrorCode.none}


def test_requests_begin_in_order_one_client_after_the_other(led: LedNode) -> None:
    mine = [large(led, f"m{number}", connection=1) for number in range(3)]
    led.turn(*mine, large(led, "other", connection=2), small(led, "third", connection=3))
    assert begun(led) == ["m0"]
    assert led.node.waiting_count == 4
    assert led.node.deadline_ms == led.now_ms
    led.turn()
    assert begun(led) == ["m0", "other"]
    led.turn()
    assert begun(led) == ["m0", "other", "third", "m1"]
    led.turn()
    assert begun(led) == ["m0", "other", "third", "m1", "m2"]
    assert led.node.waiting_count == 0


def test_clients_behind_a_broker_take_turns(led: LedNode) -> None:
    known = {"connection": 1, "forwarded": True, "broker_id": BROKER}
    first, second = (Principal(name=name) for name in ("first", "second"))
    led.turn(
        large(led, "a", principal=first, **known),
        large(led, "b", principal=first, **known),
        large(led, "c", principal=second, **known),
    )
    led.turn()
    assert begun(led) == ["a", "c"]


def test_nodes_do_not_wait_for_clients(led: LedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats and reports come first, and a flood of reports leaves clients one decision in each turn."""
    decide, decided = led.node.metadata.control.decide, []

    def noting(request: Any, context: Any) -> Any:
        decided.append(type(request).__name__.removesuffix("Request"))
        return decide(request, context)

    monkeypatch.setattr(led.node.metadata.control, "decide", noting)
    reports = [report(led, 2_000) for _ in range(2)]
    ours = [large(led, f"r{number}", connection=number) for number in range(3)]
    led.turn(*ours, *reports, heartbeat(led))
    assert decided == ["BrokerHeartbeat", "AlterPartition", "CreateTopics"]
    led.turn(heartbeat(led))
    assert decided[3:] == ["BrokerHeartbeat", "AlterPartition", "CreateTopics"]
    led.turn()
    assert decided[6:] == ["CreateTopics"]


def test_slow_decisions_end_a_turn(led: LedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    decide = led.node.metadata.control.decide

    def slowly(request: Any, context: Any) -> Any:
        led.now_ms += DECISIONS_MS_MAX
        return decide(request, context)

    monkeypatch.setattr(led.node.metadata.control, "decide", slowly)
    led.turn(*(small(led, f"s{number}", connection=number) for number in range(3)))
    assert begun(led) == ["s0"]
    assert led.node.waiting_count == 2


def test_what_waits_ends_with_its_timeout_and_with_the_leadership(led: LedNode) -> None:
    first = large(led, "first", connection=0)
    brief = replace(small(led, "brief", connection=1), deadline_ms=led.now_ms)
    left = [large(led, f"r{number}", connection=2) for number in range(3)]
    led.turn(first, brief, *left)
    led.now_ms += 1
    led.turn()
    led.commit()
    assert led.responses[brief.token].error_code is ErrorCode.request_timed_out
    assert led.node.waiting_count == 1
    led.turn(led.lead_by_another())
    assert [led.responses[event.token].error_code for event in left] == [ErrorCode.not_controller] * 3
    assert led.node.waiting_count == 0


def test_reads_that_wait_hold_others_back(led: LedNode) -> None:
    led.turn(large(led, "first", connection=1), led.asked(DescribeConfigsRequest(resources=()), connection=2))
    assert led.node.is_reading
    led.turn()
    led.turn()
    assert not led.node.is_reading


def test_a_client_with_one_long_request_does_not_wait_for_all_of_another(led: LedNode) -> None:
    """A client that creates topics without end delays others by a share."""
    alone = large(led, "alone", connection=1)
    turns_alone = len(turns_until_response(led, alone))
    many = [large(led, f"m{number}", connection=1) for number in range(8)]
    for event in many:
        led.turn(event)
    single = large(led, "single", connection=2)
    turns = len(turns_until_response(led, single))
    assert turns <= 2 * turns_alone + 1
    assert sum(event.token in led.responses for event in many) < len(many)
    led.wait_until(lambda: all(event.token in led.responses for event in many))
