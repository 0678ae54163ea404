"""Advertised addresses: publishing new ones, restarts that advertise them, and withdrawing old ones. Pure.

When a node's address changes, the new one is published beside the old one, a probe finds the node there, the node
restarts with it, and the old one keeps pointing at the node for the pool's overlap. `address_slots` decides the order
when nodes take each other's addresses; ADR 13 has the reasons.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from quorate_operator.planning.address_slots import (
    Addresses,
    Moves,
    Slot,
    SlotId,
    describe_slot,
    next_moves,
    take_stock,
)
from quorate_operator.planning.address_verification import (
    ADDRESS_NOT_ASSIGNED,
    ADDRESS_NOT_VERIFIED,
    advice,
    fault_of,
    verification_wait,
    why_unverified,
)
from quorate_operator.planning.cluster import (
    Address,
    DesiredCluster,
    DesiredNode,
    NodeState,
    ObservedCluster,
    ObservedNode,
    Publication,
    Role,
    RolloutPolicy,
)
from quorate_operator.planning.steps import (
    PublishAddress,
    Refusal,
    RetireAddress,
    WaitFor,
    WithdrawAddress,
    wait_for,
)

LINGER_WINDOWS_MAX = 3
"""How many windows longer an old address stays while clients use it. Then they are cut and reconnect to the new one,
because they have fetched metadata since; otherwise no other node could ever have the address."""

AddressStep = PublishAddress | RetireAddress | WithdrawAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A running node needs a restart to advertise other addresses.

    `advertised` has every listener by name, also unchanged ones; `reason` says old -> new.
    """

    advertised: Mapping[str, Address]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressPlan:
    """The steps and waits about addresses.

    `steps` are due at once. They come before starts of the same nodes, because addresses are published before a
    node starts. The rollout orders restarts and starts: after each restart it waits until voter set and
    registration have the node's new addresses (`shows_new_addresses`).
    """

    steps: tuple[AddressStep, ...] = ()
    waits: tuple[WaitFor, ...] = ()
    """Waits of old and new addresses; no other steps wait for these."""
    refusals: tuple[Refusal, ...] = ()
    restarts: Mapping[int, Restart] = field(default_factory=dict)
    """Running nodes that are due for a restart because of their addresses."""
    start_with: Mapping[int, Mapping[str, Address]] = field(default_factory=dict)
    """For each desired node that may be started now, or restarted for any reason: `StartNode.advertised`."""
    held_back: Mapping[int, WaitFor] = field(default_factory=dict)
    """Stopped desired nodes that must not start yet, and why: their address still belongs to another node."""


def plan_addresses(desired: DesiredCluster, observed: ObservedCluster, now_ms: int) -> AddressPlan:
    addresses = take_stock(desired, observed)
    moves = next_moves(addresses)
    current = _Pass(desired, observed, now_ms, addresses, moves)
    for node in desired.nodes:
        current.plan_node(node)
    for publication in observed.publications:
        current.plan_old(publication)
    return AddressPlan(
        steps=tuple(current.steps),
        waits=tuple(current.waits),
        refusals=moves.refusals,
        restarts=current.restarts,
        start_with=current.start_with,
        held_back=current.held_back,
    )


def shows_new_addresses(observed: ObservedCluster, node_id: int) -> bool:
    """Whether voter set and registration have the addresses that the node's process advertises.

    True if neither is known: a node without a registration is not ready anyway.
    """
    seen = observed.nodes.get(node_id)
    if seen is None or observed.kafka is None:
        return True
    known = []
    if node_id in observed.kafka.registrations:
        known.append(observed.kafka.registrations[node_id].endpoints)
    if node_id in observed.kafka.quorum.voters:
        known.append(observed.kafka.quorum.voters[node_id].endpoints)
    return all(
        endpoints[listener] == address
        for endpoints in known
        for listener, address in seen.configured.items()
        if listener in endpoints
    )


def has_publications(observed: ObservedCluster, node_id: int) -> bool:
    """Whether addresses still point at the node; then it must not be forgotten yet."""
    return any(publication.node_id == node_id for publication in observed.publications)


@dataclass(slots=True)
class _Pass:
    """Plans one pass over all nodes and publications."""

    desired: DesiredCluster
    observed: ObservedCluster
    now_ms: int
    addresses: Addresses
    moves: Moves
    steps: list[AddressStep] = field(default_factory=list)
    waits: list[WaitFor] = field(default_factory=list)
    restarts: dict[int, Restart] = field(default_factory=dict)
    start_with: dict[int, Mapping[str, Address]] = field(default_factory=dict)
    held_back: dict[int, WaitFor] = field(default_factory=dict)

    def plan_node(self, node: DesiredNode) -> None:
        """Publish the node's next addresses, and decide whether it may restart or start with them."""
        seen = self.observed.nodes.get(node.node_id)
        slots = [self.addresses.slots[SlotId(node.node_id, listener)] for listener in node.advertised]
        self._publish(slots)
        without = [slot for slot in slots if self.moves.target[slot.id] is None]
        runs = seen is not None and seen.state.runs
        if without and not runs:
            self.held_back[node.node_id] = self._wait_until_free(without[0])
            return
        if seen is not None and self._is_unknown(node, seen, slots):
            reason = f"a leader of the quorum, to find the registered addresses of {node.label}"
            self.held_back[node.node_id] = wait_for(reason, node.node_id)
            return
        unassigned = {slot.id: wait for slot in slots if (wait := self._unassigned(slot)) is not None}
        first = [unassigned[slot.id] for slot in slots if slot.current is None and slot.id in unassigned]
        if first and not runs:
            self.held_back[node.node_id] = first[0]
            return
        self.waits += unassigned.values()
        if seen is not None and seen.state is NodeState.READY:
            self.waits += self._faults(slots)
        obstacles = {slot.id: self._obstacle(slot) for slot in slots if self._is_move(slot)}
        waiting = [wait for wait in obstacles.values() if wait is not None]
        nameless = [wait for slot in slots if slot.current is None and (wait := obstacles.get(slot.id))]
        if nameless and not runs:
            self.held_back[node.node_id] = nameless[0]
            return
        start_with = {}
        for slot in slots:
            target = self.moves.target[slot.id]
            address = slot.current if obstacles.get(slot.id) is not None else target
            if address is not None:
                start_with[slot.listener] = address
        self.start_with[node.node_id] = start_with
        self.waits += waiting
        self.waits += [
            self._wait_until_free(slot)
            for slot in slots
            if self.moves.target[slot.id] != slot.wanted and slot.id not in self.moves.refused
        ]
        if seen is not None and runs and seen.configured and obstacles and not waiting:
            self.restarts[node.node_id] = Restart(advertised=start_with, reason=self._reason(slots))

    def _is_unknown(self, node: DesiredNode, seen: ObservedNode, slots: Iterable[Slot]) -> bool:
        """Whether a broker that has run may have registered other addresses than the desired ones.

        Addresses that the runtime controls are known, because they are published. Without a leader the broker could
        not serve anyway.
        """
        return (
            node.role is Role.BROKER
            and self.observed.kafka is None
            and self.observed.formation is not None
            and self.observed.formation.is_formed
            and not seen.state.runs
            and any(slot.current is None and not slot.controls(slot.wanted) for slot in slots)
        )

    def _unassigned(self, slot: Slot) -> WaitFor | None:
        """Return the wait for what Kubernetes has to assign to the slot's address, or None.

        A node that has run keeps its address meanwhile; a new one would advertise one that its clients can't use.
        """
        missing = slot.node.unassigned.get(slot.listener)
        if missing is None:
            return None
        reason = f"{missing.what}, which {slot.node.label} is to advertise ({slot.listener})"
        return verification_wait(reason, slot, missing.since_ms, self.now_ms, code=ADDRESS_NOT_ASSIGNED)

    def _faults(self, slots: Iterable[Slot]) -> list[WaitFor]:
        """Return what is wrong with the addresses that the node advertises and keeps."""
        kept = (slot for slot in slots if not self._is_move(slot))
        found = (fault_of(slot, self.observed, self._cluster_id(), self.now_ms) for slot in kept)
        return [fault for fault in found if fault is not None]

    def _is_move(self, slot: Slot) -> bool:
        target = self.moves.target[slot.id]
        return target is not None and target != slot.current

    def _publish(self, slots: Iterable[Slot]) -> None:
        """Publish the current and the next address of each slot."""
        for slot in slots:
            for address in dict.fromkeys((slot.current, self.moves.target[slot.id])):
                if (
                    address is None
                    or not slot.controls(address)
                    or self.addresses.is_published(address, slot.id)
                ):
                    continue
                publication = self.addresses.publications.get(address)
                if publication is not None and (publication.node_id, publication.listener) != slot.id:
                    continue  # it is withdrawn from the other slot first
                why = "advertises it" if address == slot.current else "advertises it next"
                self.steps.append(
                    PublishAddress(
                        address=address,
                        node_id=slot.node.node_id,
                        listener=slot.listener,
                        reason=f"{slot.node.label} {why} ({slot.listener})",
                    )
                )

    def _obstacle(self, slot: Slot) -> WaitFor | None:
        """Return what keeps the slot from advertising its next address, which no other slot has, or None.

        An address that the runtime does not control must lead to the node also while the node is stopped: `probes`
        keeps the last verified node for a while. After that, the node starts with its old address and restarts once
        more.
        """
        address = self.moves.target[slot.id]
        assert address is not None
        seen = self.observed.nodes.get(slot.node.node_id)
        runs = seen is not None and seen.state.runs
        controlled = slot.controls(address)
        probe = self.observed.probes.get(address)
        is_silent = slot.verification == "Probe" and (probe is None or probe.node_id is None)
        if slot.is_anonymous and not runs:
            # A probe that can't identify the node is not stored: the node was reached before it was stopped.
            return None
        if (controlled and not runs) or (slot.current is None and (controlled or is_silent)):
            # Nothing listens yet that could be probed; a controlled address was published before the start.
            return None
        if controlled and not self.addresses.is_published(address, slot.id):
            return self._wait(slot, f"{address} to be published for {slot.node.label} ({slot.listener})")
        found = why_unverified(slot, address, self.observed, self._cluster_id())
        if found is None:
            return None
        reason = (
            f"{address} to reach {slot.node.label} of this cluster ({slot.listener}): {found}{advice(slot)}"
        )
        since_ms = probe.since_ms if probe is not None else None
        return verification_wait(reason, slot, since_ms, self.now_ms, code=ADDRESS_NOT_VERIFIED)

    def _cluster_id(self) -> str | None:
        if self.observed.kafka is not None:
            return self.observed.kafka.cluster_id
        return self.observed.formation.cluster_id if self.observed.formation else self.desired.cluster_id

    def _wait_until_free(self, slot: Slot) -> WaitFor:
        """Return the wait for the wanted address of the slot."""
        subject = f"{slot.wanted} to be free for {slot.node.label} ({slot.listener})"
        if slot.id in self.moves.refused:
            return self._wait(slot, f"{subject}: it is refused as the manifests stand")
        owners = sorted(self.addresses.owners(slot.wanted, slot.id))
        advertising = sorted(
            owner for owner in owners if self.addresses.advertises(slot.wanted, owner.node_id)
        )
        if advertising:
            names = ", ".join(describe_slot(owner, self.desired, self.observed) for owner in advertising)
            return self._wait(slot, f"{subject}: clients are sent there for {names}")
        names = ", ".join(describe_slot(owner, self.desired, self.observed) for owner in owners)
        return self._wait(slot, f"{subject}: it was the address of {names}, whose window has not ended")

    def _wait(self, slot: Slot, reason: str) -> WaitFor:
        return wait_for(reason, slot.node.node_id)

    def _reason(self, slots: Iterable[Slot]) -> str:
        changes = []
        for slot in slots:
            target = self.moves.target[slot.id]
            if not self._is_move(slot):
                continue
            change = f"{slot.listener} {slot.current or 'none'} -> {target}"
            if target != slot.wanted:
                change += f" (until {slot.wanted} is free)"
            changes.append(change)
        return f"its advertised address changes: {', '.join(changes)}"

    def plan_old(self, publication: Publication) -> None:
        """Retire an address that no node advertises or will advertise, and withdraw it after its window.

        A node registers its new address before it serves: a broker may recover its logs for longer than the window.
        Clients get the new address from nodes that serve, so the window begins, and ends, while the node is ready.
        """
        if self.observed.kafka is None or self._is_used(publication):
            # Without a leader it is unknown which addresses clients get.
            return
        address, node_id = publication.address, publication.node_id
        name = describe_slot(SlotId(node_id, publication.listener), self.desired, self.observed)
        if self._is_coming(node_id):
            self.waits.append(wait_for(f"{name} to be ready, before its old address {address} goes", node_id))
            return
        if publication.retired_at_ms is None:
            reason = f"{name} no longer advertises it"
            self.steps.append(RetireAddress(address=address, node_id=node_id, reason=reason))
            return
        if self._is_removed(publication):
            reason = f"{name} does not serve {publication.listener} any more"
            self.steps.append(WithdrawAddress(address=address, node_id=node_id, reason=reason))
            return
        overlap_ms = self._overlap_ms(node_id)
        window_ends_ms = publication.retired_at_ms + overlap_ms
        bound_ms = window_ends_ms + LINGER_WINDOWS_MAX * overlap_ms
        if self.now_ms < window_ends_ms:
            reason = f"the window of {address} to end, the old address of {name}"
            self.waits.append(wait_for(reason, node_id, until_ms=window_ends_ms))
        elif publication.connections and self.now_ms < bound_ms:
            reason = (
                f"clients to leave {address}, the old address of {name}: {publication.connections} connected"
            )
            self.waits.append(wait_for(reason, node_id, until_ms=bound_ms))
        else:
            used = f", though {publication.connections} clients use it" if publication.connections else ""
            reason = f"the window of {name}'s old address has passed{used}"
            self.steps.append(WithdrawAddress(address=address, node_id=node_id, reason=reason))

    def _is_removed(self, publication: Publication) -> bool:
        """Whether the node stays and has lost the listener: behind the address, nothing answers."""
        stays = any(node.node_id == publication.node_id for node in self.desired.nodes)
        return stays and SlotId(publication.node_id, publication.listener) not in self.addresses.slots

    def _is_coming(self, node_id: int) -> bool:
        """Whether the node stays in the cluster, and does not serve now."""
        seen = self.observed.nodes.get(node_id)
        stays = any(node.node_id == node_id for node in self.desired.nodes)
        return stays and (seen is None or seen.state is not NodeState.READY)

    def _is_used(self, publication: Publication) -> bool:
        """Whether the publication's node advertises the address, or will."""
        if self.addresses.advertises(publication.address, publication.node_id):
            return True
        slot = self.addresses.slots.get(SlotId(publication.node_id, publication.listener))
        return slot is not None and publication.address in (slot.current, self.moves.target[slot.id])

    def _overlap_ms(self, node_id: int) -> int:
        pools = {node.node_id: node.pool for node in self.desired.nodes}
        seen = self.observed.nodes.get(node_id)
        pool = pools.get(node_id, seen.pool if seen else "")
        if pool in self.desired.rollouts or not self.desired.rollouts:
            return self.desired.rollouts.get(pool, RolloutPolicy()).overlap_ms
        # The pool is unknown: the longest overlap of all.
        return max(policy.overlap_ms for policy in self.desired.rollouts.values())


def hosts_change(desired: DesiredCluster, nodes: Mapping[int, ObservedNode], pool: str | None = None) -> bool:
    """Whether a running broker, of this pool if one is named, does not advertise the desired addresses yet."""
    return any(
        seen.configured[listener] != address
        for node in desired.of_role(Role.BROKER)
        if pool in (None, node.pool) and (seen := nodes.get(node.node_id)) is not None and seen.state.runs
        for listener, address in node.advertised.items()
        if listener in seen.configured
    )
