"""The settings of single nodes of a pool: ids, implementations, racks, hosts."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Annotated, Literal, Protocol

from pydantic import Field

from quorate_operator.models.base import Model, NodeId, Text, rules
from quorate_operator.models.hosts import Host

AdvertisedHosts = Annotated[dict[Text, Host], Field(max_length=8)]

_FIRST_IS_FIXED = {
    "rule": "self == oldSelf",
    "message": "can't be changed: nodes keep their ids; decommission nodes instead",
}


class NodeIds(Model):
    """The range that a pool takes its node ids from: `first`, `first + 1`, ..."""

    first: NodeId = Field(
        description="The first node id. It can't be changed.", json_schema_extra=rules(_FIRST_IS_FIXED)
    )


class ControllerNode(Model):
    """Settings of one controller; `implementation` is for mixed quorums and migrations."""

    node_id: NodeId = Field(description="The node id of the controller.")
    implementation: Literal["python", "java"] = Field(
        default="python", description="The implementation: Quorate's controller, or stock Apache Kafka."
    )
    advertised_hosts: AdvertisedHosts = Field(
        default_factory=dict, description="Advertised hosts by listener name, instead of the template's."
    )


class BrokerNode(Model):
    """Settings of one broker."""

    node_id: NodeId = Field(description="The node id of the broker.")
    rack: Annotated[str, Field(min_length=1, max_length=253)] | None = Field(
        default=None, description="Its broker.rack. Replicas of a partition are spread over racks."
    )
    advertised_hosts: AdvertisedHosts = Field(
        default_factory=dict, description="Advertised hosts by listener name, instead of the template's."
    )


class Node(Protocol):
    """What `ControllerNode` and `BrokerNode` have in common."""

    @property
    def node_id(self) -> int: ...
    @property
    def advertised_hosts(self) -> dict[str, str]: ...


def own_host(nodes: Sequence[Node], node_id: int, listener: str) -> str | None:
    """Return the host that the manifest sets for a listener of this node alone, or None."""
    hosts: Iterator[str | None] = (
        node.advertised_hosts.get(listener) for node in nodes if node.node_id == node_id
    )
    return next(hosts, None)


BLOCK = 1000
"""As many as a pool may have brokers, so that growing pools do not overlap."""


def first_node_id(own: Iterable[int], others: Iterable[int]) -> int:
    """Return the first node id of a pool.

    `own` are the pool's known ids: those that its manifest names, or those of nodes that it had. `others` are the ids
    of the cluster's other nodes.
    """
    lowest = min(own, default=None)
    if lowest is not None:
        return lowest // BLOCK * BLOCK
    taken = {node_id // BLOCK for node_id in others}
    return next(block for block in count() if block not in taken) * BLOCK
