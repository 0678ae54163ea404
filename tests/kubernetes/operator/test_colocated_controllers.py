"""A cluster of three pods, each with a broker and a controller, on a real API server: from apply to decommission."""

import os
import signal
from typing import Any

import kubernetes.client
import pytest
from confluent_kafka.admin import AdminClient as ConfluentAdmin
from confluent_kafka.admin import NewTopic
from kit.ledger import SteadyProducer, consume_numbers
from kit.operators.operated import BROKER_PORT, BROKERS, QUORUM, SMALL_FILES, Operated
from kubernetes.client import ApiException

pytestmark = pytest.mark.timeout(1800)

TOPIC = "orders"
PARTITIONS = 6
BROKERS_TIMEOUT_S = 600
CONFIG = {
    **SMALL_FILES,
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "2",
}


def create(operated: Operated) -> None:
    """Three controllers in the pods of three brokers, at the addresses of these pods."""
    operated.create(
        placement={"type": "WithBrokers", "pool": BROKERS},
        advertisedHost=f"{operated.network}.11{{offset}}",
    )
    operated.create_brokers(replicas=3, nodeIds={"first": 0}, config=CONFIG)


def settled(operated: Operated, brokers: tuple[int, ...], voters: tuple[int, ...]) -> bool:
    """Whether these are the pods, the brokers and the voters, and nothing is left to do."""
    status = operated.status()
    return (
        operated.brokers_settled(*brokers)
        and not status.get("plan")
        and status.get("observedGeneration") == (operated.resource() or {})["metadata"]["generation"]
        and sorted(operated.voters()) == sorted(voters)
        and operated.pods() == sorted(f"{BROKERS}-{broker}" for broker in brokers)
    )


def pods_by_name(operated: Operated) -> dict[str, Any]:
    """The pods that are there."""
    return {pod.metadata.name: pod for pod in operated.core.list_namespaced_pod(operated.namespace).items}


def restarts(operated: Operated, pod: str) -> dict[str, int]:
    """How often each container of a pod was restarted."""
    status = pods_by_name(operated)[pod].status
    found = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    return {container.name: container.restart_count for container in found}


def servers_of(operated: Operated, *brokers: int) -> str:
    """The bootstrap servers of brokers."""
    return ",".join(f"{operated.agent.address_of(f'{BROKERS}-{broker}')}:{BROKER_PORT}" for broker in brokers)


def test_a_cluster_of_three_pods_from_apply_to_decommission(brokered: Operated) -> None:
    """Records are acknowledged all the while, and none of them is lost."""
    operated = brokered
    create(operated)
    operated.start_operator()
    operated.wait(
        lambda: settled(operated, (0, 1, 2), (3000, 3001, 3002)), "a cluster of three pods", BROKERS_TIMEOUT_S
    )
    budgets = kubernetes.client.PolicyV1Api(operated.core.api_client)
    found = budgets.list_namespaced_pod_disruption_budget(operated.namespace).items
    assert [item.metadata.name for item in found] == [f"{QUORUM}-{BROKERS}"], "two would forbid each eviction"
    assert operated.status()["readyReplicas"] == 3
    admin = ConfluentAdmin({"bootstrap.servers": servers_of(operated, 0)})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)]).values():
        future.result()
    with SteadyProducer(servers_of(operated, 0, 2), TOPIC) as producer:
        _either_half_dies_alone(operated)
        _roll(operated)
        operated.patch_brokers(decommission=[1])
        operated.wait(
            lambda: settled(operated, (0, 2, 3), (3000, 3002, 3003)),
            "broker 1 and its controller to have left",
            BROKERS_TIMEOUT_S,
        )
    assert producer.acknowledged
    assert not producer.failures
    numbers = consume_numbers(servers_of(operated, 0), TOPIC, range(PARTITIONS))
    assert set(producer.acknowledged) <= set(numbers)
    api = kubernetes.client.EventsV1Api(operated.core.api_client)
    events = sorted(api.list_namespaced_event(operated.namespace).items, key=lambda event: event.event_time)
    changes = [event.reason for event in events if event.reason in ("AddVoter", "RemoveVoter")]
    assert changes == ["AddVoter", "RemoveVoter"], "the next controller joins before the voter leaves"


def _either_half_dies_alone(operated: Operated) -> None:
    agent, pod = operated.agent, f"{BROKERS}-1"
    uids = operated.pod_uids()
    for dies, lives, container in (
        (agent.pid_beside, agent.pid_of, "controller"),
        (agent.pid_of, agent.pid_beside, "node"),
    ):
        dead, alive = dies(pod), lives(pod)
        assert dead is not None
        assert alive is not None
        os.kill(dead, signal.SIGKILL)
        operated.wait(
            lambda name=container: restarts(operated, pod)[name] == 1, f"{container} to be restarted"
        )
        operated.wait(
            lambda: settled(operated, (0, 1, 2), (3000, 3001, 3002)), "all to be well", BROKERS_TIMEOUT_S
        )
        assert lives(pod) == alive, f"the other process ended with {container}"
    assert operated.pod_uids() == uids


def _roll(operated: Operated) -> None:
    """A change of the controllers alone replaces each pod once, one at a time."""
    before, pods = operated.pod_uids(), operated.core.list_namespaced_pod(operated.namespace)
    operated.patch(config={**SMALL_FILES, "controller.quorum.request.timeout.ms": "2100"})
    operated.wait(
        lambda: settled(operated, (0, 1, 2), (3000, 3001, 3002)) and not before & operated.pod_uids(),
        "three new pods",
        BROKERS_TIMEOUT_S,
    )
    assert operated.fewest_since(pods) == 2
    assert any(
        "controller-3000: controller.quorum.request.timeout.ms" in note
        for note in operated.events("StopNode")
    )


def test_a_placement_is_not_changed(brokered: Operated) -> None:
    operated = brokered
    create(operated)
    with pytest.raises(ApiException, match="the voters are known by the addresses of their pods"):
        operated.patch(placement={"type": "Separate", "pool": None})
