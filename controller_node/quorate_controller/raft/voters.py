"""The voter set and the arithmetic of its majorities (KIP-853)."""

from collections.abc import Collection, Iterable, Iterator

from quorate_protocol.errors import MalformedMessage
from quorate_protocol.plain_data import dataclass
from quorate_protocol.records import control
from quorate_protocol.records.batch import RECORD_SIZE_BYTES_MAX
from quorate_protocol.wire.codec import encode

from quorate_controller.raft.model import Endpoint, RaftSafetyError, ReplicaKey, VersionRange, Voter


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterSet:
    """An immutable set of voters, kept in ascending order of node id. Node ids are unique."""

    voters: tuple[Voter, ...] = ()

    def __post_init__(self) -> None:
        ids = [voter.node_id for voter in self.voters]
        if ids != sorted(set(ids)):
            raise RaftSafetyError(f"voters must be unique and ascending by node id: {ids}")

    @staticmethod
    def of(voters: Iterable[Voter]) -> "VoterSet":
        """The set of these voters, in whatever order they come."""
        return VoterSet(voters=tuple(sorted(voters, key=lambda voter: voter.node_id)))

    @staticmethod
    def from_record(record: control.VotersRecord) -> "VoterSet":
        """The set that a VotersRecord describes.

        Raises:
            MalformedMessage: a voter appears twice.
        """
        if len({voter.voter_id for voter in record.voters}) < len(record.voters):
            raise MalformedMessage("a VotersRecord names a voter twice")
        return VoterSet.of(_voter_from_record(voter) for voter in record.voters)

    def to_record(self) -> control.VotersRecord:
        """The VotersRecord that describes this set."""
        return control.VotersRecord(version=0, voters=tuple(_voter_to_record(voter) for voter in self.voters))

    def why_unwritable(self) -> str | None:
        """The reason why readers would refuse the VotersRecord of this set, or None."""
        size_bytes = len(encode(self.to_record()))
        if size_bytes <= RECORD_SIZE_BYTES_MAX:
            return None
        return f"The VotersRecord would have {size_bytes} bytes, at most {RECORD_SIZE_BYTES_MAX} are allowed"

    def __len__(self) -> int:
        return len(self.voters)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.voters)

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(voter.node_id for voter in self.voters)

    def get(self, node_id: int) -> Voter | None:
        # A loop, not a generator: each step of raft calls this several times.
        for voter in self.voters:
            if voter.key.node_id == node_id:
                return voter
        return None

    def endpoints(self, node_id: int) -> tuple[Endpoint, ...]:
        """The endpoints of that voter; empty for other nodes."""
        voter = self.get(node_id)
        return () if voter is None else voter.endpoints

    def is_voter(self, key: ReplicaKey) -> bool:
        voter = self.get(key.node_id)
        return voter is not None and voter.key.matches(key)

    def is_only_voter(self, key: ReplicaKey) -> bool:
        return len(self.voters) == 1 and self.voters[0].key.matches(key)

    def needs_update(self, voter: Voter) -> bool:
        """Whether `voter` is in the set, but described differently."""
        known = self.get(voter.node_id)
        return known is not None and known.key.matches(voter.key) and known != voter

    def add(self, voter: Voter) -> "VoterSet":
        """The set with one more voter.

        Raises:
            RaftSafetyError: its node id is taken.
        """
        return VoterSet.of((*self.voters, voter))

    def remove(self, key: ReplicaKey) -> "VoterSet | None":
        """The set without that voter; None when the exact key is no voter, or the only one."""
        if len(self.voters) == 1 or all(voter.key != key for voter in self.voters):
            return None
        return VoterSet(voters=tuple(voter for voter in self.voters if voter.key != key))

    def update(self, voter: Voter) -> "VoterSet | None":
        """The set with a new description of that voter; None when its key is no voter."""
        return self._replace(voter) if self.is_voter(voter.key) else None

    def update_ignoring_directory(self, voter: Voter) -> "VoterSet | None":
        """Like `update`, matching the node id alone: static voters have no directory ids to compare."""
        return self._replace(voter) if voter.node_id in self.ids else None

    def _replace(self, voter: Voter) -> "VoterSet":
        return VoterSet(
            voters=tuple(voter if old.node_id == voter.node_id else old for old in self.voters),
        )

    def supports(self, kraft_version: int) -> bool:
        """Whether every voter can run that kraft.version."""
        return all(kraft_version in voter.kraft_versions for voter in self.voters)

    def overlaps(self, that: "VoterSet") -> bool:
        """Whether at most one voter differs on each side, as KIP-853 judges consecutive sets.

        Then every majority of one set shares a voter with every majority of the other if they are an addition or a
        removal apart. The rule does not rule out an exchange of one voter, which no leader writes.
        """
        ours = {voter.key for voter in self.voters}
        theirs = {voter.key for voter in that.voters}
        return len(ours - theirs) <= 1 and len(theirs - ours) <= 1


def _voter_from_record(voter: control.Voter) -> Voter:
    return Voter(
        key=ReplicaKey(node_id=voter.voter_id, directory_id=voter.voter_directory_id),
        endpoints=tuple(
            Endpoint(listener=endpoint.name, host=endpoint.host, port=endpoint.port)
            for endpoint in voter.endpoints
        ),
        kraft_versions=VersionRange(
            lowest=voter.k_raft_version_feature.min_supported_version,
            highest=voter.k_raft_version_feature.max_supported_version,
        ),
    )


def _voter_to_record(voter: Voter) -> control.Voter:
    return control.Voter(
        voter_id=voter.node_id,
        voter_directory_id=voter.key.directory_id,
        endpoints=tuple(
            control.Endpoint(name=endpoint.listener, host=endpoint.host, port=endpoint.port)
            for endpoint in voter.endpoints
        ),
        k_raft_version_feature=control.KRaftVersionFeature(
            min_supported_version=voter.kraft_versions.lowest,
            max_supported_version=voter.kraft_versions.highest,
        ),
    )


def majority_size(voter_count: int) -> int:
    """The number of voters that make a majority."""
    return voter_count // 2 + 1


def majority_offset(end_offsets: Iterable[int | None]) -> int | None:
    """The highest offset that a majority of the voters has reached; None stands for an unknown offset."""
    descending = sorted((-1 if offset is None else offset for offset in end_offsets), reverse=True)
    if not descending:
        return None
    offset = descending[majority_size(len(descending)) - 1]
    return None if offset < 0 else offset


class VoteTally:
    """The votes that were granted and refused, by the voters as of the start of the election."""

    __slots__ = ("_votes",)

    def __init__(self, voter_ids: Iterable[int]) -> None:
        self._votes: dict[int, bool | None] = dict.fromkeys(voter_ids)

    def record(self, voter_id: int, *, is_granted: bool) -> None:
        """Record a vote; votes of other nodes do not count."""
        if voter_id in self._votes:
            self._votes[voter_id] = is_granted

    def forget(self, voter_id: int) -> None:
        """Drop the refusal of that voter, so that it is asked again."""
        if self._votes.get(voter_id) is False:
            self._votes[voter_id] = None

    @property
    def granting(self) -> tuple[int, ...]:
        return tuple(voter_id for voter_id, vote in self._votes.items() if vote is True)

    @property
    def unrecorded(self) -> tuple[int, ...]:
        return tuple(voter_id for voter_id, vote in self._votes.items() if vote is None)

    @property
    def is_won(self) -> bool:
        return len(self.granting) >= majority_size(len(self._votes))

    @property
    def is_lost(self) -> bool:
        return self.is_lost_without(())

    def is_lost_without(self, unreachable: Collection[int]) -> bool:
        """Whether no majority can be reached without the votes of the `unreachable`."""
        expected = sum(voter_id not in unreachable for voter_id in self.unrecorded)
        return len(self.granting) + expected < majority_size(len(self._votes))
