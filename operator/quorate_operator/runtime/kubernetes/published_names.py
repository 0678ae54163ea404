"""Names that the operator points at nodes: one Service each, which stores node and time."""

from collections.abc import Iterator
from dataclasses import replace

from quorate_operator import clock
from quorate_operator.planning.cluster import DesiredNode, Publication
from quorate_operator.planning.steps import PublishAddress, RetireAddress, StepError, WithdrawAddress
from quorate_operator.resources.facts import Context
from quorate_operator.resources.pod_addresses import published_name
from quorate_operator.resources.services import publications_of, published_service
from quorate_operator.runtime.kubernetes.api import SERVICE
from quorate_operator.runtime.kubernetes.objects import ClusterObjects


class PublishedNames:
    """The published names of one cluster."""

    def __init__(self, objects: ClusterObjects) -> None:
        self._objects = objects

    def all(self) -> Iterator[Publication]:
        for service in self._objects.of_kind(SERVICE):
            yield from publications_of(service)

    async def publish(self, context: Context, action: PublishAddress, node: DesiredNode) -> None:
        """Points a name at a node. Raises StepError while it points at another node, and ApiError."""
        name = published_name(context, action.address.host)
        if name is None:
            raise StepError(f"{action.address.host} is no name that can be published here")
        there = self._published(name)
        others = [one for one in there if one.node_id != node.node_id]
        if others:
            raise StepError(f"{action.address} still leads to node {others[0].node_id}")
        existing = self._objects.find(SERVICE, name)
        if existing is not None and not there:
            raise StepError(f"the Service {name} is there already, and is for something else")
        if any(one.address == action.address and one.retired_at_ms is None for one in there):
            return
        new = Publication(
            address=action.address, node_id=node.node_id, listener=action.listener, since_ms=clock.now_ms()
        )
        kept = [one for one in there if one.address != action.address]
        await self._objects.keep(published_service(context, node, [*kept, new]))

    async def change(
        self, context: Context, action: RetireAddress | WithdrawAddress, node: DesiredNode
    ) -> None:
        """Stores that an address is no longer advertised, or removes the address. Raises ApiError."""
        name = published_name(context, action.address.host)
        service = self._objects.find(SERVICE, name) if name else None
        there = self._published(name) if name else []
        mine = [one for one in there if one.address == action.address and one.node_id == action.node_id]
        if not mine or service is None:
            return
        left = [one for one in there if one not in mine]
        if isinstance(action, RetireAddress):
            if mine[0].retired_at_ms is not None:
                return
            left.append(replace(mine[0], retired_at_ms=clock.now_ms()))
        if not left:
            await self._objects.delete(SERVICE, service)
            return
        await self._objects.keep(published_service(context, node, left))

    def _published(self, name: str) -> list[Publication]:
        service = self._objects.find(SERVICE, name)
        return list(publications_of(service)) if service is not None else []
