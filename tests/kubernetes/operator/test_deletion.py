"""Resources that are deleted, alone and together: what stops, in which order, and what stays."""

import os
import signal

import kubernetes.client
from kit.operators.operated import BROKERS, CONTROLLERS_FIRST, QUORUM, Operated
from quorate_admin.types.topics import NewTopic
from quorate_operator.handlers.kopf_handlers import DELETION_ID
from quorate_operator.handlers.resources import KOPF_PREFIX

NODES = range(CONTROLLERS_FIRST, CONTROLLERS_FIRST + 3)
MORE = "more"
TOPIC, PARTITIONS = "orders", 3


def test_a_pool_goes_and_the_quorum_stays(brokered: Operated) -> None:
    """A deleted pool takes nothing along: its volumes as its policy says, no replica, the quorum not at all."""
    operated = brokered
    operated.create()
    operated.create_brokers(storage={"onDecommission": "Delete"})
    operated.start_operator()
    operated.wait(lambda: operated.brokers_settled(0), "the broker to be ready")
    operated.wait_settled(*NODES)
    before, disk = _uids(operated), _claim(operated).metadata.uid

    operated.delete_brokers()
    operated.wait(lambda: operated.brokers() is None, "the KafkaBroker to be gone")
    assert f"{BROKERS}-0" not in operated.pods()
    assert [note for note in operated.events("StopNode") if "its volumes stay" in note]

    operated.create_brokers(storage={"onDeletion": "Delete"})
    operated.wait(lambda: operated.brokers_settled(0), "the broker to be back")
    assert _claim(operated).metadata.uid == disk

    _create_topic(operated)
    with_broker = operated.pod_uids()
    operated.delete_brokers()
    _wait_reported(operated, BROKERS, "broker-0 holds 3 replica(s)")
    assert operated.brokers_condition("Ready")["reason"] == "TooFewBrokers"
    operated.operators[-1].kill()
    operated.start_operator()
    operated.wait(lambda: len(operated.events("TooFewBrokers")) > 1, "the new operator to say so, too")
    assert operated.pod_uids() == with_broker

    operated.create_brokers(MORE, storage={"onDeletion": "Delete"}, nodeIds={"first": 1})
    operated.wait(lambda: operated.brokers() is None, "the KafkaBroker to be gone with its volumes")
    assert f"data-{BROKERS}-0" not in operated.claims()
    assert operated.events("UnregisterBroker")
    topic = operated.asking(1, MORE)(lambda client: client.describe_topics([TOPIC]))[TOPIC]
    assert [(partition.replicas, partition.isr) for partition in topic.partitions] == [
        ((1,), (1,))
    ] * PARTITIONS

    operated.delete_brokers(MORE)
    _wait_reported(operated, MORE, "broker-1 holds 3 replica(s)")
    operated.patch_brokers(MORE, storage={"onDeletion": "Retain"})
    operated.wait(lambda: operated.brokers(MORE) is None, "the other KafkaBroker to be gone")
    assert f"data-{MORE}-1" in operated.claims()
    operated.wait_settled(*NODES)
    assert before == _uids(operated)


def test_quorum_and_pool_go_together(brokered: Operated) -> None:
    """Brokers stop while there is a quorum to say goodbye to, controllers after them; nothing hangs."""
    operated = brokered
    operated.create()
    operated.create_brokers(storage={"onDeletion": "Delete"})
    operator = operated.start_operator()
    operated.wait(lambda: operated.brokers_settled(0), "the broker to be ready")
    _create_topic(operated)
    operated.delete_brokers()
    _wait_reported(operated, BROKERS, "broker-0 holds 3 replica(s)")
    operated.delete()
    operated.wait(lambda: operated.resource() is None and operated.brokers() is None, "both to be gone")
    assert operated.pods() == []
    operated.wait(lambda: len(operated.claims()) == len(NODES), "the volume of the broker to be gone")
    assert "shut down completed" in operated.agent.log_of(f"{BROKERS}-0")
    stops = operated.events("StopNode")
    assert len(stops) == len(NODES) + 1
    assert stops[0].startswith("broker-0: ")
    assert not operator.errors()


def test_a_long_deletion_is_tried_again(brokered: Operated) -> None:
    """A broker that takes longer to stop than one attempt of its deletion costs no error."""
    operated = brokered
    operated.create()
    operated.create_brokers()
    operator = operated.start_operator()
    operated.wait(lambda: operated.brokers_settled(0), "the broker to be ready")
    pid = operated.agent.pid_of(f"{BROKERS}-0")
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        operated.delete_brokers()
        operated.wait(lambda: _has_attempts(operated), "an attempt of the deletion to be written down")
    finally:
        os.kill(pid, signal.SIGCONT)
    operated.wait(lambda: operated.brokers() is None, "the KafkaBroker to be gone")
    assert not operator.errors()


def test_a_quorum_goes_and_its_pool_stays(brokered: Operated) -> None:
    operated = brokered
    operated.create()
    operated.create_brokers()
    operated.start_operator()
    operated.wait(lambda: operated.brokers_settled(0), "the broker to be ready")
    cluster_id = operated.status()["clusterId"]
    operated.delete()
    operated.wait(lambda: operated.resource() is None, "the KafkaController to be gone")
    assert operated.pods() == []
    operated.wait(
        lambda: "spec.controllers" in operated.brokers_condition("Ready").get("message", ""),
        "the pool to say what it lacks",
    )
    operated.create()
    operated.wait(lambda: operated.brokers_settled(0), "the broker to be back")
    operated.wait_settled(*NODES)
    assert operated.status()["clusterId"] == cluster_id


def test_volumes_go_with_a_quorum_that_says_so(operated: Operated) -> None:
    """What is left of a cluster is what its policy says, and pods that have ended don't keep it."""
    operated.create(storage={"onDeletion": "Delete"})
    operated.start_operator()
    operated.wait_settled(*NODES)
    operated.operators[-1].kill()
    operated.agent.evict(f"{QUORUM}-{NODES[0]}")
    _leave_task(operated)
    operated.delete()
    operated.start_operator()
    operated.wait(lambda: operated.resource() is None, "the KafkaController to be gone")
    assert operated.pods() == []
    operated.wait(lambda: not operated.claims(), "the volumes to be gone")


def _create_topic(operated: Operated) -> None:
    """A topic whose only replicas are on broker 0."""
    placed = {partition: [0] for partition in range(PARTITIONS)}
    new = NewTopic(name=TOPIC, assignments=placed)
    operated.asking(0)(lambda client: client.create_topics([new])).raise_any()


def _wait_reported(operated: Operated, pool: str, held: str) -> None:
    """Wait until a pool that is deleted says in a condition and an Event what its broker holds."""
    operated.wait(
        lambda: held in operated.brokers_condition("Stalled", pool).get("message", ""),
        f"{pool} to say that {held}",
    )
    operated.wait(lambda: any(held in note for note in operated.events("TooFewBrokers")), "the Event")


def _has_attempts(operated: Operated) -> bool:
    pool = operated.brokers()
    assert pool is not None
    return f"{KOPF_PREFIX}/{DELETION_ID}" in pool["metadata"].get("annotations", {})


def _uids(operated: Operated) -> set[str]:
    """Those of the quorum's pods."""
    pods = operated.core.list_namespaced_pod(operated.namespace, label_selector=f"quorate.dev/pool={QUORUM}")
    return {pod.metadata.uid for pod in pods.items}


def _claim(operated: Operated) -> kubernetes.client.V1PersistentVolumeClaim:
    name = f"data-{BROKERS}-0"
    return operated.core.read_namespaced_persistent_volume_claim(name, operated.namespace)


def _leave_task(operated: Operated) -> None:
    """The pod of a task of an operator that was killed."""
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    labels = {
        "app.kubernetes.io/managed-by": "quorate",
        "quorate.dev/cluster": QUORUM,
        "quorate.dev/purpose": "task",
    }
    claim = {"claimName": f"data-{QUORUM}-{NODES[1]}"}
    body = {
        "metadata": {"name": f"{QUORUM}-{NODES[1]}-task", "labels": labels},
        "spec": {
            "containers": [{"name": "task", "image": "quorate:test", "securityContext": security}],
            "volumes": [{"name": "data", "persistentVolumeClaim": claim}],
        },
    }
    operated.core.create_namespaced_pod(operated.namespace, body)
