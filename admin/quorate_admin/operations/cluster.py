"""The cluster, its nodes, and registrations of brokers."""

from typing import Any

from quorate_admin.network.describe_cluster import describe_cluster_request
from quorate_admin.operations.base import Operations, To
from quorate_admin.types.cluster import ClusterDescription, NodeDescription
from quorate_admin.types.operations import operations_of_bits


class ClusterOperations(Operations):
    """DescribeCluster and UnregisterBroker."""

    async def describe_cluster(
        self,
        *,
        include_fenced_brokers: bool = False,
        include_authorized_operations: bool = False,
        timeout_ms: int | None = None,
    ) -> ClusterDescription:
        """The cluster with its brokers or, where controllers are asked, its controllers (DescribeCluster).

        `include_fenced_brokers` (KIP-1073) has no meaning at controllers. Raises AdminError.
        """
        response = await self._ask(
            describe_cluster_request(
                is_to_controllers=self._to_controllers,
                include_authorized_operations=include_authorized_operations,
                include_fenced_brokers=include_fenced_brokers,
            ),
            To.ANY,
            failures=lambda response: [response.error_code],
            timeout_ms=timeout_ms,
        )
        return ClusterDescription(
            cluster_id=response.cluster_id,
            controller_id=response.controller_id,
            nodes=tuple(_node(node) for node in response.brokers),
            authorized_operations=operations_of_bits(response.cluster_authorized_operations),
        )

    async def unregister_broker(self, broker_id: int, *, timeout_ms: int | None = None) -> None:
        """Remove the registration of a broker that is stopped for good (UnregisterBroker). Raises AdminError.

        ServerError BROKER_ID_NOT_REGISTERED: there is none.
        """
        from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest

        await self._ask(UnregisterBrokerRequest(broker_id=broker_id), timeout_ms=timeout_ms)


def _node(node: Any) -> NodeDescription:
    return NodeDescription(
        node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack, fenced=node.is_fenced
    )
