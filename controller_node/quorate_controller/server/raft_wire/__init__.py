"""Translates between Kafka's raft messages on the wire and those of the raft core; pure.

On the wire side stand the message classes of the highest version that we speak (`quorate_protocol.wire` converts
from and to other versions); on the other side `quorate_controller.raft.messages`, which lack the nesting in
topics and partitions because there is only one partition.

A message about another topic or partition is refused here (`RefusedMessage`). Everything else, the cluster id
included, is checked by the raft core.
"""

from quorate_controller.server.raft_wire.requests import (
    RefusedMessage,
    request_from_wire,
    request_to_wire,
)
from quorate_controller.server.raft_wire.responses import (
    describe_quorum_to_wire,
    response_from_wire,
    response_to_wire,
)

__all__ = [
    "RefusedMessage",
    "describe_quorum_to_wire",
    "request_from_wire",
    "request_to_wire",
    "response_from_wire",
    "response_to_wire",
]
