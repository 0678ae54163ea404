"""The DescribeCluster request, which several ask: to know the nodes, the cluster, or who is there."""

from typing import Any, Final

_OF_BROKERS: Final = 1
_OF_CONTROLLERS: Final = 2


def describe_cluster_request(
    *,
    is_to_controllers: bool,
    include_authorized_operations: bool = False,
    include_fenced_brokers: bool = False,
) -> Any:
    """The canonical request, for the kind of nodes that is asked (KIP-700, KIP-919).

    Controllers are asked for controllers; `include_fenced_brokers` (KIP-1073) has no meaning there.
    """
    from kio.schema.describe_cluster.v2.request import (  # noqa: PLC0415 - tools that fail early need none
        DescribeClusterRequest,
    )

    return DescribeClusterRequest(
        include_cluster_authorized_operations=include_authorized_operations,
        endpoint_type=_OF_CONTROLLERS if is_to_controllers else _OF_BROKERS,
        include_fenced_brokers=include_fenced_brokers and not is_to_controllers,
    )
