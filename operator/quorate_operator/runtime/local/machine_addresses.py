"""Completes a desired cluster with what only this machine knows: addresses and revisions.

A node listens on 127.0.0.1 and a port of its own, which never changes. Other addresses in 127.0.0.0/8 lead there by a
forwarding listener. Other hosts are managed elsewhere: they are probed.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace

from quorate_operator.models.hosts import TemplateError, fill_host, template_values
from quorate_operator.models.listeners import BrokerListener
from quorate_operator.models.manifests import Manifests
from quorate_operator.models.v1alpha1 import KafkaBroker, KafkaController
from quorate_operator.planning.cluster import Address, DesiredCluster, DesiredNode, Role
from quorate_operator.planning.differences import Rendering
from quorate_operator.planning.logins import LOGIN
from quorate_operator.planning.volumes import VOLUMES, volumes_revision
from quorate_operator.renderings import rendered_properties, rendered_secrets
from quorate_operator.runtime.local.errors import PlayError
from quorate_operator.runtime.local.identity import ClusterIdentity
from quorate_operator.runtime.local.loopback import LOOPBACK, is_loopback
from quorate_operator.security import SecretFiles, node_properties, secret_revision

NAMESPACE = "local"
CONTROLLERS_KNOWN_MIN = 2
"""A node whose configuration has fewer of the present controllers is restarted with one that has all of them."""


def complete(manifests: Manifests, desired: DesiredCluster, identity: ClusterIdentity) -> DesiredCluster:
    """Return the desired cluster with addresses and revisions.

    Raises PlayError if two nodes would have the same address.
    """
    resources: list[KafkaController | KafkaBroker] = [manifests.controllers, *manifests.brokers]
    pools = {pool.metadata.name: pool for pool in resources}
    completed = replace(
        desired,
        nodes=tuple(_completed(node, pools[node.pool], manifests, identity) for node in desired.nodes),
    )
    _check_unique(completed, identity)
    return completed


def knows_controllers(known: frozenset[int], controllers: frozenset[int]) -> bool:
    """Whether a node whose configuration has the `known` controllers finds the quorum."""
    return len(known & controllers) >= min(CONTROLLERS_KNOWN_MIN, len(controllers))


def _completed(
    node: DesiredNode, pool: KafkaController | KafkaBroker, manifests: Manifests, identity: ClusterIdentity
) -> DesiredNode:
    cluster = manifests.controllers.metadata.name
    own = identity.nodes[node.node_id].own_addresses
    advertised = {}
    last = identity.nodes[node.node_id].advertised_last
    for listener in node.listeners:
        name = listener.name
        if name in node.withdrawn and name in last:
            advertised[name] = last[name]  # until it goes, it has the host that was removed with it
        else:
            advertised[name] = advertised_address(node, name, pool, cluster, own[name])
    interim = {name: own[name] for name, address in advertised.items() if address != own[name]}
    controllers = manifests.controllers_listener(node.controllers_listener)
    secured = node_properties(node, controllers, SecretFiles(root="", secrets=manifests.secrets))
    secrets = secret_revision(node, controllers, manifests.secrets)
    return replace(
        node,
        advertised=advertised,
        interim=interim,
        controlled=frozenset(
            address for address in (*advertised.values(), *interim.values()) if is_loopback(address)
        ),
        revision={
            # A node that was completed before may have had several volumes, and other listeners.
            **{
                part: value
                for part, value in node.revision.items()
                if part not in (VOLUMES, "secrets", LOGIN)
            },
            **_revision(node, manifests, identity, secured),
            **volumes_revision(identity.nodes[node.node_id].volumes),
            **secrets,
        },
        rendering=_rendering(node, controllers.name, secured, secrets),
    )


def advertised_address(
    node: DesiredNode, name: str, pool: KafkaController | KafkaBroker, cluster: str, own: Address
) -> Address:
    """Return what a listener advertises where it listens at `own`. Raises PlayError."""
    listener = next(listener for listener in node.listeners if listener.name == name)
    template = pool.spec.host_template(node.node_id, name)
    advertised_port = listener.advertised_port if isinstance(listener, BrokerListener) else None
    if template is None:
        port = own.port if listener.port is None else listener.port + node.place
        return Address(LOOPBACK, advertised_port or port)
    values = template_values(
        cluster=cluster,
        pool=node.pool,
        node_id=node.node_id,
        first=pool.spec.first_node_id,
        namespace=pool.metadata.namespace or NAMESPACE,
    )
    try:
        host = fill_host(template, values, f"{pool.kind} {node.pool}: advertisedHost of listener {name}")
    except TemplateError as error:
        raise PlayError(str(error)) from error
    return Address(host, advertised_port or listener.port or own.port)


def _revision(
    node: DesiredNode, manifests: Manifests, identity: ClusterIdentity, secured: Mapping[str, str]
) -> Mapping[str, str]:
    controllers = manifests.controllers_listener(node.controllers_listener)
    content = [
        sorted(node.config.items()),
        [(listener.name, listener.protocol) for listener in node.listeners],
        node.rack,
        [controllers.name, controllers.protocol],
        secured,
    ]
    return {
        "config": _digest(content),
        "implementation": str(node.implementation),
        "quorum": "dynamic" if identity.dynamic_quorum else "static",
        "controllers": "known",
    }


def _rendering(
    node: DesiredNode, controllers: str, secured: Mapping[str, str], secrets: Mapping[str, str]
) -> Rendering:
    config = {
        "listeners": ",".join(f"{listener.name}:{listener.protocol}" for listener in node.listeners),
        **({} if node.role is Role.CONTROLLER else {"controller.listener.names": controllers}),
        **({} if node.rack is None else {"broker.rack": node.rack}),
        **node.config,
        **secured,
    }
    return {
        "config": rendered_properties(config),
        "secrets": rendered_secrets(secrets.get("secrets", "{}")),
    }


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]


def _check_unique(desired: DesiredCluster, identity: ClusterIdentity) -> None:
    owners = {
        address: (node_id, name)
        for node_id, node in identity.nodes.items()
        for name, address in node.own_addresses.items()
    }
    for node in desired.nodes:
        for name, address in node.advertised.items():
            owner = owners.setdefault(address, (node.node_id, name))
            if owner != (node.node_id, name):
                other = f"{identity.label(owner[0])}, listener {owner[1]}"
                raise PlayError(
                    f"{node.label}: listener {name}: {address} is the address of {other} already; "
                    "give each node a host of its own in 127.0.0.0/8, other than 127.0.0.1, or other ports"
                )
