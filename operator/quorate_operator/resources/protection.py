"""Disruption budgets against drains, and a network policy against foreign clients."""

from quorate_admin.diagnosis import majority

from quorate_operator.models.object_names import short_name
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
)
from quorate_operator.resources.pod_addresses import HTTP_PORT, listener_port

ALWAYS_ALLOW = "AlwaysAllow"
IF_HEALTHY_BUDGET = "IfHealthyBudget"


def controllers_budget(context: Context, *, voters: int, pods: int) -> Object:
    """Returns a budget of one controller, or none if a majority needs every caught-up voter.

    `voters` are those of the quorum now, `pods` all controllers, also observers. A quorum of one or two voters can be
    drained all the same, since a drain would wait for ever.
    """
    is_small = context.manifests.controllers.spec.replicas <= 2
    spare = 1 if is_small else min(1, max(0, voters - majority(voters)))
    return _budget(context, context.cluster, Role.CONTROLLER, max(0, pods - spare))


def brokers_budget(context: Context, *, pods: int, spare: int, may_unready_go: bool) -> Object:
    """Returns one budget for the brokers of all pools, which have replicas of the same partitions.

    `pods` are all brokers, `spare` is how many of them may go, see `rollout.spare_brokers`. A broker that is not
    ready may hold what no partition can spare: unless `may_unready_go`, it is evicted only if all others are there.
    """
    policy = ALWAYS_ALLOW if may_unready_go else IF_HEALTHY_BUDGET
    name = brokers_budget_name(context.cluster)
    return _budget(context, name, Role.BROKER, max(0, pods - spare), policy)


def brokers_budget_name(cluster: str) -> str:
    return short_name(f"{cluster}-brokers")


def _budget(context: Context, name: str, role: Role, available: int, unready: str = ALWAYS_ALLOW) -> Object:
    # minAvailable, since Kubernetes asks the owner of bare pods how many there should be for anything else. Pods that
    # are not ready may go as a rule: a drain must not wait for a node that is broken where it is.
    selected = cluster_labels(context, role)
    owner = context.manifests.controllers
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(context, name, descriptive_labels(context) | selected, owner=owner),
        "spec": {
            "minAvailable": available,
            "selector": {"matchLabels": selected},
            "unhealthyPodEvictionPolicy": unready,
        },
    }


def controllers_policy(context: Context, desired: DesiredCluster) -> Object:
    """Allows access to controllers for each other, the cluster's brokers and the operator; metrics for everybody.

    Everything else is refused. Outgoing connections are not restricted.
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
