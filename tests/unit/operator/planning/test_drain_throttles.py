"""Throttles of drains: set before replicas move, kept as the manifest has them, and removed afterwards."""

from dataclasses import replace

from kit.scenarios import Situation, briefly, healthy
from quorate_operator.placement.cluster import ObservedPartition, PartitionId
from quorate_operator.planning.cluster import Role, RolloutPolicy
from quorate_operator.planning.steps import SetThrottles
from quorate_operator.planning.throttles import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
)

RATE = 50 * 1024**2


def draining(*partitions: ObservedPartition, rate: int | None = RATE) -> Situation:
    """Broker 3 of 4 is left over; its pool has a throttle."""
    situation = healthy(brokers=4)
    nodes = tuple(node for node in situation.desired.nodes if node.node_id != 3)
    rollouts = {"brokers": RolloutPolicy(drain_bytes_per_second=rate)}
    return situation.asking(nodes=nodes, rollouts=rollouts).kafka(partitions=partitions)


def partition(number: int, *replicas: int, **more: object) -> ObservedPartition:
    given = {"isr": replicas, "leader": replicas[0], "size_bytes": 1} | more
    return ObservedPartition(partition=PartitionId("orders", number), replicas=replicas, **given)  # type: ignore[arg-type]


def rates(rate: int = RATE) -> dict[int, dict[str, str]]:
    """The rates of all brokers."""
    return {broker_id: {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)} for broker_id in range(4)}


def lists(leaders: str, followers: str) -> dict[str, dict[str, str]]:
    """The throttled replicas of the topic."""
    return {"orders": {LEADER_REPLICAS: leaders, FOLLOWER_REPLICAS: followers}}


def throttles(situation: Situation) -> SetThrottles:
    """The step, which is the only one."""
    (step,) = situation.due()
    assert isinstance(step, SetThrottles)
    return step


def test_replicas_move_once_their_throttles_are_set() -> None:
    situation = draining(partition(0, 3, 0), partition(1, 1, 3))
    step = throttles(situation)
    assert step.rates == dict.fromkeys(range(4), RATE)
    assert step.topics == {"orders": ("0:0,0:3,1:1,1:3", "0:1,1:0")}
    assert "the throttles of replicas to be set" in situation.waits()
    there = situation.kafka(replication_rates=rates(), throttled=lists("0:0,0:3,1:1,1:3", "0:1,1:0"))
    assert briefly(there.due()) == ["ReassignPartitions 3"]
    assert briefly(draining(partition(0, 3, 0), rate=None).due()) == ["ReassignPartitions 3"]


def test_another_rate_and_another_broker_are_followed() -> None:
    moving = partition(0, 1, 3, 0, adding=(1,), removing=(3,), isr=(3, 0), leader=0)
    there = draining(moving).kafka(replication_rates=rates(), throttled=lists("0:0,0:3", "0:1"))
    assert there.due() == ()
    assert throttles(there.kafka(replication_rates=rates(7))).rates == dict.fromkeys(range(4), RATE)
    joined = there.registered(9, Role.BROKER)
    assert throttles(joined).rates == {9: RATE}


def test_throttles_go_when_nothing_is_drained_any_more() -> None:
    """Also if the broker is desired again, or if the field is gone: they would slow down all recovery."""
    there = {"replication_rates": rates(), "throttled": lists("0:0,0:3", "0:1")}
    ended = draining().kafka(**there)
    step = next(step for step in ended.due() if isinstance(step, SetThrottles))
    assert step.rates == dict.fromkeys(range(4))
    assert step.topics == {"orders": ("", "")}
    back = ended.asking(nodes=healthy(brokers=4).desired.nodes)
    assert throttles(back) == step
    moving = partition(0, 1, 3, 0, adding=(1,), removing=(3,), isr=(3, 0), leader=0)
    unasked = draining(moving, rate=None).kafka(**there)
    assert throttles(unasked) == replace(step, topics={})
    assert ended.kafka(replication_rates={}, throttled={}).due() != ()


def test_a_broker_is_not_forgotten_before_its_throttles_are_removed() -> None:
    gone = draining().unregistered(3).down(3, has_volume=False)
    assert briefly(gone.due()) == ["ForgetNode 3"]
    held = gone.kafka(throttled=lists("0:3", "0:1"))
    assert briefly(held.due()) == ["SetThrottles"]


def test_throttles_of_others_stay() -> None:
    """Those of kafka-reassign-partitions, and topics of which all replicas are throttled."""
    situation = draining(partition(0, 3, 0))
    others = situation.kafka(throttled=lists("5:0", "5:1"))
    assert throttles(others).topics == {"orders": ("0:0,0:3,5:0", "0:1,5:1")}
    whole = situation.kafka(throttled=lists("*", "*"), replication_rates=rates())
    assert briefly(whole.due()) == ["ReassignPartitions 3"]
    idle = healthy(brokers=4).kafka(throttled=lists("5:0", "5:1"), replication_rates=rates(7))
    assert idle.due() == ()
