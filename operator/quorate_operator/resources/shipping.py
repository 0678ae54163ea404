"""A quorum's history: a side car that ships the log, a volume, and a CronJob that ingests into a lake."""

from quorate_operator.models.history import SHIPPED_DIRECTORY, History
from quorate_operator.models.object_names import short_name
from quorate_operator.planning.cluster import Lifecycle, Role
from quorate_operator.resources.containers import (
    HOME,
    TMP_MOUNT,
    container,
    helper_resources,
    pod_basics,
    tmp_volume,
)
from quorate_operator.resources.data_volumes import DATA_DIRECTORY, VOLUME_DIRECTORY
from quorate_operator.resources.facts import Context, Object
from quorate_operator.resources.names import (
    LABEL_CLUSTER,
    LABEL_PURPOSE,
    cluster_labels,
    descriptive_labels,
    metadata,
)

MOUNT = "/history"
VOLUME = "history"
SHIP_CONTAINER = "ship"
INGEST_CONTAINER = "ingest"
PURPOSE_HISTORY = "history"
INGEST_DEADLINE_S = 6 * 3600
"""An ingest that takes longer continues in the next job, which does not read again what was ingested."""
START_DEADLINE_S = 3600
JOBS_KEPT = 3

_SHIP_RESOURCES: Object = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}
_INGEST_RESOURCES: Object = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "4Gi"}}
_TMP_SIZE = "8Gi"
"""The size of the volume on which Spark sorts."""


def history_of(context: Context) -> History | None:
    return context.manifests.controllers.spec.history


def claim_name(context: Context, history: History) -> str:
    return history.claim_name or short_name(f"history-{context.cluster}")


def cron_job_name(context: Context) -> str:
    """Return the name, which is the KafkaController's: at most 52 characters, since names of jobs are 11 longer."""
    return context.cluster


def history_volume(context: Context, history: History) -> Object:
    return {"name": VOLUME, "persistentVolumeClaim": {"claimName": claim_name(context, history)}}


def ship_container(context: Context) -> Object:
    """Return the side car of a controller: it reads the node's volume and writes the history's."""
    template = context.manifests.controllers.spec.template
    return container(context, template, SHIP_CONTAINER, context.facts.images.quorate) | {
        "command": [
            *("quorate", "controller", "ship", "--follow", "--log-format", "json"),
            *("--log-dir", DATA_DIRECTORY, "--to", f"{MOUNT}/{SHIPPED_DIRECTORY}"),
        ],
        "env": [HOME],
        "resources": helper_resources(template, _SHIP_RESOURCES),
        "volumeMounts": [
            {"name": "data", "mountPath": VOLUME_DIRECTORY, "readOnly": True},
            {"name": VOLUME, "mountPath": MOUNT},
            TMP_MOUNT,
        ],
    }


def history_claim(context: Context, history: History) -> Object | None:
    """Return the claim for a history; None for an existing one. It has no owner: it outlives the cluster."""
    storage = history.storage
    if storage is None:
        return None
    spec: Object = {
        "accessModes": [storage.access_mode],
        "resources": {"requests": {"storage": storage.size}},
    }
    if storage.class_name is not None:
        spec["storageClassName"] = storage.class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(context, claim_name(context, history), _labels(context)),
        "spec": spec,
    }


def ingest_cron_job(context: Context, history: History, lifecycle: Lifecycle) -> Object:
    """Return the CronJob that ingests what was shipped, one job at a time.

    It is suspended while the quorum hibernates.
    """
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": metadata(
            context, cron_job_name(context), _labels(context), owner=context.manifests.controllers
        ),
        "spec": {
            "schedule": history.schedule,
            "timeZone": "Etc/UTC",
            "suspend": history.suspend or lifecycle is Lifecycle.HIBERNATED,
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": START_DEADLINE_S,
            "successfulJobsHistoryLimit": 1,
            "failedJobsHistoryLimit": JOBS_KEPT,
            "jobTemplate": {
                "spec": {
                    "backoffLimit": 1,
                    "activeDeadlineSeconds": INGEST_DEADLINE_S,
                    "template": {
                        # Without the label of the cluster, which only pods of nodes have.
                        "metadata": {"labels": {LABEL_PURPOSE: PURPOSE_HISTORY}},
                        "spec": _ingest_pod_spec(context, history),
                    },
                }
            },
        },
    }


def _ingest_pod_spec(context: Context, history: History) -> Object:
    template = context.manifests.controllers.spec.template
    spec = pod_basics(context, template, [history_volume(context, history), tmp_volume(_TMP_SIZE)])
    spec["restartPolicy"] = "Never"
    if history.storage is not None and history.storage.access_mode == "ReadWriteOnce":
        # Such a volume is attached to one Kubernetes node at a time, and nothing else schedules the pod there.
        term = {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": cluster_labels(context, Role.CONTROLLER)},
        }
        spec["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    image = history.image or context.facts.images.lake
    asked = history.resources.model_dump(exclude_defaults=True)
    spec["containers"] = [
        container(context, template, INGEST_CONTAINER, image)
        | {
            "command": [
                *("quorate", "lake", "ingest", f"{MOUNT}/{SHIPPED_DIRECTORY}"),
                *("--to", f"{MOUNT}/{history.lake}"),
            ],
            "env": [HOME],
            "resources": asked or _INGEST_RESOURCES,
            "volumeMounts": [{"name": VOLUME, "mountPath": MOUNT}, TMP_MOUNT],
        }
    ]
    return spec


def _labels(context: Context) -> dict[str, str]:
    return descriptive_labels(context) | {LABEL_CLUSTER: context.cluster, LABEL_PURPOSE: PURPOSE_HISTORY}
