"""The pod, the ConfigMap and the volume claim of a node."""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.desired_cluster import Cluster, Make
from quorate_controller.config import load_config, load_format_target
from quorate_operator.models.pod_templates import OWN_CONTAINERS
from quorate_operator.models.secrets import Secret
from quorate_operator.models.v1alpha1 import KAFKA_VERSION
from quorate_operator.planning.cluster import Address, Implementation
from quorate_operator.resources.configs import config_map
from quorate_operator.resources.data_volumes import DATA_DIRECTORY, volume_claim
from quorate_operator.resources.facts import Images
from quorate_operator.resources.jmx_metrics import AGENT_CONTAINER
from quorate_operator.resources.names import exposure_name, parse_address
from quorate_operator.resources.pods import (
    FORMAT_CONTAINER,
    NODE_CONTAINER,
    format_arguments,
    node_pod,
    pod_spec,
    rebuild_quorum_arguments,
    task_pod,
)
from quorate_operator.resources.shipping import SHIP_CONTAINER
from quorate_operator.resources.topology import RACK_CONTAINER, await_rack_command
from quorate_protocol.properties import parse_properties

LONGEST = "q" * 52


def properties_of(cluster: Cluster, node_id: int, **advertised: Address) -> dict[str, str]:
    """The node's server.properties, read back."""
    item = config_map(cluster.context, cluster.desired, cluster.node(node_id), advertised)
    return parse_properties(item["data"]["server.properties"])


def test_a_brokers_readiness_waits_for_its_replicas_and_rolls_nothing(make: Make) -> None:
    """An open port is not enough, and pods of an older operator run on."""
    cluster = make()
    assert cluster.pod(0)["spec"]["readinessGates"] == [{"conditionType": "quorate.dev/in-sync"}]
    assert "readinessGates" not in cluster.pod(3000)["spec"], "controllers answer at /readyz"
    assert "readinessGates" not in pod_spec(cluster.context, cluster.node(0)), "it is no part of the revision"


@pytest.mark.parametrize("node_id", [3000, 0])
def test_pods_are_restricted(make: Make, node_id: int) -> None:
    cluster = make(brokers="listeners: [{name: A, protocol: SSL, tls: {secretName: cert}}]")
    task = task_pod(cluster.context, cluster.node(node_id), "rebuild", rebuild_quorum_arguments())
    for pod in (cluster.pod(node_id), task):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {mount["name"] for mount in container["volumeMounts"]} <= {
                volume["name"] for volume in spec["volumes"]
            }
            assert any(mount["mountPath"] == "/tmp" for mount in container["volumeMounts"])
        kinds = {kind for volume in spec["volumes"] for kind in volume if kind != "name"}
        assert kinds <= {"persistentVolumeClaim", "configMap", "emptyDir", "secret"}


def test_a_pod_has_its_own_name_and_tells_what_it_was_made_with(make: Make) -> None:
    """Stable names; the operator recognizes pods of another release."""
    cluster = make()
    node = cluster.node(3001)
    later = {"CONTROLLER": Address("c.kafka.svc", 9093)}
    pod = node_pod(cluster.context, cluster.desired, node, later, is_initial=False)
    assert (pod["metadata"]["name"], pod["spec"]["hostname"], pod["spec"]["subdomain"]) == (
        "quorum-3001",
        "quorum-3001",
        "quorum",
    )
    annotations = pod["metadata"]["annotations"]
    assert json.loads(annotations["quorate.dev/revision"]) == node.revision
    assert json.loads(annotations["quorate.dev/advertised"]) == {"CONTROLLER": "c.kafka.svc:9093"}
    labels = pod["metadata"]["labels"]
    assert labels["quorate.dev/node-id"] == "3001"
    assert labels["app.kubernetes.io/component"] == "controller"


def test_what_a_task_is_not_taken_for(make: Make) -> None:
    cluster = make()
    pod = task_pod(cluster.context, cluster.node(3000), "rebuild", rebuild_quorum_arguments())
    assert "app.kubernetes.io/component" not in pod["metadata"]["labels"]
    assert pod["metadata"]["labels"]["quorate.dev/purpose"] == "task"
    assert pod["spec"]["containers"][0]["command"][:3] == ["quorate", "controller", "rebuild-quorum"]


def test_readiness_is_membership(make: Make) -> None:
    (container,) = make().pod(3000)["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert {"name": "http", "containerPort": 9404} in container["ports"]
    (broker,) = make().pod(0)["spec"]["containers"]
    assert broker["readinessProbe"]["tcpSocket"] == {"port": 9092}


def test_who_forms_and_who_joins(make: Make) -> None:
    cluster = make("metadataVersion: '4.3'")
    context, desired = cluster.context, cluster.desired
    first = format_arguments(context, desired, cluster.node(3000), is_initial=True)
    voters = first[first.index("--initial-controllers") + 1]
    assert voters.split(",")[1] == f"3001@quorum-3001.quorum.kafka.svc:9093:{'B' * 22}"
    assert first[first.index("--cluster-id") + 1] == "4L6g3nShT-eMCtK--X86sw"
    assert first[-2:] == ("--release-version", "4.3")
    later = format_arguments(context, desired, cluster.node(3000), is_initial=False)
    assert "--no-initial-controllers" in later
    broker = format_arguments(context, desired, cluster.node(0), is_initial=True)
    static = make("quorum: static")
    fixed = format_arguments(static.context, static.desired, static.node(3000), is_initial=True)
    for arguments in (broker, fixed):
        assert not [argument for argument in arguments if "initial-controllers" in argument]
    java = format_arguments(
        context, desired, replace(cluster.node(3000), implementation=Implementation.JAVA), is_initial=True
    )
    assert ("--stock-kafka" in java, "--stock-kafka" in first) == (True, False)
    for arguments in (first, later, broker, fixed):
        assert {"--ignore-formatted", "--directory-id-to"} <= set(arguments)


@pytest.mark.parametrize("spec", ["", "quorum: static", "config: {metadata.log.segment.bytes: 8388608}"])
def test_our_controllers_accept_their_configuration(make: Make, tmp_path: Path, spec: str) -> None:
    cluster = make(spec)
    file = tmp_path / "server.properties"
    item = config_map(cluster.context, cluster.desired, cluster.node(3000), {})
    file.write_text(item["data"]["server.properties"])
    config = load_config(file)
    assert config.node_id == 3000
    assert [f"{log_dir}" for log_dir in load_format_target(file).log_dirs] == [DATA_DIRECTORY]


def test_a_broker_knows_racks_certificates_and_copies(make: Make, tmp_path: Path) -> None:
    """Brokers get what follows from the manifest, and the manifest's own word wins."""
    cluster = make(
        brokers="nodes: [{nodeId: 0, rack: east}], config: {offsets.topic.replication.factor: 1}, "
        "listeners: [{name: IN}, {name: OUT_SIDE, protocol: SSL, port: 9443, tls: {secretName: cert}}]",
        secrets={"cert": Secret(values=dict.fromkeys(("tls.crt", "tls.key", "ca.crt", "p12"), "x"))},
    )
    properties = properties_of(cluster, 0, OUT_SIDE=Address("b0.example.com", 443))
    assert properties["broker.rack"] == "east"
    assert properties["offsets.topic.replication.factor"] == "1"
    assert properties["default.replication.factor"] == "3"
    assert properties["listeners"] == "IN://:9092,OUT_SIDE://:9443"
    assert properties["advertised.listeners"] == (
        "IN://brokers-0.brokers.kafka.svc:9092,OUT_SIDE://b0.example.com:443"
    )
    assert properties["listener.security.protocol.map"] == "IN:PLAINTEXT,OUT_SIDE:SSL,CONTROLLER:PLAINTEXT"
    assert properties["listener.name.out_side.ssl.keystore.key"] == (
        "${directory:/etc/quorate-secrets/cert:tls.key}"
    )
    assert properties["listener.name.out_side.ssl.client.auth"] == "none"
    spec = cluster.pod(0)["spec"]
    mounts = spec["containers"][0]["volumeMounts"]
    assert {"name": "secret-cert", "mountPath": "/etc/quorate-secrets/cert", "readOnly": True} in mounts
    (volume,) = [volume for volume in spec["volumes"] if volume["name"] == "secret-cert"]
    keys = [{"key": key, "path": key} for key in ("ca.crt", "tls.crt", "tls.key")]
    assert volume["secret"] == {"secretName": "cert", "defaultMode": 0o440, "items": keys}
    file = tmp_path / "server.properties"
    item = config_map(cluster.context, cluster.desired, cluster.node(0), {})
    file.write_text(item["data"]["server.properties"])
    assert load_format_target(file).node_id == 0


def test_half_of_a_brokers_memory_is_heap(make: Make) -> None:
    def heap(limits: str) -> str | None:
        spec = f"template: {{resources: {{limits: {{{limits}}}}}}}"
        environment = make(brokers=spec).pod(0)["spec"]["containers"][0]["env"]
        return next(
            (variable["value"] for variable in environment if variable["name"] == "KAFKA_HEAP_OPTS"), None
        )

    assert heap("memory: 2Gi") == "-Xms1024m -Xmx1024m"
    assert heap("memory: 64Mi") == "-Xms64m -Xmx64m"
    assert heap("cpu: 1") is None


def test_the_template_is_in_the_pod_and_does_not_replace_our_labels(make: Make) -> None:
    spec = make(
        brokers="template: {labels: {quorate.dev/node-id: '9', team: a}, annotations: {x: y}, "
        "nodeSelector: {disk: fast}, tolerations: [{key: k, operator: Exists}], priorityClassName: high, "
        "affinity: {nodeAffinity: {}}, imagePullPolicy: Never, imagePullSecrets: [{name: registry}]}"
    ).pod(
        0,
    )
    assert spec["metadata"]["labels"]["quorate.dev/node-id"] == "0"
    assert spec["metadata"]["labels"]["team"] == "a"
    assert spec["metadata"]["annotations"]["x"] == "y"
    assert spec["spec"]["tolerations"] == [{"key": "k", "operator": "Exists"}]
    assert spec["spec"]["affinity"] == {"nodeAffinity": {}}
    assert spec["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert (spec["spec"]["priorityClassName"], spec["spec"]["nodeSelector"]) == ("high", {"disk": "fast"})
    assert {container["imagePullPolicy"] for container in spec["spec"]["containers"]} == {"Never"}


@pytest.mark.parametrize(
    ("resources", "requests"),
    [
        ("", {"cpu": "250m", "memory": "1536Mi"}),
        ("requests: {memory: 8Gi}", {"cpu": "250m", "memory": "8Gi"}),
        ("limits: {memory: 1Gi}", {"cpu": "250m"}),
        ("limits: {memory: 1Gi, cpu: 2}", None),
    ],
)
def test_a_node_asks_for_something(make: Make, resources: str, requests: dict[str, str] | None) -> None:
    """No node is the first to be killed when memory is short, and no request is above a limit."""
    cluster = make(brokers=f"template: {{resources: {{{resources}}}}}")
    (container,) = cluster.pod(0)["spec"]["containers"]
    assert container["resources"].get("requests") == requests


def test_the_template_may_say_how_long_a_node_takes_to_stop(make: Make) -> None:
    given = "template: {terminationGracePeriodSeconds: 600}"
    graces = [
        make(brokers=brokers).pod(node_id)["spec"]["terminationGracePeriodSeconds"]
        for brokers, node_id in (("", 3000), ("", 0), (given, 3000), (given, 0))
    ]
    assert graces == [30, 120, 30, 600]
    rollouts = make(brokers=given).desired.rollouts
    assert (rollouts["quorum"].grace_ms, rollouts["brokers"].grace_ms) == (None, 600_000)


def test_the_template_may_say_how_pods_are_spread(make: Make) -> None:
    def spread(template: str) -> list[dict[str, object]]:
        spec = make(f"template: {{{template}}}").pod(3000)["spec"]
        return list(spec["topologySpreadConstraints"])

    ours = {"quorate.dev/cluster": "quorum", "app.kubernetes.io/component": "controller"}
    assert [constraint["whenUnsatisfiable"] for constraint in spread("")] == [
        "ScheduleAnyway",
        "ScheduleAnyway",
    ]
    assert spread("topologySpreadConstraints: []") == []
    hard = "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}"
    own = "{maxSkew: 2, topologyKey: rack, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {a: b}}}"
    first, second = spread(f"topologySpreadConstraints: [{hard}, {own}]")
    assert (first["topologyKey"], first["labelSelector"]) == ("zone", {"matchLabels": ours})
    assert (second["maxSkew"], second["labelSelector"]) == (2, {"matchLabels": {"a": "b"}})


ADDED = (
    "template: {env: [{name: KAFKA_OPTS, value: '-javaagent:/agent/jmx.jar'}, {name: LOG_DIR, value: /logs}], "
    "volumes: [{name: agent, configMap: {name: jmx}}], volumeMounts: [{name: agent, mountPath: /agent}], "
    "serviceAccountName: kafka}"
)


@pytest.mark.parametrize(("controllers", "brokers", "node_id"), [("", ADDED, 0), (ADDED, "", 3000)])
def test_the_template_adds_to_the_nodes_container(
    make: Make, controllers: str, brokers: str, node_id: int
) -> None:
    """An agent in the JVM needs a variable and a volume."""
    cluster = make(controllers, brokers)
    spec = cluster.pod(node_id)["spec"]
    (container,) = spec["containers"]
    env = {variable["name"]: variable["value"] for variable in container["env"]}
    assert len(env) == len(container["env"])
    assert (env["KAFKA_OPTS"], env["LOG_DIR"]) == ("-javaagent:/agent/jmx.jar", "/logs")
    assert ("EXTRA_ARGS" in env) == (node_id == 0)
    assert {"name": "agent", "mountPath": "/agent"} in container["volumeMounts"]
    assert {"name": "agent", "configMap": {"name": "jmx"}} in spec["volumes"]
    assert spec["serviceAccountName"] == "kafka"
    assert spec["automountServiceAccountToken"] is False
    task = task_pod(cluster.context, cluster.node(node_id), "rebuild", rebuild_quorum_arguments())["spec"]
    assert "agent" not in {volume["name"] for volume in task["volumes"]}
    assert task["serviceAccountName"] == "kafka"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            None,
            {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000, "fsGroupChangePolicy": "OnRootMismatch"},
        ),
        ("{}", {}),
        ("{runAsUser: 7, fsGroup: 8}", {"runAsUser": 7, "fsGroup": 8}),
    ],
)
def test_the_user_may_be_chosen_by_others(make: Make, given: str | None, expected: dict[str, Any]) -> None:
    cluster = make(brokers="" if given is None else f"template: {{securityContext: {given}}}")
    context = cluster.pod(0)["spec"]["securityContext"]
    restricted = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert context == {**restricted, **expected}


BY_ZONE = "rack: {topologyKey: topology.kubernetes.io/zone}"


@pytest.mark.parametrize(
    ("brokers", "node_id", "expected"),
    [
        ("", 3000, {"kubernetes.io/hostname": True, "topology.kubernetes.io/zone": False}),
        ("", 0, {"kubernetes.io/hostname": True, "topology.kubernetes.io/zone": False}),
        (BY_ZONE, 3000, {"kubernetes.io/hostname": True, "topology.kubernetes.io/zone": False}),
        (BY_ZONE, 0, {"topology.kubernetes.io/zone": True, "kubernetes.io/hostname": False}),
        ("rack: {topologyKey: a.b/room}", 0, {"a.b/room": True, "kubernetes.io/hostname": False}),
        ("rack: {topologyKey: kubernetes.io/hostname}", 0, {"kubernetes.io/hostname": True}),
    ],
)
def test_new_volumes_are_spread_strictly(
    make: Make, brokers: str, node_id: int, expected: dict[str, bool]
) -> None:
    """Volumes are made on different machines, those of brokers in different racks where they have some; a
    node whose volume is there is never kept from it.
    """
    cluster = make(brokers=brokers)

    def spread(*, is_placed: bool) -> dict[str, dict[str, Any]]:
        spec = cluster.pod(node_id, is_placed=is_placed)["spec"]
        return {constraint["topologyKey"]: constraint for constraint in spec["topologySpreadConstraints"]}

    first = spread(is_placed=False)
    assert {
        key: constraint["whenUnsatisfiable"] == "DoNotSchedule" for key, constraint in first.items()
    } == expected
    assert list(first) == list(expected)
    for constraint in first.values():
        is_strict = constraint["whenUnsatisfiable"] == "DoNotSchedule"
        assert (constraint.get("nodeTaintsPolicy") == "Honor") == is_strict, (
            "the control plane's machines don't count"
        )
        assert constraint["maxSkew"] == 1
    later = spread(is_placed=True)
    assert set(expected) <= set(later)
    assert {constraint["whenUnsatisfiable"] for constraint in later.values()} == {"ScheduleAnyway"}
    role = "controller" if node_id >= 3000 else "broker"
    for constraint in (*first.values(), *later.values()):
        assert constraint["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == role


def test_a_given_spread_holds_for_each_start(make: Make) -> None:
    given = "template: {topologySpreadConstraints: [{maxSkew: 3, topologyKey: a}]}"
    for brokers, keys in ((given, ["a"]), ("template: {topologySpreadConstraints: []}", [])):
        spec = make(brokers=f"{BY_ZONE}, {brokers}").pod(0, is_placed=False)["spec"]
        assert [constraint["topologyKey"] for constraint in spec["topologySpreadConstraints"]] == keys


def test_a_rack_is_awaited_as_a_file(make: Make) -> None:
    cluster = make(brokers=BY_ZONE)
    assert properties_of(cluster, 0)["broker.rack"] == "${directory:/etc/quorate-rack:rack}"
    assert properties_of(cluster, 0)["config.providers"] == "directory"
    spec = cluster.pod(0)["spec"]
    assert [container["name"] for container in spec["initContainers"]] == ["format", "await-rack"]
    (volume,) = [volume for volume in spec["volumes"] if volume["name"] == "rack"]
    (item,) = volume["downwardAPI"]["items"]
    assert item == {"path": "rack", "fieldRef": {"fieldPath": "metadata.annotations['quorate.dev/rack']"}}
    for container in (spec["initContainers"][1], spec["containers"][0]):
        (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "rack"]
        assert mount["mountPath"] == "/etc/quorate-rack"
    assert [container["name"] for container in cluster.pod(3000)["spec"]["initContainers"]] == ["format"]
    assert "broker.rack" not in properties_of(make(), 0)
    assert properties_of(make(brokers="nodes: [{nodeId: 0, rack: a}]"), 0)["broker.rack"] == "a"


@pytest.mark.parametrize("is_known", [True, False])
def test_the_wait_for_a_rack_ends(tmp_path: Path, is_known: bool) -> None:
    """A pod that waits starts when its rack is known, and goes when it is deleted."""
    file = tmp_path / "rack"
    file.write_text("")
    *command, path = await_rack_command()
    assert path == "/etc/quorate-rack/rack"
    with subprocess.Popen([*command, f"{file}"]) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        if is_known:
            file.write_text("zone-a")
        else:
            process.terminate()
        assert process.wait(10) == (0 if is_known else 1)


def test_which_image_runs_what(make: Make) -> None:
    """One image for controllers and formatting, Kafka's for the rest."""
    cluster = make("nodes: [{nodeId: 3001, implementation: java}], image: own:1", "version: 4.3.1")

    def images(node_id: int) -> tuple[str, str]:
        spec = cluster.pod(node_id)["spec"]
        return spec["initContainers"][0]["image"], spec["containers"][0]["image"]

    assert images(3000) == ("quorate:9", "own:1")
    assert images(3001) == ("quorate:9", f"apache/kafka:{KAFKA_VERSION}")
    assert images(0) == ("quorate:9", "apache/kafka:4.3.1")
    own = Images(quorate="quorate:9", kafka="registry.example.com/kafka:{version}-jre21")
    cluster = make("nodes: [{nodeId: 3001, implementation: java}]", "version: 4.3.1", images=own)
    assert images(3001) == ("quorate:9", f"registry.example.com/kafka:{KAFKA_VERSION}-jre21")
    assert images(0) == ("quorate:9", "registry.example.com/kafka:4.3.1-jre21")


def test_a_volume_outlives_its_resource(make: Make) -> None:
    cluster = make("storage: {size: 20Gi, className: fast}")
    claim = volume_claim(cluster.context, cluster.node(3000))
    assert claim["metadata"]["name"] == "data-quorum-3000"
    assert "ownerReferences" not in claim["metadata"]
    assert claim["spec"]["resources"] == {"requests": {"storage": "20Gi"}}
    assert claim["spec"]["storageClassName"] == "fast"


def test_names_are_never_too_long() -> None:
    """What the API server accepts as a name of a pool gives names that it accepts."""
    name = exposure_name(LONGEST, 2**31 - 1, "A" * 63)
    assert len(name) == 63
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
    assert name != exposure_name(LONGEST, 2**31 - 1, "A" * 62)
    assert len(f"{LONGEST}-{2**31 - 1}") == 63


@pytest.mark.parametrize("address", [Address("h", 1), Address("::1", 9092), Address("a.b.svc", 65535)])
def test_addresses_are_read_as_they_are_written(address: Address) -> None:
    assert parse_address(str(address)) == address


@pytest.mark.parametrize("text", ["h", "h:", ":1", "h:x", ""])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"^'{text}' must be host:port$"):
        parse_address(text)


def test_kubelet_lets_a_broker_recover_its_logs_for_a_day(make: Make) -> None:
    probe = make().pod(0)["spec"]["containers"][0]["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 24 * 3600


def test_sidecars_come_last_and_have_names_of_their_own(make: Make) -> None:
    """A sidecar takes no place of ours, and probes get other times."""
    template = "sidecars: [{name: logs, image: 'l:1'}], probes: {startup: {failureThreshold: 900}}"
    cluster = make(f"history: {{claimName: archive}}, template: {{{template}}}")
    spec = pod_spec(cluster.context, cluster.node(3000))
    assert [container["name"] for container in spec["containers"]] == ["node", "ship", "logs"]
    assert spec["containers"][2] == {
        "name": "logs",
        "image": "l:1",
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    made = cluster.pod(3000)["spec"]
    policies = [
        container["terminationMessagePolicy"] for container in (*made["initContainers"], *made["containers"])
    ]
    assert set(policies) == {"FallbackToLogsOnError"}, "conditions quote why a container died"
    startup = spec["containers"][0]["startupProbe"]
    assert (startup["failureThreshold"], startup["periodSeconds"]) == (900, 1)
    assert startup["httpGet"]["path"] == "/healthz"
    ours = {FORMAT_CONTAINER, NODE_CONTAINER, RACK_CONTAINER, AGENT_CONTAINER, SHIP_CONTAINER}
    assert ours == set(OWN_CONTAINERS)


HELPERS = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", HELPERS),
        (
            "limits: {cpu: 200m}",
            {"requests": {"memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "256Mi"}},
        ),
        (
            "requests: {memory: 1Gi}",
            {"requests": {"cpu": "50m", "memory": "1Gi"}, "limits": {}},
        ),
        (
            "requests: {cpu: 1, memory: 32Mi}, limits: {cpu: 1, memory: 32Mi, ephemeral-storage: 1Gi}",
            {
                "requests": {"cpu": "1", "memory": "32Mi"},
                "limits": {"cpu": "1", "memory": "32Mi", "ephemeral-storage": "1Gi"},
            },
        ),
    ],
)
def test_containers_beside_the_node_have_the_templates_resources(
    make: Make, given: str, expected: dict[str, Any]
) -> None:
    rack = ", rack: {topologyKey: zone}"
    cluster = make(
        brokers=f"metrics: {{enabled: true}}, template: {{helperResources: {{{given}}}}}{rack}",
    )
    node = cluster.node(0)
    spec = cluster.pod(0)["spec"]
    task = task_pod(cluster.context, node, "rebuild", rebuild_quorum_arguments())["spec"]
    containers = [*spec["initContainers"], *task["containers"]]
    assert [container["name"] for container in containers] == [
        "format",
        "await-rack",
        "metrics-agent",
        "task",
    ]
    for container in containers:
        assert container["resources"] == expected


def test_resources_of_containers_beside_the_node_restart_nothing(make: Make) -> None:
    before, after = (
        make(brokers=f"template: {{helperResources: {{{given}}}}}") for given in ("", "limits: {cpu: 1}")
    )
    assert before.node(0).revision == after.node(0).revision


@pytest.mark.parametrize("node_id", [3000, 0])
def test_pods_have_the_operators_user_or_that_of_the_namespace(make: Make, node_id: int) -> None:
    def contexts(user_id: int | None, template: str = "") -> list[dict[str, Any]]:
        images = Images(quorate="quorate:9", user_id=user_id)
        spec = f"template: {{{template}}}"
        cluster = make(f"history: {{claimName: archive}}, {spec}", spec, images=images)
        task = task_pod(cluster.context, cluster.node(node_id), "rebuild", rebuild_quorum_arguments())
        return [pod["spec"]["securityContext"] for pod in (cluster.pod(node_id), task)]

    restricted = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    policy = {"fsGroupChangePolicy": "OnRootMismatch"}
    assert contexts(None) == [restricted | policy] * 2
    assert (
        contexts(70) == [restricted | policy | dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), 70)] * 2
    )
    assert contexts(None, "securityContext: {fsGroup: 5}") == [restricted | {"fsGroup": 5}] * 2
    nulls = "securityContext: {runAsNonRoot: null, seccompProfile: null, fsGroup: 5, runAsUser: null}"
    assert contexts(None, nulls) == [restricted | {"fsGroup": 5}] * 2


def test_another_log_format_is_another_file_and_restarts_nodes_of_stock_kafka(make: Make) -> None:
    java = "nodes: [{nodeId: 3001, implementation: java}]"
    text, as_json = make(java), make(f"logFormat: JSON, {java}", "logFormat: JSON")
    for node_id, is_changed in ((3000, False), (3001, True), (0, True)):
        assert (text.node(node_id).revision != as_json.node(node_id).revision) == is_changed
    for cluster, name in ((text, "log4j2.properties"), (as_json, "log4j2-json.properties")):
        data = config_map(cluster.context, cluster.desired, cluster.node(0), {})["data"]
        assert set(data) == {"server.properties", name}
        env = {item["name"]: item["value"] for item in cluster.pod(0)["spec"]["containers"][0]["env"]}
        assert env["KAFKA_LOG4J_OPTS"] == f"-Dlog4j2.configurationFile=/etc/quorate/{name}"
