"""Operations on groups: listing them."""

from collections.abc import Sequence

from quorate_protocol.errors import ErrorCode

from quorate_admin.errors import ServerError
from quorate_admin.network.describe_cluster import describe_cluster_request
from quorate_admin.operations.base import To
from quorate_admin.operations.keyed import KeyedOperations
from quorate_admin.results import Results
from quorate_admin.types.groups import GroupListing

__all__ = ("GroupOperations",)

Listed = tuple[GroupListing, ...]


class GroupOperations(KeyedOperations):
    """Each broker knows the groups that it coordinates."""

    async def list_groups(self, *, timeout_ms: int | None = None) -> Listed:
        """The groups that the client may see, of all brokers, sorted by id (ListGroups).

        :raises AdminError: a broker gave no answer; UnsupportedEndpointError with bootstrap controllers.
        """
        self._brokers_only("list_groups")
        from kio.schema.list_groups.v5.request import ListGroupsRequest

        async def ask(to: To, _: Sequence[int]) -> Results[int, Listed]:
            response = await self._ask(
                ListGroupsRequest(), to, failures=lambda told: [told.error_code], timeout_ms=timeout_ms
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
            raise ServerError(ErrorCode.broker_not_available, "there is no broker that could know groups")
        results = await self._ask_nodes(
            {To.node(broker.broker_id): [broker.broker_id] for broker in cluster.brokers}, ask
        )
        results.raise_any()
        groups = {group.group_id: group for listed in results.values.values() for group in listed}
        return tuple(groups[group_id] for group_id in sorted(groups))
