"""Volumes grow to the size that their resource asks for. Pure.

Where volumes have sizes, `ObservedNode.volume` has them. They never shrink. What can't be done is refused for the
pool, and its nodes run on with the volumes that they have.
"""

from collections.abc import Iterable, Mapping, Sequence

from quorate_operator.planning.cluster import DesiredCluster, DesiredNode, ObservedCluster, ObservedVolume
from quorate_operator.planning.part import Part, listed
from quorate_operator.planning.relocation import format_bytes
from quorate_operator.planning.steps import GrowVolume, Refusal, WaitFor, wait_for


def plan_volumes(desired: DesiredCluster, observed: ObservedCluster) -> Part:
    """Plans the volumes to grow now, the waits for those that are growing, and refusals by pool."""
    due: list[GrowVolume] = []
    rest: list[WaitFor] = []
    refused: dict[Refusal, list[int]] = {}
    for node, volume in _sized(desired, observed):
        asked = node.volume_bytes or 0
        sizes = f"{format_bytes(volume.requested_bytes)} -> {format_bytes(asked)}"
        if volume.requested_bytes > asked:
            refused.setdefault(_shrink(node, volume), []).append(node.node_id)
        elif volume.requested_bytes == asked:
            rest += _growing(node, volume)
        elif volume.capacity_bytes is None:
            rest.append(
                wait_for(f"the volume of {node.label} to exist before it grows, {sizes}", node.node_id)
            )
        elif volume.refusal is not None:
            refused.setdefault(_cannot_grow(node, volume.refusal), []).append(node.node_id)
        else:
            due.append(GrowVolume(node_id=node.node_id, reason=f"storage.size changed, {sizes}"))
    return Part(due=tuple(due), rest=tuple(rest), refusals=_naming(refused))


def _sized(
    desired: DesiredCluster, observed: ObservedCluster
) -> Iterable[tuple[DesiredNode, ObservedVolume]]:
    for node in desired.nodes:
        volume = observed.nodes[node.node_id].volume
        if volume is not None and node.volume_bytes is not None:
            yield node, volume


def _growing(node: DesiredNode, volume: ObservedVolume) -> Iterable[WaitFor]:
    if not volume.is_growing:
        return ()
    assert volume.capacity_bytes is not None
    sizes = f"{format_bytes(volume.capacity_bytes)} -> {format_bytes(volume.requested_bytes)}"
    progress = f" ({volume.progress})" if volume.progress else ""
    return (wait_for(f"the volume of {node.label} to grow, {sizes}{progress}", node.node_id),)


def _shrink(node: DesiredNode, volume: ObservedVolume) -> Refusal:
    return Refusal(
        "VolumeCannotShrink",
        f"{format_bytes(node.volume_bytes or 0)} is less than the {format_bytes(volume.requested_bytes)} that they "
        "have, and volumes only grow: set that size, or decommission the nodes for others with smaller volumes",
        pool=node.pool,
    )


def _cannot_grow(node: DesiredNode, reason: str) -> Refusal:
    return Refusal(
        "VolumeCannotGrow",
        f"they can't grow to {format_bytes(node.volume_bytes or 0)}: {reason}",
        pool=node.pool,
    )


def _naming(refused: Mapping[Refusal, Sequence[int]]) -> tuple[Refusal, ...]:
    """Returns one refusal for all volumes of a pool that are refused for the same reason."""
    return tuple(
        one._replace(message=f"{one.pool}: spec.storage.size: volumes of {listed(node_ids)}: {one.message}")
        for one, node_ids in refused.items()
    )
