"""Asks whether a node has a given id. No response of Kafka names the id of the node that sends it.

A node describes its own configuration only, and answers INVALID_REQUEST for the id of another node (DescribeConfigs).
"""

from collections.abc import Iterable
from typing import Any

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import ConfigResourceType


def node_question(node_ids: Iterable[int], keys: tuple[str, ...] = ("node.id",)) -> Any:
    """Return the canonical request that asks a node whether it has one of these ids, and for these configs."""
    from quorate_protocol.kafka.generated.describe_configs_request import (  # noqa: PLC0415 - tools that fail early do not need it
        DescribeConfigsRequest,
        DescribeConfigsResource,
    )

    return DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(
                # BROKER stands for controllers, too.
                resource_type=ConfigResourceType.BROKER,
                resource_name=str(node_id),
                configuration_keys=keys,
            )
            for node_id in sorted(set(node_ids))
        )
    )


def is_node(error_code: ErrorCode) -> bool | None:
    """Whether a node has an id, by the error code of the result for that id; None if the result does not say."""
    if error_code is ErrorCode.none:
        return True
    return False if error_code is ErrorCode.invalid_request else None
