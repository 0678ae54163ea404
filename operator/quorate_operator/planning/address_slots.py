"""Decides when addresses move from node to node, and in which order. A slot is one listener of one node.

A slot advertises at most one address, and an address belongs to one slot at a time. A slot moves from its `current`
address to its `wanted` one when that belongs to no other slot, which is one window after its owner left it. If slots
want each other's addresses, some move to an interim address, so that no move takes more than `WINDOWS_MAX` windows;
see ADR 13.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from quorate_operator.models.exposures import AddressVerification
from quorate_operator.models.listeners import BrokerListener
from quorate_operator.planning.cluster import (
    Address,
    DesiredCluster,
    DesiredNode,
    ObservedCluster,
    Publication,
)
from quorate_operator.planning.steps import Refusal

WINDOWS_MAX = 2
"""How many windows in a row a move may take. For a longer one, other slots move to interim addresses."""

_NEVER = 1_000_000
"""Windows until an address is left by a slot that stays."""


class SlotId(NamedTuple):
    node_id: int
    listener: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A listener of a desired node, with its present, wanted and interim address."""

    node: DesiredNode
    listener: str
    wanted: Address
    current: Address | None
    """What it advertises, or advertised when it last ran; None if that is unknown."""
    interim: Address | None

    @property
    def id(self) -> SlotId:
        return SlotId(self.node.node_id, self.listener)

    @property
    def is_anonymous(self) -> bool:
        """Whether a probe can't identify the node: clients log in with tokens alone."""
        return any(
            listener.has_tokens_alone for listener in self.node.listeners if listener.name == self.listener
        )

    @property
    def verification(self) -> AddressVerification:
        """How its addresses are verified."""
        return verification_of(self.node, self.listener)

    @property
    def is_exposed(self) -> bool:
        """Whether clients outside of Kubernetes use it."""
        return any(
            isinstance(listener, BrokerListener) and listener.exposure.type != "Internal"
            for listener in self.node.listeners
            if listener.name == self.listener
        )

    def controls(self, address: Address) -> bool:
        """Whether the runtime can point the address at nodes."""
        return address in self.node.controlled


def verification_of(node: DesiredNode, listener: str) -> AddressVerification:
    """Return how the addresses of a listener are verified; those of controllers are probed."""
    found = (
        own.exposure.verification
        for own in node.listeners
        if own.name == listener and isinstance(own, BrokerListener)
    )
    return next(found, None) or "Probe"


@dataclass(frozen=True, slots=True)
class Addresses:
    """Every address that is advertised or published, with its slots, as observed."""

    slots: Mapping[SlotId, Slot]
    advertised_by: Mapping[Address, frozenset[SlotId]]
    """By address, the slots that advertise it: in a process, a registration or the voter set."""
    publications: Mapping[Address, Publication]

    def owners(self, address: Address, apart_from: SlotId) -> frozenset[SlotId]:
        """Return the other slots that the address belongs to: they advertise it, or it points at them."""
        owners = set(self.advertised_by.get(address, ()))
        if publication := self.publications.get(address):
            owners.add(SlotId(publication.node_id, publication.listener))
        return frozenset(owners - {apart_from})

    def is_published(self, address: Address, slot: SlotId) -> bool:
        """Whether the address points at the slot, and is not retired."""
        publication = self.publications.get(address)
        return (
            publication is not None
            and SlotId(publication.node_id, publication.listener) == slot
            and publication.retired_at_ms is None
        )

    def advertises(self, address: Address, node_id: int) -> bool:
        """Whether clients are sent to the address for the node."""
        return any(slot.node_id == node_id for slot in self.advertised_by.get(address, ()))


@dataclass(frozen=True, slots=True)
class Moves:
    """The next address of each slot: the wanted one, the interim one, or none yet."""

    target: Mapping[SlotId, Address | None]
    """The address that the slot has or is to have next. None: it has none and may have none yet."""
    refused: frozenset[SlotId] = frozenset()
    refusals: tuple[Refusal, ...] = ()


def take_stock(desired: DesiredCluster, observed: ObservedCluster) -> Addresses:
    """Return the slots of desired nodes, and all addresses that belong to any node."""
    publications = {publication.address: publication for publication in observed.publications}
    advertised: dict[Address, set[SlotId]] = {}
    for slot_id, address in _known(observed):
        advertised.setdefault(address, set()).add(slot_id)
    recorded = _recorded(observed, advertised, publications)
    if observed.kafka is None:
        # Only the quorum knows whether clients still get it.
        for slot_id, address in recorded.items():
            advertised.setdefault(address, set()).add(slot_id)
    slots = {}
    for node in desired.nodes:
        current = _current(observed, node.node_id)
        for listener, wanted in node.advertised.items():
            slot_id = SlotId(node.node_id, listener)
            slots[slot_id] = Slot(
                node=node,
                listener=listener,
                wanted=wanted,
                current=current.get(listener, recorded.get(slot_id)),
                interim=node.interim.get(listener),
            )
    return Addresses(
        slots=slots,
        advertised_by={address: frozenset(by) for address, by in advertised.items()},
        publications=publications,
    )


def _known(observed: ObservedCluster) -> Iterable[tuple[SlotId, Address]]:
    """Yield every address that a process advertises or that is registered, ghosts included."""
    for node in observed.nodes.values():
        if node.state.runs:
            yield from _slots(node.node_id, node.configured)
    if observed.kafka is None:
        return
    for registration in observed.kafka.registrations.values():
        yield from _slots(registration.node_id, registration.endpoints)
    for voter in observed.kafka.quorum.voters.values():
        yield from _slots(voter.node_id, voter.endpoints)


def _recorded(
    observed: ObservedCluster,
    advertised: Mapping[Address, set[SlotId]],
    publications: Mapping[Address, Publication],
) -> Mapping[SlotId, Address]:
    """Return what nodes without a process were last started with, unless another slot has the address, too."""
    by_address: dict[Address, set[SlotId]] = {}
    for node in observed.nodes.values():
        if not node.state.runs:
            for slot_id, address in _slots(node.node_id, node.configured):
                by_address.setdefault(address, set()).add(slot_id)
    recorded = {}
    for address, recorded_by in by_address.items():
        owners = recorded_by | advertised.get(address, set())
        if publication := publications.get(address):
            owners.add(SlotId(publication.node_id, publication.listener))
        if len(owners) == 1:
            recorded[next(iter(owners))] = address
    return recorded


def _slots(node_id: int, endpoints: Mapping[str, Address]) -> Iterable[tuple[SlotId, Address]]:
    return ((SlotId(node_id, listener), address) for listener, address in endpoints.items())


def _current(observed: ObservedCluster, node_id: int) -> Mapping[str, Address]:
    """Return what the node advertises, or last advertised, by listener. Later sources override earlier ones."""
    own = [publication for publication in observed.publications if publication.node_id == node_id]
    # If several point at it, the oldest counts: later ones are for addresses that it will advertise.
    own.sort(key=lambda publication: -publication.since_ms)
    current = {
        publication.listener: publication.address for publication in own if publication.retired_at_ms is None
    }
    if observed.kafka is not None:
        if registration := observed.kafka.registrations.get(node_id):
            current |= registration.endpoints
        if voter := observed.kafka.quorum.voters.get(node_id):
            current |= voter.endpoints
    seen = observed.nodes.get(node_id)
    if seen is not None and seen.state.runs:
        current |= seen.configured
    return current


def next_moves(addresses: Addresses) -> Moves:
    return _Moving(addresses).moves()


@dataclass(slots=True)
class _Moving:
    """Computes the moves of one pass."""

    addresses: Addresses
    refusals: list[Refusal] = field(default_factory=list)
    refused: set[SlotId] = field(default_factory=set)
    breakers: set[SlotId] = field(default_factory=set)
    """Slots that break a cycle: they move to their interim address at once."""
    windows: dict[SlotId, int] = field(default_factory=dict)
    """By moving slot, how many windows pass before its wanted address is free."""
    coveted: frozenset[Address] = frozenset()
    """Addresses that a slot is to get and does not have."""

    def moves(self) -> Moves:
        self._refuse_duplicates()
        self.coveted = frozenset(slot.wanted for slot in self._moving())
        for slot_id in self._in_order():
            self.windows[slot_id] = self._windows_until_free(self.addresses.slots[slot_id])
        return Moves(
            target={slot.id: self._target(slot) for slot in self.addresses.slots.values()},
            refused=frozenset(self.refused),
            refusals=tuple(self.refusals),
        )

    def _moving(self) -> list[Slot]:
        return [
            slot
            for slot in self.addresses.slots.values()
            if slot.wanted != slot.current and slot.id not in self.refused
        ]

    def _refuse_duplicates(self) -> None:
        """Refuse an address of two slots, also as the interim address of one of them."""
        users: dict[Address, list[Slot]] = {}
        for slot in self.addresses.slots.values():
            for address in {slot.wanted, slot.interim} - {None}:
                assert address is not None
                users.setdefault(address, []).append(slot)
        for address, slots in users.items():
            if len(slots) == 1:
                continue
            self.refused |= {slot.id for slot in slots}
            names = " and ".join(f"{slot.node.label} ({slot.listener})" for slot in slots)
            self.refusals.append(
                Refusal(
                    code="AddressConflict",
                    message=f"{address} is the address of {names}: each needs one of its own; see "
                    "listeners[].advertisedHost, advertisedPort and interimHost, where {nodeId} makes names unique",
                )
            )

    def _in_order(self) -> list[SlotId]:
        """Return the moving slots, owners of wanted addresses first. Cycles are broken or refused."""
        moving = {slot.id: slot for slot in self._moving()}
        graph = {
            slot_id: {owner for owner in self._advertisers(slot) if owner in moving}
            for slot_id, slot in moving.items()
        }
        while True:
            try:
                return list(TopologicalSorter(graph).static_order())
            except CycleError as error:
                cycle = sorted(set(error.args[1]))
                breaker = next((place for place in cycle if self._can_step_aside(moving[place])), None)
                if breaker is not None:
                    self.breakers.add(breaker)
                    graph[breaker] = set()
                    continue
                self._refuse_cycle([moving[place] for place in cycle])
                for slot_id in cycle:
                    del graph[slot_id]
                for owners in graph.values():
                    owners.difference_update(cycle)

    def _advertisers(self, slot: Slot) -> list[SlotId]:
        """Return the slots that still advertise the wanted address of this one."""
        return [
            owner
            for owner in self.addresses.owners(slot.wanted, slot.id)
            if owner in self.addresses.slots and self.addresses.slots[owner].current == slot.wanted
        ]

    def _can_step_aside(self, slot: Slot) -> bool:
        return slot.interim is not None and not self.addresses.owners(slot.interim, slot.id)

    def _refuse_cycle(self, slots: list[Slot]) -> None:
        self.refused |= {slot.id for slot in slots}
        changes = ", ".join(f"{slot.node.label} {slot.current} -> {slot.wanted}" for slot in slots)
        listeners = ", ".join(sorted({slot.listener for slot in slots}))
        self.refusals.append(
            Refusal(
                code="InterimHostMissing",
                message=f"addresses are exchanged ({changes}), and a client may hold each of them for its old node: "
                f"set listeners[].interimHost of {listeners} to a name of each node's own, for instance with "
                "{nodeId} in it, which one node takes while the other gets its address",
            )
        )

    def _windows_until_free(self, slot: Slot) -> int:
        waits = [
            self._windows_until_left(owner, slot.wanted)
            for owner in self.addresses.owners(slot.wanted, slot.id)
        ]
        return max(waits, default=-1) + 1

    def _windows_until_left(self, owner_id: SlotId, address: Address) -> int:
        """Return the windows until the owner stops advertising the address, without the window after that."""
        owner = self.addresses.slots.get(owner_id)
        if owner is None:
            # It leaves, which may take long: counted like a slot that waits for a window itself.
            return 1 if owner_id in self.addresses.advertised_by.get(address, ()) else 0
        if owner.current != address or self._steps_aside(owner):
            return 0
        return self.windows.get(owner_id, _NEVER)

    def _steps_aside(self, slot: Slot) -> bool:
        """Whether the slot moves to its interim address now, because its address is to go to another slot."""
        if slot.id in self.breakers:
            return True
        windows = self.windows.get(slot.id, _NEVER)
        return WINDOWS_MAX <= windows < _NEVER and slot.current in self.coveted and self._can_step_aside(slot)

    def _target(self, slot: Slot) -> Address | None:
        if slot.wanted == slot.current or slot.id in self.refused:
            return slot.current
        if not self.addresses.owners(slot.wanted, slot.id):
            return slot.wanted
        if self._steps_aside(slot) or (slot.current is None and self._can_step_aside(slot)):
            return slot.interim
        return slot.current


def describe_slot(slot: SlotId, desired: DesiredCluster, observed: ObservedCluster) -> str:
    """Return `broker-2`, also for nodes that are not desired; `node 2` if nothing is known of the node."""
    for node in desired.nodes:
        if node.node_id == slot.node_id:
            return node.label
    seen = observed.nodes.get(slot.node_id)
    if seen is not None:
        return seen.label
    registrations = observed.kafka.registrations if observed.kafka else {}
    registration = registrations.get(slot.node_id)
    return registration.role.label(slot.node_id) if registration else f"node {slot.node_id}"
