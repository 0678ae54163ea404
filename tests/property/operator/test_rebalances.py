"""A KafkaRebalance from proposal to the end, whenever its operator dies and whatever happens meanwhile."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kit.balance_model import BalanceModel, rebalance, scaled_up, spread_of
from kit.conditions import conditions_by_type
from quorate_operator.entities.balance import BALANCED, READY, STOPPED, needs_all, plan_rebalancing
from quorate_operator.entities.balance_facts import (
    ObservedBalance,
    StoredRebalance,
)
from quorate_operator.entities.plan import EntityPlan
from quorate_operator.handlers.entities.statuses import EntityResult, entity_status
from quorate_operator.models.rebalances import ANNOTATION_APPROVE, KafkaRebalance
from quorate_operator.placement.cluster import Broker, PartitionId
from quorate_operator.planning.throttles import FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS

LOOKS_MAX = 400
THEIRS = {LEADER_REPLICAS: "*", FOLLOWER_REPLICAS: "*"}


class Bench:
    """Looks at a model again and again; what is known between two looks is the status."""

    def __init__(self, model: BalanceModel) -> None:
        self.model = model
        self.status: dict[str, Any] = {}

    def reconcile(
        self, resource: KafkaRebalance, *, dies_after: int | None = None, is_deleted: bool = False
    ) -> EntityPlan:
        """One pass. The operator dies after `dies_after` writes, the first of them the status; None: it does not."""
        stored = StoredRebalance.of_status(self.status)
        plan = plan_rebalancing(resource, self._seen(resource, stored), stored, is_deleted=is_deleted)
        if dies_after == 0:
            return plan
        if not is_deleted:
            self.status = {
                name: value for name, value in {**self.status, **plan.status}.items() if value is not None
            }
        for change in plan.changes[: None if dies_after is None else dies_after - 1]:
            self.model.apply(change)
        return plan

    def _seen(self, resource: KafkaRebalance, stored: StoredRebalance) -> ObservedBalance:
        """Only the slice is asked for while one is under way."""
        observed = self.model.observed()
        if needs_all(resource, stored, observed.brokers):
            return observed
        topics = {move.partition.topic for move in stored.slice}
        return ObservedBalance(
            brokers=observed.brokers,
            partitions={
                key: partition for key, partition in observed.partitions.items() if key.topic in topics
            },
            rates=observed.rates,
            throttled={topic: values for topic, values in observed.throttled.items() if topic in topics},
        )

    def settle(self, resource: KafkaRebalance, phase: str, completes: int | None = None) -> None:
        """Look until a phase is reached and nothing is due."""
        for _ in range(LOOKS_MAX):
            plan = self.reconcile(resource)
            if plan.state == phase and not plan.changes:
                return
            self.model.complete(completes)
        raise AssertionError(f"{phase} is not reached: {plan}")


def conditions(plan: EntityPlan) -> dict[str, tuple[str, str]]:
    """Status and reason of each condition."""
    return conditions_by_type(entity_status(EntityResult(plan=plan, cluster_id="c"), 1))


@given(
    st.integers(2, 5),
    st.integers(1, 2),
    st.integers(0, 40),
    st.integers(1, 12),
    st.lists(st.tuples(st.none() | st.integers(0, 4), st.integers(0, 5)), max_size=30),
)
def test_it_ends_even_whenever_the_operator_dies(
    old: int, new: int, partitions: int, at_a_time: int, deaths: list[tuple[int | None, int]]
) -> None:
    """An approved rebalance ends even and leaves no throttle, in slices of the asked size."""
    model = scaled_up(old, new, partitions)
    bench = Bench(model)
    resource = rebalance(approval="Auto", partitionsAtATime=at_a_time, throttleBytesPerSecond="1Mi")
    for dies_after, completed in deaths:
        bench.reconcile(resource, dies_after=dies_after)
        model.complete(completed)
    bench.settle(resource, BALANCED)
    assert spread_of(model) <= 1
    assert (model.rates, model.throttled, model.moving) == ({}, {}, {})
    assert all(partition.leader == partition.replicas[0] for partition in model.partitions.values())
    assert model.moving_max <= at_a_time
    assert bench.reconcile(resource).changes == ()


@given(st.integers(1, 6), st.lists(st.none() | st.integers(0, 4), max_size=12), st.booleans())
def test_a_stop_leaves_nothing_behind(at_a_time: int, deaths: list[int | None], is_deleted: bool) -> None:
    model = scaled_up()
    bench = Bench(model)
    resource = rebalance(approval="Auto", partitionsAtATime=at_a_time, throttleBytesPerSecond="1Mi")
    for dies_after in deaths:
        bench.reconcile(resource, dies_after=dies_after)
        model.complete(1)
    stopped = rebalance(stopped=True, throttleBytesPerSecond="1Mi")
    for dies_after in (1, 2, None, None, None):
        plan = bench.reconcile(stopped, dies_after=dies_after, is_deleted=is_deleted)
    assert (plan.changes, plan.state) == ((), STOPPED)
    assert (model.rates, model.throttled, model.moving) == ({}, {}, {})


def test_nothing_moves_before_the_proposal_is_approved() -> None:
    bench = Bench(scaled_up())
    plan = bench.reconcile(rebalance())
    assert plan.state == READY
    proposal = bench.status["proposal"]
    assert (proposal["partitions"], proposal["sizeBytes"], proposal["brokers"]) == (8, 800, [0, 1, 2])
    assert f"approval of proposal {proposal['id']}: 8 partition(s) move, which copies 800 B" in plan.waits[0]
    assert [broker["replicasAfter"] for broker in bench.status["brokers"]] == [8, 8, 8]
    bench.settle(rebalance({ANNOTATION_APPROVE: "another"}), READY)
    assert bench.model.moved == 0
    assert conditions(plan)["Ready"] == ("False", READY)
    assert conditions(plan)["Reconciling"] == ("True", READY)
    approved = rebalance({ANNOTATION_APPROVE: proposal["id"]})
    bench.settle(approved, BALANCED)
    assert (bench.model.moved, bench.status["progress"]["partitions"]) == (8, 8)
    expected = {
        "Ready": ("True", BALANCED),
        "Reconciling": ("False", BALANCED),
        "Stalled": ("False", "NothingRefused"),
    }
    assert conditions(bench.reconcile(approved)) == expected


def test_a_stop_ends_the_approval() -> None:
    bench = Bench(scaled_up())
    seen = set()
    for _ in range(3):
        bench.settle(rebalance(), READY)
        proposal = bench.status["proposal"]["id"]
        assert proposal not in seen
        seen.add(proposal)
        approved = {ANNOTATION_APPROVE: proposal}
        bench.reconcile(rebalance(approved))
        bench.reconcile(rebalance(approved, stopped=True))
        assert bench.reconcile(rebalance(approved, stopped=True)).state == STOPPED
        assert bench.reconcile(rebalance(approved)).state == READY
    assert bench.model.moved == 0


def test_a_new_broker_voids_what_was_approved() -> None:
    bench = Bench(scaled_up())
    bench.reconcile(rebalance())
    first = bench.status["proposal"]["id"]
    approved = rebalance({ANNOTATION_APPROVE: first}, partitionsAtATime=1)
    bench.reconcile(approved)
    bench.model.brokers = (*bench.model.brokers, Broker(broker_id=3))
    bench.settle(approved, READY)
    assert bench.status["proposal"]["id"] != first
    assert (bench.model.moved, bench.model.moving) == (1, {})
    bench.settle(rebalance(approval="Auto"), BALANCED)
    assert spread_of(bench.model) <= 1


def test_a_decommission_goes_first() -> None:
    model = scaled_up()
    leaving = replace(model.brokers[1], is_decommissioned=True)
    model.brokers = (model.brokers[0], leaving, model.brokers[2])
    bench = Bench(model)
    resource = rebalance(approval="Auto")
    assert bench.reconcile(resource).waits == ("broker(s) 1 to be drained",)
    for key, partition in model.partitions.items():
        target = tuple(2 if broker == 1 else broker for broker in partition.replicas)
        model.partitions[key] = replace(partition, replicas=target, isr=target, leader=target[0])
    bench.settle(resource, BALANCED)
    assert model.moved == 0


def test_throttles_of_others_stay() -> None:
    """What another client has set is neither changed nor removed."""
    model = scaled_up()
    model.rates[LEADER_RATE] = "77"
    model.throttled["t0"] = dict(THEIRS)
    bench = Bench(model)
    bench.settle(rebalance(approval="Auto", throttleBytesPerSecond="1Mi"), BALANCED)
    assert model.rates == {LEADER_RATE: "77"}
    assert model.throttled == {"t0": THEIRS}
    assert spread_of(model) <= 1


def test_moves_of_others_are_left_alone() -> None:
    model = scaled_up()
    key = PartitionId("t0", 0)
    model.moving[key] = (2, 1)
    bench = Bench(model)
    resource = rebalance(approval="Auto", partitionsAtATime=3)
    bench.reconcile(resource)
    bench.reconcile(resource, dies_after=1)
    first = bench.status["slice"][0]
    other = PartitionId(first["topic"], first["partition"])
    theirs = (2, 1) if 0 in first["target"] else (2, 0)
    model.moving[other] = theirs
    for _ in range(4):
        bench.reconcile(resource)
    assert (model.moving[key], model.moving[other]) == ((2, 1), theirs)
    bench.reconcile(rebalance(stopped=True))
    assert set(model.moving) == {key, other}


def test_what_somebody_else_cancels_is_proposed_anew() -> None:
    bench = Bench(scaled_up())
    bench.reconcile(rebalance())
    first = bench.status["proposal"]["id"]
    approved = rebalance({ANNOTATION_APPROVE: first}, partitionsAtATime=2)
    bench.reconcile(approved)
    bench.reconcile(approved)
    assert bench.status["sliceState"] == "Moving"
    moving, bench.model.moving = bench.model.moving, {}
    bench.reconcile(approved)
    assert bench.status["sliceState"] == "Doubtful"
    bench.model.moving = moving
    bench.reconcile(approved)
    assert bench.status["sliceState"] == "Moving"
    bench.model.moving = {}
    for _ in range(4):
        plan = bench.reconcile(approved)
    assert plan.state == READY
    assert bench.model.moved == 0


def test_a_throttle_that_changes_holds_for_the_slice_under_way() -> None:
    bench = Bench(scaled_up())
    resource = rebalance(approval="Auto", throttleBytesPerSecond="1000")
    bench.reconcile(resource)
    bench.reconcile(resource)
    assert set(bench.model.rates.values()) == {"1000"}
    assert bench.model.throttled["t0"][FOLLOWER_REPLICAS]
    bench.reconcile(rebalance(approval="Auto", throttleBytesPerSecond="2000"), dies_after=1)
    bench.reconcile(rebalance(approval="Auto", throttleBytesPerSecond="3000"))
    assert set(bench.model.rates.values()) == {"3000"}
    bench.reconcile(rebalance(approval="Auto"))
    assert bench.model.rates == {}
    bench.settle(rebalance(approval="Auto"), BALANCED)
    assert bench.model.throttled == {}


def test_what_can_not_be_done_is_told() -> None:
    bench = Bench(scaled_up(old=2, new=0))
    plan = bench.reconcile(rebalance(mode="AddBrokers", brokers=[7]))
    assert [refusal.message for refusal in plan.refusals] == [
        "spec.brokers: 7: no such broker is registered; there are 0, 1"
    ]
    plan = bench.reconcile(rebalance(mode="RemoveBrokers", brokers=[1]))
    assert plan.refusals[0].code == "NoPlace"
    assert "no other broker in service has room for t0-0 on broker(s) 1, " in plan.refusals[0].message
    bench.model.brokers = (Broker(broker_id=0), Broker(broker_id=1, is_in_service=False))
    assert bench.reconcile(rebalance()).waits == ("broker(s) 1 to be in service",)
