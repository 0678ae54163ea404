"""Evictions from a Kubernetes that has only an API server: what the disruption controller does is done for each.

The API server judges an eviction by the status of the budget that selects the pod; the disruption controller counts
pods for it.
"""

from typing import Any

import kubernetes.client
from kubernetes.client import ApiException

TOO_MANY_REQUESTS = 429


def evict(core: kubernetes.client.CoreV1Api, namespace: str, pod: str) -> bool:
    """Ask for an eviction, as `kubectl drain` does. Returns False if a budget refuses it."""
    policy = kubernetes.client.PolicyV1Api(core.api_client)
    for budget in policy.list_namespaced_pod_disruption_budget(namespace).items:
        status = {"status": _counted(core, budget)}
        policy.patch_namespaced_pod_disruption_budget_status(budget.metadata.name, namespace, status)
    eviction = kubernetes.client.V1Eviction(metadata=kubernetes.client.V1ObjectMeta(name=pod))
    try:
        core.create_namespaced_pod_eviction(pod, namespace, eviction)
    except ApiException as error:
        if error.status == TOO_MANY_REQUESTS:
            return False
        raise
    return True


def _counted(core: kubernetes.client.CoreV1Api, budget: Any) -> dict[str, Any]:
    """The status of a budget with `minAvailable`."""
    labels = ",".join(f"{key}={value}" for key, value in budget.spec.selector.match_labels.items())
    pods = core.list_namespaced_pod(budget.metadata.namespace, label_selector=labels).items
    healthy = sum(is_ready(pod) for pod in pods if pod.metadata.deletion_timestamp is None)
    desired = budget.spec.min_available
    return {
        "observedGeneration": budget.metadata.generation,
        "expectedPods": len(pods),
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": max(0, healthy - desired),
    }


def is_ready(pod: Any, kind: str = "Ready") -> bool:
    """Whether a condition of a pod holds."""
    return any(
        condition.type == kind and condition.status == "True" for condition in pod.status.conditions or ()
    )
