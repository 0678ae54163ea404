"""The addresses of a played cluster: which node each is pointed at, since when, and who uses it."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from quorate_operator.planning.cluster import Address, DesiredCluster, Publication
from quorate_operator.planning.steps import PublishAddress, RetireAddress, WithdrawAddress
from quorate_operator.runtime import clock
from quorate_operator.runtime.errors import StepError
from quorate_operator.runtime.forwarding import Forwarder

Keep = Callable[[tuple[Publication, ...]], None]
OwnAddress = Callable[[int, str], Address]
"""Where a node itself listens, by node id and listener name. Raises KeyError."""


class Publications:
    """Publishes, retires and withdraws addresses; `keep` writes down what holds from now on.

    A node's own address is published without a forwarder: the node listens there, and nobody else ever does.
    """

    def __init__(self, published: Iterable[Publication], own_address: OwnAddress, keep: Keep) -> None:
        self._published = {one.address: one for one in published}
        self._forwarders: dict[Address, Forwarder] = {}
        self._own_address = own_address
        self._keep = keep

    def current(self) -> tuple[Publication, ...]:
        """Every address that is pointed at a node."""
        return tuple(
            replace(one, connections=self._forwarders[address].connections)
            if address in self._forwarders
            else one
            for address, one in self._published.items()
        )

    def add_own(self, desired: DesiredCluster) -> None:
        """Count the own addresses that nodes advertise as published: they listen there as soon as they run."""
        own = own_publications(desired, self._own_address, clock.now_ms())
        missing = [one for one in own if one.address not in self._published]
        self._published.update({one.address: one for one in missing})
        if missing:
            self._write()

    async def resume(self) -> None:
        """Publish again what was published when the last supervisor ended. Raises PlayError."""
        for one in self._published.values():
            await self._open(one.address, self._own_address(one.node_id, one.listener))

    async def publish(self, action: PublishAddress) -> None:
        """Point an address at a node. Raises PlayError; StepError while it points at another node."""
        known = self._published.get(action.address)
        if known is not None and (known.node_id, known.listener) != (action.node_id, action.listener):
            raise StepError(f"{action.address} still points at node {known.node_id}, not {action.node_id}")
        try:
            target = self._own_address(action.node_id, action.listener)
        except KeyError:
            raise StepError(f"node {action.node_id} has no listener {action.listener}") from None
        await self._open(action.address, target)
        since_ms = known.since_ms if known is not None else clock.now_ms()
        self._published[action.address] = Publication(
            address=action.address, node_id=action.node_id, listener=action.listener, since_ms=since_ms
        )
        self._write()

    def retire(self, action: RetireAddress) -> None:
        """Write down that no node advertises the address any more."""
        known = self._of(action.address, action.node_id)
        if known is not None and known.retired_at_ms is None:
            self._published[action.address] = replace(known, retired_at_ms=clock.now_ms())
            self._write()

    async def withdraw(self, action: WithdrawAddress) -> None:
        """Let the address point at nobody; whoever is connected is sent away."""
        if self._of(action.address, action.node_id) is None:
            return
        forwarder = self._forwarders.pop(action.address, None)
        if forwarder is not None:
            await forwarder.close()
        del self._published[action.address]
        self._write()

    async def close(self) -> None:
        """End every listener. What is published stays written down."""
        forwarders, self._forwarders = self._forwarders, {}
        for forwarder in forwarders.values():
            await forwarder.close()

    def _of(self, address: Address, node_id: int) -> Publication | None:
        known = self._published.get(address)
        return known if known is not None and known.node_id == node_id else None

    async def _open(self, address: Address, target: Address) -> None:
        if address == target or address in self._forwarders:
            return
        forwarder = Forwarder(address, target)
        await forwarder.open()
        self._forwarders[address] = forwarder

    def _write(self) -> None:
        self._keep(tuple(self._published.values()))


def own_publications(
    desired: DesiredCluster, own_address: OwnAddress, now_ms: int
) -> tuple[Publication, ...]:
    """The addresses that nodes advertise and listen on themselves."""
    return tuple(
        Publication(address=address, node_id=node.node_id, listener=listener, since_ms=now_ms)
        for node in desired.nodes
        for listener, address in node.advertised.items()
        if address == own_address(node.node_id, listener)
    )
