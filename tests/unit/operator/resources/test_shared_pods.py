"""The pod of a broker with a controller in it, what stands around it, and how it is observed."""

from typing import Any

import pytest
from kit.desired_cluster import Cluster, Make
from quorate_operator.planning.cluster import Address, NodeState, ObservedNode, Publication, Role
from quorate_operator.resources.configs import config_map
from quorate_operator.resources.names import labels_of
from quorate_operator.resources.pods import dry_run_pod, node_pod
from quorate_operator.resources.protection import brokers_policies, controllers_policy
from quorate_operator.resources.services import headless_service, published_service
from quorate_operator.resources.shared_pods import halves_of, with_controller
from quorate_operator.runtime.kubernetes.observation import NodeObjects, by_node, observed_node
from quorate_protocol.properties import parse_properties

WITH_BROKERS = "placement: {type: WithBrokers, pool: brokers}"
STARTED = "2026-01-01T00:00:00Z"


@pytest.fixture
def cluster(make: Make) -> Cluster:
    """Controllers 3000 to 3002 in the pods of brokers 0 to 2, and broker 3 alone."""
    return make(WITH_BROKERS, "replicas: 4, nodeIds: {first: 0}")


def pod_of(cluster: Cluster, broker_id: int) -> dict[str, Any]:
    """The pod of a broker, with the controller that is to be in it."""
    broker = cluster.node(broker_id)
    beside = None if broker.pod_mate is None else cluster.pod(broker.pod_mate)
    context, desired = cluster.context, cluster.desired
    return node_pod(context, desired, broker, broker.advertised, is_initial=False, beside=beside)


def running(pod: dict[str, Any], **restarts: int) -> dict[str, Any]:
    """The pod as kubelet reports it; `restarts` of the container of each name."""
    spec = pod["spec"]
    sidecars = [item["name"] for item in spec["initContainers"] if item.get("restartPolicy")]
    formats = [item["name"] for item in spec["initContainers"] if item["name"].endswith("format")]

    def status(name: str) -> dict[str, Any]:
        state = {"running": {"startedAt": STARTED}}
        return {
            "name": name,
            "ready": True,
            "started": True,
            "restartCount": restarts.get(name, 0),
            "state": state,
        }

    ids = {"controller-format": "C" * 22, "format": "B" * 22}
    ended = [
        {"name": name, "state": {"terminated": {"exitCode": 0, "message": ids[name]}}} for name in formats
    ]
    reported = {
        "phase": "Running",
        "initContainerStatuses": [*ended, *map(status, sidecars)],
        "containerStatuses": [status(item["name"]) for item in spec["containers"]],
    }
    metadata = {**pod["metadata"], "uid": "u", "creationTimestamp": STARTED}
    return {**pod, "metadata": metadata, "status": reported}


def observed(pod: dict[str, Any]) -> dict[int, ObservedNode]:
    """The nodes in a pod."""
    return {node_id: observed_node(found) for node_id, found in by_node([pod], [], []).items()}


def test_each_controller_is_placed_with_the_broker_of_its_offset(make: Make) -> None:
    cluster = make(WITH_BROKERS, "replicas: 4, nodeIds: {first: 10}, decommission: [11]")
    mates = {node.node_id: node.pod_mate for node in cluster.desired.nodes}
    assert mates == {3000: 10, 3002: 12, 3003: 13, 10: 3000, 12: 3002, 13: 3003, 14: None}


def test_the_controller_is_a_sidecar_that_starts_first_and_is_restarted_alone(cluster: Cluster) -> None:
    spec = pod_of(cluster, 0)["spec"]
    assert [container["name"] for container in spec["initContainers"]] == [
        "controller-format",
        "controller",
        "format",
    ]
    assert spec["initContainers"][1]["restartPolicy"] == "Always"
    assert [container["name"] for container in spec["containers"]] == ["node"]
    assert spec["terminationGracePeriodSeconds"] == 120
    assert spec["hostname"] == "brokers-0"


def test_the_controller_has_its_own_volume_configuration_ports_and_probes(cluster: Cluster) -> None:
    pod = pod_of(cluster, 0)
    controller, broker = pod["spec"]["initContainers"][1], pod["spec"]["containers"][0]
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes["controller-data"]["persistentVolumeClaim"]["claimName"] == "data-quorum-3000"
    assert volumes["controller-config"]["configMap"]["name"] == "quorum-3000"
    for container in (controller, *pod["spec"]["initContainers"], broker):
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes.keys()
    assert {port["name"]: port["containerPort"] for port in controller["ports"]} == {
        "controller-0": 9093,
        "controller-http": 9405,
    }
    assert all(len(port["name"]) <= 15 for port in controller["ports"])
    assert controller["readinessProbe"]["httpGet"]["port"] == "controller-http"
    assert controller["resources"]["requests"]["memory"] == "256Mi"
    item = config_map(cluster.context, cluster.desired, cluster.node(3000), {})
    properties = parse_properties(item["data"]["server.properties"])
    assert properties["quorate.http.listener"] == "0.0.0.0:9405"
    assert properties["process.roles"] == "controller"


def test_controllers_are_known_by_the_names_of_their_brokers_pods(make: Make) -> None:
    cluster = make(WITH_BROKERS)
    assert cluster.node(3001).advertised == {"CONTROLLER": Address("brokers-1.brokers.kafka.svc", 9093)}
    named = make(WITH_BROKERS + ', advertisedHost: "{pod}.{service}.kafka.svc"')
    assert named.node(3001).advertised == {"CONTROLLER": Address("brokers-1.brokers.kafka.svc", 9093)}


def test_a_pod_is_observed_as_two_nodes(cluster: Cluster) -> None:
    found = observed(running(pod_of(cluster, 0), controller=3))
    broker, controller = found[0], found[3000]
    assert (broker.role, broker.pool, broker.pod_mate) == (Role.BROKER, "brokers", 3000)
    assert (controller.role, controller.pool, controller.pod_mate) == (Role.CONTROLLER, "quorum", 0)
    assert (broker.state, controller.state) == (NodeState.READY, NodeState.READY)
    assert controller.configured == cluster.node(3000).advertised
    assert broker.configured == cluster.node(0).advertised
    assert {**controller.revision, "volume": ""} == {**cluster.node(3000).revision, "volume": ""}
    assert broker.revision["controller"] == "3000"
    assert (broker.directory_id, controller.directory_id) == ("B" * 22, "C" * 22)


def test_a_controller_that_crashes_is_no_problem_of_the_broker(cluster: Cluster) -> None:
    pod = running(pod_of(cluster, 0), controller=5)
    status = pod["status"]["initContainerStatuses"][-1]
    assert status["name"] == "controller"
    status["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
    status["ready"] = False
    status["lastState"] = {"terminated": {"exitCode": 1, "reason": "Error", "message": "no space left"}}
    found = observed(pod)
    assert found[0].state is NodeState.READY
    assert found[0].problem is None
    assert found[3000].state is NodeState.STARTING
    assert found[3000].exits_in_a_row == 6
    assert "the process ended with status 1, 6 times so far" in (found[3000].problem or "")


def test_a_pod_of_one_node_is_observed_as_before(cluster: Cluster) -> None:
    found = observed(running(pod_of(cluster, 3)))
    assert found.keys() == {3}
    assert found[3].pod_mate is None


def test_a_change_of_the_controller_alone_is_no_change_of_the_broker(make: Make) -> None:
    before = make(WITH_BROKERS)
    after = make(WITH_BROKERS + ", template: {resources: {limits: {memory: 512Mi}}}")
    assert before.node(0).revision == after.node(0).revision
    assert before.node(3000).revision != after.node(3000).revision


def test_a_dry_run_is_that_of_the_whole_pod(cluster: Cluster) -> None:
    for node_id in (0, 3000):
        pod = dry_run_pod(cluster.context, cluster.desired, cluster.node(node_id))
        assert pod["metadata"]["name"] == "brokers-0-dry-run"
        assert "controller" in {container["name"] for container in pod["spec"]["initContainers"]}


def test_services_lead_to_the_pods_of_the_brokers(cluster: Cluster) -> None:
    context, desired = cluster.context, cluster.desired
    labels = pod_of(cluster, 1)["metadata"]["labels"]
    headless = headless_service(context, desired, "quorum", Role.CONTROLLER)
    assert headless["spec"]["selector"].items() <= labels.items()
    assert headless["metadata"]["labels"].items() >= {"quorate.dev/pool": "quorum"}.items()
    ports = {port["name"]: port["port"] for port in headless["spec"]["ports"]}
    assert ports == {"controller": 9093, "http": 9405}
    address = Address("c1.kafka.svc", 9093)
    publication = Publication(address=address, node_id=3001, listener="CONTROLLER", since_ms=0)
    published = published_service(context, cluster.node(3001), [publication])
    assert published["spec"]["selector"].items() <= labels.items()
    others = pod_of(cluster, 0)["metadata"]["labels"]
    assert not published["spec"]["selector"].items() <= others.items()
    assert not headless["spec"]["selector"].items() <= pod_of(cluster, 3)["metadata"]["labels"].items()


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_policies_let_in_what_both_nodes_of_a_pod_need(make: Make, enabled: str) -> None:
    """A pod that any policy selects refuses all that none allows."""
    cluster = make(WITH_BROKERS, f"networkPolicy: {{enabled: {enabled}}}, metrics: {{enabled: true}}")
    policy = controllers_policy(cluster.context, cluster.desired)
    labels = pod_of(cluster, 1)["metadata"]["labels"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    allowed = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
    assert allowed == {9092, 9093, 9404, 9405}
    from_all = {
        port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"] if "from" not in rule
    }
    assert from_all == ({9092} if enabled == "true" else {9092, 9404})
    assert len(brokers_policies(cluster.context)) == int(enabled == "true")


def test_the_halves_keep_the_name_and_the_uid_by_which_the_pod_is_deleted(cluster: Cluster) -> None:
    pod = running(pod_of(cluster, 2))
    for found in by_node([pod], [], []).values():
        assert found.pod is not None
        assert found.pod["metadata"]["name"] == "brokers-2"
        assert found.pod["metadata"]["uid"] == "u"
        assert found.pod["spec"]["terminationGracePeriodSeconds"] == 120


def test_labels_of_a_controllers_objects_are_its_own(cluster: Cluster) -> None:
    labels = labels_of(cluster.context, cluster.node(3000))
    assert labels["quorate.dev/node-id"] == "3000"
    assert labels["quorate.dev/pool"] == "quorum"


def test_a_history_is_shipped_from_the_controllers_own_volume(make: Make) -> None:
    cluster = make(WITH_BROKERS + ", history: {claimName: lake}")
    pod = with_controller(cluster.pod(0), cluster.pod(3000))
    ship = next(item for item in pod["spec"]["containers"] if item["name"] == "controller-ship")
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    data = next(mount for mount in ship["volumeMounts"] if mount["mountPath"] == "/var/lib/quorate")
    assert volumes[data["name"]]["persistentVolumeClaim"]["claimName"] == "data-quorum-3000"


def test_each_half_has_the_annotations_of_the_pod_that_its_node_would_have_alone(cluster: Cluster) -> None:
    alone = cluster.pod(0), cluster.pod(3000)
    for pod, half in zip(alone, halves_of(with_controller(*alone)), strict=True):
        annotations, kept = (item["metadata"]["annotations"] for item in (pod, half))
        own = {name: text for name, text in annotations.items() if name.startswith("quorate.dev/")}
        assert {name: kept.get(name) for name in own} == own


def test_objects_without_a_pod_have_no_mate() -> None:
    assert observed_node(NodeObjects(node_id=3000, role=Role.CONTROLLER, pool="quorum")).pod_mate is None
