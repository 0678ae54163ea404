"""Which requests are those of nodes: they come before those of clients."""

from typing import Final

from quorate_protocol.kafka.apis import ApiKey
from quorate_protocol.kafka.extensions.controller_heartbeat_request import ControllerHeartbeatRequest

OF_NODES: Final = frozenset(
    {
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ControllerHeartbeatRequest.__api_key__,
    }
)
"""Requests that only nodes of the cluster send (CLUSTER_ACTION)."""
