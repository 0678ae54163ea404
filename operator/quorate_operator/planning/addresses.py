"""Advertised addresses: what is published, who restarts to advertise what, and when an old address is let go. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from quorate_operator.planning.cluster import (
    Address,
    DesiredCluster,
    ObservedCluster,
    ObservedNode,
    Publication,
)
from quorate_operator.planning.steps import PublishAddress, Refusal, RetireAddress, WaitFor, WithdrawAddress

AddressStep = PublishAddress | RetireAddress | WithdrawAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A running node is due for a restart: it is to advertise other addresses.

    `advertised` has every listener, by name, also those that stay as they are; `reason` says old -> new.
    """

    advertised: Mapping[str, Address]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressPlan:
    """What is to be done about addresses.

    `steps` are due at once, whatever else is under way, and stand in front of starts of the same nodes: a node's
    addresses are published before it starts. Restarts and starts are for the rollout to order: it waits after each
    restart until voter set and registration show what the node was started with (`shows_new_addresses`).
    """

    steps: tuple[AddressStep, ...] = ()
    waits: tuple[WaitFor, ...] = ()
    """What old and new addresses wait for; nothing but addresses waits for these."""
    refusals: tuple[Refusal, ...] = ()
    restarts: Mapping[int, Restart] = field(default_factory=dict)
    """Running nodes that are due for a restart because of their addresses."""
    start_with: Mapping[int, Mapping[str, Address]] = field(default_factory=dict)
    """For each desired node that may be started now, or restarted for any reason: `StartNode.advertised`."""
    held_back: Mapping[int, WaitFor] = field(default_factory=dict)
    """Desired nodes that do not run and must not be started yet, and why: their address is another node's still."""


def plan_addresses(desired: DesiredCluster, observed: ObservedCluster, now_ms: int) -> AddressPlan:
    """What is due for the addresses that nodes advertise."""
    del observed, now_ms
    return AddressPlan(start_with={node.node_id: node.advertised for node in desired.nodes})


def shows_new_addresses(observed: ObservedCluster, node_id: int) -> bool:
    """Whether voter set and registration have what the node's process advertises.

    True where nobody can tell: a node without registration is not waited for here, but as one that is not ready.
    """
    seen = observed.nodes.get(node_id)
    if seen is None or observed.kafka is None:
        return True
    told = []
    if node_id in observed.kafka.registrations:
        told.append(observed.kafka.registrations[node_id].endpoints)
    if node_id in observed.kafka.quorum.voters:
        told.append(observed.kafka.quorum.voters[node_id].endpoints)
    return all(
        endpoints[listener] == address
        for endpoints in told
        for listener, address in seen.configured.items()
        if listener in endpoints
    )


def has_publications(observed: ObservedCluster, node_id: int) -> bool:
    """Whether addresses point at the node still: then its record must stay, and it is not forgotten yet."""
    return any(publication.node_id == node_id for publication in observed.publications)


def addresses_to_probe(
    desired: DesiredCluster, nodes: Mapping[int, ObservedNode], publications: tuple[Publication, ...]
) -> frozenset[Address]:
    """The addresses whose `Reached` the plan asks for: those that no running node advertises yet, but one is to."""
    published = {publication.address for publication in publications if publication.retired_at_ms is None}
    asked: set[Address] = set()
    for node in desired.nodes:
        seen = nodes.get(node.node_id)
        if seen is None or not seen.state.runs:
            continue
        configured = seen.configured
        asked |= {address for name, address in node.advertised.items() if configured.get(name) != address}
        asked |= {
            address
            for name, address in node.interim.items()
            if configured.get(name) != address
            and configured.get(name) != node.advertised.get(name)
            and (address in published or address not in node.controlled)
        }
    return frozenset(asked)
