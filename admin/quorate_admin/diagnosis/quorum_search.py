"""Controllers that answer while a quorum has no leader, the voters that are missing, and the texts about them.

DescribeQuorum and DescribeCluster fail then. Each controller was asked by itself instead.
"""

from collections.abc import Mapping
from dataclasses import field

from quorate_protocol.plain_data import dataclass

from quorate_admin.types.cluster import FeatureDescription


def majority(voters: int) -> int:
    """Return the number of voters that are a majority of this many."""
    return voters // 2 + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedController:
    """What the controller at one address reported about itself, or why it reported nothing.

    `problem` is set if no server answers there; `is_refused` if none listens there either. `leads` is None if it is
    unknown. `follows`: it follows a leader. `voters` is the voter set that it knows: host and port of the endpoints
    by node id. Only Quorate's controllers report both; the voters of others are those of a static configuration.
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
    """Its log is empty, so that it knows no voters. Only Quorate's controllers report that."""
    features: FeatureDescription | None = None

    @property
    def responds(self) -> bool:
        """Whether a controller answers at the address."""
        return self.problem is None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumSearch:
    """The controllers that were asked, each at its address."""

    asked: tuple[AskedController, ...]

    @property
    def answering(self) -> tuple[AskedController, ...]:
        """Those that answer."""
        return tuple(controller for controller in self.asked if controller.responds)

    @property
    def is_refused(self) -> bool:
        """Whether no server listens at any address."""
        return all(controller.is_refused for controller in self.asked)

    @property
    def is_led(self) -> bool | None:
        """Whether a controller leads, or is followed; None if that is unknown."""
        if any(controller.leads or controller.follows for controller in self.answering):
            return True
        return (
            None
            if not self.answering or any(controller.leads is None for controller in self.answering)
            else False
        )

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster; None if it is unknown."""
        return next((controller.cluster_id for controller in self.answering if controller.cluster_id), None)

    @property
    def features(self) -> FeatureDescription | None:
        """The feature levels of the controller that has read the log furthest; None if none has found a leader yet.

        Without finalized levels, stock Kafka 4.3.1 reports metadata.version 7 of epoch -1.
        """
        known = (controller.features for controller in self.answering if controller.features is not None)
        newest = max(known, key=lambda features: features.finalized_epoch, default=None)
        return None if newest is None or newest.finalized_epoch < 0 else newest

    @property
    def voters(self) -> Mapping[int, tuple[str, ...]]:
        """The addresses of the voters by node id, as the controller of the highest epoch knows them; may be empty."""
        known = (controller for controller in self.answering if controller.voters)
        newest = max(known, key=lambda controller: controller.epoch, default=None)
        return {} if newest is None else newest.voters

    @property
    def silent_voters(self) -> tuple[int, ...]:
        """The voters that do not answer, in ascending order."""
        return tuple(node_id for node_id in sorted(self.voters) if not self._is_answering(node_id))

    @property
    def empty_voters(self) -> tuple[int, ...]:
        """The voters that answer with an empty log, as after the loss of a disk, in ascending order."""
        empty = {controller.node_id for controller in self.answering if controller.is_empty}
        return tuple(node_id for node_id in sorted(self.voters) if node_id in empty)

    @property
    def silent_addresses(self) -> tuple[str, ...]:
        """The addresses at which no server answers, as far as they are not those of voters."""
        of_voters = {address for addresses in self.voters.values() for address in addresses}
        return tuple(
            controller.address
            for controller in self.asked
            if not controller.responds and controller.address not in of_voters
        )

    def _is_answering(self, voter_id: int) -> bool:
        """Whether a controller reports to be this voter, or answers at its address without an id."""
        addresses = self.voters[voter_id]
        return any(
            controller.node_id == voter_id or (controller.node_id is None and controller.address in addresses)
            for controller in self.answering
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
            return f"no server answers at {', '.join(elsewhere)}"
        return (
            f"{len(self.answering)} controllers answer"
            if len(self.answering) > 1
            else "one controller answers"
        )

    @property
    def responders(self) -> str:
        """Which controllers answer: "1 answers, and does not lead"."""
        names = [
            controller.address if controller.node_id is None else str(controller.node_id)
            for controller in self.answering
        ]
        if not names:
            return "No controller answers"
        is_plural = len(names) > 1
        listed = f"{'Controllers' if is_plural else 'Controller'} {', '.join(sorted(names))}"
        return f"{listed} {'answer, and none leads' if is_plural else 'answers, and does not lead'}"

    @property
    def reasons(self) -> str:
        """Why each silent address is silent."""
        return "; ".join(controller.problem for controller in self.asked if controller.problem is not None)

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
            holders = f"controller{'s' if len(empty) > 1 else ''} {', '.join(map(str, empty))}"
            return (
                f"A majority of the voters needs its logs: give {holders} the former disks, or recover the quorum "
                "from a voter that has its log (docs/operations/recovery.md)."
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
