"""Chooses brokers for the replicas of brokers that leave: least loaded, racks apart, disks not full. Pure.

Replicas that can stay do, in their order. Placements of new topics are in `quorate_protocol.placement`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from quorate_operator.planning.cluster import (
    DesiredCluster,
    KafkaFacts,
    NodeState,
    ObservedCluster,
    ObservedPartition,
    PartitionId,
    Role,
)
from quorate_operator.planning.steps import Refusal, WaitFor, wait_for

IN_FLIGHT_MAX = 50
"""How many partitions move at once, over all brokers that leave."""
IN_FLIGHT_BYTES_MAX = 16 * 1024**3
"""How much data moves at once. A partition that is larger moves alone."""
FREE_SHARE_MIN = 0.1
"""The share of a target's disk that stays free."""


@dataclass(slots=True)
class _Target:
    """A broker that may get replicas, with its load after all reassignments under way."""

    node_id: int
    rack: str | None
    replicas: int
    room_bytes: int | None
    """How many bytes may be added until only its margin is free; None if its disk is unknown."""

    def has_room(self, size_bytes: int) -> bool:
        return self.room_bytes is None or self.room_bytes >= size_bytes

    def take(self, size_bytes: int) -> None:
        self.replicas += 1
        if self.room_bytes is not None:
            self.room_bytes -= size_bytes


class Relocation:
    """The moves of one look. Each batch takes earlier batches into account."""

    def __init__(
        self,
        desired: DesiredCluster,
        observed: ObservedCluster,
        kafka: KafkaFacts,
        leaving: frozenset[int],
    ) -> None:
        self._kafka = kafka
        self._leaving = leaving
        self._staying = len(desired.of_role(Role.BROKER))
        self._racks = {
            registration.node_id: registration.rack for registration in kafka.registrations.values()
        }
        self._targets = {
            node.node_id: self._target(node.node_id)
            for node in desired.of_role(Role.BROKER)
            if self._takes_replicas(observed, node.node_id)
        }
        self._in_flight = 0
        self._in_flight_bytes = 0
        self._done: set[PartitionId] = set()
        for partition in kafka.partitions:
            if not partition.adding:
                continue
            self._in_flight += 1
            self._in_flight_bytes += partition.size_bytes or 0
            for node_id in partition.adding:
                if node_id in self._targets and node_id not in partition.isr:
                    self._targets[node_id].take(partition.size_bytes or 0)

    def batch(self, node_id: int) -> tuple[Mapping[PartitionId, tuple[int, ...]], Refusal | WaitFor | None]:
        """Returns new replicas of some of the broker's partitions, and what keeps others from moving, or None."""
        targets: dict[PartitionId, tuple[int, ...]] = {}
        for partition in self._kafka.partitions:
            final = [replica for replica in partition.replicas if replica not in partition.removing]
            if node_id not in final or partition.partition in self._done:
                continue
            size_bytes = partition.size_bytes or 0
            is_under_way = bool(partition.adding)
            if not is_under_way and not self._has_capacity(size_bytes):
                break
            replicas = self._replicas(final, size_bytes)
            if not isinstance(replicas, tuple):
                return targets, self._obstacle(node_id, partition, replicas)
            targets[partition.partition] = replicas
            self._done.add(partition.partition)
            if not is_under_way:
                self._in_flight += 1
                self._in_flight_bytes += size_bytes
        return targets, None

    def _has_capacity(self, size_bytes: int) -> bool:
        if self._in_flight == 0:
            return True
        return self._in_flight < IN_FLIGHT_MAX and self._in_flight_bytes + size_bytes <= IN_FLIGHT_BYTES_MAX

    def _replicas(self, final: list[int], size_bytes: int) -> tuple[int, ...] | list[int]:
        """Returns the replicas without those that leave; or, if no disk has room, the full brokers as a list."""
        chosen = [replica for replica in final if replica not in self._leaving]
        taken: dict[int, int] = {}
        for replica in final:
            if replica not in self._leaving:
                continue
            possible = [target for target in self._targets.values() if target.node_id not in chosen]
            roomy = [target for target in possible if target.has_room(size_bytes)]
            if not roomy:
                return [target.node_id for target in possible]
            racks = [self._racks.get(other) for other in chosen]
            best = min(roomy, key=lambda target: (_crowd(target, racks), target.replicas, target.node_id))
            taken[replica] = best.node_id
            chosen.append(best.node_id)
        for target_id in taken.values():
            self._targets[target_id].take(size_bytes)
        return tuple(taken.get(replica, replica) for replica in final)

    def _obstacle(
        self, node_id: int, partition: ObservedPartition, without_room: list[int]
    ) -> Refusal | WaitFor:
        name = f"{partition.partition.topic}-{partition.partition.number}"
        if without_room:
            brokers = ", ".join(str(one) for one in without_room)
            return Refusal(
                code="TooLittleSpace",
                message=f"{name} ({format_bytes(partition.size_bytes or 0)}) can't leave "
                f"{Role.BROKER.label(node_id)}: broker(s) {brokers} would keep less than {FREE_SHARE_MIN:.0%} of "
                "their disks free; add brokers or space, or delete data",
            )
        return wait_for(
            f"a broker that can take a replica of {name} to be in service: {len(self._targets)} of "
            f"{self._staying} are",
            node_id,
        )

    def _takes_replicas(self, observed: ObservedCluster, node_id: int) -> bool:
        registration = self._kafka.registrations.get(node_id)
        seen = observed.nodes.get(node_id)
        return (
            registration is not None
            and not registration.fenced
            and not registration.in_controlled_shutdown
            and seen is not None
            and seen.state is NodeState.READY
        )

    def _target(self, node_id: int) -> _Target:
        load = self._kafka.loads.get(node_id)
        room_bytes = None
        if load is not None and load.free_bytes is not None:
            margin_bytes = int((load.free_bytes + (load.used_bytes or 0)) * FREE_SHARE_MIN)
            room_bytes = load.free_bytes - margin_bytes
        return _Target(
            node_id=node_id,
            rack=self._racks.get(node_id),
            replicas=load.replicas if load else 0,
            room_bytes=room_bytes,
        )


def _crowd(target: _Target, racks: list[str | None]) -> int:
    """How many of the partition's other replicas share the target's rack."""
    return 0 if target.rack is None else racks.count(target.rack)


def format_bytes(size_bytes: int) -> str:
    """`3.1 GiB`."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
