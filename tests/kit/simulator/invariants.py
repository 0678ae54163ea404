"""Kafka's raft invariants, by the names of its own simulation, and what else must never go wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.simulator.disk_logs import ANY_DIRECTORY
from quorate_protocol.records.batch import scan_batches

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kit.simulator.committed import CommittedRecords
    from kit.simulator.disk_logs import Voters
    from kit.simulator.world import Machine
    from quorate_controller.node import ControllerNode


class InvariantViolation(AssertionError):  # noqa: N818 - it violates, it does not err
    """The code under test broke a promise; the message begins with the invariant's name."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"{name}: {detail}")
        self.name = name


class Invariants:
    """Looks at the nodes after each turn and remembers what it has seen of the whole history.

    What is committed is judged by the disks of all machines, lost ones included, and by `committed`, which gets each
    batch when it is first taken for committed.
    """

    def __init__(self, committed: CommittedRecords, machines: Mapping[int, Machine]) -> None:
        self._committed = committed
        self._machines = machines
        self._epochs: dict[int, int] = {}
        self._high_watermarks: dict[int, int] = {}
        self._leaders: dict[int, int] = {}
        self._voters: dict[int, Voters] = {}
        self._committed_to: dict[int, int] = {}

    def node_started(self, node_id: int) -> None:
        """A new process knows no high watermark yet; its epoch still must not fall."""
        self._high_watermarks.pop(node_id, None)
        self._committed_to.pop(node_id, None)
        self._voters.pop(node_id, None)

    def disk_replaced(self, node_id: int) -> None:
        """An empty disk is a new replica that remembers nothing."""
        self._epochs.pop(node_id, None)
        self.node_started(node_id)

    def check(self, machine: Machine, node: ControllerNode) -> None:
        """All invariants that concern a node that has just had its turn."""
        node_id = machine.node_id
        self._monotonic_epoch(node_id, node)
        self._single_leader(node_id, node)
        self._snapshot_at_log_start(node_id, node)
        if node.raft.high_watermark > self._high_watermarks.get(node_id, -1):
            self.consistent_committed_data(machine, node)
        self._monotonic_high_watermark(node_id, node)
        self._voters[node_id] = self._voters_on(machine)

    def leader_loads_no_snapshot(self, node_id: int, *, was_leader: bool, restored: bool) -> None:
        """LeaderNeverLoadSnapshot: a leader's log is complete by definition."""
        if was_leader and restored:
            raise InvariantViolation("LeaderNeverLoadSnapshot", f"node {node_id} loaded one while leading")

    def _monotonic_epoch(self, node_id: int, node: ControllerNode) -> None:
        before = self._epochs.get(node_id, 0)
        if node.raft.epoch < before:
            raise InvariantViolation(
                "MonotonicEpoch", f"node {node_id} fell from {before} to {node.raft.epoch}"
            )
        self._epochs[node_id] = node.raft.epoch

    def _monotonic_high_watermark(self, node_id: int, node: ControllerNode) -> None:
        before = self._high_watermarks.get(node_id, -1)
        now = node.raft.high_watermark
        if now < before:
            raise InvariantViolation("MonotonicHighWatermark", f"node {node_id} fell from {before} to {now}")
        self._high_watermarks[node_id] = now

    def _single_leader(self, node_id: int, node: ControllerNode) -> None:
        if node.raft.epoch_start_offset is None:
            return
        leader_id = self._leaders.setdefault(node.raft.epoch, node_id)
        if leader_id != node_id:
            raise InvariantViolation(
                "SingleLeader", f"{leader_id} and {node_id} both lead epoch {node.raft.epoch}"
            )

    def _snapshot_at_log_start(self, node_id: int, node: ControllerNode) -> None:
        start_offset = node.raft.log_start_offset
        if start_offset and all(
            snapshot_id.offset < start_offset for snapshot_id in node.storage.snapshots.ids
        ):
            raise InvariantViolation(
                "SnapshotAtLogStart",
                f"node {node_id} starts at {start_offset} without a snapshot up to there",
            )

    def consistent_committed_data(self, machine: Machine, node: ControllerNode) -> None:
        """What was committed at an offset once is what every node has there for ever."""
        log, committed = node.storage.log, self._committed
        position = max(self._committed_to.get(machine.node_id, 0), log.start_offset)
        end = node.raft.high_watermark
        new: list[tuple[int, bytes]] = []
        while position < end:
            data = log.read(position, 1 << 20, end)
            if not data:
                break
            for header in scan_batches(data):
                batch = data[header.position : header.position + header.size_bytes]
                if header.base_offset >= committed.end_offset:
                    new.append((header.last_offset, batch))
                elif committed.batches.get(header.base_offset) != batch:
                    raise InvariantViolation(
                        "ConsistentCommittedData",
                        f"node {machine.node_id} differs at offset {header.base_offset}",
                    )
                position = header.last_offset + 1
        self._committed_to[machine.node_id] = position
        if new:
            self._majority_reached_high_watermark(machine, *new[-1])
            for _, batch in new:
                committed.add(batch)

    def _majority_reached_high_watermark(self, machine: Machine, last_offset: int, batch: bytes) -> None:
        """A node has a high watermark above what a majority has on its disks.

        A turn may move the high watermark first and change the voters then: either set will do for that turn.
        """
        there = frozenset(
            replica
            for other in self._machines.values()
            for replica, disk_log in other.disk_logs()
            if disk_log.has(last_offset, batch)
        )
        voters = self._voters_on(machine)
        if not any(is_majority(there, of) for of in (voters, self._voters.get(machine.node_id, voters))):
            raise InvariantViolation(
                "MajorityReachedHighWatermark",
                f"node {machine.node_id} takes offset {last_offset} for committed, but of its voters "
                f"{sorted(voters)} only {sorted(there)} have it",
            )

    def _voters_on(self, machine: Machine) -> Voters:
        """The voters of the last VotersRecord that a machine has on its disk, committed or not."""
        return machine.disk_log.voters(self._committed.end_offset) or self._committed.voters


def is_majority(there: Voters, of: Voters) -> bool:
    """Whether the replicas that are there are a majority of the voters."""
    ids = {node_id for node_id, _ in there}
    count = sum(voter in there or (voter[1] == ANY_DIRECTORY and voter[0] in ids) for voter in of)
    return count > len(of) // 2


def differing_images(nodes: Sequence[ControllerNode]) -> list[int]:
    """The nodes whose image is not that of the first one, which has replayed the same log or a snapshot of it."""
    first, *others = nodes
    return [node.node_id for node in others if not node.metadata.image.same_as(first.metadata.image)]
