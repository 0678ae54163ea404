"""What Kubernetes assigns to a cluster: load balancers, node ports, host IPs; and the Secrets of its listeners."""

import time
from collections.abc import Iterable, Mapping

from quorate_operator.models.manifests import Manifests
from quorate_operator.models.secrets import FOR_LISTENERS, Secret, certificate_of, is_labelled, secret_uses
from quorate_operator.planning.cluster import Formation
from quorate_operator.resources.certificates import why_not_issued
from quorate_operator.resources.facts import Facts, Images, ListenerOf
from quorate_operator.resources.names import ANNOTATION_HOST_IP, exposure_name
from quorate_operator.resources.secrets import described_secret
from quorate_operator.runtime.kubernetes.api import (
    CERTIFICATE,
    SECRET,
    SERVICE,
    ApiError,
    KubernetesApi,
    Object,
)
from quorate_operator.runtime.kubernetes.objects import ClusterObjects
from quorate_operator.runtime.kubernetes.observation import (
    NodeObjects,
    annotation,
    configured_of,
    revision_of,
    volumes_in_use,
)

SECRET_AGE_S_MAX = 30.0
FAULTY_SECRET_AGE_S_MAX = 5.0
"""The same for a Secret that nodes wait for."""


class FactsSource:
    def __init__(
        self, api: KubernetesApi, objects: ClusterObjects, operator_namespace: str | None = None
    ) -> None:
        self._api = api
        self._objects = objects
        self._operator_namespace = operator_namespace
        self._secrets: dict[str, tuple[float, Secret | None]] = {}
        self._unreadable: set[str] = set()
        self._unlabelled: set[str] = set()

    def facts(self, manifests: Manifests, images: Images, formation: Formation | None) -> Facts:
        objects = self._objects.nodes()
        services = self._objects.of_kind(SERVICE)
        balancers: dict[ListenerOf, str] = {}
        ports: dict[ListenerOf, int] = {}
        by_name = {service["metadata"]["name"]: service for service in services}
        for pool in manifests.brokers:
            for node_id in pool.spec.all_node_ids():
                for listener in pool.spec.listeners:
                    service = by_name.get(exposure_name(pool.metadata.name, node_id, listener.name))
                    if service is None:
                        continue
                    key = ListenerOf(node_id, listener.name)
                    for given in service.get("status", {}).get("loadBalancer", {}).get("ingress") or ():
                        balancers[key] = given.get("hostname") or given["ip"]
                    for port in service["spec"].get("ports", ()):
                        if port.get("nodePort"):
                            ports[key] = port["nodePort"]
        # A restarted node most likely returns to the host where it was.
        host_ips = {
            node_id: address
            for node_id, found in objects.items()
            if (address := _host_ip_of(found) or annotation(found.config, ANNOTATION_HOST_IP))
        }
        configured = {
            node_id: configured_of(found.pod or found.config)
            for node_id, found in objects.items()
            if found.pod is not None or found.config is not None
        }
        return Facts(
            namespace=self._objects.namespace,
            images=images,
            operator_namespace=self._operator_namespace,
            load_balancers=balancers,
            node_ports=ports,
            host_ips=host_ips,
            configured=configured,
            revisions={
                node_id: revision_of(found.pod) for node_id, found in objects.items() if found.pod is not None
            },
            secrets=self.secrets(),
            unreadable_secrets=frozenset(self._unreadable),
            unlabelled_secrets=frozenset(self._unlabelled),
            certificates={
                certificate["metadata"]["name"]: why_not_issued(certificate)
                for certificate in self._objects.of_kind(CERTIFICATE)
            },
            formation=formation,
            volumes={node_id: volumes_in_use(found) for node_id, found in objects.items() if found.claims},
        )

    def secrets(self) -> Mapping[str, Secret]:
        return {name: found for name, (_, found) in self._secrets.items() if found is not None}

    async def refresh_secrets(self, manifests: Manifests) -> None:
        """Read the Secrets that listeners name, except for those read within half a minute. Raises ApiError.

        Of a Secret that its owner did not label for this, no value is kept.
        """
        namespace, found = self._objects.namespace, self.secrets()
        uses = tuple(secret_uses(manifests.controllers, manifests.brokers))
        issued = {use.name for use in uses if use.is_issued}
        faulty = {use.name for use in uses if use.fault(found, namespace) is not None}
        now = time.monotonic()
        for name in {use.name for use in uses}:
            at, _ = self._secrets.get(name, (-SECRET_AGE_S_MAX, None))
            is_faulty = name in faulty
            if now - at < (FAULTY_SECRET_AGE_S_MAX if is_faulty else SECRET_AGE_S_MAX):
                continue
            secret = await self._read(name)
            self._unlabelled.discard(name)
            # A Secret that cert-manager writes for the listener's own Certificate has no other owner.
            if secret is not None and not (
                is_labelled(secret, FOR_LISTENERS) or (name in issued and certificate_of(secret) == name)
            ):
                self._unlabelled.add(name)
                secret = None
            self._secrets[name] = now, None if secret is None else described_secret(secret)

    async def _read(self, name: str) -> Object | None:
        """Return a Secret; None if it does not exist, or the operator may not read it. Raises ApiError."""
        self._unreadable.discard(name)
        try:
            return await self._api.get(SECRET, self._objects.namespace, name)
        except ApiError as error:
            if not error.is_forbidden:
                raise
            self._unreadable.add(name)
            return None


async def store_host_ips(objects: ClusterObjects, nodes: Iterable[NodeObjects]) -> None:
    """Store the host IPs of pods in ConfigMaps, which outlive pods and operators. Raises ApiError."""
    for node in nodes:
        address = _host_ip_of(node)
        if (
            address is not None
            and node.config is not None
            and annotation(node.config, ANNOTATION_HOST_IP) != address
        ):
            await objects.annotate(node.config, {ANNOTATION_HOST_IP: address})


def _host_ip_of(node: NodeObjects) -> str | None:
    """Return the address of the host of a node's pod."""
    return (node.pod or {}).get("status", {}).get("hostIP") or None
