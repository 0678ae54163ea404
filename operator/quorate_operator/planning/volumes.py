"""Volumes are created, grow to the size that their resource asks for, and are emptied and removed. Pure.

Where volumes have sizes, `ObservedNode.volumes` has them. They never shrink. What can't be done is refused for the
pool, and its nodes run on with the volumes that they have. A volume that is removed from brokers is, in turn:

    cordoned    the broker puts no new replicas into the directory (KIP-1066)
    emptied     its replicas move to the broker's other directories, some at a time (KIP-113)
    released    the next start of the broker, which the rollout brings, is without the volume
    deleted     or kept, by `storage.onDecommission`

Progress is read from what is observed: moves under way are in the broker's description of its directories, and what
was released is stored by the runtime. A volume that is asked for again is uncordoned, and created again if it was
released; replicas that were moved stay where they are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from quorate_protocol.features import CORDONED_DIRECTORIES_SINCE, METADATA_VERSION, metadata_version_name

from quorate_operator.models.storage import METADATA_VOLUME
from quorate_operator.placement.cluster import ObservedDirectory
from quorate_operator.placement.directories import empty_directories
from quorate_operator.planning.cluster import (
    DesiredCluster,
    DesiredNode,
    NodeState,
    ObservedCluster,
    ObservedNode,
    ObservedVolume,
    Role,
    RolloutPolicy,
    VolumePolicy,
)
from quorate_operator.planning.space import TOO_LITTLE_SPACE
from quorate_operator.planning.steps import (
    Action,
    CordonDirectories,
    CreateVolume,
    DeleteVolume,
    GrowVolume,
    MoveBetweenDirectories,
    Part,
    Refusal,
    ReleaseVolume,
    WaitFor,
    format_bytes,
    listed,
    merge,
    wait_for,
)

VOLUMES: Final = "storage.volumes"
"""The part of a revision with the ids of the volumes that a node uses; none for volume 0 alone."""


def volumes_revision(volume_ids: Iterable[int]) -> Mapping[str, str]:
    """Return the part of the revision of a node that uses these volumes."""
    ids = sorted(volume_ids)
    return {} if ids == [METADATA_VOLUME] else {VOLUMES: ",".join(map(str, ids))}


def used_volumes(revision: Mapping[str, str]) -> frozenset[int]:
    """Return the volumes that a process was started with, by its revision."""
    text = revision.get(VOLUMES) or str(METADATA_VOLUME)
    return frozenset(map(int, text.split(",")))


def loses_volumes(seen: ObservedNode) -> bool:
    """Whether the claims of a node are deleted, and go when its process ends. The first one is never released."""
    metadata = seen.volumes.get(METADATA_VOLUME)
    return metadata is not None and not metadata.is_in_use


def has_lost_volumes(seen: ObservedNode) -> bool:
    """Whether the machine with a node's volumes is gone, and nothing of the node can run there."""
    lost = seen.lost_volumes
    return lost is not None and lost.is_known and not lost.has_pod


CANNOT_GROW = "VolumeCannotGrow"
"""The code of a refusal: the larger size can't be requested."""


def plan_volumes(desired: DesiredCluster, observed: ObservedCluster) -> Part:
    """Plan the volumes to create and to grow now, the waits for those that are growing, and refusals by pool."""
    planning = _Planning()
    for node in desired.nodes:
        seen = observed.nodes[node.node_id]
        if METADATA_VOLUME not in seen.volumes or loses_volumes(seen):
            continue  # CreateNode creates them all
        for volume_id, asked_bytes in node.volumes.items():
            asked = _Asked(node=node, volume_id=volume_id, bytes=asked_bytes)
            planning.plan(asked, seen.volumes.get(volume_id))
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
        """Return one refusal for all volumes of a pool that are refused for the same reason."""
        return tuple(
            refusal._replace(
                message=f"{refusal.pool}: spec.{name}: volumes of {listed(node_ids)}: {refusal.message}"
            )
            for (name, refusal), node_ids in self.refused.items()
        )


def plan_volume_removal(desired: DesiredCluster, observed: ObservedCluster) -> Part:
    """Plan for the volumes of brokers that no manifest asks for any more."""
    return merge(
        _Removal(desired, observed, node, observed.nodes[node.node_id]).plan()
        for node in desired.of_role(Role.BROKER)
    )


def leaving_volumes(node: DesiredNode, seen: ObservedNode) -> dict[int, ObservedVolume]:
    """Return the volumes of a node that are to be removed and that its next start would use, by volume id."""
    return {
        volume_id: volume
        for volume_id, volume in sorted(seen.volumes.items())
        if volume_id != METADATA_VOLUME and volume_id not in node.volumes and volume.is_in_use
    }


@dataclass(slots=True)
class _Removal:
    desired: DesiredCluster
    observed: ObservedCluster
    node: DesiredNode
    seen: ObservedNode
    due: list[Action] = field(default_factory=list)
    rest: list[WaitFor] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    to_cordon: list[str] = field(default_factory=list)
    """Directories that leave and that the broker has."""

    def plan(self) -> Part:
        leaving = leaving_volumes(self.node, self.seen)
        if leaving:
            self._empty(leaving)
        self._cordon(leaving)
        self._delete()
        return Part(due=tuple(self.due), rest=tuple(self.rest), refusals=tuple(self.refusals))

    def _empty(self, leaving: Mapping[int, ObservedVolume]) -> None:
        kafka, used = self.observed.kafka, used_volumes(self.seen.revision)
        if self.seen.state is NodeState.READY:
            for volume_id in [volume_id for volume_id in leaving if volume_id not in used]:
                self._release(volume_id, "no process has used it")
        used_now = {volume_id: volume for volume_id, volume in leaving.items() if volume_id in used}
        if not used_now and self.seen.state is NodeState.READY:
            return
        directories = kafka.directories.get(self.node.node_id) if kafka is not None else None
        if kafka is None or directories is None or self.seen.state is not NodeState.READY:
            volume_ids = ", ".join(map(str, leaving))
            self._wait(
                f"{self.node.label} to be in service, so that its volume(s) {volume_ids} can be emptied"
            )
            return
        level = kafka.features.get(METADATA_VERSION, 0)
        if level < CORDONED_DIRECTORIES_SINCE:
            self._refuse(
                "MetadataVersionTooLow",
                f"volume(s) {', '.join(map(str, leaving))} can't be removed with {METADATA_VERSION} "
                f"{metadata_version_name(level)}: from {metadata_version_name(CORDONED_DIRECTORIES_SINCE)} on, "
                "directories can be cordoned (KIP-1066). Upgrade it, or list them again",
            )
            return
        # A broker refuses to cordon a directory that it does not have.
        self.to_cordon = [volume.directory for volume in used_now.values() if volume.directory in directories]
        targets, without_room = empty_directories(
            directories, {volume.directory for volume in used_now.values()}
        )
        if targets:
            reason = f"{len(targets)} replica(s) leave volumes that are removed from storage.volumes"
            self.due.append(MoveBetweenDirectories(node_id=self.node.node_id, targets=targets, reason=reason))
        for volume_id, volume in used_now.items():
            self._plan_directory(volume_id, directories.get(volume.directory))
        if without_room is not None:
            size_bytes = max(directory.replicas.get(without_room, 0) for directory in directories.values())
            self._refuse(
                TOO_LITTLE_SPACE,
                f"{without_room.topic}-{without_room.number} ({format_bytes(size_bytes)}) can't leave a removed "
                f"volume of {self.node.label}: no other volume has room for it; let one grow, or list the "
                "removed one again",
            )

    def _plan_directory(self, volume_id: int, directory: ObservedDirectory | None) -> None:
        what = f"volume {volume_id} of {self.node.label}"
        if directory is None:
            self._wait(f"{what} to be described by the broker")
        elif directory.error is not None:
            self._refuse(
                "VolumeFailed",
                f"{what} can't be emptied, because its directory is offline ({directory.error}): repair it and "
                "restart the broker, or decommission the broker",
            )
        elif not directory.is_cordoned:
            self._wait(f"{what} to be cordoned, before it is emptied")
        elif directory.replicas or directory.incoming:
            left = len(directory.replicas)
            self._wait(f"{what} to be emptied: {left} replica(s) left, {format_bytes(directory.used_bytes)}")
        else:
            self._release(volume_id, "it is empty")

    def _cordon(self, leaving: Mapping[int, ObservedVolume]) -> None:
        """Cordon directories that leave, uncordon those that stay, and forget those that the broker does not have.

        The operator does not cordon volume 0, and keeps a cordon that was set there by hand.
        """
        kafka, used = self.observed.kafka, used_volumes(self.seen.revision)
        if kafka is None or self.seen.state is not NodeState.READY or not self.seen.volumes:
            return
        present = kafka.cordoned.get(self.node.node_id, ())
        kept = {
            volume.directory
            for volume_id, volume in self.seen.volumes.items()
            if volume_id == METADATA_VOLUME
            or volume_id in leaving
            or (not volume.is_in_use and volume_id in used)
        }
        lacking = [path for path in self.to_cordon if path not in present]
        gone = [path for path in present if path not in kept]
        reasons = []
        if lacking:
            reasons.append(f"{', '.join(lacking)} is removed from storage.volumes, and gets no new replicas")
        if gone:
            reasons.append(f"{', '.join(gone)} is not to be removed, or is removed by now")
        if reasons:
            directories = (*(path for path in present if path in kept), *lacking)
            step = CordonDirectories(
                node_id=self.node.node_id, directories=directories, reason="; ".join(reasons)
            )
            self.due.append(step)

    def _release(self, volume_id: int, why: str) -> None:
        reason = f"it is removed from storage.volumes, and {why}"
        self.due.append(ReleaseVolume(node_id=self.node.node_id, volume_id=volume_id, reason=reason))

    def _delete(self) -> None:
        """Delete volumes that the broker has been started without, if its pool deletes volumes."""
        policy = self.desired.rollouts.get(self.node.pool, RolloutPolicy()).volumes
        if policy is not VolumePolicy.DELETE or self.seen.state is not NodeState.READY:
            return
        used = used_volumes(self.seen.revision)
        for volume_id, volume in self.seen.volumes.items():
            if not volume.is_in_use and volume_id not in used and volume_id not in self.node.volumes:
                reason = f"volume {volume_id} is removed from storage.volumes, and its pool deletes volumes"
                self.due.append(DeleteVolume(node_id=self.node.node_id, volume_id=volume_id, reason=reason))

    def _wait(self, reason: str) -> None:
        self.rest.append(wait_for(reason, self.node.node_id))

    def _refuse(self, code: str, message: str) -> None:
        self.refusals.append(Refusal(code, message, pool=self.node.pool))
