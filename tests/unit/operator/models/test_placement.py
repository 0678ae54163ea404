"""Where controllers run: what a manifest may ask for, and which controllers it gets."""

import pytest
from kit.desired_cluster import manifest_fault
from quorate_operator.models.manifests import load_manifests
from quorate_operator.planning.cluster import Role
from quorate_operator.planning.desired import desired_cluster, in_pods

TEXT = (
    "apiVersion: quorate.dev/v1alpha1\nkind: KafkaController\nmetadata: {name: quorum}\nspec: {%s}\n"
    "---\napiVersion: quorate.dev/v1alpha1\nkind: KafkaBroker\nmetadata: {name: brokers}\n"
    "spec: {controllers: quorum, nodeIds: {first: 0}%s}\n"
)
WITH_BROKERS = "placement: {type: WithBrokers, pool: brokers}"


@pytest.mark.parametrize(
    ("controllers", "brokers", "ids"),
    [
        ("", "", (3000, 3001, 3002)),
        ("", ", replicas: 5", (3000, 3001, 3002)),
        ("", ", decommission: [1]", (3000, 3002, 3003)),
        (", decommission: [3000]", ", replicas: 4", (3001, 3002, 3003)),
        (", replicas: 1", ", decommission: [0, 1]", (3002,)),
        (", replicas: 1, nodeIds: {first: 7}", "", (7,)),
    ],
)
def test_controllers_follow_the_brokers(controllers: str, brokers: str, ids: tuple[int, ...]) -> None:
    manifests = load_manifests(TEXT % (WITH_BROKERS + controllers, brokers), "m.yaml")
    desired = in_pods(desired_cluster(manifests), manifests)
    assert tuple(node.node_id for node in desired.of_role(Role.CONTROLLER)) == ids
    offsets = [(node.place, node.pod_mate) for node in desired.of_role(Role.CONTROLLER)]
    assert all(mate == place for place, mate in offsets)


def test_without_placement_no_pod_is_shared() -> None:
    manifests = load_manifests(TEXT % ("", ""), "m.yaml")
    desired = desired_cluster(manifests)
    assert in_pods(desired, manifests) == desired
    assert not desired.has_shared_pods


@pytest.mark.parametrize(
    ("controllers", "brokers", "fault"),
    [
        (
            "placement: {type: WithBrokers}",
            "",
            "spec.placement.pool: is needed with type WithBrokers, and only there",
        ),
        (
            "placement: {pool: brokers}",
            "",
            "spec.placement.pool: is needed with type WithBrokers, and only there",
        ),
        (
            "placement: {type: WithBrokers, pool: brokres}",
            "",
            "spec.placement.pool: 'brokres': no such KafkaBroker of this cluster; there are brokers",
        ),
        (
            WITH_BROKERS + ", replicas: 5",
            ", replicas: 4",
            "replicas: 5: brokers has brokers for 4 controllers: controller 3004 would run in the pod of broker 4",
        ),
        (
            WITH_BROKERS + ", nodes: [{nodeId: 3001, implementation: java}]",
            "",
            "nodes: 3001: implementation: stock Kafka's controller can't run in the pod of a broker",
        ),
        (WITH_BROKERS + ", quorum: static", "", "placement.type: WithBrokers is for dynamic quorums"),
        (
            WITH_BROKERS + ", template: {nodeSelector: {a: b}}",
            "",
            "template.nodeSelector: with placement.type WithBrokers, pods are those of brokers",
        ),
        (
            WITH_BROKERS + ", template: {affinity: {}}",
            "",
            "template.affinity: with placement.type WithBrokers",
        ),
        (
            WITH_BROKERS,
            ", listeners: [{name: A, port: 9093}]",
            "spec.listeners[0].port: 9093: is, or may become, that of A of brokers",
        ),
        (
            WITH_BROKERS + ", listeners: [{name: C, port: 9092}]",
            "",
            "spec.listeners[0].port: 9092: is, or may become, that of PLAINTEXT of brokers",
        ),
    ],
)
def test_a_placement_that_is_not_possible_says_why(controllers: str, brokers: str, fault: str) -> None:
    assert fault in manifest_fault(TEXT % (controllers, brokers))


def test_a_template_may_have_what_is_of_the_container() -> None:
    template = "template: {resources: {limits: {memory: 200Mi}}, env: [{name: A, value: b}]}"
    assert load_manifests(TEXT % (f"{WITH_BROKERS}, {template}", ""), "m.yaml")
