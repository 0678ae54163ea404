"""The operator process: waits for the Lease, reconciles while it holds it, and ends when it loses it."""

import asyncio
import logging
import signal
from asyncio import sslproto
from collections.abc import Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from quorate_admin.client_metrics import read_clients
from quorate_protocol.file_limit import raise_file_limit

from quorate_operator.gateway.client_watch import ClientWatch
from quorate_operator.gateway.kafka import KafkaGateway
from quorate_operator.handlers.cluster_registry import Clusters
from quorate_operator.handlers.entities.kind_handlers import (
    KindHandler,
    RebalanceHandler,
    TopicHandler,
    UserHandler,
)
from quorate_operator.handlers.entities.registry import Entities
from quorate_operator.handlers.entities.targets import Targets
from quorate_operator.handlers.events import EventRecorder
from quorate_operator.handlers.health import Liveness, health_server, probe, served
from quorate_operator.handlers.kopf_handlers import run_kopf
from quorate_operator.handlers.metrics import OperatorMetrics
from quorate_operator.handlers.reconciler import ClusterReconciler
from quorate_operator.handlers.resources import ResourceStore
from quorate_operator.handlers.shared import CONCURRENT_OBSERVATIONS_MAX, Shared
from quorate_operator.models.selectors import EVERYTHING, LabelSelector
from quorate_operator.models.tenant_policy import DEFAULT_POLICY, TenantPolicy
from quorate_operator.resources.facts import Images
from quorate_operator.runtime.composite import ClusterRuntime
from quorate_operator.runtime.kubernetes.api import POD, ApiError, KubernetesApi
from quorate_operator.runtime.kubernetes.cache import ObjectCache, Watcher
from quorate_operator.runtime.kubernetes.infrastructure import KubernetesInfrastructure
from quorate_operator.runtime.kubernetes.leases import Lease, LeaseLostError
from quorate_operator.web.commands import AnnotationCommands
from quorate_operator.web.limits import LimitLog
from quorate_operator.web.server import StatusPage
from quorate_operator.web.snapshots import ClusterKey, SnapshotRegistry

LEADER_LEASE = "quorate-operator"
"""The default name of the Lease of leader election."""
CONCURRENT_LOOKUPS_MAX = 64
"""Host names that are resolved at the same time, each in a thread, so that a slow resolver does not stop other
clusters. asyncio's own number is 4 more than there are cores."""
TLS_BUFFER_BYTES = 16 * 1024
"""The receive buffer of a TLS connection, as large as a record of TLS. asyncio's own one has 256 KiB, and a hundred
namespaces have 1500 watches."""
LEADS_LABEL = "quorate.dev/leads"
"""The label of the pod of the replica that holds the Lease: the Service of the status page selects it."""
EXPECTED_ERRORS = (LeaseLostError, ApiError, OSError)
"""Errors that end the process with a line for the user, without a traceback."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOptions:
    """How an operator process is run.

    `namespaces` is None for all of them. `selector` selects the resources by their labels. `lease_namespace` has
    the Lease of leader election, `lease_name`. `own_namespace` is where the operator's own pod is, None outside of
    Kubernetes. `listen` is the host and port of /healthz, /readyz and /metrics, `web` those of the status page; None:
    not served. `drift_interval_s` is the time between two observations of a topic or user that is as desired.
    `policy` is what the owners of resources may ask for; they may always run `images`.
    """

    identity: str
    images: Images
    namespaces: Collection[str] | None
    lease_namespace: str
    own_namespace: str | None = None
    selector: LabelSelector = EVERYTHING
    policy: TenantPolicy = DEFAULT_POLICY
    leader_election: bool = True
    lease_name: str = LEADER_LEASE
    lease_duration_s: int = 15
    drift_interval_s: int = 60
    listen: tuple[str, int] | None = None
    web: tuple[str, int] | None = None
    web_token: str | None = None
    web_hosts: tuple[str, ...] = ()


async def run_operator(options: OperatorOptions) -> None:
    """Run until SIGTERM or SIGINT. Raises LeaseLostError, ApiError and OSError."""
    raise_file_limit()  # connections of clients are bounded, those to nodes and API servers add to them
    sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(CONCURRENT_LOOKUPS_MAX, "lookup"))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    metrics, liveness = OperatorMetrics(), Liveness()
    async with AsyncExitStack() as stack:
        api = await KubernetesApi.connect()
        stack.push_async_callback(api.close)
        liveness.reachability = api.reachability
        metrics.unread.set_function(lambda: api.reachability.unread_s)
        snapshots = SnapshotRegistry()
        if options.listen is not None:
            await stack.enter_async_context(served(health_server(liveness, metrics), *options.listen))
        if options.web is not None:
            limits = LimitLog("status page", metrics.http_limit_counter("web"))
            page = StatusPage(
                snapshots,
                AnnotationCommands(api),
                options.web_token,
                report=limits,
                hosts=options.web_hosts,
            )
            await page.start(*options.web)
            stack.push_async_callback(page.close)
            await label_leading(api, options.lease_namespace, options.identity, leads=False)
        shared = Shared(
            api=api,
            store=ResourceStore(),
            snapshots=snapshots,
            events=EventRecorder(api, snapshots, options.identity),
            metrics=metrics,
            liveness=liveness,
            observations=asyncio.Semaphore(CONCURRENT_OBSERVATIONS_MAX),
            identity=options.identity,
            lease_duration_s=options.lease_duration_s,
            selector=options.selector,
            policy=options.policy.with_images(options.images.names),
        )
        work = [liveness.run(), probe(api), _lead(options, shared, stop)]
        await _until_stopped(work, stop)


async def _lead(options: OperatorOptions, shared: Shared, stop: asyncio.Event) -> None:
    work: list[Coroutine[Any, Any, None]] = []
    async with AsyncExitStack() as stack:
        if options.leader_election:
            # It has its own connections: a renewal never queues behind other requests.
            api = await KubernetesApi.connect()
            stack.push_async_callback(api.close)
            lease = Lease(
                api,
                options.lease_namespace,
                options.lease_name,
                options.identity,
                duration_s=options.lease_duration_s,
            )
            shared.liveness.is_ready = True  # a waiting replica is ready
            log.info(
                "%s waits for the Lease %s/%s", options.identity, options.lease_namespace, options.lease_name
            )
            await lease.acquire()
            shared.liveness.is_ready = False  # until it reconciles
            stack.push_async_callback(lease.release)
            work.append(lease.renew())
        log.info("%s leads", options.identity)
        if options.selector:
            log.info("resources are selected by their labels: %s", options.selector)
        shared.metrics.leading.set(1)
        if options.web is not None:
            await label_leading(shared.api, options.lease_namespace, options.identity, leads=True)
        work.append(_reconcile_all(options, shared, stop))
        await _until_stopped(work, stop)


async def _reconcile_all(options: OperatorOptions, shared: Shared, stop: asyncio.Event) -> None:
    cache = ObjectCache()
    targets = Targets(shared.api, shared.store, shared.snapshots, shared.selector, shared.policy)
    watcher = Watcher(shared.api, cache, options.namespaces, shared.metrics.unlisted.set)
    clusters = Clusters(shared, partial(_reconciler, cache, watcher, options=options, targets=targets))
    handlers: list[KindHandler] = [TopicHandler(), UserHandler(shared.api), RebalanceHandler()]
    entities = Entities(shared, targets, handlers, drift_interval_s=options.drift_interval_s)
    cache.on_change(clusters.wake)
    ready = asyncio.Event()
    handle = run_kopf(
        clusters, entities, options.namespaces, selector=options.selector, ready=ready, stop=stop
    )

    async def report_ready() -> None:
        await ready.wait()
        shared.liveness.is_ready = True
        log.info("ready")
        await stop.wait()

    try:
        await _until_stopped([watcher.run(), handle, report_ready()], stop)
    finally:
        await asyncio.gather(clusters.close(), entities.close())


def _reconciler(
    cache: ObjectCache,
    watcher: Watcher,
    key: ClusterKey,
    shared: Shared,
    *,
    options: OperatorOptions,
    targets: Targets,
) -> ClusterReconciler:
    infrastructure = KubernetesInfrastructure(
        shared.api,
        cache,
        lambda: shared.store.of_cluster(key).quorum,
        shared.store.put,
        namespace=key.namespace,
        name=key.name,
        images=options.images,
        operator_namespace=options.own_namespace,
    )
    targets.put(key, infrastructure)
    gateway = KafkaGateway(infrastructure.security_of)
    runtime = ClusterRuntime(
        infrastructure,
        gateway,
        observing=partial(shared.liveness.pass_of, key),
        clients=ClientWatch(read_clients),
    )
    fill = partial(watcher.fill, key.namespace)
    return ClusterReconciler(key, shared, runtime, infrastructure, fill=fill)


async def _until_stopped(work: Collection[Coroutine[Any, Any, None]], stop: asyncio.Event) -> None:
    """Run all of `work` until `stop` is set or a coroutine ends; raises its error."""
    tasks = [asyncio.create_task(coroutine) for coroutine in (*work, _waiting(stop))]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _waiting(stop: asyncio.Event) -> None:
    await stop.wait()


async def label_leading(api: KubernetesApi, namespace: str, identity: str, *, leads: bool) -> None:
    """Set or remove LEADS_LABEL on the pod of this name. Does nothing without a pod, outside of Kubernetes.

    A replica that starts removes the label that an earlier process of its pod left.
    """
    patch = {"metadata": {"labels": {LEADS_LABEL: "true" if leads else None}}}
    try:
        await api.merge(POD, namespace, identity, patch)
    except ApiError as error:
        if not error.is_missing:
            # Clusters matter more than the status page.
            log.warning(
                "the pod %s/%s can't be labelled, see the status page on it: %s", namespace, identity, error
            )
