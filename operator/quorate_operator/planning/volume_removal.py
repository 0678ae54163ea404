"""Volumes that were removed from a pool of brokers: emptied, left out at the next start, deleted by policy. Pure.

    cordoned    the broker puts no new replicas into the directory (KIP-1066)
    emptied     its replicas move to the broker's other directories, some at a time (KIP-113)
    released    the next start of the broker, which the rollout brings, is without the volume
    deleted     or kept, by `storage.onDecommission`

Progress is read from what is observed: moves under way are in the broker's description of its directories, and what
was released is stored by the runtime. A volume that is asked for again is uncordoned, and created again if it was
released; replicas that were moved stay where they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from quorate_protocol.features import CORDONED_DIRECTORIES_SINCE, METADATA_VERSION, metadata_version_name

from quorate_operator.models.storage import METADATA_VOLUME
from quorate_operator.planning.cluster import (
    DesiredCluster,
    DesiredNode,
    NodeState,
    ObservedCluster,
    ObservedDirectory,
    ObservedNode,
    ObservedVolume,
    PartitionId,
    Role,
    RolloutPolicy,
    VolumePolicy,
)
from quorate_operator.planning.part import Part, merge
from quorate_operator.planning.relocation import IN_FLIGHT_BYTES_MAX, format_bytes
from quorate_operator.planning.steps import (
    Action,
    CordonDirectories,
    DeleteVolume,
    MoveReplicas,
    Refusal,
    ReleaseVolume,
    WaitFor,
    wait_for,
)
from quorate_operator.planning.volumes import used_volumes

IN_FLIGHT_MAX = 10
"""How many replicas move at once between the directories of one broker."""


def plan_volume_removal(desired: DesiredCluster, observed: ObservedCluster) -> Part:
    """Plans for the volumes of brokers that no manifest asks for any more."""
    return merge(
        _Removal(desired, observed, node, observed.nodes[node.node_id]).plan()
        for node in desired.of_role(Role.BROKER)
    )


def leaving_volumes(node: DesiredNode, seen: ObservedNode) -> dict[int, ObservedVolume]:
    """Returns the volumes of a node that are to be removed and that its next start would use, by volume id."""
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
            for volume_id in [one for one in leaving if one not in used]:
                self._release(volume_id, "no process has used it")
        used_now = {volume_id: one for volume_id, one in leaving.items() if volume_id in used}
        if not used_now and self.seen.state is NodeState.READY:
            return
        directories = kafka.directories.get(self.node.node_id) if kafka is not None else None
        if kafka is None or directories is None or self.seen.state is not NodeState.READY:
            listed = ", ".join(map(str, leaving))
            self._wait(f"{self.node.label} to be in service, so that its volume(s) {listed} can be emptied")
            return
        level = kafka.features.get(METADATA_VERSION, 0)
        if level < CORDONED_DIRECTORIES_SINCE:
            self._refuse(
                "MetadataVersionTooLow",
                f"volume(s) {', '.join(map(str, leaving))} can't be removed with {METADATA_VERSION} "
                f"{metadata_version_name(level)}: from {metadata_version_name(CORDONED_DIRECTORIES_SINCE)} on, "
                "brokers can be told to put no new replicas into a directory. Upgrade it, or list them again",
            )
            return
        # A broker refuses to cordon a directory that it does not have.
        self.to_cordon = [one.directory for one in used_now.values() if one.directory in directories]
        moves = _Moves(directories, {one.directory for one in used_now.values()})
        targets = moves.choose()
        if targets:
            reason = f"{len(targets)} replica(s) leave volumes that are removed from storage.volumes"
            self.due.append(MoveReplicas(node_id=self.node.node_id, targets=targets, reason=reason))
        for volume_id, volume in used_now.items():
            self._plan_directory(volume_id, directories.get(volume.directory))
        if moves.without_room is not None:
            partition, size_bytes = moves.without_room
            self._refuse(
                "TooLittleSpace",
                f"{partition.topic}-{partition.number} ({format_bytes(size_bytes)}) can't leave a removed volume of "
                f"{self.node.label}: no other volume has room for it; let one grow, or list the removed one again",
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
        """Cordons directories that leave, uncordons those that stay, and forgets those that the broker does not have.

        The operator cordons no volume 0: somebody who does keeps it.
        """
        kafka, used = self.observed.kafka, used_volumes(self.seen.revision)
        if kafka is None or self.seen.state is not NodeState.READY or not self.seen.volumes:
            return
        present = kafka.cordoned.get(self.node.node_id, ())
        kept = {
            one.directory
            for volume_id, one in self.seen.volumes.items()
            if volume_id == METADATA_VOLUME
            or volume_id in leaving
            or (not one.is_in_use and volume_id in used)
        }
        lacking = [one for one in self.to_cordon if one not in present]
        gone = [one for one in present if one not in kept]
        reasons = []
        if lacking:
            reasons.append(f"{', '.join(lacking)} is removed from storage.volumes, and gets no new replicas")
        if gone:
            reasons.append(f"{', '.join(gone)} is not to be removed, or is removed by now")
        if reasons:
            directories = (*(one for one in present if one in kept), *lacking)
            step = CordonDirectories(
                node_id=self.node.node_id, directories=directories, reason="; ".join(reasons)
            )
            self.due.append(step)

    def _release(self, volume_id: int, why: str) -> None:
        reason = f"it is removed from storage.volumes, and {why}"
        self.due.append(ReleaseVolume(node_id=self.node.node_id, volume_id=volume_id, reason=reason))

    def _delete(self) -> None:
        """Deletes volumes that the broker has been started without, if its pool deletes volumes."""
        policy = self.desired.rollouts.get(self.node.pool, RolloutPolicy()).volumes
        if policy is not VolumePolicy.DELETE or self.seen.state is not NodeState.READY:
            return
        used = used_volumes(self.seen.revision)
        for volume_id, one in self.seen.volumes.items():
            if not one.is_in_use and volume_id not in used and volume_id not in self.node.volumes:
                reason = f"volume {volume_id} is removed from storage.volumes, and its pool deletes volumes"
                self.due.append(DeleteVolume(node_id=self.node.node_id, volume_id=volume_id, reason=reason))

    def _wait(self, reason: str) -> None:
        self.rest.append(wait_for(reason, self.node.node_id))

    def _refuse(self, code: str, message: str) -> None:
        self.refusals.append(Refusal(code, message, pool=self.node.pool))


class _Moves:
    """Chooses replicas to move out of directories that leave, each to the directory with the most room."""

    def __init__(self, directories: Mapping[str, ObservedDirectory], leaving: set[str]) -> None:
        self._leaving = {path: one for path, one in sorted(directories.items()) if path in leaving}
        self._sizes = {
            partition: size_bytes
            for directory in directories.values()
            for partition, size_bytes in directory.replicas.items()
        }
        self._moving = {partition for directory in directories.values() for partition in directory.incoming}
        self._moving_bytes = sum(self._sizes.get(one, 0) for one in self._moving)
        targets = {
            path: one for path, one in directories.items() if path not in leaving and one.takes_replicas
        }
        # Without free space, the one that holds the least has the most room.
        self._is_room_known = all(target.room_bytes is not None for target in targets.values())
        self._rooms = {path: self._room(one) for path, one in targets.items()}
        self.without_room: tuple[PartitionId, int] | None = None
        """The first replica that no directory has room for, and its size."""

    def _room(self, directory: ObservedDirectory) -> int:
        incoming_bytes = sum(self._sizes.get(one, 0) for one in directory.incoming)
        if directory.room_bytes is None or not self._is_room_known:
            return -directory.used_bytes - incoming_bytes
        return directory.room_bytes - incoming_bytes

    def choose(self) -> dict[PartitionId, str]:
        """Returns the paths that replicas move to now."""
        targets: dict[PartitionId, str] = {}
        for directory in self._leaving.values():
            if directory.error is not None or not directory.is_cordoned:
                continue
            for partition, size_bytes in sorted(directory.replicas.items()):
                if partition in self._moving:
                    continue
                if not self._has_capacity(size_bytes):
                    return targets
                path = self._best(size_bytes)
                if path is None:
                    self.without_room = self.without_room or (partition, size_bytes)
                    continue
                targets[partition] = path
                self._rooms[path] -= size_bytes
                self._moving.add(partition)
                self._moving_bytes += size_bytes
        return targets

    def _has_capacity(self, size_bytes: int) -> bool:
        if not self._moving:
            return True
        return len(self._moving) < IN_FLIGHT_MAX and self._moving_bytes + size_bytes <= IN_FLIGHT_BYTES_MAX

    def _best(self, size_bytes: int) -> str | None:
        path = max(self._rooms, key=lambda one: (self._rooms[one], one), default=None)
        if path is None or (self._is_room_known and self._rooms[path] < size_bytes):
            return None
        return path
