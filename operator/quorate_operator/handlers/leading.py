"""Which replica works, as a label of its pod: the Service of the status page leads to the one that knows."""

import logging

from quorate_operator.runtime.kubernetes.api import POD, ApiError, KubernetesApi

LEADS_LABEL = "quorate.dev/leads"

log = logging.getLogger(__name__)


async def tell_leading(api: KubernetesApi, namespace: str, identity: str, *, leads: bool) -> None:
    """Set or remove the label on the pod of this name. Without such a pod, outside of Kubernetes, nothing is done.

    A replica that begins removes what one before it in the same pod left.
    """
    patch = {"metadata": {"labels": {LEADS_LABEL: "true" if leads else None}}}
    try:
        await api.merge(POD, namespace, identity, patch)
    except ApiError as error:
        if not error.is_missing:
            # Clusters matter more than the page.
            log.warning(
                "the pod %s/%s can't be labelled, see the status page on it: %s", namespace, identity, error
            )
