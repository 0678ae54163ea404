"""The common parts of every pod and container: restricted pod security, and the pool's template."""

from collections.abc import Mapping, Sequence

from quorate_operator.models.base import without_nulls
from quorate_operator.models.pod_templates import PodTemplate
from quorate_operator.resources.facts import Context, Object

_RESTRICTED: Object = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
TMP_MOUNT: Object = {"name": "tmp", "mountPath": "/tmp"}  # noqa: S108 - the pod's own
HOME: Object = {"name": "HOME", "value": "/tmp"}  # noqa: S108 - the pod's own

LAST_WORDS = "FallbackToLogsOnError"
"""`terminationMessagePolicy`: the status of a container that failed has the end of its log; conditions quote it."""


def tmp_volume(size: str) -> Object:
    """Return the volume of `TMP_MOUNT`: images are read-only."""
    return {"name": "tmp", "emptyDir": {"sizeLimit": size}}


def _user(user_id: int | None) -> Object:
    """Return the user and group of a pod, whose containers share a volume. None is for namespaces with ranges."""
    policy = {"fsGroupChangePolicy": "OnRootMismatch"}
    return (
        policy
        if user_id is None
        else {"runAsUser": user_id, "runAsGroup": user_id, "fsGroup": user_id} | policy
    )


def pod_basics(context: Context, template: PodTemplate, volumes: Sequence[Object]) -> Object:
    """Return the spec of a pod without its containers."""
    given = template.security_context
    user = _user(context.facts.images.user_id) if given is None else without_nulls(given)
    spec: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": _RESTRICTED | user,
        "volumes": list(volumes),
    }
    if template.node_selector:
        spec["nodeSelector"] = dict(template.node_selector)
    if template.tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in template.tolerations]
    if template.affinity is not None:
        spec["affinity"] = template.affinity.rendered()
    if template.priority_class_name is not None:
        spec["priorityClassName"] = template.priority_class_name
    if template.service_account_name is not None:
        spec["serviceAccountName"] = template.service_account_name
    if template.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret.name} for secret in template.image_pull_secrets]
    return spec


def helper_resources(template: PodTemplate, usual: Mapping[str, Mapping[str, str]]) -> Object:
    """Return the resources of a container beside the node's.

    For what the template has a request or a limit of, the usual amounts do not hold: they could contradict it.
    """
    given = template.helper_resources
    named = given.requests.keys() | given.limits.keys()
    kept = {
        kind: {name: amount for name, amount in amounts.items() if name not in named}
        for kind, amounts in usual.items()
    }
    return {"requests": kept["requests"] | given.requests, "limits": kept["limits"] | given.limits}


def container(context: Context, template: PodTemplate, name: str, image: str) -> Object:
    """Return a container without its command."""
    made: Object = {
        "name": name,
        "image": image,
        "terminationMessagePolicy": LAST_WORDS,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    if policy := template.image_pull_policy or context.facts.images.pull_policy:
        made["imagePullPolicy"] = policy
    return made
