"""Hosts that lead to a node through an ingress controller or a router: present ones, and former ones for the overlap.

An annotation of the listener's Service stores them, see `stored_hosts`. Pure.
"""

import json
from collections.abc import Iterator, Mapping

from pydantic import TypeAdapter

from quorate_operator.models.exposures import BY_HOST
from quorate_operator.models.listeners import BrokerListener
from quorate_operator.planning.cluster import (
    DesiredCluster,
    DesiredNode,
    NodeState,
    ObservedCluster,
    RolloutPolicy,
)
from quorate_operator.resources.facts import Context, IngressHosts, ListenerOf
from quorate_operator.resources.names import ANNOTATION_HOSTS
from quorate_operator.resources.pod_addresses import is_inside

_STORED = TypeAdapter(dict[str, int | None])


def ingress_hosts(
    context: Context, desired: DesiredCluster, observed: ObservedCluster, now_ms: int
) -> IngressHosts:
    """Return the hosts of each node's listener that lead to it, and when each was retired.

    A former host stays for the pool's overlap, which begins when the node is ready with another host and does not end
    while it is not ready. A host that another node is to have goes at once.
    """
    current = {
        ListenerOf(node.node_id, listener.name): frozenset(current_hosts(context, node, listener))
        for node in desired.nodes_with_settings
        for listener in node.listeners
        if isinstance(listener, BrokerListener) and listener.exposure.type in BY_HOST
    }
    taken = frozenset(host for hosts in current.values() for host in hosts)
    overlaps = {
        node.node_id: desired.rollouts.get(node.pool, RolloutPolicy()).overlap_ms
        for node in desired.nodes_with_settings
    }
    found = {}
    for key, hosts in current.items():
        seen = observed.nodes.get(key.node_id)
        serves = seen is not None and seen.state is NodeState.READY
        kept: dict[str, int | None] = dict.fromkeys(sorted(hosts))
        for host, retired_at_ms in sorted(context.facts.ingress_hosts.get(key, {}).items()):
            if host in taken:
                continue
            if retired_at_ms is None:
                kept[host] = now_ms if serves else None
            elif not serves or now_ms - retired_at_ms < overlaps[key.node_id]:
                kept[host] = retired_at_ms
        found[key] = kept
    return found


def current_hosts(context: Context, node: DesiredNode, listener: BrokerListener) -> Iterator[str]:
    """Yield the hosts that lead to a node: while it is renamed also the one that it still advertises."""
    configured = context.facts.configured.get(node.node_id, {})
    for reported in (node.advertised, node.interim, configured):
        if listener.name in reported and not is_inside(context, reported[listener.name].host):
            yield reported[listener.name].host


def hosts_annotation(hosts: Mapping[str, int | None]) -> dict[str, str]:
    """Return the annotation of the listener's Service that stores its hosts."""
    return {ANNOTATION_HOSTS: json.dumps(dict(hosts))}


def stored_hosts(text: str | None) -> Mapping[str, int | None]:
    """Return what `hosts_annotation` stored; nothing if it can't be read: the hosts of the manifest always lead."""
    if text is None:
        return {}
    try:
        return _STORED.validate_json(text, strict=True)
    except ValueError:
        return {}
