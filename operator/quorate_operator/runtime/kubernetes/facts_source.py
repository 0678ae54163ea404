"""What Kubernetes assigns to a cluster: load balancers, node ports, host IPs; and the Secrets of its listeners."""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from quorate_operator.models.manifests import Manifests
from quorate_operator.models.secrets import FOR_LISTENERS, Secret, certificate_of, is_labelled, secret_uses
from quorate_operator.planning.cluster import Address, Formation
from quorate_operator.resources.certificates import why_not_issued
from quorate_operator.resources.exposures import balancer_host, host_address, node_port
from quorate_operator.resources.facts import BootstrapOf, Facts, Images, ListenerOf
from quorate_operator.resources.ingress_hosts import stored_hosts
from quorate_operator.resources.issued_certificates import is_made_for, owners_of_secrets
from quorate_operator.resources.names import (
    ANNOTATION_HOST_IP,
    ANNOTATION_HOST_IPS,
    ANNOTATION_HOSTS,
    exposure_bootstrap_name,
    exposure_name,
)
from quorate_operator.resources.secrets import described_secret
from quorate_operator.resources.services import publications_of
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
    listeners_of,
    revision_of,
    time_ms,
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
        # A restarted node most likely returns to the host where it was.
        host_ips = {
            node_id: addresses
            for node_id, found in objects.items()
            if (addresses := _host_ips_of(found) or _stored_host_ips(found))
        }
        configured = {
            node_id: configured_of(found.pod or found.config)
            for node_id, found in objects.items()
            if found.pod is not None or found.config is not None
        }
        services = self._objects.of_kind(SERVICE)
        assigned = _assigned(manifests, services, host_ips, configured)
        return Facts(
            namespace=self._objects.namespace,
            images=images,
            operator_namespace=self._operator_namespace,
            load_balancers=assigned.load_balancers,
            node_ports=assigned.node_ports,
            node_hosts=assigned.node_hosts,
            requested_ms=assigned.requested_ms,
            ingress_hosts=assigned.ingress_hosts,
            published=_published(services),
            bootstrap_balancers=assigned.bootstrap_balancers,
            bootstrap_node_ports=assigned.bootstrap_node_ports,
            host_ips={node_id: addresses[0] for node_id, addresses in host_ips.items()},
            configured=configured,
            listeners={
                node_id: listeners
                for node_id, found in objects.items()
                if (listeners := listeners_of(found)) is not None
            },
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
        owners = dict(owners_of_secrets(manifests.resources))
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
                is_made_for(secret, self._objects.cluster, owners[name])
                if name in owners
                else is_labelled(secret, FOR_LISTENERS) or (name in issued and certificate_of(secret) == name)
            ):
                self._unlabelled.add(name)
                secret = None
            self._secrets[name] = now, None if secret is None else described_secret(secret)

    def forget_secrets(self, names: Iterable[str]) -> None:
        """Read these Secrets again, which were written."""
        for name in names:
            self._secrets.pop(name, None)

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
        addresses = _host_ips_of(node)
        if addresses and node.config is not None and _stored_host_ips(node) != addresses:
            several = ",".join(addresses) if len(addresses) > 1 else None
            await objects.annotate(
                node.config, {ANNOTATION_HOST_IP: addresses[0], ANNOTATION_HOST_IPS: several}
            )


def _host_ips_of(node: NodeObjects) -> tuple[str, ...]:
    """Return the addresses of the host of a node's pod, the primary one first."""
    status = (node.pod or {}).get("status", {})
    primary = status.get("hostIP")
    if not primary:
        return ()
    others = (given.get("ip") for given in status.get("hostIPs") or ())
    return (primary, *(address for address in others if address and address != primary))


def _stored_host_ips(node: NodeObjects) -> tuple[str, ...]:
    primary = annotation(node.config, ANNOTATION_HOST_IP)
    several = annotation(node.config, ANNOTATION_HOST_IPS)
    if several is not None and several.split(",")[0] == primary:
        return tuple(several.split(","))
    return (primary,) if primary else ()


def _published(services: Iterable[Object]) -> Mapping[ListenerOf, frozenset[str]]:
    found: dict[ListenerOf, set[str]] = {}
    for service in services:
        with suppress(ValueError):  # reported where publications are planned
            for publication in publications_of(service):
                key = ListenerOf(publication.node_id, publication.listener)
                found.setdefault(key, set()).add(publication.address.host)
    return {key: frozenset(hosts) for key, hosts in found.items()}


@dataclass(slots=True)
class _Assigned:
    """What the Services for clients outside of Kubernetes were given, see `Facts`."""

    load_balancers: dict[ListenerOf, str] = field(default_factory=dict)
    node_ports: dict[ListenerOf, int] = field(default_factory=dict)
    node_hosts: dict[ListenerOf, str] = field(default_factory=dict)
    requested_ms: dict[ListenerOf, int] = field(default_factory=dict)
    ingress_hosts: dict[ListenerOf, Mapping[str, int | None]] = field(default_factory=dict)
    bootstrap_balancers: dict[BootstrapOf, str] = field(default_factory=dict)
    bootstrap_node_ports: dict[BootstrapOf, int] = field(default_factory=dict)


def _assigned(
    manifests: Manifests,
    services: Iterable[Object],
    host_ips: Mapping[int, Sequence[str]],
    configured: Mapping[int, Mapping[str, Address]],
) -> _Assigned:
    found = _Assigned()
    by_name = {service["metadata"]["name"]: service for service in services}
    listeners = ((pool, listener) for pool in manifests.brokers for listener in pool.spec.listeners)
    for pool, listener in listeners:
        name = pool.metadata.name
        for node_id in pool.spec.all_node_ids():
            service = by_name.get(exposure_name(name, node_id, listener.name))
            if service is None:
                continue
            key = ListenerOf(node_id, listener.name)
            advertised = configured.get(node_id, {}).get(listener.name)
            host = balancer_host(service, () if advertised is None else (advertised.host,))
            port = node_port(service, listener.name)
            node_host = host_address(host_ips.get(node_id, ()), service)
            requested_ms = time_ms(service["metadata"].get("creationTimestamp"))
            found.ingress_hosts[key] = stored_hosts(annotation(service, ANNOTATION_HOSTS))
            if host is not None:
                found.load_balancers[key] = host
            if port is not None:
                found.node_ports[key] = port
            if node_host is not None:
                found.node_hosts[key] = node_host
            if requested_ms is not None:
                found.requested_ms[key] = requested_ms
        bootstrap = by_name.get(exposure_bootstrap_name(name, listener.name))
        if bootstrap is not None:
            whole = BootstrapOf(name, listener.name)
            if (host := balancer_host(bootstrap)) is not None:
                found.bootstrap_balancers[whole] = host
            if (port := node_port(bootstrap, listener.name)) is not None:
                found.bootstrap_node_ports[whole] = port
    return found
