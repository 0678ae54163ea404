"""Addresses of nodes: names that are published as Services, and how the operator connects to each address."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from quorate_admin.security.config import SecurityConfig

from quorate_operator import clock
from quorate_operator.models.listeners import Listener
from quorate_operator.planning.cluster import Address, DesiredCluster, DesiredNode, Publication
from quorate_operator.planning.steps import PublishAddress, RetireAddress, StepError, WithdrawAddress
from quorate_operator.resources.facts import Context
from quorate_operator.resources.names import node_host, pod_host
from quorate_operator.resources.pod_addresses import listener_port, published_name
from quorate_operator.resources.services import publications_of, published_service
from quorate_operator.runtime.kubernetes.api import SERVICE
from quorate_operator.runtime.kubernetes.objects import ClusterObjects
from quorate_operator.runtime.kubernetes.observation import NodeObjects, configured_of
from quorate_operator.security import security_config


class PublishedNames:
    """The published names of one cluster: a Service for each name, which stores node and time."""

    def __init__(self, objects: ClusterObjects) -> None:
        self._objects = objects

    def all(self) -> Iterator[Publication]:
        for service in self._objects.of_kind(SERVICE):
            yield from publications_of(service)

    async def publish(self, context: Context, action: PublishAddress, node: DesiredNode) -> None:
        """Point a name at a node. Raises StepError while it points at another node, and ApiError."""
        name = published_name(context, action.address.host)
        if name is None:
            raise StepError(f"{action.address.host} can't be published in this namespace")
        stored = self._published(name)
        others = [publication for publication in stored if publication.node_id != node.node_id]
        if others:
            raise StepError(f"{action.address} still leads to node {others[0].node_id}")
        existing = self._objects.find(SERVICE, name)
        if existing is not None and not stored:
            raise StepError(f"the Service {name} exists already, and publishes no address")
        if any(
            publication.address == action.address and publication.retired_at_ms is None
            for publication in stored
        ):
            return
        new = Publication(
            address=action.address, node_id=node.node_id, listener=action.listener, since_ms=clock.now_ms()
        )
        kept = [publication for publication in stored if publication.address != action.address]
        await self._objects.apply(published_service(context, node, [*kept, new]))

    async def change(
        self, context: Context, action: RetireAddress | WithdrawAddress, node: DesiredNode
    ) -> None:
        """Store that an address is no longer advertised, or remove the address. Raises ApiError."""
        name = published_name(context, action.address.host)
        service = self._objects.find(SERVICE, name) if name else None
        stored = self._published(name) if name else []
        found = next(
            (
                publication
                for publication in stored
                if publication.address == action.address and publication.node_id == action.node_id
            ),
            None,
        )
        if found is None or service is None:
            return
        left = [publication for publication in stored if publication != found]
        if isinstance(action, RetireAddress):
            if found.retired_at_ms is not None:
                return
            left.append(replace(found, retired_at_ms=clock.now_ms()))
        if not left:
            await self._objects.delete(SERVICE, service)
            return
        await self._objects.apply(published_service(context, node, left))

    def _published(self, name: str) -> list[Publication]:
        service = self._objects.find(SERVICE, name)
        return list(publications_of(service)) if service is not None else []


class SecuredAddresses:
    """How the operator connects to the addresses of one observation: to pods by address, to names by probes."""

    def __init__(self, context: Context, desired: DesiredCluster, nodes: Iterable[NodeObjects]) -> None:
        self._secrets = context.facts.secrets
        self._listeners: dict[Address, Listener] = {}
        self._names: dict[str, str] = {}
        """By the address of a pod, its name: certificates are for the names by which nodes connect to each other."""
        pools = {resource.metadata.name: resource.spec.listeners for resource in context.manifests.resources}
        if all(listener.protocol == "PLAINTEXT" for listeners in pools.values() for listener in listeners):
            return
        for node in desired.nodes_with_settings:
            for listener in node.listeners:
                self._put(listener, node.advertised, node.interim)
        likes = {node.pool: node for node in desired.nodes_with_settings}
        host_of = {node.node_id: node_host(context, node) for node in desired.nodes_with_settings}
        for objects in nodes:
            like = likes.get(objects.pool)
            host = (objects.pod or {}).get("status", {}).get("podIP")
            configured = configured_of(objects.pod or objects.config)
            for listener in pools.get(objects.pool, ()):
                self._put(listener, configured)
                if host and like is not None:
                    self._listeners[Address(host, listener_port(like, listener))] = listener
                    self._names[host] = host_of.get(objects.node_id) or pod_host(
                        context, objects.pool, objects.node_id
                    )

    def security_of(self, address: Address) -> SecurityConfig | None:
        """Return how the operator connects to an address; None if it is unknown, or not secured."""
        listener = self._listeners.get(address)
        if listener is None or listener.protocol == "PLAINTEXT":
            return None
        name = self._names.get(address.host)
        return security_config(listener, self._secrets, {} if name is None else {address.host: name})

    def _put(self, listener: Listener, *addresses: Mapping[str, Address]) -> None:
        for by_listener in addresses:
            if listener.name in by_listener:
                self._listeners[by_listener[listener.name]] = listener
