"""Reads and changes clusters through the API server, with the rights of the caller.

Commands import this module only when they need it, because importing `kubernetes` is slow.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any, TypeVar

from kubernetes.aio import config
from quorate_operator.runtime.kubernetes.api import (
    BROKERS,
    CONTROLLERS,
    REBALANCES,
    ApiError,
    KubernetesApi,
    Object,
    kubeconfig_files,
    load_settings,
)

from quorate.clusters.rebalances import of_cluster
from quorate.clusters.resources import Cluster, Pool, clusters_of
from quorate.console import CommandError

KINDS = {kind.name: kind for kind in (CONTROLLERS, BROKERS)}
FIELD_MANAGER = "kubectl-quorate"
USER_AGENT = f"{FIELD_MANAGER}/{version_of('quorate')}"
POLL_INTERVAL_S = 1.0

_Response = TypeVar("_Response")


class ClustersApi:
    """Clusters in one namespace; in all, if `namespace` is None.

    Raises CommandError for problems that users can fix.
    """

    def __init__(self, *, kubeconfig: Path | None, context: str | None, namespace: str | None) -> None:
        try:
            self._settings = asyncio.run(load_settings(context, kubeconfig))
        except ApiError as error:
            raise CommandError(str(error)) from error
        self._namespace = namespace

    def clusters(self) -> tuple[Cluster, ...]:
        """Return every cluster, by namespace and name."""

        async def listed(api: KubernetesApi) -> tuple[list[Object], list[Object]]:
            controllers, _ = await api.list(CONTROLLERS, self._namespace)
            brokers, _ = await api.list(BROKERS, self._namespace)
            return controllers, brokers

        return tuple(clusters_of(*self._call(listed)))

    def cluster(self, name: str) -> Cluster:
        """Return the cluster of this name."""
        clusters = self.clusters()
        found = next((cluster for cluster in clusters if cluster.name == name), None)
        if found is None:
            known = ", ".join(cluster.name for cluster in clusters) or "none"
            raise CommandError(
                f"there is no KafkaController {name!r} in namespace {self._namespace!r}; there are: {known}"
            )
        return found

    def change(self, pool: Pool, patch: Mapping[str, Any]) -> None:
        """Merge a patch into a resource, unless the resource has changed since it was read."""
        version = pool.resource["metadata"]["resourceVersion"]
        metadata = {**patch.get("metadata", {}), "resourceVersion": version}
        changed = {**patch, "metadata": metadata}
        self._call(lambda api: api.merge(KINDS[pool.kind], pool.namespace, pool.name, changed))

    def rebalance(self, cluster: str) -> Object | None:
        """Return the KafkaRebalance of a cluster; None if it has none."""

        async def listed(api: KubernetesApi) -> list[Object]:
            found, _ = await api.list(REBALANCES, self._namespace)
            return found

        found = of_cluster(self._call(listed), cluster)
        return None if found is None else dict(found)

    def put_rebalance(self, known: Object | None, body: Mapping[str, Any]) -> Object:
        """Create a KafkaRebalance, or merge `body` into the known one. Returns the result."""
        assert self._namespace is not None
        namespace = self._namespace
        if known is None:
            return self._call(lambda api: api.create(REBALANCES, namespace, body))
        name = known["metadata"]["name"]
        # The status changes all the time, and with it the resourceVersion.
        annotations = body["metadata"].get("annotations", {})
        patch = {"metadata": {"annotations": annotations}, "spec": body.get("spec", {})}
        return self._call(lambda api: api.merge(REBALANCES, namespace, name, patch))

    def wait_rebalance(
        self, name: str, is_reached: Callable[[Object], bool], what: str, timeout_s: float
    ) -> Object:
        """Poll a KafkaRebalance, and return it when `is_reached` is true for it.

        `what` names the wait in the error.
        """
        assert self._namespace is not None
        namespace = self._namespace

        async def reached(api: KubernetesApi) -> Object:
            found: Object | None = None
            try:
                async with asyncio.timeout(timeout_s):
                    while True:
                        found = await api.get(REBALANCES, namespace, name)
                        if found is None:
                            raise CommandError(f"KafkaRebalance {name} was deleted meanwhile")
                        if is_reached(found):
                            return found
                        await asyncio.sleep(POLL_INTERVAL_S)
            except TimeoutError:
                phase = (found or {}).get("status", {}).get("phase", "not observed yet")
                reported = f"{what} took more than {timeout_s:g} s; it is {phase}; does the operator run?"
                raise CommandError(f"KafkaRebalance {name}: {reported}") from None

        return self._call(reached)

    def _call(self, request: Callable[[KubernetesApi], Awaitable[_Response]]) -> _Response:
        async def run() -> _Response:
            api = KubernetesApi(
                self._settings, field_manager=FIELD_MANAGER, user_agent=USER_AGENT, is_strict=True
            )
            try:
                return await request(api)
            finally:
                await api.close()

        try:
            return asyncio.run(run())
        except ApiError as error:
            raise CommandError(self._explained(error)) from error

    def _explained(self, error: ApiError) -> str:
        host = self._settings.host
        if error.is_conflict:
            return "it was changed by someone else at the same time, so nothing was done; try again"
        if error.is_missing and "page not found" in str(error):
            return (
                f"{host} has no {CONTROLLERS.api_version}: install the CRDs, for instance by the Helm chart"
            )
        if error.status == 0:
            return f"{host} does not answer: {error}"
        return f"{host} refused: {error}"


def default_namespace(kubeconfig: Path | None, context: str | None) -> str:
    """Return the namespace that kubectl would use: that of the context, else `default`."""
    files, _ = kubeconfig_files(kubeconfig)
    if not files:
        return "default"
    try:
        contexts, active = config.list_kube_config_contexts(os.pathsep.join(files))  # type: ignore[no-untyped-call]
    except config.ConfigException:
        return "default"
    chosen = next((entry for entry in contexts if entry["name"] == context), None) if context else active
    return str((chosen or {}).get("context", {}).get("namespace", "default"))
