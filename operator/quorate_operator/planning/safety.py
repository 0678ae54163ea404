"""Which changes the quorum tolerates: the first rule of every plan.

After each step, a majority of the voters is alive and caught up, not counting the node that is changed. Two
exceptions are allowed while every voter is alive: with one or two voters no restart keeps a majority, and one voter
can't become two otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from quorate_admin.diagnosis import majority

from quorate_operator.planning.cluster import NodeState, ObservedCluster, ObservedVoter
from quorate_operator.planning.steps import listed


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumView:
    """The voters, and those that are alive: caught up, with the disk that the voter set names.

    The `forbids_` methods return why a change is forbidden, for people; None if it is allowed.
    """

    leader_id: int
    kraft_version: int
    voters: Mapping[int, ObservedVoter]
    alive: frozenset[int]

    @property
    def is_dynamic(self) -> bool:
        """Whether voters can be added and removed (KIP-853)."""
        return self.kraft_version >= 1

    @property
    def dead(self) -> tuple[int, ...]:
        return tuple(sorted(self.voters.keys() - self.alive))

    def forbids_stop(self, node_id: int) -> str | None:
        """Return why the node, which stays a voter, may not be stopped now."""
        others = self.alive - {node_id}
        if node_id not in self.voters or node_id not in self.alive or len(others) >= majority(self.size):
            return None
        if self.size <= 2 and len(self.alive) == self.size:
            return None
        return f"without it {self._short(others, self.size)}"

    def forbids_removal(self, node_id: int) -> str | None:
        others, size = self.alive - {node_id}, self.size - 1
        if size > 0 and len(others) >= majority(size):
            return None
        return f"without it {self._short(others, size)}"

    def forbids_addition(self, node_id: int) -> str | None:
        """Return why a caught-up observer may not become a voter now."""
        others, size = self.alive - {node_id}, self.size + 1
        if len(others) >= majority(size) or len(self.alive) == self.size:
            return None
        return f"with it {self._short(others, size)}"

    @property
    def size(self) -> int:
        return len(self.voters)

    def _short(self, alive: frozenset[int], size: int) -> str:
        count = (
            f"{listed(sorted(alive))} of {size} voter{'s' if size != 1 else ''} would be alive and caught up"
        )
        return f"only {count}, and {majority(size)} are a majority"


def view_quorum(observed: ObservedCluster) -> QuorumView | None:
    """Return the quorum as its leader and the runtime see it; None while no leader answers."""
    if observed.kafka is None:
        return None
    quorum = observed.kafka.quorum
    return QuorumView(
        leader_id=quorum.leader_id,
        kraft_version=quorum.kraft_version,
        voters=quorum.voters,
        alive=frozenset(
            node_id
            for node_id, voter in quorum.voters.items()
            if (voter.caught_up or node_id == quorum.leader_id) and _is_sound(observed, voter)
        ),
    )


def has_other_disk(observed: ObservedCluster, voter: ObservedVoter) -> bool:
    """Whether the voter is lost: the node's disk is gone, or differs from the one in the voter set."""
    seen = observed.nodes.get(voter.node_id)
    if seen is None or seen.unreachable_host:
        return False
    if seen.state is NodeState.ABSENT:
        return True
    return None not in (seen.directory_id, voter.directory_id) and seen.directory_id != voter.directory_id


def _is_sound(observed: ObservedCluster, voter: ObservedVoter) -> bool:
    """Whether the node runs with the voter's disk. The leader alone decides for a voter that does not run here."""
    seen = observed.nodes.get(voter.node_id)
    if seen is None:
        return True
    return seen.state is NodeState.READY and not seen.unreachable_host and not has_other_disk(observed, voter)
