"""Node ids for pools whose manifests name none: a block of a thousand without any other node of the cluster."""

from collections.abc import Iterable
from itertools import count

BLOCK = 1000
"""As many as a pool may have brokers, so that growing pools do not overlap."""


def first_node_id(own: Iterable[int], others: Iterable[int]) -> int:
    """Returns the first node id of a pool.

    `own` are the pool's known ids: those that its manifest names, or those of nodes that it had. `others` are the ids
    of the cluster's other nodes.
    """
    lowest = min(own, default=None)
    if lowest is not None:
        return lowest // BLOCK * BLOCK
    taken = {node_id // BLOCK for node_id in others}
    return next(block for block in count() if block not in taken) * BLOCK
