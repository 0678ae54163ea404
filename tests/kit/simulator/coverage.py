"""What a run made happen: a simulation that finds nothing proves little unless it tried everything."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Final

from quorate_controller.raft.events import Role
from quorate_controller.raft.voters import VoterSet
from quorate_protocol.records import generated as records
from quorate_protocol.records.control import KRaftVersionRecord, VotersRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from quorate_controller.node import ControllerNode, Effects


class Happening(Enum):
    """The events that are counted. The values are their names in the report."""

    LEADER_ELECTED = "leaders elected"
    JAVA_LIKE_LEADER = "leaders elected that keep time as Java's"
    REMOVED_REPLICA_ELECTED = "leaders elected to commit their own removal"
    PRE_VOTE = "pre-votes begun"
    CANDIDACY = "candidacies"
    RIVALS = "epochs with rival candidates"
    RESIGNATION = "leaders resigned"
    QUORUM_LOST = "leaders that lost their majority"
    REMOVED_LEADER_LEFT = "leaders that left after their removal"
    ACTIVATION = "controllers activated"
    REVERT = "uncommitted decisions reverted"
    TRUNCATION = "logs truncated"
    SNAPSHOT_WRITTEN = "snapshots written"
    CHECKPOINT_READ = "checkpoints read back"
    SNAPSHOT_LOADED = "snapshots fetched and loaded"
    SNAPSHOT_CHUNK = "snapshot chunks after the first"
    LOG_START_MOVED = "log starts moved"
    VOTER_ADDED = "voters added"
    VOTER_REMOVED = "voters removed"
    VOTER_UPDATED = "voters described anew"
    KRAFT_VERSION_RAISED = "kraft.version raised"
    BROKER_REGISTERED = "broker registrations"
    BROKER_FENCED = "brokers fenced"
    BROKER_UNFENCED = "brokers unfenced"
    TRANSACTION = "metadata transactions"
    FOREIGN_TRANSACTION = "metadata transactions that a leader of another kind left open"
    POWER_FAILURE = "power failures"
    TORN_WRITE = "writes torn by power failures"
    TORN_LOG_RECOVERED = "torn log ends recovered"
    PROCESS_KILLED = "processes killed"
    SHUTDOWN = "graceful shutdowns"
    DISK_ERROR = "disk errors"
    DISK_LOST = "disks lost"
    ROT = "bits of files turned while their node was down"
    ROT_REFUSED = "nodes that refused to run on a damaged file"
    ROT_CUT_OFF = "damaged ends of logs that were taken for torn writes"
    ROT_HARMLESS = "nodes that a turned bit did not concern"
    FULL_DISK = "disks that were full for a while"
    FAILED_SYNC = "syncs that were to fail and lose what they should have written"
    SLOW_DISK = "turns on slow disks"
    EVENTS_SHARED_A_TURN = "turns that took several events"
    SUSPENDED = "hosts that were suspended for a while"
    CLOCK_STEP = "clocks of systems that were set"
    LONG_TURN = "turns whose work took 50 ms or more"
    STALL = "processes that stood still for a while"
    PARTITION = "network partitions"
    ONE_WAY_CUT = "links cut one way"
    CONNECTION_BROKEN = "connections broken between living processes"
    MESSAGE_LOST = "messages lost"
    MESSAGE_DUPLICATED = "messages duplicated"
    MESSAGE_FOR_SUCCESSOR = "messages to a rebooted process"
    MESSAGE_ON_WIRE = "messages through the codec"
    VERSION_UNSUPPORTED = "messages that a peer is too old for"
    CLOCK_DRIFT = "runs with clocks drifting apart"
    CONTROLLER_REGISTERED = "controller registrations"
    CONTROLLER_UNREGISTERED = "controllers unregistered"
    REACHED_ANOTHER = "requests that reached another machine, since connections do not name their node"
    MISROUTED = "requests that another machine took"
    ALL_MOVED = "times that all machines got new names at once"
    VOTER_FOUND = "voters that were found at bootstrap servers"
    SIZE_REACHED = "sizes of the quorum that an operator reached"
    SHARED_RESPONSE = "responses in histories that were checked for linearizability"
    OLD_RESPONSE = "responses of controllers that others had succeeded, or of standbys"
    TOPIC_DELETED = "topics deleted"
    PARTITION_LEADER_ELECTED = "leaders of partitions elected"
    PARTITION_LEADERLESS = "partitions that lost their leader"
    ELR_GREW = "partitions with other eligible leader replicas"
    ELR_ELECTED = "leaders elected among eligible leader replicas"
    ISR_CHANGED = "ISRs changed by their leaders"
    STALE_REPORT_REFUSED = "stale reports of leaders refused"
    INELIGIBLE_REPLICA_REFUSED = "reports with replicas that may not join refused"
    REASSIGNMENT_GRANTED = "reassignments granted, or their cancellation"
    REASSIGNMENT_BEGUN = "reassignments begun"
    REASSIGNMENT_DONE = "reassignments done"
    REASSIGNMENT_CANCELLED = "reassignments cancelled"
    ACL_CREATED = "ACLs created"
    ACL_DELETED = "ACLs deleted"
    CREDENTIAL_CREATED = "credentials of users created"
    CREDENTIAL_DELETED = "credentials of users deleted"
    TOKEN_CREATED = "delegation tokens created"
    TOKEN_RENEWED = "delegation tokens renewed"
    TOKEN_REMOVED = "delegation tokens removed"
    PRODUCER_IDS_ALLOCATED = "blocks of producer ids allocated"
    BROKER_UNREGISTERED = "brokers unregistered"
    LEVEL_CHANGED = "levels of features changed"
    METADATA_VERSION_CHANGED = "levels of metadata.version changed"
    ELR_CHANGED = "levels of eligible.leader.replicas.version changed"
    TOPIC_GROWN = "partitions added to topics"
    ELECTION_ASKED_FOR = "elections of preferred leaders asked for"
    GIANT_TOPIC = "topics of tens of thousands of partitions made and to be deleted"
    REPLICAS_MOVED = "requests to move replicas to another directory"
    DIRECTORY_OFFLINE = "directories of brokers that went offline"
    DIRECTORY_CORDONED = "directories of brokers cordoned"
    OBSERVER_FETCH = "fetches of brokers with a response"
    APPEND_ACKNOWLEDGED = "records of clients acknowledged"
    APPENDS_KEPT = "new leaders that have all acknowledged records"
    APPENDS_LOST_UNCLEANLY = "acknowledged records that unclean elections lost"
    BROKER_SHUTDOWN = "controlled shutdowns of brokers"
    DEPARTURE_IN_SLICES = "brokers that left their partitions in slices"
    DEPOSED_BETWEEN_SLICES = "controllers deposed between two slices of a transition"
    DIED_BETWEEN_SLICES = "controllers that died between two slices of a transition"
    SNAPSHOT_BETWEEN_SLICES = "snapshots of the metadata between two slices of a transition"
    TRANSITION_INHERITED = "transitions that a new active controller went on with"
    DIED_WHILE_LOADING = "processes that died while they loaded a snapshot in slices"
    DIED_WHILE_CATCHING_UP = "processes that died while they replayed the log in slices"
    SCHEDULE_DONE = "directed schedules carried out"
    RUN_WITHOUT_QUORUM = "runs whose majority of voters was lost with its disks"


OF_AN_OPERATOR: Final = frozenset(
    (
        Happening.CONTROLLER_UNREGISTERED,
        Happening.MISROUTED,
        Happening.SIZE_REACHED,
        Happening.REACHED_ANOTHER,
    )
)
"""What happens only where an operator changes the membership."""

OF_SLICES: Final = frozenset(
    (
        Happening.DEPARTURE_IN_SLICES,
        Happening.DEPOSED_BETWEEN_SLICES,
        Happening.DIED_BETWEEN_SLICES,
        Happening.SNAPSHOT_BETWEEN_SLICES,
        Happening.TRANSITION_INHERITED,
        Happening.DIED_WHILE_LOADING,
        Happening.DIED_WHILE_CATCHING_UP,
    )
)
"""What happens only where slices are small."""

OF_ROT: Final = frozenset((Happening.ROT_REFUSED, Happening.ROT_CUT_OFF, Happening.ROT_HARMLESS))
"""What comes of turned bits: often only where they turn all the time."""

OF_PARTITIONS: Final = frozenset(
    (
        Happening.PARTITION_LEADER_ELECTED,
        Happening.ELR_GREW,
        Happening.ELR_ELECTED,
        Happening.ISR_CHANGED,
        Happening.STALE_REPORT_REFUSED,
        Happening.INELIGIBLE_REPLICA_REFUSED,
        Happening.REASSIGNMENT_GRANTED,
        Happening.REASSIGNMENT_BEGUN,
        Happening.REASSIGNMENT_DONE,
        Happening.REASSIGNMENT_CANCELLED,
        Happening.BROKER_SHUTDOWN,
        Happening.APPEND_ACKNOWLEDGED,
        Happening.APPENDS_KEPT,
    )
)
"""What happens only where brokers work on partitions."""

_OF_NOTES: Final = {
    "truncate": Happening.TRUNCATION,
    "snapshot_written": Happening.SNAPSHOT_WRITTEN,
    "snapshot_loaded": Happening.SNAPSHOT_LOADED,
    "log_start_moved": Happening.LOG_START_MOVED,
    "lost_quorum": Happening.QUORUM_LOST,
    "removed_from_voters": Happening.REMOVED_LEADER_LEFT,
    "active": Happening.ACTIVATION,
    "voter_found_at_other_address": Happening.VOTER_FOUND,
}
_OF_ROLES: Final = {
    Role.PROSPECTIVE: Happening.PRE_VOTE,
    Role.CANDIDATE: Happening.CANDIDACY,
    Role.RESIGNED: Happening.RESIGNATION,
}


class Coverage:
    """Counts over one run."""

    def __init__(self, *, is_dynamic: bool) -> None:
        self._departing: set[int] = set()
        self._kraft_version = int(is_dynamic)
        self.counts: Counter[Happening] = Counter()
        self._roles: dict[int, tuple[Role, int]] = {}
        self._candidates: dict[int, set[int]] = {}
        self._led_epochs: set[int] = set()
        self._committed_voters: VoterSet | None = None

    def count(self, happening: Happening, times: int = 1) -> None:
        """Add to the count of `happening`."""
        if times:
            self.counts[happening] += times

    def turn_taken(self, node: ControllerNode, effects: Effects, *, is_java_like: bool) -> None:
        """Look at a node after its turn. Roles that a node passed through within one turn are not seen."""
        for note in effects.notes:
            if note.event in _OF_NOTES:
                self.count(_OF_NOTES[note.event])
        self._transitions_seen(node, effects)
        role, epoch = node.raft.role, node.raft.epoch
        if self._roles.get(node.node_id) == (role, epoch):
            return
        self._roles[node.node_id] = (role, epoch)
        if role in _OF_ROLES:
            self.count(_OF_ROLES[role])
        if role is Role.CANDIDATE:
            self._stands(node.node_id, epoch)
        if role is Role.LEADER and epoch not in self._led_epochs:
            self._led_epochs.add(epoch)
            self.count(Happening.LEADER_ELECTED)
            self.count(Happening.JAVA_LIKE_LEADER, int(is_java_like))
            if not node.raft.is_voter:
                self.count(Happening.REMOVED_REPLICA_ELECTED)

    def _transitions_seen(self, node: ControllerNode, effects: Effects) -> None:
        """What happens while a transition of a broker is cut into slices."""
        was_departing = node.node_id in self._departing
        is_departing = bool(node.metadata.control._transitions._departures)
        if is_departing:
            self._departing.add(node.node_id)
        else:
            self._departing.discard(node.node_id)
        events = {note.event for note in effects.notes}
        self.count(Happening.DEPARTURE_IN_SLICES, int(is_departing and not was_departing))
        self.count(Happening.DEPOSED_BETWEEN_SLICES, int(was_departing and "no_longer_active" in events))
        self.count(Happening.SNAPSHOT_BETWEEN_SLICES, int(is_departing and "snapshot_started" in events))
        self.count(Happening.TRANSITION_INHERITED, int(is_departing and "active" in events))

    def process_ended(self, node: ControllerNode) -> None:
        """A process is gone, whatever it was about to do."""
        self.count(Happening.DIED_BETWEEN_SLICES, int(node.node_id in self._departing))
        self.count(Happening.DIED_WHILE_LOADING, int(node.loader.is_loading))
        self.count(Happening.DIED_WHILE_CATCHING_UP, int(node._is_behind))
        self._departing.discard(node.node_id)

    def _stands(self, node_id: int, epoch: int) -> None:
        candidates = self._candidates.setdefault(epoch, set())
        candidates.add(node_id)
        if len(candidates) == 2:
            self.count(Happening.RIVALS)

    def metadata_records(self, batch: Iterable[object]) -> None:
        """The records of a committed batch."""
        for record in batch:
            self._metadata_record(record)

    def control_record(self, record: object) -> None:
        """A control record was committed."""
        if isinstance(record, KRaftVersionRecord):
            # Leaders repeat it when they write down what has changed about themselves.
            is_raised = record.k_raft_version > self._kraft_version
            self.count(Happening.KRAFT_VERSION_RAISED, int(is_raised))
            self._kraft_version = record.k_raft_version
        elif isinstance(record, VotersRecord):
            self._voters_record(VoterSet.from_record(record))

    def _voters_record(self, voters: VoterSet) -> None:
        before = self._committed_voters
        self._committed_voters = voters
        if before is None:
            return
        old, new = set(before.ids), set(voters.ids)
        self.count(Happening.VOTER_ADDED, len(new - old))
        self.count(Happening.VOTER_REMOVED, len(old - new))
        self.count(
            Happening.VOTER_UPDATED, sum(voters.get(node_id) != before.get(node_id) for node_id in old & new)
        )

    def _metadata_record(self, record: object) -> None:
        if isinstance(record, records.EndTransactionRecord | records.AbortTransactionRecord):
            self.count(Happening.TRANSACTION)
        elif isinstance(record, records.RegisterControllerRecord):
            self.count(Happening.CONTROLLER_REGISTERED)
        elif isinstance(record, records.UnregisterControllerRecord):
            self.count(Happening.CONTROLLER_UNREGISTERED)
        elif isinstance(record, records.RegisterBrokerRecord):
            self.count(Happening.BROKER_REGISTERED)
        elif isinstance(record, records.BrokerRegistrationChangeRecord) and record.fenced:
            self.count(Happening.BROKER_FENCED if record.fenced > 0 else Happening.BROKER_UNFENCED)


class _EventCounter(logging.Handler):
    """Counts the log lines of a recovery, and prints none."""

    def __init__(self, coverage: Coverage) -> None:
        super().__init__()
        self._coverage = coverage

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg == "torn_log_end_cut_off":
            self._coverage.count(Happening.TORN_LOG_RECOVERED)


@contextmanager
def counting_log_events(coverage: Coverage) -> Iterator[None]:
    """Take the log of the code under test, which else would say at length how it survives each fault."""
    logger = logging.getLogger("quorate_controller")
    handler = _EventCounter(coverage)
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


def report(counts: Counter[Happening]) -> str:
    """All counts, one per line, zeros included."""
    return "\n".join(f"{counts[happening]:>10}  {happening.value}" for happening in Happening)
