"""Volumes are created, and grow to the size that their resource asks for. Pure.

Where volumes have sizes, `ObservedNode.volumes` has them. They never shrink. What can't be done is refused for the
pool, and its nodes run on with the volumes that they have. Volumes that are to be removed: see `volume_removal`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from quorate_operator.models.storage import METADATA_VOLUME
from quorate_operator.planning.cluster import (
    DesiredCluster,
    DesiredNode,
    ObservedCluster,
    ObservedVolume,
)
from quorate_operator.planning.part import Part, listed
from quorate_operator.planning.relocation import format_bytes
from quorate_operator.planning.steps import CreateVolume, GrowVolume, Refusal, WaitFor, wait_for

VOLUMES: Final = "storage.volumes"
"""The part of a revision with the ids of the volumes that a node uses; none for volume 0 alone."""


def volumes_revision(volume_ids: Iterable[int]) -> Mapping[str, str]:
    """Returns the part of the revision of a node that uses these volumes."""
    ids = sorted(volume_ids)
    return {} if ids == [METADATA_VOLUME] else {VOLUMES: ",".join(map(str, ids))}


def used_volumes(revision: Mapping[str, str]) -> frozenset[int]:
    """Returns the volumes that a process was started with, by its revision."""
    text = revision.get(VOLUMES) or str(METADATA_VOLUME)
    return frozenset(map(int, text.split(",")))


CANNOT_GROW = "VolumeCannotGrow"
"""The code of a refusal: the larger size can't be requested."""


def plan_volumes(desired: DesiredCluster, observed: ObservedCluster) -> Part:
    """Plans the volumes to create and to grow now, the waits for those that are growing, and refusals by pool."""
    planning = _Planning()
    for node in desired.nodes:
        seen = observed.nodes[node.node_id].volumes
        if METADATA_VOLUME not in seen:
            continue  # CreateNode creates them all
        for volume_id, asked_bytes in node.volumes.items():
            planning.plan(_Asked(node=node, volume_id=volume_id, bytes=asked_bytes), seen.get(volume_id))
    return Part(due=tuple(planning.due), rest=tuple(planning.rest), refusals=planning.refusals())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A volume that the manifests ask for."""

    node: DesiredNode
    volume_id: int
    bytes: int

    @property
    def _is_only(self) -> bool:
        return len(self.node.volumes) == 1

    @property
    def label(self) -> str:
        return (
            f"the volume of {self.node.label}"
            if self._is_only
            else f"{self.node.label}'s volume {self.volume_id}"
        )

    @property
    def field(self) -> str:
        return "storage.size" if self._is_only else f"storage.volumes: {self.volume_id}: size"

    @property
    def text(self) -> str:
        return format_bytes(self.bytes)


@dataclass(slots=True)
class _Planning:
    due: list[CreateVolume | GrowVolume] = field(default_factory=list)
    rest: list[WaitFor] = field(default_factory=list)
    refused: dict[tuple[str, Refusal], list[int]] = field(default_factory=dict)
    """The nodes by the field and what is refused for it: one refusal is for all of them."""

    def plan(self, asked: _Asked, seen: ObservedVolume | None) -> None:
        if seen is None or not seen.is_in_use:
            reason = f"storage.volumes has volume {asked.volume_id}"
            step = CreateVolume(node_id=asked.node.node_id, volume_id=asked.volume_id, reason=reason)
            self.due.append(step)
        elif seen.requested_bytes is not None:
            self._plan_size(asked, seen, seen.requested_bytes)

    def _plan_size(self, asked: _Asked, seen: ObservedVolume, requested_bytes: int) -> None:
        node_id = asked.node.node_id
        sizes = f"{format_bytes(requested_bytes)} -> {asked.text}"
        if requested_bytes > asked.bytes:
            message = (
                f"{asked.text} is less than the {format_bytes(requested_bytes)} that they have, and volumes only "
                "grow: set that size, or decommission the nodes for others with smaller volumes"
            )
            self._refuse(asked, "VolumeCannotShrink", message)
        elif requested_bytes == asked.bytes:
            self._await_growth(asked, seen, requested_bytes)
        elif seen.capacity_bytes is None:
            self.rest.append(wait_for(f"{asked.label} to exist before it grows, {sizes}", node_id))
        elif seen.refusal is not None:
            self._refuse(asked, CANNOT_GROW, f"they can't grow to {asked.text}: {seen.refusal}")
        else:
            reason = f"{asked.field} changed, {sizes}"
            self.due.append(GrowVolume(node_id=node_id, volume_id=asked.volume_id, reason=reason))

    def _await_growth(self, asked: _Asked, seen: ObservedVolume, requested_bytes: int) -> None:
        if not seen.is_growing:
            return
        assert seen.capacity_bytes is not None
        sizes = f"{format_bytes(seen.capacity_bytes)} -> {format_bytes(requested_bytes)}"
        progress = f" ({seen.progress})" if seen.progress else ""
        self.rest.append(wait_for(f"{asked.label} to grow, {sizes}{progress}", asked.node.node_id))

    def _refuse(self, asked: _Asked, code: str, message: str) -> None:
        refusal = Refusal(code, message, pool=asked.node.pool)
        self.refused.setdefault((asked.field, refusal), []).append(asked.node.node_id)

    def refusals(self) -> tuple[Refusal, ...]:
        """Returns one refusal for all volumes of a pool that are refused for the same reason."""
        return tuple(
            one._replace(message=f"{one.pool}: spec.{name}: volumes of {listed(node_ids)}: {one.message}")
            for (name, one), node_ids in self.refused.items()
        )
