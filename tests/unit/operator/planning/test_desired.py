"""What manifests ask for: node ids, lifecycle, rollouts, requests by annotation; and host templates."""

from dataclasses import replace

import pytest
from quorate_operator.models.hosts import TemplateError, fill_host, template_values
from quorate_operator.models.manifests import load_manifests
from quorate_operator.planning.cluster import (
    FORCE,
    DesiredCluster,
    Lifecycle,
    Role,
    RolloutPolicy,
    VolumePolicy,
)
from quorate_operator.planning.desired import desired_cluster
from quorate_operator.planning.losses import RecoveryRequest

VALUES = template_values(cluster="quorum", pool="brokers", node_id=1002, first=1000, namespace="kafka")


def desired(controllers: str = "{}", brokers: str = "", annotations: str = "{}") -> DesiredCluster:
    """The cluster of a spec, in YAML's flow style."""
    text = f"""\
apiVersion: quorate.dev/v1alpha1
kind: KafkaController
metadata: {{name: quorum, annotations: {annotations}}}
spec: {controllers}
"""
    if brokers:
        text += f"""\
---
apiVersion: quorate.dev/v1alpha1
kind: KafkaBroker
metadata: {{name: brokers}}
spec: {brokers}
"""
    return desired_cluster(load_manifests(text, "test"))


@pytest.mark.parametrize(
    ("replicas", "decommission", "ids"),
    [
        (3, "[]", [3000, 3001, 3002]),
        (3, "[3002]", [3000, 3001, 3003]),
        (2, "[3002]", [3000, 3001]),
        (3, "[3000, 3003]", [3001, 3002, 3004]),
    ],
)
def test_a_pool_has_the_first_ids_that_are_not_decommissioned(
    replicas: int, decommission: str, ids: list[int]
) -> None:
    cluster = desired(f"{{replicas: {replicas}, decommission: {decommission}}}")
    assert [node.node_id for node in cluster.nodes] == ids
    assert [node.place for node in cluster.nodes] == [node_id - 3000 for node_id in ids]
    assert not cluster.decommission & set(ids)


@pytest.mark.parametrize(
    ("spec", "annotations", "lifecycle"),
    [
        ("{}", "{}", Lifecycle.RUNNING),
        ("{state: Paused}", "{}", Lifecycle.PAUSED),
        ("{}", '{quorate.dev/pause: "true"}', Lifecycle.PAUSED),
        ("{}", '{quorate.dev/pause: "false"}', Lifecycle.RUNNING),
        ("{state: Hibernated}", "{}", Lifecycle.HIBERNATED),
        ("{state: Hibernated}", '{quorate.dev/pause: "true"}', Lifecycle.PAUSED),
    ],
)
def test_lifecycles(spec: str, annotations: str, lifecycle: Lifecycle) -> None:
    assert desired(spec, annotations=annotations).lifecycle is lifecycle


def test_restarts_are_asked_for_by_annotation() -> None:
    cluster = desired(annotations="{quorate.dev/restart: monday, quorate.dev/restart-3001: again}")
    assert {node.node_id: node.revision["restart"] for node in cluster.nodes} == {
        3000: "monday",
        3001: "monday again",
        3002: "monday",
    }
    assert all("restart" not in node.revision for node in desired().nodes)


def test_one_node_is_forced_or_left_out_by_annotation() -> None:
    asked = (
        '{quorate.dev/force-restart-3001: monday, quorate.dev/skip-rollout-3002: "true", '
        'quorate.dev/skip-rollout-3000: "false", quorate.dev/force-restart: all}'
    )
    cluster = desired(annotations=asked)
    assert {node.node_id: node.revision.get(FORCE) for node in cluster.nodes} == {
        3000: None,
        3001: "monday",
        3002: None,
    }, "there is no way to force a whole pool"
    assert [node.node_id for node in cluster.nodes if node.skips_rollout] == [3002]


def test_rollouts_and_racks() -> None:
    cluster = desired(
        "{storage: {unbindAfter: 1h}}",
        brokers="{controllers: quorum, replicas: 1, rollout: {overlap: 90s, maxUnavailable: 2}, "
        "storage: {onDecommission: Delete}, nodes: [{nodeId: 0, rack: a}]}",
    )
    assert cluster.rollouts == {
        "quorum": RolloutPolicy(unbind_after_ms=3_600_000),
        "brokers": RolloutPolicy(overlap_ms=90_000, max_unavailable=2, volumes=VolumePolicy.DELETE),
    }
    assert cluster.of_role(Role.BROKER)[0].rack == "a"


def test_a_loss_of_the_quorum_is_named_with_its_survivor() -> None:
    asked = desired("{recovery: {survivor: 3001, clusterId: mRn6LvYdTWmUOSNFgPmBhw, leaderEpoch: 4}}")
    assert asked.recovery == RecoveryRequest(3001, "mRn6LvYdTWmUOSNFgPmBhw", 4)
    assert desired().recovery is None


@pytest.mark.parametrize(
    ("template", "host"),
    [
        ("b{nodeId}.kafka.example.com", "b1002.kafka.example.com"),
        ("{pod}.{service}.{namespace}.svc", "brokers-1002.brokers.kafka.svc"),
        ("127.0.0.{offset}", "127.0.0.2"),
        ("{cluster}-{pool}-{nodeId}", "quorum-brokers-1002"),
        ("fd00::1", "fd00::1"),
    ],
)
def test_templates_are_filled_in(template: str, host: str) -> None:
    assert fill_host(template, VALUES, "spec.advertisedHost") == host


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        (
            "b{nodeid}.x",
            "unknown placeholder {nodeid}; did you mean {nodeId}? placeholders are {nodeId}, {offset}",
        ),
        ("b{nodeId:>4}", "unknown placeholder {nodeId:>4}; "),
        ("b{nodeId!r}", "unknown placeholder {nodeId!r}; "),
        ("b{}", "unknown placeholder {}; "),
        ("b{nodeId", "expected '}' before end of string; placeholders are {nodeId}"),
    ],
)
def test_a_bad_template_is_told_with_its_field(template: str, fault: str) -> None:
    with pytest.raises(TemplateError) as reported:
        fill_host(template, {}, "spec.listeners[0].advertisedHost")
    assert str(reported.value).startswith(f"spec.listeners[0].advertisedHost: {template!r}: ")
    assert fault in str(reported.value)


@pytest.mark.parametrize(
    "template", ["b_{nodeId}!", "-{nodeId}", "b..{nodeId}", "x" * 64, ".".join(["x" * 60] * 5)]
)
def test_what_gives_no_host_is_told(template: str) -> None:
    with pytest.raises(TemplateError, match="which is no host"):
        fill_host(template, VALUES, "spec.advertisedHost")


def test_a_pool_that_is_drained_asks_for_none_of_its_brokers() -> None:
    """A deleted pool is decommissioned as a whole, and its settings stay known."""
    brokers = "{controllers: quorum, replicas: 2, nodeIds: {first: 0}, decommission: [1]}"
    pool = (
        f"apiVersion: quorate.dev/v1alpha1\nkind: KafkaBroker\nmetadata: {{name: brokers}}\nspec: {brokers}"
    )
    quorum = "apiVersion: quorate.dev/v1alpha1\nkind: KafkaController\nmetadata: {name: quorum}"
    manifests = load_manifests(f"{quorum}\n---\n{pool}", "test")
    before = desired_cluster(manifests)
    after = desired_cluster(replace(manifests, drained_pools=frozenset({"brokers"})))
    assert after.of_role(Role.BROKER) == ()
    assert after.drained == before.of_role(Role.BROKER)
    assert after.nodes_with_settings == before.nodes
    assert after.decommission == {0, 1, 2}
    assert before.rollouts["brokers"].volumes is VolumePolicy.RETAIN
    assert after.rollouts["brokers"].volumes is VolumePolicy.DELETE


AGREED = "config: {default.replication.factor: 3, min.insync.replicas: 2, num.io.threads: 4}"


@pytest.mark.parametrize(
    ("controllers", "brokers", "expected"),
    [
        (
            "{}",
            f"{{controllers: quorum, {AGREED}}}",
            {"default.replication.factor": "3", "min.insync.replicas": "2"},
        ),
        (
            "{config: {default.replication.factor: 2}}",
            f"{{controllers: quorum, {AGREED}}}",
            {"default.replication.factor": "2", "min.insync.replicas": "2"},
        ),
        ("{}", "{controllers: quorum}", {}),
    ],
    ids=["of the pool", "its own first", "of nobody"],
)
def test_controllers_have_the_defaults_of_topics_that_brokers_have(
    controllers: str, brokers: str, expected: dict[str, str]
) -> None:
    """A topic without a factor has that of the manifest, and acks=all what min.insync.replicas says."""
    for node in desired(controllers, brokers).of_role(Role.CONTROLLER):
        assert node.config == expected


def test_pools_that_differ_leave_the_defaults_of_topics_to_the_controllers() -> None:
    text = """\
apiVersion: quorate.dev/v1alpha1
kind: KafkaController
metadata: {name: quorum}
spec: {}
"""
    for name, first, factor in (("one", 0, 2), ("two", 1000, 3)):
        text += f"""\
---
apiVersion: quorate.dev/v1alpha1
kind: KafkaBroker
metadata: {{name: {name}}}
spec:
  controllers: quorum
  nodeIds: {{first: {first}}}
  config: {{default.replication.factor: {factor}, num.partitions: 6}}
"""
    cluster = desired_cluster(load_manifests(text, "test"))
    assert {str(node.config) for node in cluster.of_role(Role.CONTROLLER)} == {str({"num.partitions": "6"})}
