"""Finds the Kafka cluster of topics and users: the brokers of a cluster of Quorate's, or the servers of the spec."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from quorate_admin.config import Address, AdminConfig
from quorate_admin.errors import ConfigError
from quorate_admin.security.config import SecurityConfig

from quorate_operator.entities.users import SECRET_MISSING
from quorate_operator.gateway.node_clients import CLIENT_ID, REQUEST_TIMEOUT_MS, SecurityOf, admin_address
from quorate_operator.handlers.entities.statuses import Failure
from quorate_operator.handlers.resources import ResourceStore, claimed_node_ids, is_deleted, is_paused
from quorate_operator.handlers.selection import SPLIT_CLUSTER, is_selected, split_message
from quorate_operator.models.entities import EntitySpec
from quorate_operator.models.secrets import FOR_SERVERS, is_labelled, no_labelled_secret
from quorate_operator.models.selectors import EVERYTHING, LabelSelector
from quorate_operator.models.tenant_checks import entity_refusals
from quorate_operator.models.tenant_policy import DEFAULT_POLICY, TenantPolicy
from quorate_operator.planning.cluster import Address as NodeAddress
from quorate_operator.planning.cluster import DesiredCluster, Role
from quorate_operator.resources.secrets import described_secret
from quorate_operator.runtime.kubernetes.api import CONTROLLERS, SECRET, KubernetesApi, Object
from quorate_operator.runtime.kubernetes.infrastructure import KubernetesInfrastructure
from quorate_operator.security import client_security
from quorate_operator.web.snapshots import ClusterKey, SnapshotRegistry

API_TIMEOUT_MS = 20_000
"""Time limit for one answer, from any of the brokers."""

NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed"


class TargetKey(NamedTuple):
    """The Kafka cluster that resources name: `cluster` of a namespace, or `servers` as JSON."""

    namespace: str
    """The namespace of the cluster; for servers, of the resources."""
    cluster: str
    servers: str

    @classmethod
    def of(cls, body: Object) -> "TargetKey":
        """Return the target of a resource, also if the rest of the resource is invalid."""
        spec, namespace = body["spec"], body["metadata"]["namespace"]
        servers = {name: spec[name] for name in ("bootstrapServers", "security") if name in spec}
        text = json.dumps(servers, sort_keys=True) if servers else ""
        cluster = str(spec.get("cluster") or "")
        return cls(str(spec.get("clusterNamespace") or namespace) if cluster else namespace, cluster, text)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.cluster or self.servers}"

    @property
    def event_key(self) -> ClusterKey:
        """The cluster on whose status page Events of admitted resources are shown, in addition to Kubernetes."""
        return ClusterKey(self.namespace, self.cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """How to reach a cluster, or why it can't be reached now.

    `is_gone`: the cluster does not exist any more, so there is nothing to delete in it. `decommissioned` are brokers
    that get no replicas. `reserved` are principals that no resource may manage: super users, and logins of nodes and
    of the operator.
    """

    config: AdminConfig | None = None
    failure: Failure | None = None
    namespaces: frozenset[str] = frozenset()
    """The other namespaces whose resources may be in the cluster; `*` stands for all."""
    is_gone: bool = False
    is_secret_gone: bool = False
    """Whether the Secret of the login does not exist."""
    is_paused: bool = False
    decommissioned: frozenset[int] = frozenset()
    reserved: frozenset[str] = frozenset()
    addresses: Mapping[int, NodeAddress] = field(default_factory=dict)
    """The addresses of single brokers by broker id, as far as they are known."""

    def admits(self, namespace: str, key: "TargetKey") -> bool:
        """Whether resources of this namespace may be in the cluster."""
        return namespace == key.namespace or not {namespace, "*"}.isdisjoint(self.namespaces)


def not_admitted(namespace: str, key: TargetKey) -> Failure:
    """Return the failure of a resource in a namespace that the cluster does not list, if there is such a cluster."""
    message = (
        f"spec.clusterNamespace: {key.namespace!r}: there is no KafkaController {key.cluster} in that namespace with "
        f"{namespace!r} in its spec.entityNamespaces"
    )
    return Failure(code=NAMESPACE_NOT_ALLOWED, message=message, is_retried=False)


class Targets:
    """Finds targets for the operator of all namespaces."""

    def __init__(
        self,
        api: KubernetesApi,
        store: ResourceStore,
        snapshots: SnapshotRegistry,
        selector: LabelSelector = EVERYTHING,
        policy: TenantPolicy = DEFAULT_POLICY,
    ) -> None:
        self._api = api
        self._store = store
        self._snapshots = snapshots
        self._selector = selector
        self._policy = policy
        self._infrastructures: dict[ClusterKey, KubernetesInfrastructure] = {}

    def put(self, key: ClusterKey, infrastructure: KubernetesInfrastructure) -> None:
        """Store where the nodes of a cluster are."""
        self._infrastructures[key] = infrastructure

    def refusal_of(self, body: Object) -> str | None:
        """Return what the tenants' policy does not allow in a topic, user or rebalance, or None."""
        refused = entity_refusals(body.get("spec") or {}, self._policy)
        return "\n".join(map(str, refused)) or None

    async def find(self, key: TargetKey, spec: EntitySpec) -> Target:
        """Return the target of resources with this key, of which `spec` is one. Raises ApiError.

        No Secret is read, and no server is connected to, for a resource with a `refusal_of`.
        """
        if spec.cluster is not None:
            return await self._of_cluster(ClusterKey(key.namespace, spec.cluster))
        return await self._of_servers(key.namespace, spec)

    async def _of_servers(self, namespace: str, spec: EntitySpec) -> Target:
        values = None
        if spec.security is not None and spec.security.secret_name is not None:
            secret = await self._api.get(SECRET, namespace, spec.security.secret_name)
            if secret is None or not is_labelled(secret, FOR_SERVERS):
                where = "spec.security.secretName"
                message = no_labelled_secret(where, spec.security.secret_name, FOR_SERVERS)
                failure = Failure(code=SECRET_MISSING, message=message, is_retried=False)
                return Target(failure=failure, is_secret_gone=secret is None)
            values = described_secret(secret).values
            fault = spec.security.secret_fault(values)
            if fault is not None:
                failure = Failure(code=SECRET_MISSING, message=fault, is_retried=False)
                return Target(failure=failure)
        try:
            security = client_security(spec.security, values or {})
            addresses = tuple(
                Address.parse(bootstrap_server) for bootstrap_server in spec.bootstrap_servers or ()
            )
        except (ConfigError, ValueError) as error:
            message = f"spec.bootstrapServers, spec.security: {error}"
            return Target(failure=Failure(code="InvalidConnection", message=message, is_retried=False))
        reserved = {f"User:{security.sasl.username}"} if security.sasl is not None else set()
        return Target(config=_config(addresses, security), reserved=frozenset(reserved))

    async def _of_cluster(self, key: ClusterKey) -> Target:
        quorum = self._store.of_cluster(key).quorum
        if quorum is None:
            # Resources are seen in any order: one that was not seen yet is requested.
            quorum = await self._api.get(CONTROLLERS, key.namespace, key.name)
        target = self._of_quorum(key, quorum)
        namespaces = () if quorum is None else quorum["spec"].get("entityNamespaces", ())
        return replace(target, namespaces=frozenset(namespaces))

    def _of_quorum(self, key: ClusterKey, quorum: Object | None) -> Target:
        if quorum is not None and not is_selected(self._selector, quorum):
            message = split_message(self._selector, key, [quorum])
            # It passes when the labels have been changed: a resource comes to another operator with its cluster.
            return Target(failure=Failure(code=SPLIT_CLUSTER, message=message, is_retried=True))
        if quorum is None or is_deleted(quorum):
            self._infrastructures.pop(key, None)
            message = f"spec.cluster: {key.name!r}: no such KafkaController in {key.namespace}"
            return Target(
                failure=Failure(code="ClusterMissing", message=message, is_retried=False), is_gone=True
            )
        if quorum["spec"].get("state") == "Hibernated":
            return Target(
                failure=Failure(code="Hibernated", message="the cluster is hibernated", is_retried=True)
            )
        infrastructure, snapshot = self._infrastructures.get(key), self._snapshots.find(key)
        config = None
        addresses: Mapping[int, NodeAddress] = {}
        if infrastructure is not None and snapshot is not None and snapshot.desired is not None:
            addresses = _addresses_of_brokers(infrastructure, snapshot.desired)
            config = config_of_nodes(list(addresses.values()), infrastructure.security_of)
        if config is None:
            message = f"the cluster {key.name} has no broker yet"
            return Target(failure=Failure(code="NoBroker", message=message, is_retried=True))
        return Target(
            config=config,
            is_paused=is_paused(quorum),
            decommissioned=self._decommissioned(key),
            reserved=self._reserved(key, quorum),
            addresses=addresses,
        )

    def _reserved(self, key: ClusterKey, quorum: Object) -> frozenset[str]:
        super_users = quorum["spec"].get("authorization", {}).get("superUsers", ())
        bodies = (quorum, *self._store.of_cluster(key).pools.values())
        logins = (
            listener["sasl"]["username"]
            for body in bodies
            for listener in body["spec"].get("listeners", ())
            if "username" in listener.get("sasl", {})
        )
        return frozenset((*super_users, *(f"User:{login}" for login in logins)))

    def _decommissioned(self, key: ClusterKey) -> frozenset[int]:
        resources = self._store.of_cluster(key)
        named = (
            node_id for body in resources.pools.values() for node_id in body["spec"].get("decommission", ())
        )
        drained = (
            node_id for pool in resources.drained_pools for node_id in claimed_node_ids(resources.pools[pool])
        )
        return frozenset((*named, *drained))


def _addresses_of_brokers(
    infrastructure: KubernetesInfrastructure, desired: DesiredCluster
) -> dict[int, NodeAddress]:
    brokers = {node.node_id for node in desired.nodes_with_settings if node.role is Role.BROKER}
    contacts = infrastructure.contacts(desired)
    return {node_id: address for node_id, address in sorted(contacts.items()) if node_id in brokers}


def config_of_nodes(addresses: list[NodeAddress], security_of: SecurityOf) -> AdminConfig | None:
    """Return how to connect to those of these nodes that are secured like the first one; None without nodes.

    The names that certificates must have are merged: they differ by address, which is no difference in security.
    """
    secured = {address: security_of(address) or SecurityConfig() for address in addresses}
    alike: list[NodeAddress] = []
    names: dict[str, str] = {}
    for address, security in secured.items():
        if _without_names(security) == _without_names(secured[addresses[0]]):
            alike.append(address)
            names |= security.tls.names
    if not alike:
        return None
    first = secured[alike[0]]
    return _config(tuple(map(admin_address, alike)), replace(first, tls=replace(first.tls, names=names)))


def _without_names(security: SecurityConfig) -> SecurityConfig:
    return replace(security, tls=replace(security.tls, names={}))


def _config(addresses: tuple[Address, ...], security: SecurityConfig) -> AdminConfig:
    """Every request may go to any broker, which forwards what controllers decide: no other address is needed."""
    limits: dict[str, Any] = {
        "request_timeout_ms": REQUEST_TIMEOUT_MS,
        "default_api_timeout_ms": API_TIMEOUT_MS,
    }
    return AdminConfig(
        bootstrap_servers=addresses, client_id=CLIENT_ID, security=security, follow_advertised=False, **limits
    )
