"""Who answers while a quorum has no leader, which voters are missing, and the texts that say so.

DescribeQuorum and DescribeCluster have no answer then. Each controller was asked by itself instead.
"""

from collections.abc import Mapping
from dataclasses import field

from quorate_protocol.plain_data import dataclass

from quorate_admin.types.cluster import FeatureDescription


def majority(voters: int) -> int:
    """Returns the number of voters that are a majority of this many."""
    return voters // 2 + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedController:
    """What the controller at one address said about itself, or why nothing was learned.

    `problem` is set if nobody answers there; `is_refused` if nobody listens there either. `leads` is None if it does
    not say. `followed_id` is the leader that it follows, `voters` the voter set that it knows: host and port of the
    endpoints by node id. Only Quorate's controllers say both; of the others, a static configuration tells the voters.
    """

    address: str
    problem: str | None = None
    is_refused: bool = False
    node_id: int | None = None
    cluster_id: str | None = None
    leads: bool | None = None
    follows: bool = False
    epoch: int = -1
    voters: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    is_empty: bool = False
    """Its log is empty, so that it knows no voters. Only Quorate's controllers say so."""
    features: FeatureDescription | None = None

    @property
    def answers(self) -> bool:
        """Whether a controller answers at the address."""
        return self.problem is None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumSearch:
    """The controllers that were asked, each at its address."""

    asked: tuple[AskedController, ...]

    @property
    def answering(self) -> tuple[AskedController, ...]:
        """Those that answer."""
        return tuple(one for one in self.asked if one.answers)

    @property
    def is_refused(self) -> bool:
        """Whether nobody listens at any address."""
        return all(one.is_refused for one in self.asked)

    @property
    def is_led(self) -> bool | None:
        """Whether a controller leads, or is followed; None if a controller does not say, or nobody answers."""
        if any(one.leads or one.follows for one in self.answering):
            return True
        return None if not self.answering or any(one.leads is None for one in self.answering) else False

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster; None if it is unknown."""
        return next((one.cluster_id for one in self.answering if one.cluster_id), None)

    @property
    def features(self) -> FeatureDescription | None:
        """The feature levels of the controller that has read the log furthest; None if none has found a leader yet.

        Without finalized levels, stock Kafka 4.3.1 reports metadata.version 7 of epoch -1.
        """
        known = (one.features for one in self.answering if one.features is not None)
        newest = max(known, key=lambda one: one.finalized_epoch, default=None)
        return None if newest is None or newest.finalized_epoch < 0 else newest

    @property
    def voters(self) -> Mapping[int, tuple[str, ...]]:
        """The addresses of the voters by node id, as the controller of the highest epoch knows them; may be empty."""
        known = (one for one in self.answering if one.voters)
        newest = max(known, key=lambda one: one.epoch, default=None)
        return {} if newest is None else newest.voters

    @property
    def silent_voters(self) -> tuple[int, ...]:
        """The voters that do not answer, in ascending order."""
        return tuple(node_id for node_id in sorted(self.voters) if not self._is_answering(node_id))

    @property
    def empty_voters(self) -> tuple[int, ...]:
        """The voters that answer with an empty log, as after the loss of a disk, in ascending order."""
        empty = {one.node_id for one in self.answering if one.is_empty}
        return tuple(node_id for node_id in sorted(self.voters) if node_id in empty)

    @property
    def silent_addresses(self) -> tuple[str, ...]:
        """The addresses at which nobody answers, as far as they are not those of voters."""
        of_voters = {address for addresses in self.voters.values() for address in addresses}
        return tuple(one.address for one in self.asked if not one.answers and one.address not in of_voters)

    def _is_answering(self, voter_id: int) -> bool:
        """Whether a controller says that it is this voter, or is at its address and does not say who it is."""
        addresses = self.voters[voter_id]
        return any(
            one.node_id == voter_id or (one.node_id is None and one.address in addresses)
            for one in self.answering
        )

    @property
    def missing(self) -> str:
        """Which voters do not answer, or with an empty log: "voters 2, 3 do not answer"."""
        silent, empty, elsewhere = self.silent_voters, self.empty_voters, self.silent_addresses
        parts = [
            f"voter{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))} {words[len(ids) > 1]}"
            for ids, words in (
                (silent, ("does not answer", "do not answer")),
                (empty, ("has an empty log", "have empty logs")),
            )
            if ids
        ]
        if parts:
            return ", ".join(parts)
        if self.voters:
            return "all voters answer, so an election is under way or fails"
        if elsewhere:
            return f"nobody answers at {', '.join(elsewhere)}"
        return (
            f"{len(self.answering)} controllers answer"
            if len(self.answering) > 1
            else "one controller answers"
        )

    @property
    def answers(self) -> str:
        """Which controllers answer: "1 answers, and does not lead"."""
        who = [one.address if one.node_id is None else str(one.node_id) for one in self.answering]
        if not who:
            return "No controller answers"
        names = f"{'Controllers' if len(who) > 1 else 'Controller'} {', '.join(sorted(who))}"
        return f"{names} {'answer, and none leads' if len(who) > 1 else 'answers, and does not lead'}"

    @property
    def reasons(self) -> str:
        """Why each silent address is silent."""
        return "; ".join(one.problem for one in self.asked if one.problem is not None)

    @property
    def advice(self) -> str:
        """What has to be done for a leader to be elected."""
        voters, silent, empty = self.voters, self.silent_voters, self.empty_voters
        if not voters:
            return "Start the controllers that are down: a majority of the voters has to run."
        lacking = majority(len(voters)) - (len(voters) - len(silent) - len(empty))
        if lacking <= 0:
            return "A majority of the voters answers: wait some seconds. If no leader is elected, their logs say why."
        if lacking > len(silent):
            whose = f"controller{'s' if len(empty) > 1 else ''} {', '.join(map(str, empty))}"
            return (
                f"A majority of the voters needs its logs: give {whose} the former disks, or recover the quorum from "
                "a voter that has its log (docs/operations/recovery.md)."
            )
        if len(silent) == 1:
            return f"Start controller {silent[0]}: a majority of the voters has to run."
        *first, last = map(str, silent)
        choice = "and" if lacking == len(silent) else "or"
        number = "" if lacking in (1, len(silent)) else f" ({lacking} of them)"
        return f"Start controllers {', '.join(first)} {choice} {last}{number}: a majority of the voters has to run."

    def __str__(self) -> str:
        reasons = self.reasons
        return f"no leader; {self.missing}{f' ({reasons})' if reasons else ''}"
