"""A rebalance whose brokers have several directories: preview, slices, throttle, end."""

from dataclasses import replace
from typing import Any

from kit.balance_model import rebalance
from quorate_operator.entities.balance import BALANCED, READY, REBALANCING, plan_rebalancing
from quorate_operator.entities.balance_facts import (
    DIRECTORY_RATE,
    MoveToDirectories,
    ObservedBalance,
    SetRates,
    StoredRebalance,
)
from quorate_operator.entities.plan import EntityPlan
from quorate_operator.models.rebalances import KafkaRebalance
from quorate_operator.placement.cluster import Broker, ObservedDirectory, ObservedPartition, PartitionId
from quorate_operator.planning.cluster import Address

KEYS = tuple(PartitionId("t", number) for number in range(4))
AT = Address("10.0.0.1", 9092)


def observed(first: int, incoming: int = 0, **rates: str) -> ObservedBalance:
    """One broker with four replicas, `first` of them in the first of two directories, `incoming` on their way."""
    return ObservedBalance(
        brokers=(Broker(broker_id=1),),
        partitions={
            key: ObservedPartition(partition=key, replicas=(1,), isr=(1,), leader=1, size_bytes=10)
            for key in KEYS
        },
        directories={
            1: {
                "/1": ObservedDirectory(replicas=dict.fromkeys(KEYS[:first], 10)),
                "/2": ObservedDirectory(
                    replicas=dict.fromkeys(KEYS[first:], 10), incoming=frozenset(KEYS[:incoming])
                ),
            }
        },
        addresses={1: AT},
        rates={name.replace("_", "."): value for name, value in rates.items()},
    )


def reconcile(resource: KafkaRebalance, seen: ObservedBalance, status: dict[str, Any]) -> EntityPlan:
    """One look; the status is stored."""
    plan = plan_rebalancing(resource, seen, StoredRebalance.of_status(status), is_deleted=False)
    status |= plan.status
    for name in [name for name, value in status.items() if value is None]:
        del status[name]
    return plan


def test_directories_are_previewed_and_wait_for_approval() -> None:
    status: dict[str, Any] = {}
    plan = reconcile(rebalance(), observed(first=4), status)
    assert (plan.state, plan.changes) == (READY, ())
    assert (status["proposal"]["directoryReplicas"], status["proposal"]["directoryBytes"]) == (2, 20)
    assert "2 replica(s) move between directories, which copies 20 B" in plan.waits[0]


def test_slices_are_requested_one_after_the_other() -> None:
    """At most a slice moves, throttled, and the end is reported and leaves no throttle."""
    resource = rebalance(approval="Auto", partitionsAtATime=1, throttleBytesPerSecond=5)
    status: dict[str, Any] = {}
    assert reconcile(resource, observed(first=4), status).continues
    plan = reconcile(resource, observed(first=4), status)
    rates, move = plan.changes
    assert rates == SetRates(rates={DIRECTORY_RATE: "5"})
    assert move == MoveToDirectories(targets={1: {KEYS[0]: "/2"}}, addresses={1: AT}, size_bytes=10)
    limited = {"replica_alter_log_dirs_io_max_bytes_per_second": "5"}
    waiting = reconcile(resource, observed(first=4, incoming=1, **limited), status)
    assert (waiting.state, waiting.changes) == (REBALANCING, ())
    assert waiting.waits == ("1 replica(s) to be moved between directories of their brokers",)
    (second,) = reconcile(resource, observed(first=3, **limited), status).changes
    assert isinstance(second, MoveToDirectories)
    ended = reconcile(resource, observed(first=2, **limited), status)
    assert ended.changes == (SetRates(rates={DIRECTORY_RATE: None}),)
    assert reconcile(resource, observed(first=2), status).state == BALANCED


def test_a_broker_whose_directories_are_unknown_is_left_alone() -> None:
    status: dict[str, Any] = {}
    seen = replace(observed(first=4), directories={}, addresses={})
    assert reconcile(rebalance(approval="Auto"), seen, status).state == BALANCED
    assert "directoryReplicas" not in status["proposal"] or not status["proposal"]["directoryReplicas"]
