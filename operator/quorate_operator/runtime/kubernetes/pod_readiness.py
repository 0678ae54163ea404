"""The condition of brokers' pods that their readiness waits for, by what the quorum says.

While the operator is away, or no leader answers, conditions stay as they are: a broker that is in service stays so,
and one that was restarted meanwhile is not counted as available.
"""

from datetime import UTC, datetime

from quorate_operator.planning.cluster import ObservedCluster
from quorate_operator.planning.in_sync import InSync, brokers_in_sync
from quorate_operator.resources.names import CONDITION_IN_SYNC
from quorate_operator.runtime.kubernetes.api import POD, ApiError, KubernetesApi, Object
from quorate_operator.runtime.kubernetes.objects import ClusterObjects


async def update_readiness(api: KubernetesApi, objects: ClusterObjects, observed: ObservedCluster) -> None:
    """Writes the conditions that changed. A pod that was replaced meanwhile is no error. Raises ApiError."""
    nodes = objects.nodes()
    for node_id, judged in brokers_in_sync(observed).items():
        pod = nodes[node_id].pod if node_id in nodes else None
        condition = None if pod is None else changed_condition(pod, judged, _now())
        if pod is None or condition is None:
            continue
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        body = {
            "apiVersion": POD.api_version,
            "kind": POD.name,
            "metadata": {"name": name, "uid": uid},
            "status": {"conditions": [condition]},
        }
        try:
            objects.seen(await api.apply(POD, objects.namespace, body, subresource="status"))
        except ApiError as error:
            if not (error.is_missing or error.is_conflict):
                raise


def changed_condition(pod: Object, judged: InSync, now: str) -> Object | None:
    """Returns the condition of a pod as it is to be written; None if the pod has it, or is being deleted."""
    if pod["metadata"].get("deletionTimestamp") is not None:
        return None
    conditions = pod.get("status", {}).get("conditions") or ()
    known: Object = next(
        (condition for condition in conditions if condition["type"] == CONDITION_IN_SYNC), {}
    )
    reported = {"status": str(judged.holds), "reason": judged.reason, "message": judged.message}
    if all(known.get(key) == value for key, value in reported.items()):
        return None
    is_same = known.get("status") == reported["status"] and known.get("lastTransitionTime")
    return {
        "type": CONDITION_IN_SYNC,
        **reported,
        "lastTransitionTime": known["lastTransitionTime"] if is_same else now,
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
