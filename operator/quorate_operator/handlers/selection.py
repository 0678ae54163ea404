"""Label selectors, by which operators share a Kubernetes cluster: what each may do, and when it waits.

While labels are changed one resource after the other, two operators see parts of a Kafka cluster. Neither may take
its part for the whole: without its KafkaController a deleted pool would not be drained. So both wait.
"""

from collections.abc import Iterable, Mapping

from quorate_operator.models.selectors import LabelSelector
from quorate_operator.planning import steps
from quorate_operator.runtime.kubernetes.api import BROKERS, CONTROLLERS, KubernetesApi, Object
from quorate_operator.web.snapshots import ClusterKey

SPLIT_CLUSTER = "SplitCluster"
"""The reason in conditions and Events of a resource whose cluster has resources that the operator does not select."""

_GUARDED = (
    steps.AddVoter,
    steps.RemoveVoter,
    steps.UnregisterController,
    steps.RefreshRegistration,
    steps.UnregisterBroker,
    steps.RebuildQuorum,
    steps.FormCluster,
    steps.StopNode,
    steps.DeleteVolume,
    steps.ReplaceVolumes,
)
"""Changes of membership, and what takes a node or its data away: one process at a time applies them by a fresh plan.
Two operators have the same cluster while it moves from one to the other by its labels, and where two were installed
by mistake. Each could stop another controller."""


def is_selected(selector: LabelSelector, body: Object) -> bool:
    labels: Mapping[str, str] = body["metadata"].get("labels") or {}
    return selector.matches(labels)


async def unselected(
    api: KubernetesApi, selector: LabelSelector, key: ClusterKey, *, has_quorum: bool
) -> tuple[Object, ...]:
    """Return the KafkaController and KafkaBrokers of a cluster that exist and do not match the selector.

    `has_quorum`: the KafkaController was seen, so it matches. Raises ApiError.
    """
    found: dict[str, Object] = {}
    if selector and not has_quorum:
        quorum = await api.get(CONTROLLERS, *key)
        if quorum is not None and not is_selected(selector, quorum):
            found[quorum["metadata"]["uid"]] = quorum
    # Only those that do not match are listed, of which there are usually none.
    for opposite in selector.opposites():
        pools, _ = await api.list(BROKERS, key.namespace, str(opposite))
        found |= {pool["metadata"]["uid"]: pool for pool in pools if pool["spec"]["controllers"] == key.name}
    return tuple(found.values())


def split_message(selector: LabelSelector, key: ClusterKey, others: Iterable[Object]) -> str:
    """Return why nothing is done for a cluster, or for a topic or user in it."""
    named = steps.some_of([f"{body['kind']} {body['metadata']['name']}" for body in others])
    return (
        f"metadata.labels: those of {named} do not match {str(selector)!r}, the selector of this operator: nothing "
        f"is changed or deleted until all resources of the cluster {key.name} match the selector of one operator"
    )


def lease_name(cluster: str) -> str:
    """Return the name of a cluster's Lease.

    The dot keeps it apart from the Leases of leader election, `RELEASE-operator`: the owner of a cluster chooses its
    name, and clusters may be in the operator's own namespace.
    """
    return f"quorate.{cluster}"


def is_guarded(action: steps.Action) -> bool:
    """Whether a step needs the Lease of its cluster."""
    return isinstance(action, _GUARDED)
