"""Disruption budgets against drains, and network policies against foreign clients."""

from collections.abc import Mapping, Sequence
from typing import Final

from quorate_admin.diagnosis import majority

from quorate_operator.models.object_names import short_name
from quorate_operator.models.v1alpha1 import KafkaBroker, KafkaController
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
    pods_with_controllers,
    pool_labels,
)
from quorate_operator.resources.pod_addresses import HTTP_PORT, HTTP_PORT_BESIDE, pool_port

ALWAYS_ALLOW = "AlwaysAllow"
IF_HEALTHY_BUDGET = "IfHealthyBudget"
ALL_PODS: Final[Sequence[Object]] = ({"namespaceSelector": {}},)
"""The peers that are pods of this Kubernetes cluster. Its nodes can reach their own pods in any case, for probes."""


def controllers_budget(context: Context, *, voters: int, pods: int) -> Object:
    """Return a budget that allows the eviction of one controller, or of none if a majority needs every voter.

    `voters` are those of the quorum now, `pods` all controllers, also observers. In a quorum of one or two voters,
    one may always be evicted, because a drain would otherwise wait for ever.
    """
    is_small = context.manifests.controllers.spec.replicas <= 2
    spare = 1 if is_small else min(1, max(0, voters - majority(voters)))
    return _budget(context, context.cluster, Role.CONTROLLER, max(0, pods - spare))


def brokers_budget(context: Context, *, pods: int, spare: int, may_unready_go: bool) -> Object:
    """Return one budget for the brokers of all pools, which have replicas of the same partitions.

    `pods` are all brokers, `spare` is how many of them may go, see `restart_obstacles.spare_brokers`. A broker
    that is not ready may hold what no partition can spare: unless `may_unready_go`, it is evicted only if enough
    other brokers are ready.
    """
    policy = ALWAYS_ALLOW if may_unready_go else IF_HEALTHY_BUDGET
    name = brokers_budget_name(context.cluster)
    return _budget(context, name, Role.BROKER, max(0, pods - spare), policy)


def brokers_budget_name(cluster: str) -> str:
    return short_name(f"{cluster}-brokers")


def _budget(context: Context, name: str, role: Role, available: int, unready: str = ALWAYS_ALLOW) -> Object:
    # minAvailable, because for other kinds of budgets Kubernetes asks a workload that owns the pods for their number.
    # By default, pods that are not ready may be evicted: a drain must not wait for a broken node on its
    # Kubernetes node.
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
    """Allow controllers, the cluster's brokers and the operator to connect to controllers, and scrapers to metrics.

    Everything else is refused, except for the listener's `networkPolicyPeers`. Outgoing connections are not
    restricted.
    """
    listeners = context.manifests.controllers.spec.listeners
    inside = _inside(context, Role.CONTROLLER, Role.BROKER)
    rules = [
        _rule(
            [pool_port(Role.CONTROLLER, listeners, listener)],
            [*inside, *(listener.network_policy_peers or ())],
        )
        for listener in listeners
    ]
    port = HTTP_PORT_BESIDE if desired.has_shared_pods else HTTP_PORT
    rules.append(_metrics_rule(context.manifests.controllers, port=port))
    selected = cluster_labels(context, Role.CONTROLLER)
    if desired.has_shared_pods:
        selected = pods_with_controllers(context, desired)
        # A pod that a policy selects refuses all that none allows.
        for pool in context.manifests.brokers:
            if pool.metadata.name == context.manifests.controllers.spec.placement.pool:
                rules += _rules_of_brokers(context, pool)
    name = f"{context.cluster}-controllers"
    return _policy(context, context.manifests.controllers, name, selected, rules)


def brokers_policies(context: Context) -> tuple[Object, ...]:
    """Return the policy of each pool of brokers that enables it. A pool without replicas may still be drained.

    Brokers of the cluster and the operator reach each listener: the operator also asks which node is behind a name.
    Clients reach a listener if they are among its peers, or if it names none.
    """
    found = []
    for pool in context.manifests.brokers:
        name = pool.metadata.name
        if not pool.spec.network_policy.enabled:
            continue
        rules = _rules_of_brokers(context, pool)
        selected = pool_labels(context, name, Role.BROKER)
        found.append(_policy(context, pool, short_name(f"{name}-brokers"), selected, rules))
    return tuple(found)


def _rules_of_brokers(context: Context, pool: KafkaBroker) -> list[Object]:
    """Return the rules of a pool; without a policy of its own, they allow everybody."""
    listeners = pool.spec.listeners
    ports = {listener.name: pool_port(Role.BROKER, listeners, listener) for listener in listeners}
    if not pool.spec.network_policy.enabled:
        return [_rule([*sorted(ports.values()), HTTP_PORT])]
    rules = [_rule(sorted(ports.values()), _inside(context, Role.BROKER))]
    rules += [_rule([ports[listener.name]], listener.network_policy_peers) for listener in listeners]
    if pool.spec.metrics.enabled:
        # The operator reads which clients are connected.
        rules.append(_metrics_rule(pool, *_inside(context)))
    return rules


def _metrics_rule(pool: KafkaController | KafkaBroker, *further: Object, port: int = HTTP_PORT) -> Object:
    peers = pool.spec.network_policy.metrics_from
    return _rule([port], ALL_PODS if peers is None else [*peers, *further])


def _rule(ports: Sequence[int], peers: Sequence[Object] | None = None) -> Object:
    """Return a rule that allows these peers, or everybody without peers, to connect to these ports."""
    rule: Object = {"ports": [{"protocol": "TCP", "port": port} for port in ports]}
    return rule if peers is None else {"from": list(peers), **rule}


def _inside(context: Context, *roles: Role) -> list[Object]:
    """Return the cluster's own nodes of these roles, if any are named, and the operator, as peers."""
    nodes = {
        "podSelector": {
            "matchLabels": {LABEL_CLUSTER: context.cluster},
            "matchExpressions": [
                {"key": LABEL_COMPONENT, "operator": "In", "values": [role.value for role in roles]}
            ],
        }
    }
    where = context.facts.operator_namespace
    operator = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": where}} if where else {},
        "podSelector": {"matchLabels": {LABEL_NAME: "quorate", LABEL_COMPONENT: OPERATOR_COMPONENT}},
    }
    return [nodes, operator] if roles else [operator]


def _policy(
    context: Context,
    owner: KafkaController | KafkaBroker,
    name: str,
    selected: Mapping[str, str],
    rules: Sequence[Object],
) -> Object:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(context, name, {**descriptive_labels(context), **selected}, owner=owner),
        "spec": {
            "podSelector": {"matchLabels": dict(selected)},
            "policyTypes": ["Ingress"],
            "ingress": list(rules),
        },
    }
