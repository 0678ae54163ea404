"""kopf's part: watches all kinds, delays the deletion of a resource until it is cleared, and wakes reconciles.

`on.event` is enough for creation, change and resumption: a reconcile does not ask what happened, and kopf's own
handlers for these would write into each object.
"""

import asyncio
from collections.abc import Collection
from datetime import timedelta
from typing import Any

import kopf

from quorate_operator.handlers.cluster_tasks import Clusters
from quorate_operator.handlers.entities.registry import Entities
from quorate_operator.handlers.resources import KOPF_PREFIX
from quorate_operator.models.selectors import EVERYTHING, LabelSelector
from quorate_operator.resources.names import FINALIZER
from quorate_operator.runtime.kubernetes.api import (
    BROKERS,
    CONTROLLERS,
    REBALANCES,
    REQUEST_TIMEOUT_S,
    Object,
)

KNOCK_INTERVAL_S = 300.0
"""The interval of kopf's timer. A reconcile has its own intervals; this is a safeguard."""
DELETION_WAIT_S = 5.0
"""How long a handler waits for pods to stop. Edits of the same object wait for the handler."""
DELETION_PAUSE_S = 0.1
"""The pause between two such waits, in which kopf handles events that have arrived."""
LONG_DELETION_S = 120.0
"""After so long, as while a pool is drained, pauses are LONG_PAUSE_S: kopf writes each attempt into an annotation."""
LONG_PAUSE_S = 20.0
WORKERS_MAX = 64
DELETION_ID = "deletion"
"""The id of the deletion handler, and the name of the annotation with its attempts: Kubernetes must accept it."""
EXIT_TIMEOUT_S = 25.0
"""After so long kopf kills this process; it is less than the grace of its pod."""


def settings_of(*, cluster_wide: bool, selector: LabelSelector = EVERYTHING) -> kopf.OperatorSettings:
    """Returns settings with bounded requests and watches, our finalizer and annotations, and no Events of kopf.

    The API server selects the resources. If kopf saw the others, it would remove their finalizer, which is also that
    of the operator that they belong to. A resource whose labels cease to match comes as deleted, with its finalizer.
    """
    settings = kopf.OperatorSettings()
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 310
    settings.watching.connect_timeout = 30
    settings.watching.inactivity_timeout = 70
    settings.networking.request_timeout = REQUEST_TIMEOUT_S
    settings.queueing.worker_limit = WORKERS_MAX
    settings.posting.enabled = False
    settings.persistence.finalizer = FINALIZER
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=KOPF_PREFIX)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(
        prefix=KOPF_PREFIX, key="last-handled"
    )
    settings.process.ultimate_exiting_timeout = EXIT_TIMEOUT_S
    if selector:
        settings.watching.label_selectors[CONTROLLERS.api_version.split("/")[0], kopf.EVERYTHING] = str(
            selector
        )
    # Without the rights to list CustomResourceDefinitions and namespaces, which a namespaced install lacks.
    settings.scanning.disabled = not cluster_wide
    return settings


def registry_of(clusters: Clusters, entities: Entities) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    # kopf reads these files by itself; it does not know `kubernetes.aio`.
    kopf.on.login(registry=registry)(kopf.login_with_service_account)
    kopf.on.login(registry=registry)(kopf.login_with_kubeconfig)
    _watch_clusters(registry, clusters)
    _watch_entities(registry, entities)
    return registry


def _watch_clusters(registry: kopf.OperatorRegistry, clusters: Clusters) -> None:

    async def happened(event: kopf.RawEvent, **_: Any) -> None:
        body: Object = dict(event["object"])
        if event["type"] == "DELETED":
            clusters.gone(body)
        else:
            clusters.seen(body)

    async def knock(namespace: str | None, name: str | None, body: kopf.Body, **_: Any) -> None:
        is_quorum = body["kind"] == CONTROLLERS.name
        clusters.wake(namespace or "", name or "" if is_quorum else body["spec"]["controllers"])

    async def deleted(body: kopf.Body, runtime: timedelta, **_: Any) -> None:
        try:
            async with asyncio.timeout(DELETION_WAIT_S):
                await clusters.wait_cleared(dict(body))
        except TimeoutError:
            is_long = runtime.total_seconds() >= LONG_DELETION_S
            pause_s = LONG_PAUSE_S if is_long else DELETION_PAUSE_S
            raise kopf.TemporaryError("its brokers are drained, or its pods stopped", delay=pause_s) from None

    for kind in (CONTROLLERS, BROKERS):
        group, version = kind.api_version.split("/")
        kopf.on.event(group, version, kind.plural, registry=registry, id="event")(happened)
        kopf.timer(group, version, kind.plural, registry=registry, id="knock", interval=KNOCK_INTERVAL_S)(
            knock
        )
        kopf.on.delete(group, version, kind.plural, registry=registry, id=DELETION_ID)(deleted)


def _watch_entities(registry: kopf.OperatorRegistry, entities: Entities) -> None:
    """Only a resource that deletes something in Kafka has a finalizer: without `when`, kopf removes it again."""

    async def happened(event: kopf.RawEvent, **_: Any) -> None:
        body: Object = dict(event["object"])
        if event["type"] == "DELETED":
            entities.gone(body)
        else:
            entities.seen(body)

    async def deleted(body: kopf.Body, **_: Any) -> None:
        entities.seen(dict(body))
        try:
            async with asyncio.timeout(DELETION_WAIT_S):
                await entities.wait_cleared(dict(body))
        except TimeoutError:
            raise kopf.TemporaryError("it is being deleted in Kafka", delay=DELETION_PAUSE_S) from None

    def deletes(spec: kopf.Spec, body: kopf.Body, **_: Any) -> bool:
        # A rebalance is stopped before its resource is removed.
        return bool(spec.get("deletionPolicy") == "Delete") or body["kind"] == REBALANCES.name

    for kind in entities.kinds:
        group, version = kind.api_version.split("/")
        kopf.on.event(group, version, kind.plural, registry=registry, id="event")(happened)
        kopf.on.delete(group, version, kind.plural, registry=registry, id=DELETION_ID, when=deletes)(deleted)


async def run_kopf(
    clusters: Clusters,
    entities: Entities,
    namespaces: Collection[str] | None,
    *,
    selector: LabelSelector,
    ready: asyncio.Event,
    stop: asyncio.Event,
) -> None:
    """Watches and handles until `stop` is set or kopf fails. Sets `ready` once it has begun."""
    await kopf.operator(
        registry=registry_of(clusters, entities),
        settings=settings_of(cluster_wide=namespaces is None, selector=selector),
        standalone=True,
        clusterwide=namespaces is None,
        namespaces=list(namespaces or ()),
        ready_flag=ready,
        stop_flag=stop,
    )
