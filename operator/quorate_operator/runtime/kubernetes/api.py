"""The client of the Kubernetes API for operator and commands: plain objects in, plain objects out.

It uses `kubernetes.aio` for kubeconfigs, service accounts and the renewal of tokens (ADR 16). Objects are dicts:
the builders make them, and the API server checks them. Each request has a time limit. Nothing is retried here: the
reconcile loop looks again, and a person runs the command again.

A watch occupies its connection for minutes, a request for milliseconds. So each has connections of its own: the
number of those for requests is limited, that of those for watches is not.
"""

import asyncio
import copy
import os
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

from quorate_operator.runtime.kubernetes.reachability import Reachability
from quorate_operator.runtime.kubernetes.response_bodies import (
    TEXT_SHOWN_MAX,
    event_lines,
    json_object,
    parse_event,
)

Object = dict[str, Any]
"""An object of the API, as JSON has it."""

FIELD_MANAGER = "quorate"
PAGE_SIZE = 500
REQUEST_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 30.0
WATCH_TIMEOUT_S = 300
"""The API server ends a watch after this time, and a new one begins."""
WATCH_SILENCE_S = 70.0
"""Silence after which a watch is considered broken: bookmarks come each minute."""
CONNECTIONS_MAX = 64
"""Connections of one client for requests. Watches have others."""
OPENING_WATCHES_MAX = 16
"""How many watches are being opened at the same time, so that those of many namespaces are no burst."""
USER_AGENT = f"quorate-operator/{version_of('quorate')}"
KUBECONFIG_DEFAULT = "~/.kube/config"
TERMINATING_AGE_S_MAX = 60.0
"""How long a refusal to create objects in a namespace is taken to hold: a namespace of its name may be created."""

_UNAVAILABLE = (401, 429)
"""Statuses below 500 with which an API server does not serve a client at all."""
_REDIRECTIONS = (301, 302, 303, 307, 308)
_REQUEST_LIMITS = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
_WATCH_LIMITS = aiohttp.ClientTimeout(
    total=WATCH_TIMEOUT_S + 10, sock_read=WATCH_SILENCE_S, sock_connect=CONNECT_TIMEOUT_S
)


class ApiError(Exception):
    """The API server refused a request, or did not answer as one: `status` is 0 then.

    `causes` are the reasons in the details of a refusal.
    """

    def __init__(self, status: int, reason: str, message: str, causes: Collection[str] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.causes = causes

    @property
    def is_missing(self) -> bool:
        return self.status == 404

    @property
    def is_conflict(self) -> bool:
        """The object exists already, or has changed since it was read."""
        return self.status == 409

    @property
    def is_forbidden(self) -> bool:
        return self.status == 403

    @property
    def is_of_unknown_kind(self) -> bool:
        """The kind may have no definition. Without a permission, the API server does not say whether it has one."""
        return self.status in (403, 404)

    @property
    def is_invalid(self) -> bool:
        """The object does not match its definition."""
        return self.status == 422

    @property
    def rejects_object(self) -> bool:
        """The object itself was rejected: the same request would fail again."""
        return self.status in (400, 403, 422)

    @property
    def is_of_terminating_namespace(self) -> bool:
        """Nothing can be created, because the namespace is being deleted."""
        return "NamespaceTerminating" in self.causes

    @property
    def is_unavailability(self) -> bool:
        """The API server did not answer, or serves no request of this client now."""
        return self.status == 0 or self.status in _UNAVAILABLE or self.status >= 500


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object, and its path in the API."""

    api_version: str
    name: str
    plural: str

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the path of one object, or of all in a namespace, or of all without a namespace."""
        root = "/api/" if "/" not in self.api_version else "/apis/"
        parts = [f"{root}{self.api_version}"]
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part is not None]
        return "/".join(parts)


POD = Kind("v1", "Pod", "pods")
VOLUME_CLAIM = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
SERVICE = Kind("v1", "Service", "services")
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
SECRET = Kind("v1", "Secret", "secrets")
EVENT = Kind("events.k8s.io/v1", "Event", "events")
NODE = Kind("v1", "Node", "nodes")
PERSISTENT_VOLUME = Kind("v1", "PersistentVolume", "persistentvolumes")
DISRUPTION_BUDGET = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
NETWORK_POLICY = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
INGRESS = Kind("networking.k8s.io/v1", "Ingress", "ingresses")
ROUTE = Kind("route.openshift.io/v1", "Route", "routes")
CERTIFICATE = Kind("cert-manager.io/v1", "Certificate", "certificates")
CRON_JOB = Kind("batch/v1", "CronJob", "cronjobs")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
CONTROLLERS = Kind("quorate.dev/v1alpha1", "KafkaController", "kafkacontrollers")
BROKERS = Kind("quorate.dev/v1alpha1", "KafkaBroker", "kafkabrokers")
TOPICS = Kind("quorate.dev/v1alpha1", "KafkaTopic", "kafkatopics")
REBALANCES = Kind("quorate.dev/v1alpha1", "KafkaRebalance", "kafkarebalances")
USERS = Kind("quorate.dev/v1alpha1", "KafkaUser", "kafkausers")
OWNED_KINDS = {
    kind.name: kind
    for kind in (
        *(POD, VOLUME_CLAIM, SERVICE, CONFIG_MAP, DISRUPTION_BUDGET, NETWORK_POLICY, CRON_JOB),
        *(INGRESS, CERTIFICATE, ROUTE),
    )
}
"""The kinds of objects that Quorate creates for clusters, by name."""
OPTIONAL_KINDS: Mapping[str, str] = {
    CERTIFICATE.name: "install cert-manager, or name a Secret in tls.secretName in place of tls.issuerRef",
    ROUTE.name: "it is not OpenShift; use exposure.type Ingress in place of Route",
}
"""Kinds that exist only where something installs them, by name, with what to do where they do not exist."""


def kubeconfig_files(kubeconfig: Path | None = None) -> tuple[list[str], str]:
    """Return the files of the kubeconfig that exist, and its name: the argument, KUBECONFIG or the default."""
    named = f"{kubeconfig}" if kubeconfig else os.environ.get("KUBECONFIG") or KUBECONFIG_DEFAULT
    paths = [Path(path).expanduser() for path in named.split(os.pathsep) if path]
    return [f"{path}" for path in paths if path.exists()], named


async def load_settings(context: str | None = None, kubeconfig: Path | None = None) -> Configuration:
    """Return how to reach the API server: by a kubeconfig, or by the service account of this pod.

    The kubeconfig is `kubeconfig`, or KUBECONFIG, or ~/.kube/config. The service account is used only if none
    exists and neither argument is given.

    Raises:
        ApiError: there is neither, or the kubeconfig can't be used.
    """
    settings = Configuration()
    # With trust_env, aiohttp would look for a .netrc before each request, in the thread pool that resolves names:
    # while names of nodes are slow to resolve, a Lease could not be renewed. The proxy is looked up below, once.
    settings.client_session_kwargs = {"trust_env": False, "middlewares": (refuse_redirection,)}
    files, named = kubeconfig_files(kubeconfig)
    if not files and (context is not None or kubeconfig is not None):
        raise _no_configuration(
            f"there is no kubeconfig {named}; no service account is used where one or a context is given"
        )
    try:
        # The library warns of a kubeconfig that does not exist, in words of its own and on stderr.
        if files:
            await config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=os.pathsep.join(files), context=context, client_configuration=settings
            )
        else:
            config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
    except (config.ConfigException, OSError) as error:
        raise _no_configuration(
            f"{error}" if files else f"there is no kubeconfig {named}; {error}"
        ) from error
    settings.proxy = settings.proxy or _proxy_of_environment(settings.host)
    return settings


def _no_configuration(reason: str) -> ApiError:
    return ApiError(0, "NoConfiguration", f"no way to a Kubernetes API server: {reason}")


class KubernetesApi:
    """The requests. Close it. `field_manager` owns what is written.

    With `is_strict`, a write with fields that the API server does not know is refused; without, they are dropped, as
    the operator needs it beside older definitions.
    """

    def __init__(
        self,
        settings: Configuration,
        *,
        field_manager: str = FIELD_MANAGER,
        user_agent: str = USER_AGENT,
        is_strict: bool = False,
    ) -> None:
        self.reachability = Reachability()
        self._settings, self._user_agent = settings, user_agent
        self._client = self._make_client(CONNECTIONS_MAX)
        self._watching: ApiClient | None = None
        """The client for watches, which commands do not need."""
        self._opening = asyncio.Semaphore(OPENING_WATCHES_MAX)
        self._manager = {"fieldManager": field_manager} | ({"fieldValidation": "Strict"} if is_strict else {})
        self._terminating: dict[str, float] = {}
        """When a creation was last refused in a namespace that was being deleted."""

    @classmethod
    async def connect(cls) -> Self:
        """Use the settings of this process, see `load_settings`. Raises ApiError."""
        return cls(await load_settings())

    async def close(self) -> None:
        for client in (self._client, self._watching):
            if client is not None:
                await client.close()  # type: ignore[no-untyped-call]

    def _make_client(self, connections_max: int) -> ApiClient:
        settings = copy.copy(self._settings)
        settings.connection_pool_maxsize = connections_max  # 0: no limit
        client = ApiClient(settings)
        client.user_agent = self._user_agent
        return client

    def is_terminating(self, namespace: str) -> bool:
        """Whether a creation was refused lately because the namespace is being deleted."""
        refused_s = self._terminating.get(namespace)
        return refused_s is not None and self.reachability.now_s() - refused_s < TERMINATING_AGE_S_MAX

    async def probe(self) -> None:
        """Request the version of the API server, which needs no permission. Raises ApiError."""
        await self._request("GET", "/version")

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """Return the object, or None."""
        try:
            return await self._request("GET", kind.path(namespace, name))
        except ApiError as error:
            if error.is_missing:
                return None
            raise

    async def list(self, kind: Kind, namespace: str | None, selector: str = "") -> tuple[list[Object], str]:
        """Return all objects of a kind with these labels, and the version from which to watch."""
        query = {"limit": str(PAGE_SIZE)} | ({"labelSelector": selector} if selector else {})
        items: list[Object] = []
        while True:
            path = kind.path(namespace)
            page = await self._request("GET", path, query)
            found, metadata = page.get("items"), page.get("metadata")
            if not isinstance(found, list) or not isinstance(metadata, dict):
                raise ApiError(0, "Broken", f"GET {path}: the response is not a list of {kind.plural}")
            # Items of a list come without these.
            items += [{"apiVersion": kind.api_version, "kind": kind.name, **item} for item in found]
            position = metadata.get("continue")
            if not position:
                return items, str(metadata.get("resourceVersion", ""))
            query["continue"] = position

    async def create(self, kind: Kind, namespace: str, body: Mapping[str, Any]) -> Object:
        """Create an object. Raises ApiError, a conflict if it exists."""
        return await self._request("POST", kind.path(namespace), self._manager, body, creates_in=namespace)

    async def replace(
        self, kind: Kind, namespace: str, body: Mapping[str, Any], subresource: str | None = None
    ) -> Object:
        """Replace an object as it was read. Raises ApiError, a conflict if it has changed since."""
        path = kind.path(namespace, body["metadata"]["name"], subresource)
        return await self._request("PUT", path, self._manager, body)

    async def apply(
        self,
        kind: Kind,
        namespace: str,
        body: Mapping[str, Any],
        *,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Server-side apply: the field manager owns the fields in `body`; fields that it owned before are removed.

        With `dry_run`, the request is validated and admitted like a real one, and nothing is written.
        """
        path = kind.path(namespace, body["metadata"]["name"], subresource)
        query = {**self._manager, "force": "true"} | ({"dryRun": "All"} if dry_run else {})
        content_type = "application/apply-patch+yaml"
        return await self._request("PATCH", path, query, body, content_type, creates_in=namespace)

    async def merge(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Mapping[str, Any],
        subresource: str | None = None,
    ) -> Object:
        """Merge-patch: the fields in `patch` are set, those that are None there are removed."""
        path = kind.path(namespace, name, subresource)
        return await self._request("PATCH", path, self._manager, patch, "application/merge-patch+json")

    async def delete(
        self, kind: Kind, namespace: str, name: str, *, uid: str | None = None, grace_s: int | None = None
    ) -> None:
        """Request a deletion. An object that is gone, or has another uid, is no error."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        try:
            await self._request("DELETE", kind.path(namespace, name), {}, options)
        except ApiError as error:
            if not (error.is_missing or error.is_conflict):
                raise

    async def watch(
        self, kind: Kind, namespace: str | None, selector: str, version: str
    ) -> AsyncIterator[tuple[str, Object]]:
        """Yield events after `version`: ADDED, MODIFIED, DELETED or BOOKMARK, and the object.

        Ends when the API server ends it. Raises ApiError; with status 410 `version` is too old, and a new
        list is needed.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "labelSelector": selector,
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_TIMEOUT_S),
        }
        self._watching = client = self._watching or self._make_client(0)
        async with self._opening:
            response = await self._send(
                "GET", kind.path(namespace), query, client=client, limits=_WATCH_LIMITS
            )
        try:
            if response.status >= 400:
                raise _error(response.status, await response.read())
            async for line in event_lines(response.content):
                change, subject = parse_event(line)
                if change == "ERROR":
                    raise ApiError(
                        subject.get("code", 0), subject.get("reason", ""), subject.get("message", "")
                    )
                yield change, subject
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise ApiError(0, "Broken", f"a watch of {kind.plural} broke: {error!r}") from error
        finally:
            response.close()

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        *,
        creates_in: str | None = None,
    ) -> Object:
        """Send a request, which may create an object in `creates_in`, and return the response. Raises ApiError."""
        began_s = self.reachability.now_s()
        try:
            received = await self._exchange(method, path, query, body, content_type)
        except ApiError as error:
            if error.is_unavailability:
                self.reachability.failed(began_s, str(error))
            else:
                self.reachability.succeeded()
            if creates_in is not None and error.is_of_terminating_namespace:
                held = {name: at_s for name, at_s in self._terminating.items() if self.is_terminating(name)}
                self._terminating = held | {creates_in: self.reachability.now_s()}
            raise
        self.reachability.succeeded()
        return received

    async def _exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Mapping[str, Any] | None,
        content_type: str,
    ) -> Object:
        response = await self._send(method, path, query or {}, body, content_type=content_type)
        try:
            content = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ApiError(0, "Broken", f"{method} {path}: {error!r}") from error
        if response.status >= 400:
            raise _error(response.status, content)
        parsed = json_object(content)
        if parsed is None:
            # A proxy in between may answer with any text, whatever the status.
            raise ApiError(
                0,
                "Broken",
                f"{method} {path}: the response is not a JSON object: {content[:TEXT_SHOWN_MAX]!r}",
            )
        return parsed

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = "application/json",
        client: ApiClient | None = None,
        limits: aiohttp.ClientTimeout = _REQUEST_LIMITS,
    ) -> aiohttp.ClientResponse:
        client = client or self._client
        serialized = await client.param_serialize(
            method,
            path + (f"?{urlencode(query)}" if query else ""),
            header_params={"Content-Type": content_type, "Accept": "application/json"},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            called = await client.call_api(*serialized, _request_timeout=limits)
        except (aiohttp.ClientError, OSError) as error:
            raise ApiError(0, "Unreachable", f"{method} {path}: {error!r}") from error
        response: aiohttp.ClientResponse = called.response
        return response


async def refuse_redirection(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Refuse to follow where a response leads: API servers do not redirect, and the request may have a Secret."""
    response = await handler(request)
    if response.status in _REDIRECTIONS:
        response.close()
        raise aiohttp.ClientError(
            f"the response is a redirection (status {response.status}), which is not followed"
        )
    return response


def _proxy_of_environment(url: str) -> str | None:
    """Return the proxy that HTTPS_PROXY and NO_PROXY set for this address, as kubectl reads them."""
    parts = urlsplit(url)
    if proxy_bypass(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme)


def _error(status: int, content: bytes) -> ApiError:
    parsed = json_object(content)
    if parsed is None:
        return ApiError(status, "", f"HTTP status {status}: {content[:TEXT_SHOWN_MAX]!r}")
    details = parsed.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    reasons = tuple(str(cause.get("reason")) for cause in causes or () if isinstance(cause, dict))
    return ApiError(status, str(parsed.get("reason", "")), str(parsed.get("message", "")), reasons)
