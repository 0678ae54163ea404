"""The cluster as a whole: its nodes, groups and feature levels, and registrations of brokers."""

from collections.abc import Mapping, Sequence
from typing import Any

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import operations_of_bits

from quorate_admin.errors import ServerError
from quorate_admin.network.routing import To
from quorate_admin.network.transport import describe_cluster_request
from quorate_admin.operations.base import KeyedOperations
from quorate_admin.results import Results
from quorate_admin.types.cluster import (
    ClusterDescription,
    FeatureDescription,
    FeatureUpdate,
    GroupListing,
    NodeApiVersions,
    NodeDescription,
)

Listed = tuple[GroupListing, ...]


class ClusterOperations(KeyedOperations):
    """DescribeCluster, UnregisterBroker, ListGroups; ApiVersions and UpdateFeatures for feature levels."""

    async def describe_cluster(
        self,
        *,
        include_fenced_brokers: bool = False,
        include_authorized_operations: bool = False,
        timeout_ms: int | None = None,
    ) -> ClusterDescription:
        """The cluster with its brokers or, with bootstrap controllers, its controllers (DescribeCluster).

        `include_fenced_brokers` (KIP-1073) has no effect with bootstrap controllers.
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
        """Unregister a broker that is stopped for good (UnregisterBroker).

        Raises:
            AdminError: no node answered; ServerError BROKER_ID_NOT_REGISTERED if the broker is not registered.
        """
        from quorate_protocol.kafka.generated.unregister_broker_request import UnregisterBrokerRequest

        await self._ask(UnregisterBrokerRequest(broker_id=broker_id), timeout_ms=timeout_ms)

    # Feature levels (KIP-584, KIP-778, KIP-1022)

    async def describe_features(
        self, *, node_id: int | None = None, timeout_ms: int | None = None
    ) -> FeatureDescription:
        """Feature levels as the given node, or any node, reports them (ApiVersions)."""
        to = To.ANY if node_id is None else To.node(node_id)
        return api_versions_of(await self._api_versions(to, timeout_ms=timeout_ms)).features

    async def update_features(
        self,
        updates: Mapping[str, FeatureUpdate],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Change feature levels: all of them or none (UpdateFeatures version 2, KIP-1022).

        Raises:
            ServerError: the update was refused; the message names the first feature that can't be changed.
            AdminError: no node answered.
        """
        from quorate_protocol.kafka.generated.update_features_request import (
            FeatureUpdateKey,
            UpdateFeaturesRequest,
        )

        request = UpdateFeaturesRequest(
            timeout=self._server_timeout(timeout_ms),
            feature_updates=tuple(
                FeatureUpdateKey(
                    feature=name, max_version_level=update.max_level, upgrade_type=int(update.upgrade_type)
                )
                for name, update in updates.items()
            ),
            validate_only=validate_only,
        )
        await self._ask(request, timeout_ms=timeout_ms)

    # Groups: each broker lists those that it coordinates

    async def list_groups(self, *, timeout_ms: int | None = None) -> Listed:
        """The groups of all brokers that the client is allowed to see, sorted by id (ListGroups). Brokers only."""
        self._brokers_only("list_groups")
        from quorate_protocol.kafka.generated.list_groups_request import ListGroupsRequest

        async def ask(to: To, _: Sequence[int]) -> Results[int, Listed]:
            response = await self._ask(
                ListGroupsRequest(),
                to,
                failures=lambda response: [response.error_code],
                timeout_ms=timeout_ms,
            )
            return Results(
                {
                    to.node_id: tuple(
                        GroupListing(
                            group_id=group.group_id,
                            group_type=group.group_type,
                            protocol_type=group.protocol_type,
                            group_state=group.group_state,
                        )
                        for group in response.groups
                    )
                }
            )

        cluster = await self._ask(
            describe_cluster_request(is_to_controllers=False), To.ANY, timeout_ms=timeout_ms
        )
        if not cluster.brokers:
            raise ServerError(
                ErrorCode.broker_not_available, "the cluster has no broker that could coordinate groups"
            )
        results = await self._ask_nodes(
            {To.node(broker.broker_id): [broker.broker_id] for broker in cluster.brokers}, ask
        )
        results.raise_any()
        groups = {group.group_id: group for listed in results.values.values() for group in listed}
        return tuple(groups[group_id] for group_id in sorted(groups))


def _node(node: Any) -> NodeDescription:
    return NodeDescription(
        node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack, fenced=node.is_fenced
    )


def api_versions_of(response: Any) -> NodeApiVersions:
    """The data of an ApiVersions response."""
    return NodeApiVersions(
        api_versions={key.api_key: (key.min_version, key.max_version) for key in response.api_keys},
        supported_features={
            key.name: (key.min_version, key.max_version) for key in response.supported_features
        },
        finalized_features={key.name: key.max_version_level for key in response.finalized_features},
        finalized_features_epoch=response.finalized_features_epoch,
    )
