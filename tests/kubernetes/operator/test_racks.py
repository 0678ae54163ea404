"""Racks of brokers by labels of machines."""

import json
from typing import Any

import pytest
from kit.operators.operated import BROKERS, Operated

ZONE = "topology.kubernetes.io/zone"
BROKERS_TIMEOUT_S = 200
TIMEOUT_S = 500


@pytest.mark.timeout(TIMEOUT_S)
def test_a_broker_has_the_rack_of_its_machine(brokered: Operated) -> None:
    """Broker.rack is true wherever a pod goes, and no broker starts without it."""
    operated = brokered
    operated.create(replicas=1)
    operated.create_brokers(rack={"topologyKey": ZONE})
    operated.start_operator()
    reported = f"its rack is unknown: the node {operated.agent.machine} has no label {ZONE}"
    operated.wait(
        lambda: reported in json.dumps((operated.brokers() or {}).get("status")), "the fault to be reported"
    )
    assert _constraints(operated)[ZONE] == "DoNotSchedule", "its volume is made where it is placed"

    operated.agent.label_machine(topology_kubernetes_io__zone="zone-a")
    operated.wait(lambda: operated.brokers_settled(0), "the broker to be ready", BROKERS_TIMEOUT_S)
    assert _rack(operated) == "zone-a"

    operated.agent.label_machine(topology_kubernetes_io__zone="zone-b")
    before = _pod(operated).metadata.uid
    operated.patch_brokers(template={"labels": {"team": "a"}})
    operated.wait(
        lambda: operated.brokers_settled(0) and _pod(operated).metadata.uid != before,
        "the broker to be restarted",
        BROKERS_TIMEOUT_S,
    )
    assert _rack(operated) == "zone-b"
    assert set(_constraints(operated).values()) == {"ScheduleAnyway"}, "its volume is where it is"


def _rack(operated: Operated) -> Any:
    """What the broker has registered."""
    return (operated.brokers() or {})["status"]["brokers"][0]["rack"]


def _pod(operated: Operated) -> Any:
    return operated.core.read_namespaced_pod(f"{BROKERS}-0", operated.namespace)


def _constraints(operated: Operated) -> dict[str, str]:
    found = _pod(operated).spec.topology_spread_constraints
    return {constraint.topology_key: constraint.when_unsatisfiable for constraint in found}
