"""What protects a cluster's pods: disruption budgets against drains, a network policy against foreign clients."""

from quorate_admin.diagnosis import majority

from quorate_operator.planning.cluster import DesiredCluster, Role
from quorate_operator.resources.facts import Context, Object
from quorate_operator.resources.names import (
    LABEL_CLUSTER,
    LABEL_COMPONENT,
    LABEL_NAME,
    OPERATOR_COMPONENT,
    cluster_labels,
    descriptive_labels,
    metadata,
    pool_labels,
)
from quorate_operator.resources.pod_addresses import HTTP_PORT, listener_port


def controllers_budget(context: Context, *, voters: int, pods: int) -> Object:
    """One controller at a time, and none while the voters need each other.

    `voters` are those of the quorum now, `pods` the controllers that there are: what is no voter yet is no help.
    A quorum that is meant to have one or two voters can't spare any: it may be drained all the same, since
    nothing would ever end the wait.
    """
    name = context.cluster
    is_small = context.manifests.controllers.spec.replicas <= 2
    spare = 1 if is_small else min(1, max(0, voters - majority(voters)))
    return _budget(context, name, Role.CONTROLLER, max(0, pods - spare))


def brokers_budget(context: Context, pool: str, *, pods: int) -> Object:
    """As many brokers as may be down for a restart may be drained; a pool of one may be drained as well."""
    spec = context.pool(pool).spec
    return _budget(context, pool, Role.BROKER, max(0, pods - spec.rollout.max_unavailable))


def _budget(context: Context, pool: str, role: Role, available: int) -> Object:
    # minAvailable, since Kubernetes asks the owner of bare pods how many there should be for anything else. An
    # unhealthy pod may always go: a drain must not wait for a node that is broken where it is.
    selected = pool_labels(context, pool, role)
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(context, pool, descriptive_labels(context) | selected, owner=context.pool(pool)),
        "spec": {
            "minAvailable": available,
            "selector": {"matchLabels": selected},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


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
