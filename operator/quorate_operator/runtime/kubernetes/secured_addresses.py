"""How the operator connects to each address of a cluster's nodes: to pods by their addresses, to names by probes."""

from collections.abc import Iterable, Mapping

from quorate_admin.security.config import SecurityConfig

from quorate_operator.models.listeners import Listener
from quorate_operator.planning.cluster import Address, DesiredCluster
from quorate_operator.resources.facts import Context
from quorate_operator.resources.names import pod_host
from quorate_operator.resources.pod_addresses import listener_port
from quorate_operator.runtime.kubernetes.observation import NodeObjects, configured_of
from quorate_operator.security import security_config


class SecuredAddresses:
    """The listeners at the addresses that nodes had at one look."""

    def __init__(self, context: Context, desired: DesiredCluster, nodes: Iterable[NodeObjects]) -> None:
        self._secrets = context.facts.secrets
        self._listeners: dict[Address, Listener] = {}
        self._names: dict[str, str] = {}
        """By the address of a pod, its name: certificates are for the names by which nodes connect to each other."""
        pools = {resource.metadata.name: resource.spec.listeners for resource in context.manifests.resources}
        if all(one.protocol == "PLAINTEXT" for listeners in pools.values() for one in listeners):
            return
        for node in desired.nodes_with_settings:
            for listener in node.listeners:
                self._put(listener, node.advertised, node.interim)
        likes = {node.pool: node for node in desired.nodes_with_settings}
        for objects in nodes:
            like = likes.get(objects.pool)
            host = (objects.pod or {}).get("status", {}).get("podIP")
            configured = configured_of(objects.pod or objects.config)
            for listener in pools.get(objects.pool, ()):
                self._put(listener, configured)
                if host and like is not None:
                    self._listeners[Address(host, listener_port(like, listener))] = listener
                    self._names[host] = pod_host(context, objects.pool, objects.node_id)

    def security_of(self, address: Address) -> SecurityConfig | None:
        """Returns how the operator connects to an address; None if it is not known there, or not secured."""
        listener = self._listeners.get(address)
        if listener is None or listener.protocol == "PLAINTEXT":
            return None
        name = self._names.get(address.host)
        return security_config(listener, self._secrets, {} if name is None else {address.host: name})

    def _put(self, listener: Listener, *addresses: Mapping[str, Address]) -> None:
        for one in addresses:
            if listener.name in one:
                self._listeners[one[listener.name]] = listener
