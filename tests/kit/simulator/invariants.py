"""Kafka's raft invariants, by the names of its own simulation, and what else must never go wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quorate_controller.raft.model import ReplicaKey
from quorate_protocol.records.batch import scan_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from quorate_controller.node import ControllerNode
    from quorate_controller.raft.voters import VoterSet


class InvariantViolation(AssertionError):  # noqa: N818 - it violates, it does not err
    """The code under test broke a promise; the message begins with the invariant's name."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"{name}: {detail}")
        self.name = name


class Invariants:
    """Looks at the nodes after each turn and remembers what it has seen of the whole history.

    `on_commit` is given each batch when it is first seen to be committed.
    """

    def __init__(self, on_commit: Callable[[bytes], None]) -> None:
        self._on_commit = on_commit
        self._epochs: dict[int, int] = {}
        self._high_watermarks: dict[int, int] = {}
        self._leaders: dict[int, int] = {}
        self._voters: dict[int, VoterSet] = {}
        self._committed: dict[int, bytes] = {}
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

    def check(self, node_id: int, node: ControllerNode, alive: Iterable[ControllerNode]) -> None:
        """All invariants that concern a node that has just had its turn."""
        self._monotonic_epoch(node_id, node)
        self._single_leader(node_id, node)
        self._snapshot_at_log_start(node_id, node)
        if node.raft.high_watermark > self._high_watermarks.get(node_id, -1):
            self._majority_reached_high_watermark(node_id, node, alive)
            self.consistent_committed_data(node_id, node)
        self._monotonic_high_watermark(node_id, node)
        self._voters[node_id] = node.raft.voters

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

    def _majority_reached_high_watermark(
        self, node_id: int, node: ControllerNode, alive: Iterable[ControllerNode]
    ) -> None:
        """A leader may only count what a majority holds; of voters that are down we have to believe it.

        A turn may move the high watermark first and change the voters then: either set will do for that turn.
        """
        if node.raft.epoch_start_offset is None:
            return
        high_watermark = node.raft.high_watermark
        ends = [
            (replica_key(other), other.storage.log.end_offset)
            for other in alive
            if other.storage.log.end_offset < high_watermark
        ]
        voter_sets = (node.raft.voters, self._voters.get(node_id, node.raft.voters))
        if not any(_may_be_majority(voters, [key for key, _ in ends]) for voters in voter_sets):
            raise InvariantViolation(
                "MajorityReachedHighWatermark",
                f"leader {node_id} says {high_watermark}, but of voters {node.raft.voters.ids} some are behind: "
                f"{ends}",
            )

    def consistent_committed_data(self, node_id: int, node: ControllerNode) -> None:
        """What was committed at an offset once is what every node has there for ever."""
        log = node.storage.log
        position = max(self._committed_to.get(node_id, 0), log.start_offset)
        end = node.raft.high_watermark
        while position < end:
            data = log.read(position, 1 << 20, end)
            if not data:
                break
            for header in scan_batches(data):
                batch = data[header.position : header.position + header.size_bytes]
                committed = self._committed.get(header.base_offset)
                if committed is None:
                    self._committed[header.base_offset] = batch
                    self._on_commit(batch)
                elif committed != batch:
                    raise InvariantViolation(
                        "ConsistentCommittedData", f"node {node_id} differs at offset {header.base_offset}"
                    )
                position = header.last_offset + 1
        self._committed_to[node_id] = position


def replica_key(node: ControllerNode) -> ReplicaKey:
    """Who a node is to raft: a node id on a disk."""
    return ReplicaKey(node_id=node.node_id, directory_id=node.storage.directory_id)


def _may_be_majority(voters: VoterSet, behind: Sequence[ReplicaKey]) -> bool:
    """Whether those voters that are not known to be behind are a majority."""
    there = [voter for voter in voters if not any(voter.key.matches(key) for key in behind)]
    return len(there) > len(voters) // 2


def differing_images(nodes: Sequence[ControllerNode]) -> list[int]:
    """The nodes whose image is not that of the first one, which has replayed the same log or a snapshot of it."""
    first, *others = nodes
    return [node.node_id for node in others if not node.metadata.image.same_as(first.metadata.image)]
