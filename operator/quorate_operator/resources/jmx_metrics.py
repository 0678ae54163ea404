"""Metrics of stock Kafka's nodes: Prometheus' JMX exporter as an agent of the JVM."""

from importlib.resources import files
from typing import Final

from quorate_operator.planning.cluster import DesiredNode, Implementation
from quorate_operator.resources.facts import Context, Object
from quorate_operator.resources.pod_addresses import HTTP_PORT

AGENT_CONTAINER: Final = "metrics-agent"
RULES_FILE: Final = "jmx-exporter.yaml"
_JAR: Final = "jmx_prometheus_javaagent.jar"
_IN_IMAGE: Final = f"/opt/quorate/share/{_JAR}"
_DIRECTORY: Final = "/opt/quorate-agent"
_VOLUME: Final = "metrics-agent"
_SIZE: Final = "16Mi"


def has_agent(context: Context, node: DesiredNode) -> bool:
    """Whether a node runs with the agent."""
    return node.implementation is Implementation.JAVA and context.pool(node.pool).spec.metrics.enabled


def agent_rules() -> str:
    """Return the agent's configuration: which metrics it serves, and under which names."""
    return files("quorate_operator.resources").joinpath(RULES_FILE).read_text()


def agent_volumes(context: Context, node: DesiredNode) -> list[Object]:
    """Return the volume that the agent is copied into: the image of stock Kafka does not have it."""
    return [{"name": _VOLUME, "emptyDir": {"sizeLimit": _SIZE}}] if has_agent(context, node) else []


def agent_mount() -> Object:
    return {"name": _VOLUME, "mountPath": _DIRECTORY}


def copy_command() -> list[str]:
    """Return the command that copies the agent out of Quorate's image."""
    return ["cp", _IN_IMAGE, f"{_DIRECTORY}/{_JAR}"]


def agent_option(configuration_directory: str) -> str:
    """Return the option of Java that a node runs the agent with."""
    return f"-javaagent:{_DIRECTORY}/{_JAR}={HTTP_PORT}:{configuration_directory}/{RULES_FILE}"
