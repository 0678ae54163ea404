"""Metrics of stock Kafka's nodes: Prometheus' JMX exporter as an agent of the JVM."""

from importlib.resources import files
from typing import Final

import yaml

from quorate_operator.models.pod_templates import Metrics
from quorate_operator.planning.cluster import DesiredNode, Implementation
from quorate_operator.resources.facts import Context, Object, digest
from quorate_operator.resources.pod_addresses import HTTP_PORT

AGENT_CONTAINER: Final = "metrics-agent"
_RULES: Final = "jmx-exporter.yaml"
_JAR: Final = "jmx_prometheus_javaagent.jar"
_IN_IMAGE: Final = f"/opt/quorate/share/{_JAR}"
_DIRECTORY: Final = "/opt/quorate-agent"
_VOLUME: Final = "metrics-agent"
_SIZE: Final = "16Mi"


def has_agent(context: Context, node: DesiredNode) -> bool:
    """Whether a node runs with the agent."""
    return node.implementation is Implementation.JAVA and context.pool(node.pool).spec.metrics.enabled


def agent_rules(metrics: Metrics) -> str:
    """Return the agent's configuration: which metrics it serves, and under which names."""
    own = files("quorate_operator.resources").joinpath(_RULES).read_text()
    if not (metrics.rules or metrics.object_names):
        return own
    content = yaml.safe_load(own)
    content["includeObjectNames"] += metrics.object_names
    content["rules"] = [*map(dict, metrics.rules), *content["rules"]]
    return yaml.safe_dump(content, sort_keys=False)


def rules_file(metrics: Metrics) -> str:
    """Return the name of its file. Other rules have another name, by which the command of the node differs."""
    if not (metrics.rules or metrics.object_names):
        return _RULES
    return f"jmx-exporter-{digest([metrics.rules, metrics.object_names])}.yaml"


def agent_volumes(context: Context, node: DesiredNode) -> list[Object]:
    """Return the volume that the agent is copied into: the image of stock Kafka does not have it."""
    return [{"name": _VOLUME, "emptyDir": {"sizeLimit": _SIZE}}] if has_agent(context, node) else []


def agent_mount() -> Object:
    return {"name": _VOLUME, "mountPath": _DIRECTORY}


def copy_command() -> list[str]:
    """Return the command that copies the agent out of Quorate's image."""
    return ["cp", _IN_IMAGE, f"{_DIRECTORY}/{_JAR}"]


def agent_option(configuration_directory: str, metrics: Metrics) -> str:
    """Return the option of Java that a node runs the agent with."""
    return f"-javaagent:{_DIRECTORY}/{_JAR}={HTTP_PORT}:{configuration_directory}/{rules_file(metrics)}"
