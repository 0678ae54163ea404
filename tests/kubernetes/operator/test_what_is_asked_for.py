"""What resources ask for that no schema can judge; pauses, and the scale subresource."""

from typing import Any

import kubernetes.client
from kit.operators.operated import BROKERS, CONTROLLERS_FIRST, GROUP, QUORUM, VERSION, Operated

NODES = range(CONTROLLERS_FIRST, CONTROLLERS_FIRST + 3)
OTHERS = "others"


def test_pools_without_a_quorum_and_pools_that_collide(operated: Operated) -> None:
    """Each resource says what is wrong with it, for the spec as it is, and continues when it is right; others
    are not concerned.
    """
    operated.create_brokers()
    operated.start_operator()
    operated.wait(
        lambda: f"spec.controllers: '{QUORUM}'" in operated.brokers_condition("Ready").get("message", ""),
        "the pool to say that there is no such KafkaController",
    )
    operated.create(state="Hibernated")
    operated.wait(lambda: _reason(operated, BROKERS) == "Hibernated", "the pool to be looked at")

    operated.create_brokers(OTHERS, nodeIds={"first": 5})
    operated.wait(lambda: _reason(operated, OTHERS) == "Hibernated", "a second pool to be taken")
    for replicas in (6, 7):
        operated.patch_brokers(replicas=replicas)
        operated.wait(lambda: _is_refused(operated, BROKERS), "each generation to be refused")
    assert "node id 5 belongs to KafkaBroker others" in operated.brokers_condition("Ready")["message"]
    operated.wait(lambda: "node id 5" in "".join(operated.events("InvalidManifest")), "the Event")
    assert [broker["nodeId"] for broker in (operated.brokers() or {})["status"]["brokers"]] == [0]
    assert _reason(operated, OTHERS) == operated.condition("Ready")["reason"] == "Hibernated"
    assert operated.condition("Stalled")["status"] == "False"

    operated.create_brokers("third", nodeIds={"first": 0})
    operated.wait(lambda: _is_refused(operated, "third"), "the third pool to be refused")
    operated.delete_brokers("third")
    operated.wait(lambda: operated.brokers("third") is None, "it to go although it is refused")
    assert _is_refused(operated, BROKERS)

    operated.patch_brokers(replicas=1)
    operated.wait(
        lambda: _reason(operated, OTHERS) == "Hibernated" and _reason(operated, BROKERS) == "Hibernated",
        "both pools to be taken",
    )
    operated.wait(
        lambda: operated.brokers_condition("Stalled")["status"] == "False", "nothing to be wrong with it"
    )
    assert "acceptedSpec" not in (operated.brokers() or {})["status"]


def test_a_refused_pool_is_beside_a_quorum_that_serves(operated: Operated) -> None:
    operated.create(replicas=1)
    operator = operated.start_operator()
    operated.wait_settled(CONTROLLERS_FIRST)
    operated.create_brokers(OTHERS, nodeIds={"first": CONTROLLERS_FIRST})
    operated.wait(lambda: _is_refused(operated, OTHERS), "the pool to be refused")
    (pod,) = operated.pods()
    before = operated.core.read_namespaced_pod(pod, operated.namespace).metadata.uid
    operated.core.delete_namespaced_pod(pod, operated.namespace)

    def is_back() -> bool:
        found = operated.core.list_namespaced_pod(operated.namespace).items
        return [each.metadata.name for each in found] == [pod] and found[0].metadata.uid != before

    operated.wait(is_back, "the controller's pod to be back")
    operated.wait_settled(CONTROLLERS_FIRST)
    assert _is_refused(operated, OTHERS)
    assert not operator.errors()


def test_pools_that_name_no_node_ids_get_some_of_their_own(operated: Operated) -> None:
    """A second pool works as the first does, and a pool that comes back has its ids."""
    operated.create(state="Hibernated")
    operated.start_operator()
    for pool, first in ((BROKERS, 0), (OTHERS, 1000)):
        operated.create_brokers(pool)
        operated.wait(lambda pool=pool: _reason(operated, pool) == "Hibernated", "the pool to be taken")
        assert _first(operated, pool) == first
    _leave_volume(operated, BROKERS, 7)
    operated.delete_brokers()
    operated.wait(lambda: operated.brokers() is None, "the pool to be gone")
    operated.create_brokers("third")
    operated.wait(lambda: _reason(operated, "third") == "Hibernated", "the third pool to be taken")
    operated.create_brokers()
    operated.wait(lambda: _reason(operated, BROKERS) == "Hibernated", "the pool to be back")
    assert (_first(operated, "third"), _first(operated, BROKERS)) == (2000, 0)


def _first(operated: Operated, pool: str) -> int:
    return int((operated.brokers(pool) or {})["spec"]["nodeIds"]["first"])


def _leave_volume(operated: Operated, pool: str, node_id: int) -> None:
    """A volume that a broker of a pool had."""
    labels = {
        "app.kubernetes.io/managed-by": "quorate",
        "app.kubernetes.io/component": "broker",
        "quorate.dev/cluster": QUORUM,
        "quorate.dev/pool": pool,
        "quorate.dev/node-id": f"{node_id}",
    }
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    body = {"metadata": {"name": f"data-{pool}-{node_id}", "labels": labels}, "spec": spec}
    operated.core.create_namespaced_persistent_volume_claim(operated.namespace, body)


def test_what_runs_is_kept_alive_while_its_resource_is_invalid(operated: Operated) -> None:
    """A mistake in a resource costs no node, also when the operator is restarted."""
    operated.create(replicas=1)
    operator = operated.start_operator()
    operated.wait_settled(NODES[0])
    name = f"{QUORUM}-{NODES[0]}"
    operated.patch(replicas=2, config={"log.retnetion.ms": "1"})
    operated.wait(lambda: operated.condition("Stalled").get("reason") == "InvalidManifest", "the refusal")
    for place in range(2):
        uid = operated.core.read_namespaced_pod(name, operated.namespace).metadata.uid
        operated.core.delete_namespaced_pod(name, operated.namespace)
        operated.wait(lambda uid=uid: _has_other_pod(operated, name, uid), "the pod to be back")
        if not place:
            operator.kill()
            operated.start_operator()
    operated.wait(lambda: operated.status().get("readyReplicas") == 1, "it to be ready")
    assert operated.pods() == [name]
    assert operated.condition("Ready")["reason"] == "InvalidManifest"
    operated.patch(config={"log.retnetion.ms": None})
    operated.wait_settled(*NODES[:2])


def test_a_misspelled_property_restarts_no_controller(operated: Operated) -> None:
    operated.create(replicas=1)
    operated.start_operator()
    operated.wait_settled(NODES[0])
    name = f"{QUORUM}-{NODES[0]}"
    uid = operated.core.read_namespaced_pod(name, operated.namespace).metadata.uid
    operated.patch(config={"log.retnetion.ms": 60_000})
    operated.wait(lambda: operated.condition("Stalled").get("reason") == "InvalidManifest", "the refusal")
    assert "did you mean log.retention.ms?" in operated.condition("Stalled")["message"]
    operated.patch(config={"log.retnetion.ms": None})
    operated.wait(lambda: operated.condition("Stalled").get("status") == "False", "the refusal to be over")
    operated.wait_settled(NODES[0])
    assert operated.core.read_namespaced_pod(name, operated.namespace).metadata.uid == uid


def _has_other_pod(operated: Operated, name: str, uid: str) -> bool:
    pods = operated.core.list_namespaced_pod(operated.namespace).items
    return any(pod.metadata.name == name and pod.metadata.uid != uid for pod in pods)


def test_names_that_belong_to_somebody_else(operated: Operated) -> None:
    body = {"metadata": {"name": QUORUM}, "spec": {"ports": [{"port": 80}]}}
    operated.core.create_namespaced_service(operated.namespace, body)
    operated.create(state="Hibernated")
    operated.start_operator()
    fault = f"Service {QUORUM}"
    operated.wait(
        lambda: fault in operated.condition("Reconciling").get("message", ""), "the clash to be reported"
    )
    assert operated.core.read_namespaced_service(QUORUM, operated.namespace).spec.cluster_ip != "None"
    operated.core.delete_namespaced_service(QUORUM, operated.namespace)
    operated.wait(lambda: operated.condition("Ready").get("reason") == "Hibernated", "the cluster to go on")
    operated.wait(lambda: operated.condition("Reconciling").get("status") == "False", "the fault to be over")

    operated.create_brokers(QUORUM)
    operated.wait(lambda: _reason(operated, QUORUM) == "InvalidManifest", "the pool's name to be refused")
    assert "metadata.name" in operated.brokers_condition("Ready", QUORUM)["message"]
    operated.delete_brokers(QUORUM)
    operated.wait(lambda: operated.condition("Ready").get("reason") == "Hibernated", "the cluster to go on")


def test_pauses_and_the_scale_subresource(operated: Operated) -> None:
    """A pause by field and by annotation stops changes, and `kubectl scale` is a change."""
    operated.create(replicas=1)
    operated.start_operator()
    operated.wait_settled(NODES[0])
    operated.patch(state="Paused")
    operated.annotate(pause="true")
    operated.wait(
        lambda: operated.condition("Reconciling").get("reason") == "Paused", "the pause to be reported"
    )
    scale = operated.custom.patch_namespaced_custom_object_scale(
        GROUP, VERSION, operated.namespace, "kafkacontrollers", QUORUM, {"spec": {"replicas": 2}}
    )
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (2, 1)
    operated.wait(
        lambda: operated.status()["observedGeneration"] == _quorum_generation(operated), "it to be seen"
    )
    operated.patch(state="Running")
    operated.wait(
        lambda: operated.status()["observedGeneration"] == _quorum_generation(operated), "it to be seen"
    )
    assert operated.condition("Reconciling")["reason"] == "Paused"
    assert operated.condition("Stalled")["status"] == "False"
    assert operated.pods() == [f"{QUORUM}-{NODES[0]}"]
    operated.annotate(pause=None)
    operated.wait_settled(*NODES[:2])
    scale = operated.custom.get_namespaced_custom_object_scale(
        GROUP, VERSION, operated.namespace, "kafkacontrollers", QUORUM
    )
    assert scale["status"]["replicas"] == 2
    selected = operated.core.list_namespaced_pod(
        operated.namespace, label_selector=scale["status"]["selector"]
    )
    assert len(selected.items) == 2


def test_only_the_operators_own_namespace_reaches_controllers(operated: Operated) -> None:
    operated.create(state="Hibernated")
    operated.start_operator("--no-leader-election", POD_NAMESPACE="quorate-system")
    operated.wait(lambda: operated.condition("Ready").get("reason") == "Hibernated", "the cluster to be seen")
    policies = kubernetes.client.NetworkingV1Api(operated.core.api_client)
    policy = policies.read_namespaced_network_policy(f"{QUORUM}-controllers", operated.namespace)
    admitted = [peer.namespace_selector for peer in policy.spec.ingress[0]._from]
    assert [peer.match_labels for peer in admitted if peer is not None] == [
        {"kubernetes.io/metadata.name": "quorate-system"}
    ]


_NO_VALUES: dict[str, Any] = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In"}]}]
            }
        }
    }
}


def test_a_pod_that_the_api_server_refuses_stops_no_node(operated: Operated) -> None:
    """A template that only the API server can judge costs no running node, and is reported at its resource."""
    operated.create(replicas=1)
    operated.start_operator()
    operated.wait_settled(NODES[0])
    name = f"{QUORUM}-{NODES[0]}"
    uid = operated.core.read_namespaced_pod(name, operated.namespace).metadata.uid
    for template, expected in (
        (_NO_VALUES, "must be specified when `operator` is 'In'"),
        ({"affinity": None, "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}, "cpu limit"),
        ({"resources": None, "priorityClassName": "no-such-class"}, "no-such-class"),
    ):
        operated.patch(template=template)
        operated.wait(
            lambda expected=expected: expected in _refused(operated), f"the refusal that names {expected}"
        )
        assert operated.condition("Stalled")["reason"] == "RestartRefused"
        operated.wait(
            lambda expected=expected: expected in "".join(operated.events("RestartRefused")), "the Event"
        )
        assert operated.core.read_namespaced_pod(name, operated.namespace).metadata.uid == uid
    assert operated.events("StopNode") == []
    operated.patch(template={"priorityClassName": None, "labels": {"team": "a"}})
    operated.wait(lambda: operated.events("StopNode"), "the node to be restarted")
    operated.wait_settled(NODES[0])
    assert operated.pods() == [name]
    assert not operated.status().get("refusals")


def _refused(operated: Operated) -> str:
    return "".join(refusal["message"] for refusal in operated.refusals())


def _reason(operated: Operated, pool: str) -> str | None:
    return operated.brokers_condition("Ready", pool).get("reason")


def _is_refused(operated: Operated, pool: str) -> bool:
    """Whether a pool, as it is now, was refused."""
    reported = operated.brokers_condition("Ready", pool)
    generation = (operated.brokers(pool) or {})["metadata"]["generation"]
    return reported.get("reason") == "InvalidManifest" and reported["observedGeneration"] == generation


def _quorum_generation(operated: Operated) -> int:
    return int((operated.resource() or {})["metadata"]["generation"])
