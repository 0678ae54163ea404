"""How addresses are verified before and while nodes advertise them, and what a node waits for that can't be."""

from typing import Any

import pytest
from kit.scenarios import CLUSTER_ID, NOW_MS, Situation, healthy
from quorate_operator.models.listeners import BrokerListener
from quorate_operator.planning.address_verification import (
    ADDRESS_MISROUTED,
    ADDRESS_NOT_ASSIGNED,
    ADDRESS_NOT_VERIFIED,
    ADDRESS_UNREACHABLE,
    STALLED_AFTER_MS,
)
from quorate_operator.planning.addresses import AddressPlan, plan_addresses
from quorate_operator.planning.cluster import Address, NodeState, Reached, Unassigned
from quorate_operator.planning.steps import CreateNode, StartNode, WaitFor

LISTENER = "PLAINTEXT"
OWN, NEW = Address("broker-0", 9092), Address("203.0.113.7", 9094)
BALANCER = "an address of the load balancer brokers-0-external"


def exposed(situation: Situation, advertised: Address = NEW, **exposure: Any) -> Situation:
    """Broker 0 is reached by clients outside of Kubernetes, at this address."""
    spec = {"name": LISTENER, "exposure": {"type": "LoadBalancer", **exposure}}
    listener = BrokerListener.model_validate(spec)
    return situation.asking_node(0, listeners=(listener,), advertised={LISTENER: advertised}, unassigned={})


def unassigned(situation: Situation, since_ms: int | None = NOW_MS) -> Situation:
    """Its load balancer has no address yet."""
    own = exposed(situation, OWN)
    return own.asking_node(0, unassigned={LISTENER: Unassigned(BALANCER, since_ms)})


def probing(situation: Situation, address: Address, **found: Any) -> Situation:
    """The result of a probe, which has been the same for a second."""
    reached = Reached(**({"at_ms": NOW_MS, "since_ms": NOW_MS - 1_000} | found))
    return situation.seeing(probes={address: reached})


def planned(situation: Situation, now_ms: int = NOW_MS) -> AddressPlan:
    """The plan for it."""
    return plan_addresses(situation.desired, situation.observed, now_ms)


def coded(plan: AddressPlan) -> list[tuple[str | None, bool]]:
    """The reasons of Ready, and whether each needs the user."""
    waits: list[WaitFor] = [*plan.held_back.values(), *plan.waits]
    return [(wait.code, wait.is_stalled) for wait in waits if wait.code]


def test_a_broker_does_not_start_before_its_balancer_has_an_address() -> None:
    """Otherwise clients outside of Kubernetes are given the pod's name."""
    new = unassigned(healthy(brokers=2)).down(0, NodeState.ABSENT).unregistered(0)
    plan = planned(new)
    assert plan.held_back[0].reason == f"{BALANCER}, which broker-0 is to advertise ({LISTENER})"
    assert plan.held_back[0].until_ms == NOW_MS + STALLED_AFTER_MS
    assert coded(plan) == [(ADDRESS_NOT_ASSIGNED, False)]
    assert coded(planned(new, NOW_MS + STALLED_AFTER_MS)) == [(ADDRESS_NOT_ASSIGNED, True)]
    due = new.due()
    assert [type(step) for step in due if step.node_id == 0] == [CreateNode]
    created = new.node(0, state=NodeState.STOPPED, has_volume=True, directory_id="disk")
    assert not [step for step in created.due() if isinstance(step, StartNode)]
    given = exposed(created)
    (start,) = [step for step in given.due() if isinstance(step, StartNode)]
    assert start.advertised == {LISTENER: NEW}


@pytest.mark.parametrize("state", [NodeState.STOPPED, NodeState.CRASHED])
def test_a_broker_that_has_run_starts_without_its_balancer(state: NodeState) -> None:
    """A balancer that is lost costs clients outside of Kubernetes alone."""
    plan = planned(unassigned(healthy(brokers=2)).down(0, state))
    assert (plan.held_back, plan.start_with[0]) == ({}, {LISTENER: OWN})
    assert coded(plan) == [(ADDRESS_NOT_ASSIGNED, False)]


def test_a_running_broker_whose_balancer_has_no_address_is_reported() -> None:
    plan = planned(unassigned(healthy(brokers=2), since_ms=0))
    assert coded(plan) == [(ADDRESS_NOT_ASSIGNED, True)]
    assert not plan.restarts


def test_an_address_that_can_not_be_verified_needs_the_user_after_a_minute() -> None:
    silent = probing(exposed(healthy(brokers=2)), NEW, error="timed out")
    plan = planned(silent)
    assert coded(plan) == [(ADDRESS_NOT_VERIFIED, False)]
    assert plan.waits[0].until_ms == NOW_MS - 1_000 + STALLED_AFTER_MS
    later = planned(silent, NOW_MS + STALLED_AFTER_MS)
    assert coded(later) == [(ADDRESS_NOT_VERIFIED, True)]
    assert "set exposure.verification of the listener to DNS or None" in later.waits[0].reason
    assert not later.restarts


def test_a_name_that_resolves_is_enough_where_the_manifest_says_so() -> None:
    """The operator need not be among sourceRanges."""
    by_name = exposed(healthy(brokers=2), verification="DNS")
    unknown = planned(probing(by_name, NEW, error="no such host"))
    assert "its name does not resolve now (no such host)" in unknown.waits[0].reason
    assert planned(probing(by_name, NEW, is_resolved=True)).restarts[0].advertised == {LISTENER: NEW}
    fresh = probing(by_name, NEW, error="no such host").down(0, NodeState.ABSENT).unregistered(0)
    assert "does not resolve" in planned(fresh).held_back[0].reason


def test_an_address_that_is_not_verified_is_advertised_at_once() -> None:
    plan = planned(exposed(healthy(brokers=2), verification="None"))
    assert plan.restarts[0].advertised == {LISTENER: NEW}
    assert plan.waits == ()


def advertising(situation: Situation) -> Situation:
    """Broker 0 runs with the address that it is to have."""
    endpoints = {LISTENER: NEW}
    registered = situation.registered(0, situation.observed.nodes[0].role, endpoints=endpoints)
    return exposed(registered.node(0, configured=endpoints))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"node_id": 1, "cluster_id": CLUSTER_ID}, "node 1 answers there now"),
        ({"node_id": None, "cluster_id": "other"}, "a node of another cluster (other) answers there now"),
    ],
)
def test_an_advertised_address_that_leads_to_another_node_is_reported(
    found: dict[str, Any], expected: str
) -> None:
    """The plan is not empty, and Ready not True: clients of broker 0 are served by another one."""
    situation = probing(advertising(healthy(brokers=2)), NEW, **found)
    plan = planned(situation)
    assert coded(plan) == [(ADDRESS_MISROUTED, True)]
    assert expected in plan.waits[0].reason
    assert situation.plan().steps == plan.waits
    assert not plan.restarts


def test_an_advertised_address_that_leads_to_its_node_is_no_step() -> None:
    for found in ({"node_id": 0, "cluster_id": CLUSTER_ID}, {}, {"node_id": None, "cluster_id": CLUSTER_ID}):
        assert probing(advertising(healthy(brokers=2)), NEW, **found).plan().steps == ()


def test_an_advertised_address_that_stays_silent_is_reported() -> None:
    silent = probing(advertising(healthy(brokers=2)), NEW, error="refused")
    assert planned(silent).waits == ()
    late = planned(silent, NOW_MS + STALLED_AFTER_MS)
    assert coded(late) == [(ADDRESS_UNREACHABLE, True)]
    assert "nothing answers there now (refused)" in late.waits[0].reason
    for node_state in (NodeState.STARTING, NodeState.UNREADY):
        assert not coded(planned(silent.node(0, state=node_state), NOW_MS + STALLED_AFTER_MS))


def test_the_operator_need_not_resolve_names_of_pods() -> None:
    """Where it runs outside of Kubernetes, it probes them in vain."""
    internal = probing(healthy(brokers=2), OWN, error="no such host")
    assert planned(internal, NOW_MS + STALLED_AFTER_MS).waits == ()
