"""kopf's handlers: they report resources to their reconciles, and delay a deletion until it is cleared.

`on.event` is enough for creation, change and resumption: a reconcile compares states, and kopf's own handlers for
these would write into each object.
"""

import asyncio
from collections.abc import Collection, Iterator
from datetime import timedelta
from itertools import chain, repeat
from typing import Any, Protocol

import kopf

from quorate_operator.handlers.cluster_registry import Clusters
from quorate_operator.handlers.entities.registry import Entities
from quorate_operator.handlers.kopf_login import login
from quorate_operator.handlers.resources import KOPF_PREFIX
from quorate_operator.models.selectors import EVERYTHING, LabelSelector
from quorate_operator.resources.names import FINALIZER
from quorate_operator.runtime.kubernetes.api import (
    BROKERS,
    CONTROLLERS,
    REBALANCES,
    REQUEST_TIMEOUT_S,
    Kind,
    Object,
)

RESYNC_INTERVAL_S = 300.0
"""The interval of kopf's timer. A reconcile has its own intervals; this is a safeguard."""
DELETION_WAIT_S = 5.0
"""Time limit of one attempt to delete. Edits of the same object wait for the handler."""
DELETION_PAUSE_S = 0.1
"""The pause between two such waits, in which kopf handles events that have arrived."""
LONG_DELETION_S = 120.0
"""After this time, as when a pool is drained, the pauses are LONG_PAUSE_S: each attempt writes an annotation."""
LONG_PAUSE_S = 20.0
BACKOFFS_S = (1, 1, 2, 3, 5, 8, 13)
"""The pauses after failed requests of kopf. The next ones are BACKOFF_S_MAX, without an end."""
BACKOFF_S_MAX = 30
DELETION_ID = "deletion"
"""The id of the deletion handler, and the name of the annotation with its attempts: Kubernetes must accept it."""
LAST_HANDLED = f"{KOPF_PREFIX}/last-handled"
"""The annotation in which earlier releases stored a copy of the spec. It is removed."""
EXIT_TIMEOUT_S = 25.0
"""kopf kills this process after this time, which is less than the grace period of its pod."""


class NothingLastHandled(kopf.DiffBaseStorage):
    """Stores no copy of a resource beside it: no handler asks what has changed, and a spec may be large.

    For kopf, each resource is as it was handled last.
    """

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return self.build(body=body)

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        pass


def settings_of(*, cluster_wide: bool, selector: LabelSelector = EVERYTHING) -> kopf.OperatorSettings:
    """Return settings with bounded requests and watches, our finalizer and annotations, and no Events of kopf.

    The API server selects the resources. kopf would remove the finalizer from others, where another operator set it.
    A resource whose labels cease to match is reported as deleted, with its finalizer.
    """
    settings = kopf.OperatorSettings()
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 310
    settings.watching.connect_timeout = 30
    settings.watching.inactivity_timeout = 70
    settings.networking.request_timeout = REQUEST_TIMEOUT_S
    # A resource occupies a worker as long as its deletion waits: with a limit, others would never be handled.
    settings.queueing.worker_limit = None
    # kopf would end with the first namespace that it may not read any more.
    settings.networking.error_backoffs = _Backoffs()
    settings.posting.enabled = False
    settings.persistence.finalizer = FINALIZER
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=KOPF_PREFIX)
    settings.persistence.diffbase_storage = NothingLastHandled()
    settings.process.ultimate_exiting_timeout = EXIT_TIMEOUT_S
    if selector:
        settings.watching.label_selectors[CONTROLLERS.api_version.split("/")[0], kopf.EVERYTHING] = str(
            selector
        )
    # Without the rights to list CustomResourceDefinitions and namespaces, which a namespaced install lacks.
    settings.scanning.disabled = not cluster_wide
    return settings


class _Backoffs:
    """The pauses between attempts of a request. Each request iterates over them from the beginning."""

    def __iter__(self) -> Iterator[float]:
        return chain(BACKOFFS_S, repeat(BACKOFF_S_MAX))


class Reconciles(Protocol):
    """What kopf reports the resources of some kinds to: `Clusters` or `Entities`."""

    def seen(self, body: Object) -> None:
        """Handle a created or changed resource."""

    def gone(self, body: Object) -> None:
        """Handle a deleted resource."""

    async def wait_cleared(self, body: Object) -> None:
        """Wait until the resource may be removed."""


def registry_of(clusters: Clusters, entities: Entities) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(login)

    async def resync(namespace: str | None, name: str | None, body: kopf.Body, **_: Any) -> None:
        is_quorum = body["kind"] == CONTROLLERS.name
        clusters.wake(namespace or "", name or "" if is_quorum else body["spec"]["controllers"])

    def deletes(spec: kopf.Spec, body: kopf.Body, **_: Any) -> bool:
        # A rebalance is stopped before its resource is removed.
        return bool(spec.get("deletionPolicy") == "Delete") or body["kind"] == REBALANCES.name

    for kind in (CONTROLLERS, BROKERS):
        _watch(registry, kind, clusters, waits_for="brokers to drain and pods to stop")
        group, version = kind.api_version.split("/")
        timer = kopf.timer(
            group, version, kind.plural, registry=registry, id="resync", interval=RESYNC_INTERVAL_S
        )
        timer(resync)
    for kind in entities.kinds:
        # Only a resource that deletes something in Kafka has a finalizer: without `when`, kopf removes it again.
        _watch(registry, kind, entities, waits_for="its deletion in Kafka", when=deletes)
    return registry


def _watch(
    registry: kopf.OperatorRegistry, kind: Kind, reconciles: Reconciles, *, waits_for: str, **options: Any
) -> None:

    async def changed(event: kopf.RawEvent, patch: kopf.Patch, **_: Any) -> None:
        body: Object = dict(event["object"])
        if event["type"] != "DELETED" and LAST_HANDLED in (body["metadata"].get("annotations") or {}):
            patch.metadata.annotations[LAST_HANDLED] = None
        if event["type"] == "DELETED":
            reconciles.gone(body)
        else:
            reconciles.seen(body)

    async def deleted(body: kopf.Body, runtime: timedelta, **_: Any) -> None:
        reconciles.seen(dict(body))
        try:
            async with asyncio.timeout(DELETION_WAIT_S):
                await reconciles.wait_cleared(dict(body))
        except TimeoutError:
            is_long = runtime.total_seconds() >= LONG_DELETION_S
            pause_s = LONG_PAUSE_S if is_long else DELETION_PAUSE_S
            raise kopf.TemporaryError(f"waiting for {waits_for}", delay=pause_s) from None

    group, version = kind.api_version.split("/")
    kopf.on.event(group, version, kind.plural, registry=registry, id="event")(changed)
    kopf.on.delete(group, version, kind.plural, registry=registry, id=DELETION_ID, **options)(deleted)


async def run_kopf(
    clusters: Clusters,
    entities: Entities,
    namespaces: Collection[str] | None,
    *,
    selector: LabelSelector,
    ready: asyncio.Event,
    stop: asyncio.Event,
) -> None:
    """Run kopf until `stop` is set or it fails. Sets `ready` once it has begun."""
    await kopf.operator(
        registry=registry_of(clusters, entities),
        settings=settings_of(cluster_wide=namespaces is None, selector=selector),
        standalone=True,
        clusterwide=namespaces is None,
        namespaces=list(namespaces or ()),
        ready_flag=ready,
        stop_flag=stop,
    )
