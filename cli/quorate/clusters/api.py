"""Reads and changes clusters through the API server, with the rights of whoever calls.

Imports `kubernetes`, which takes a while: only when a command needs it.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import kubernetes.client
import kubernetes.config
from kubernetes.client import ApiException
from kubernetes.config import ConfigException
from urllib3.exceptions import HTTPError

from quorate.clusters.resources import Cluster, Pool, clusters_of
from quorate.console import CommandError

GROUP, VERSION = "quorate.dev", "v1alpha1"
PLURALS = {"KafkaController": "kafkacontrollers", "KafkaBroker": "kafkabrokers"}
TIMEOUT_S = 30
PAGE_SIZE = 500
FIELD_MANAGER = "kubectl-quorate"
_NOT_FOUND, _CONFLICT = 404, 409

_Answer = TypeVar("_Answer")


class ClustersApi:
    """Clusters in one namespace, or with `namespace` None in all. Raises CommandError for what a user can mend."""

    def __init__(self, *, kubeconfig: Path | None, context: str | None, namespace: str | None) -> None:
        config = kubernetes.client.Configuration()
        try:
            kubernetes.config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=kubeconfig and str(kubeconfig), context=context, client_configuration=config
            )
        except ConfigException as error:
            if kubeconfig is not None or context is not None:
                raise CommandError(f"no way to a Kubernetes API server: {error}") from error
            try:
                kubernetes.config.load_incluster_config(  # type: ignore[no-untyped-call]
                    client_configuration=config
                )
            except ConfigException:
                raise CommandError(f"no way to a Kubernetes API server: {error}") from error
        config.retries = False
        self._api = kubernetes.client.CustomObjectsApi(kubernetes.client.ApiClient(config))
        self._host = config.host
        self._namespace = namespace

    def clusters(self) -> tuple[Cluster, ...]:
        """Every cluster, by namespace and name."""
        return tuple(clusters_of(self._list("KafkaController"), self._list("KafkaBroker")))

    def cluster(self, name: str) -> Cluster:
        """The cluster of this name."""
        clusters = self.clusters()
        found = next((one for one in clusters if one.name == name), None)
        if found is None:
            known = ", ".join(one.name for one in clusters) or "none"
            raise CommandError(
                f"there is no KafkaController {name!r} in namespace {self._namespace!r}; there are: {known}"
            )
        return found

    def change(self, pool: Pool, patch: Mapping[str, Any]) -> None:
        """Merge a patch into a resource, if it is still as it was read."""
        version = pool.resource["metadata"]["resourceVersion"]
        metadata = {**patch.get("metadata", {}), "resourceVersion": version}
        self._call(
            lambda: self._api.patch_namespaced_custom_object(
                GROUP,
                VERSION,
                pool.namespace,
                PLURALS[pool.kind],
                pool.name,
                {**patch, "metadata": metadata},
                field_manager=FIELD_MANAGER,
                _content_type="application/merge-patch+json",
                _request_timeout=TIMEOUT_S,
            )
        )

    def _list(self, kind: str) -> list[Mapping[str, Any]]:
        items: list[Mapping[str, Any]] = []
        position = ""
        while True:
            page = self._call(partial(self._page, kind, position))
            items += [{**item, "kind": kind} for item in page["items"]]
            position = page["metadata"].get("continue", "")
            if not position:
                return items

    def _page(self, kind: str, position: str) -> Any:
        paging: dict[str, Any] = {"limit": PAGE_SIZE, "_continue": position, "_request_timeout": TIMEOUT_S}
        if self._namespace is None:
            return self._api.list_cluster_custom_object(GROUP, VERSION, PLURALS[kind], **paging)
        return self._api.list_namespaced_custom_object(
            GROUP, VERSION, self._namespace, PLURALS[kind], **paging
        )

    def _call(self, request: Callable[[], _Answer]) -> _Answer:
        try:
            return request()
        except ApiException as error:
            raise CommandError(self._explained(error)) from error
        except HTTPError as error:
            raise CommandError(f"{self._host} does not answer: {error}") from error

    def _explained(self, error: ApiException) -> str:
        if error.status == _CONFLICT:
            return "somebody else changed it at the same time, and nothing was changed here; try again"
        if error.status == _NOT_FOUND and "page not found" in str(error.body):
            return (
                f"{self._host} knows no {GROUP}/{VERSION}: install the CRDs, for instance by the Helm chart"
            )
        try:
            message = json.loads(error.body or "")["message"]
        except (TypeError, ValueError, KeyError):
            message = f"{error.status} {error.reason}"
        return f"{self._host} refused: {message}"


def default_namespace(kubeconfig: Path | None, context: str | None) -> str:
    """The namespace that kubectl would use: that of the context, else `default`."""
    try:
        contexts, active = kubernetes.config.list_kube_config_contexts(  # type: ignore[no-untyped-call]
            kubeconfig and str(kubeconfig)
        )
    except ConfigException:
        return "default"
    chosen = next((one for one in contexts if one["name"] == context), None) if context else active
    return str((chosen or {}).get("context", {}).get("namespace", "default"))
