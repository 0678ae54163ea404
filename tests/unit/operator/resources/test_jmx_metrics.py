"""Pods of stock Kafka whose metrics are asked for."""

import re
import subprocess
from typing import Any

import pytest
import yaml
from kit.desired_cluster import Cluster, Make
from quorate_operator.models.manifests import ManifestError
from quorate_operator.models.pod_templates import Metrics
from quorate_operator.resources.configs import config_map
from quorate_operator.resources.jmx_metrics import agent_rules
from quorate_operator.resources.pods import node_pod, pod_spec

ON = "metrics: {enabled: true}"


def _pod(cluster: Cluster, node_id: int) -> dict[str, Any]:
    spec: dict[str, Any] = node_pod(
        cluster.context, cluster.desired, cluster.node(node_id), {}, is_initial=False
    )["spec"]
    return spec


def test_a_broker_gets_the_agent_its_rules_and_a_port(make: Make) -> None:
    cluster = make(brokers=ON)
    spec = _pod(cluster, 0)
    agent = next(container for container in spec["initContainers"] if container["name"] == "metrics-agent")
    assert agent["image"] == "quorate:9"
    (node,) = spec["containers"]
    assert {"name": "http", "containerPort": 9404} in node["ports"]
    (mount,) = (mount for mount in node["volumeMounts"] if mount["name"] == "metrics-agent")
    assert agent["command"][-1].startswith(mount["mountPath"])
    assert agent["command"][-1] in node["command"][2]
    made = config_map(cluster.context, cluster.desired, cluster.node(0), {})
    assert made["data"]["jmx-exporter.yaml"] == agent_rules(Metrics())


RULES = (
    "metrics: {enabled: true, objectNames: ['kafka.server:type=Fetch'], "
    "rules: [{pattern: 'kafka.server<type=Fetch><>(.+): ', name: fetch_$1, type: GAUGE}]}"
)


def test_rules_of_the_manifest_come_first_and_restart_the_node(make: Make) -> None:
    usual, asked = make(brokers=ON), make(brokers=RULES)
    data = config_map(asked.context, asked.desired, asked.node(0), {})["data"]
    (name,) = (name for name in data if name.startswith("jmx-exporter"))
    content, own = yaml.safe_load(data[name]), yaml.safe_load(agent_rules(Metrics()))
    assert content["rules"][0] == {
        "pattern": "kafka.server<type=Fetch><>(.+): ",
        "name": "fetch_$1",
        "type": "GAUGE",
    }
    assert content["rules"][1:] == own["rules"]
    assert content["includeObjectNames"] == [*own["includeObjectNames"], "kafka.server:type=Fetch"]
    command = pod_spec(asked.context, asked.node(0))["containers"][0]["command"][2]
    assert f'=9404:/etc/quorate/{name}"' in command
    assert command != pod_spec(usual.context, usual.node(0))["containers"][0]["command"][2]


@pytest.mark.parametrize(
    ("metrics", "fault"),
    [
        ("rules: [{name: a}]", "spec.metrics.rules[0].pattern: missing; it must be given"),
        (
            "rules: [{pattern: a, lables: {}}]",
            "spec.metrics.rules[0].lables: unknown field; allowed: attrName",
        ),
        ("objectNames: [kafka]", "spec.metrics.objectNames[0]: 'kafka': must match pattern"),
    ],
)
def test_rules_that_the_exporter_could_not_read_are_refused(make: Make, metrics: str, fault: str) -> None:
    with pytest.raises(ManifestError, match=re.escape(fault)):
        make(brokers=f"metrics: {{enabled: true, {metrics}}}")


@pytest.mark.parametrize(
    ("controllers", "node_id", "has"), [(ON, 3000, False), (ON, 3001, True), ("", 3001, False)]
)
def test_of_controllers_those_of_java_get_it(make: Make, controllers: str, node_id: int, has: bool) -> None:
    cluster = make(f"nodes: [{{nodeId: 3001, implementation: java}}], {controllers}".rstrip(", "))
    names = [container["name"] for container in _pod(cluster, node_id)["initContainers"]]
    assert ("metrics-agent" in names) == has


def test_turning_it_on_restarts_brokers_and_nothing_else_does(make: Make) -> None:
    usual, asked = make(), make(brokers=ON)
    assert pod_spec(usual.context, usual.node(0)) != pod_spec(asked.context, asked.node(0))
    assert pod_spec(usual.context, usual.node(0))["containers"][0]["command"] == [
        "/opt/kafka/bin/kafka-server-start.sh",
        "/etc/quorate/server.properties",
    ]


def test_the_options_of_the_template_stay(make: Make) -> None:
    """KAFKA_OPTS of a template is kept, and arguments are passed on."""
    cluster = make(brokers=ON)
    command = pod_spec(cluster.context, cluster.node(0))["containers"][0]["command"]
    assert command[3] == "/opt/kafka/bin/kafka-server-start.sh"
    command[3:4] = ["/bin/sh", "-c", 'echo "$KAFKA_OPTS $0"']
    printed = subprocess.run(
        command, env={"KAFKA_OPTS": "-Dmine=1"}, capture_output=True, text=True, check=True
    )
    assert printed.stdout.startswith(
        "-Dmine=1 -javaagent:/opt/quorate-agent/jmx_prometheus_javaagent.jar=9404:"
    )
    assert printed.stdout.endswith("jmx-exporter.yaml /etc/quorate/server.properties\n")
