"""Resources that are deleted, alone and together: what stops, in which order, and what stays."""

import os
import signal

import kubernetes.client
from kit.operators.operated import BROKERS, CONTROLLERS_FIRST, QUORUM, Operated
from quorate_operator.handlers.resources import KOPF_PREFIX
from quorate_operator.handlers.wiring import DELETION_ID

NODES = range(CONTROLLERS_FIRST, CONTROLLERS_FIRST + 3)


def test_a_pool_goes_and_the_quorum_stays(brokered: Operated) -> None:
    """Goal: a deleted pool takes nothing along: its volumes as its policy says, the quorum not at all.

    Method: delete a pool of which decommissioned brokers alone lose their volumes, bring it back, which is the same
    broker with the same disk; then one that deletes them, which is unregistered before.
    """
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

    operated.delete_brokers()
    operated.wait(lambda: operated.brokers() is None, "the KafkaBroker to be gone with its volumes")
    assert f"data-{BROKERS}-0" not in operated.claims()
    assert operated.events("UnregisterBroker")
    operated.wait_settled(*NODES)
    assert before == _uids(operated)


def test_quorum_and_pool_go_together(brokered: Operated) -> None:
    """Goal: brokers stop while there is a quorum to say goodbye to, controllers after them; nothing hangs.

    Method: delete both at once; the order of the stops, from Events; the broker's own last words.
    """
    operated = brokered
    operated.create()
    operated.create_brokers()
    operator = operated.start_operator()
    operated.wait(lambda: operated.brokers_settled(0), "the broker to be ready")
    operated.delete()
    operated.delete_brokers()
    operated.wait(lambda: operated.resource() is None and operated.brokers() is None, "both to be gone")
    assert operated.pods() == []
    assert len(operated.claims()) == len(NODES) + 1
    assert "shut down completed" in operated.agent.log_of(f"{BROKERS}-0")
    stops = operated.events("StopNode")
    assert len(stops) == len(NODES) + 1
    assert stops[0].startswith("broker-0: ")
    assert not operator.errors()


def test_a_long_deletion_is_tried_again(brokered: Operated) -> None:
    """Goal: a broker that takes longer to stop than one attempt of its deletion costs no error.

    Method: suspend the broker's process, delete its pool, resume it once kopf has written down its first attempt.
    """
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
    """Goal: without its quorum a pool stops, says so, and goes on when the quorum is back.

    Method: delete the KafkaController alone, read the KafkaBroker's conditions, apply the KafkaController again.
    """
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
    """Goal: what is left of a cluster is what its policy says, and pods that have ended don't keep it.

    Method: deletion with `onDeletion: Delete`, while one pod was evicted and another is a task's.
    """
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
    """A pod of a task that nobody waits for any more."""
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
