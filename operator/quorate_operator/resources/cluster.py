"""What a cluster has beside its nodes: Services, budgets, a NetworkPolicy. Applied again at each look."""

from collections.abc import Mapping

from quorate_operator.planning.cluster import DesiredCluster, Role
from quorate_operator.resources.budgets import brokers_budget, controllers_budget
from quorate_operator.resources.facts import Context, Object
from quorate_operator.resources.network import controllers_policy
from quorate_operator.resources.services import exposures, headless_service


def cluster_objects(
    context: Context, desired: DesiredCluster, *, voters: int, pods: Mapping[str, int]
) -> tuple[Object, ...]:
    """All of it. `voters` are those of the quorum now, `pods` how many nodes of each pool run or should."""
    quorum = context.cluster
    objects = [
        headless_service(context, desired, quorum, Role.CONTROLLER),
        controllers_budget(context, voters=voters, pods=pods.get(quorum, 0)),
        controllers_policy(context, desired),
    ]
    for pool in context.manifests.brokers:
        name = pool.metadata.name
        objects.append(headless_service(context, desired, name, Role.BROKER))
        objects.append(brokers_budget(context, name, pods=pods.get(name, 0)))
    for node in desired.nodes:
        objects += exposures(context, node)
    return tuple(objects)
