"""The NetworkPolicy that keeps clients off the controllers."""

from quorate_operator.planning.cluster import DesiredCluster, Role
from quorate_operator.resources.addresses import HTTP_PORT, listener_port
from quorate_operator.resources.facts import Context, Object
from quorate_operator.resources.names import (
    LABEL_CLUSTER,
    LABEL_COMPONENT,
    LABEL_NAME,
    OPERATOR_COMPONENT,
    cluster_labels,
    descriptive_labels,
    metadata,
)


def controllers_policy(context: Context, desired: DesiredCluster) -> Object:
    """Controllers are reached by each other, by the cluster's brokers and by the operator; metrics by all.

    It allows nothing else to come in, and says nothing about what goes out.
    """
    selected = cluster_labels(context, Role.CONTROLLER)
    ports = sorted(
        {
            listener_port(node, listener)
            for node in desired.of_role(Role.CONTROLLER)
            for listener in node.listeners
        }
    )
    members = {
        "podSelector": {
            "matchLabels": {LABEL_CLUSTER: context.cluster},
            "matchExpressions": [
                {
                    "key": LABEL_COMPONENT,
                    "operator": "In",
                    "values": [Role.CONTROLLER.value, Role.BROKER.value],
                }
            ],
        }
    }
    where = context.facts.operator_namespace
    operator = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": where}} if where else {},
        "podSelector": {"matchLabels": {LABEL_NAME: "quorate", LABEL_COMPONENT: OPERATOR_COMPONENT}},
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(
            context,
            f"{context.cluster}-controllers",
            descriptive_labels(context) | selected,
            owner=context.manifests.controllers,
        ),
        "spec": {
            "podSelector": {"matchLabels": selected},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [members, operator], "ports": [{"protocol": "TCP", "port": port} for port in ports]},
                {"ports": [{"protocol": "TCP", "port": HTTP_PORT}]},
            ],
        },
    }
