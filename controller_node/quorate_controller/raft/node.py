"""`RaftNode`: one replica of the metadata log, as a state machine that a driver feeds with events."""

from typing import TYPE_CHECKING, Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.records.batch import scan_batches
from quorate_protocol.uuids import uuid_to_text

from quorate_controller.raft.events import (
    ConnectionLost,
    Event,
    LogStartMoved,
    Persisted,
    Propose,
    QuorumDescription,
    Ready,
    ReplicaDescription,
    RequestFailed,
    RequestReceived,
    Resign,
    ResponseReceived,
    Role,
    RoleChange,
    Shutdown,
    SnapshotRefused,
    SnapshotRestored,
    SnapshotTaken,
    Tick,
)
from quorate_controller.raft.handlers import epochs, membership, replication, responses
from quorate_controller.raft.messages import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    RaftResponse,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
)
from quorate_controller.raft.model import NO_NODE_ID, RaftSafetyError
from quorate_controller.raft.peers import NEVER_MS
from quorate_controller.raft.roles.follower import Follower
from quorate_controller.raft.roles.leader import Leader, Resigned
from quorate_controller.raft.startup import KRAFT_VERSION_DYNAMIC
from quorate_controller.raft.transitions import ElectingReplica

if TYPE_CHECKING:
    from random import Random

    from quorate_controller.raft.model import Endpoint
    from quorate_controller.raft.progress import ReplicaProgress
    from quorate_controller.raft.replica import Replica, RoleState
    from quorate_controller.raft.startup import HardState, LogState, RaftConfig
    from quorate_controller.raft.voters import VoterSet

WARN_AFTER_MS: Final = 10_000
"""Longer than it takes to find a leader and its voters, or to join."""


class OutsiderWatch:
    """Warns once, after a while, and again only if the replica has been a voter in between."""

    __slots__ = ("_is_reported", "_since_ms")

    def __init__(self) -> None:
        self._since_ms: int | None = None
        self._is_reported = False

    def poll(self, replica: "Replica") -> int:
        """Warn when the warning is due. Returns when the next call is due (Unix milliseconds)."""
        if not replica.config.can_vote or replica.is_voter:
            self._since_ms, self._is_reported = None, False
            return NEVER_MS
        if self._is_reported:
            return NEVER_MS
        if self._since_ms is None:
            self._since_ms = replica.now_ms
        due_ms = self._since_ms + WARN_AFTER_MS
        if replica.now_ms < due_ms:
            return due_ms
        self._is_reported = True
        replica.effects.warn(
            "not_a_voter",
            replica=str(replica.key),
            voters=[str(voter.key) for voter in replica.voters],
            kraft_version=replica.history.kraft_version,
            leader_id=replica.state.leader_id,
            advice=_advice(replica),
        )
        return NEVER_MS


def _advice(replica: "Replica") -> str:
    config, key = replica.config, replica.key
    predecessor = replica.voters.get(key.node_id)
    if predecessor is not None and predecessor.key.directory_id is not None:
        directory_id = uuid_to_text(predecessor.key.directory_id)
        return (
            f"Node {key.node_id} is a voter with another directory. If this is its disk, set "
            f"directory.id={directory_id} in meta.properties and restart; otherwise remove that voter with "
            "remove-controller, and add this one with add-controller"
        )
    if not replica.log.end_offset and not replica.state.has_leader:
        servers = ",".join(f"{server.host}:{server.port}" for server in config.bootstrap_servers)
        return f"It has found no leader. Check controller.quorum.bootstrap.servers={servers}"
    if replica.history.kraft_version < KRAFT_VERSION_DYNAMIC:
        return (
            "The quorum is static (kraft.version 0): set controller.quorum.voters as on the other controllers, "
            f"with node {key.node_id}"
        )
    if config.auto_join:
        return "It asks to join by itself (controller.quorum.auto.join.enable=true), and has not become a voter yet"
    return "Add it with add-controller, or set controller.quorum.auto.join.enable=true"


_POLLS_MAX = 8
"""A step passes through at most these roles: Resigned, Unattached, Prospective, Candidate, Leader."""

REDIRECT_MS: Final = 500
"""How long a resigned leader keeps redirecting observers to its successor. Afterwards they look for the leader at all
controllers, and on Kubernetes the address of a deleted pod does not even refuse connections: one attempt takes
socket.connection.setup.timeout.ms, 10 s."""


class RaftNode:
    """A voter or observer of the quorum. Not thread-safe; deterministic for a given `rng`.

    `now_ms` is Unix milliseconds and never decreases. After construction call `start` once (the only voter elects
    itself, others set their timers).
    """

    def __init__(
        self, *, config: "RaftConfig", hard_state: "HardState", log: "LogState", rng: "Random"
    ) -> None:
        if config.key.directory_id is None:
            raise RaftSafetyError(f"{config.key} does not know its directory")
        self._replica = ElectingReplica(config, hard_state, log, rng)
        self._deadline_ms = NEVER_MS
        self._reported_role: RoleChange | None = None
        self._reported_state: RoleState | None = None
        self._leaves_at_ms: int | None = None
        self._outsider_watch = OutsiderWatch()

    def start(self, now_ms: int) -> "Ready":
        """Start the replica. Call it once, before the first `step`."""
        self._replica.now_ms = now_ms
        self._replica.start()
        return self._finish()

    def step(self, event: "Event", now_ms: int) -> "Ready":
        """Handle one event. See `Ready` for the order of its effects.

        Raises:
            RaftSafetyError: the step would break a promise. The process has to end.
        """
        replica = self._replica
        self._set_time(now_ms)
        match event:
            case RequestReceived():
                self._on_request(event)
            case ResponseReceived(request_id=request_id, response=response):
                responses.on_response(replica, request_id, response)
            case RequestFailed(request_id=request_id, reason=reason):
                responses.on_failure(replica, request_id, reason)
            case ConnectionLost(node_id=node_id):
                responses.on_connection_lost(replica, node_id)
            case Propose(batches=batches):
                self._on_propose(batches)
            case Resign(epoch=epoch):
                if isinstance(replica.state, Leader) and epoch == replica.epoch:
                    replica.state.is_resigning = True
            case Shutdown(timeout_ms=timeout_ms):
                replica.shutdown_deadline_ms = now_ms + timeout_ms
                is_leading = isinstance(replica.state, Leader | Resigned)
                self._leaves_at_ms = replica.shutdown_deadline_ms if is_leading else now_ms
            case Tick():
                pass
            case _:
                self._on_storage(event)
        return self._finish()

    def upgrade_kraft_version(
        self, kraft_version: int, *, validate_only: bool, now_ms: int
    ) -> "tuple[int | None, Ready]":
        """Raise kraft.version from 0 to 1 (KIP-853), leader only.

        Returns:
            The offset whose commit completes the upgrade (the high watermark must pass it), None when there is
            nothing to do or with `validate_only`; and the effects of the step.

        Raises:
            ProtocolError: NOT_LEADER_OR_FOLLOWER; INVALID_UPDATE_VERSION with the reason.
        """
        self._set_time(now_ms)
        offset = membership.upgrade_kraft_version(self._replica, kraft_version, validate_only=validate_only)
        return offset, self._finish()

    def check_kraft_version_upgrade(self, kraft_version: int) -> None:
        """Refuse what `upgrade_kraft_version` would refuse; changes nothing."""
        membership.upgrade_kraft_version(self._replica, kraft_version, validate_only=True)

    # ------------------------------------------------------------------------------------------- events

    def _set_time(self, now_ms: int) -> None:
        if now_ms < self._replica.now_ms:
            raise RaftSafetyError(f"time went back from {self._replica.now_ms} to {now_ms}")
        self._replica.now_ms = now_ms

    def _on_request(self, event: RequestReceived) -> None:
        replica, token, listener = self._replica, event.token, event.listener
        response: RaftResponse | None
        match event.request:
            case VoteRequest() as request:
                response = epochs.handle_vote(replica, request, listener)
            case BeginQuorumEpochRequest() as request:
                response = epochs.handle_begin_epoch(replica, request, listener)
            case EndQuorumEpochRequest() as request:
                response = epochs.handle_end_epoch(replica, request, listener)
            case FetchRequest() as request:
                response = replication.handle_fetch(replica, token, request, listener)
            case FetchSnapshotRequest() as request:
                response = replication.handle_fetch_snapshot(replica, request, listener)
            case AddRaftVoterRequest() as request:
                response = membership.handle_add_voter(replica, token, request)
            case RemoveRaftVoterRequest() as request:
                response = membership.handle_remove_voter(replica, token, request)
            case UpdateRaftVoterRequest() as request:
                response = membership.handle_update_voter(replica, request, listener)
            case request:
                raise RaftSafetyError(f"{request} is for sending only")
        if response is not None:
            replica.effects.respond(token, response)

    def _on_storage(
        self, event: Persisted | SnapshotTaken | LogStartMoved | SnapshotRestored | SnapshotRefused
    ) -> None:
        replica = self._replica
        match event:
            case Persisted(end_offset=end_offset):
                replica.log.persisted(end_offset)
                if isinstance(replica.state, Leader):
                    replica.state.record_own_end(replica)
            case SnapshotTaken(snapshot_id=snapshot_id):
                if snapshot_id.offset > replica.high_watermark:
                    raise RaftSafetyError(
                        f"snapshot {snapshot_id} has more than what is committed: {replica.high_watermark}"
                    )
                replica.log.snapshot_taken(snapshot_id)
            case LogStartMoved(start_offset=start_offset):
                replica.log.move_start(start_offset)
                replica.history.trim_to(start_offset - 1)
            case SnapshotRestored(snapshot_id=snapshot_id, kraft_version=kraft_version, voters=voters):
                replica.end_restore(snapshot_id, kraft_version, voters)
                self._resume_fetching()
            case SnapshotRefused(snapshot_id=snapshot_id, reason=reason):
                replica.refuse_restore(snapshot_id, reason)
                self._resume_fetching()

    def _resume_fetching(self) -> None:
        state = self._replica.state
        if isinstance(state, Follower):
            state.resume_fetching(self._replica)

    def _on_propose(self, batches: bytes) -> None:
        replica = self._replica
        state = replica.state
        if not isinstance(state, Leader):
            raise RaftSafetyError(
                f"only the leader appends: records proposed as {state.role} of epoch {state.epoch}"
            )
        headers = tuple(scan_batches(batches))
        epochs_seen = {header.partition_leader_epoch for header in headers}
        if epochs_seen != {replica.epoch}:
            raise RaftSafetyError(f"batches of epochs {epochs_seen} proposed in {replica.epoch}")
        if any(header.is_control for header in headers):
            raise RaftSafetyError("control records proposed: only raft changes voters and kraft.version")
        replica.append(batches)

    def _finish(self) -> Ready:
        """Poll the role until it does not change any more."""
        replica = self._replica
        for _ in range(_POLLS_MAX):
            state = replica.state
            self._deadline_ms = NEVER_MS if self._is_at_rest() else replica.poll()
            if replica.state is state:
                break
        else:
            raise RaftSafetyError(f"roles do not settle: {replica.state}")
        if replica.state is not self._reported_state:
            if self._leaves_at_ms is not None and isinstance(self._reported_state, Resigned):
                self._leaves_at_ms = min(self._leaves_at_ms, replica.now_ms + REDIRECT_MS)
            self._reported_state = replica.state
            change = RoleChange(
                role=replica.state.role,
                epoch=replica.epoch,
                leader_id=replica.state.leader_id,
                epoch_start_offset=self.epoch_start_offset,
            )
            if change != self._reported_role:
                self._reported_role = replica.effects.role = change
        if not self._is_at_rest():
            self._deadline_ms = min(self._deadline_ms, self._outsider_watch.poll(replica))
        if self._leaves_at_ms is not None and not self.is_shut_down:
            self._deadline_ms = min(self._deadline_ms, self._leaves_at_ms)
        return replica.effects.drain()

    def _is_at_rest(self) -> bool:
        """Whether the role is not polled: a snapshot is being put in place, or this replica has shut down."""
        return self._replica.restoring is not None or self.is_shut_down

    # ------------------------------------------------------------------------------------------ queries

    @property
    def deadline_ms(self) -> int:
        """The time of the next `Tick` at the latest."""
        return self._deadline_ms

    @property
    def role(self) -> "Role":
        return self._replica.state.role

    @property
    def is_voter(self) -> bool:
        """Whether this replica is in the voter set in force."""
        return self._replica.is_voter

    @property
    def epoch(self) -> int:
        return self._replica.epoch

    @property
    def leader_id(self) -> int:
        """-1 when unknown. The leader may be down: the id is restored from quorum-state, and kept in a pre-vote."""
        return self._replica.state.leader_id

    @property
    def is_led(self) -> bool:
        """Whether this replica leads, or follows a leader that responded to a Fetch within the fetch timeout."""
        state = self._replica.state
        return isinstance(state, Leader) or (isinstance(state, Follower) and state.has_fetched_from_leader)

    @property
    def leader_endpoints(self) -> "tuple[Endpoint, ...]":
        """The leader's endpoints as it announced them, which may be newer than the voter set. May be empty."""
        return self._replica.state.leader_endpoints

    @property
    def voted_id(self) -> int:
        """The id that this replica voted for in the current epoch, -1 for none."""
        voted_key = self._replica.state.voted_key
        return -1 if voted_key is None else voted_key.node_id

    @property
    def high_watermark(self) -> int:
        """-1 when unknown."""
        return self._replica.high_watermark

    @property
    def has_caught_up(self) -> bool:
        """Whether the log had all committed records at least once since the start."""
        return self._replica.has_caught_up

    @property
    def log_start_offset(self) -> int:
        return self._replica.log.start_offset

    @property
    def log_end_offset(self) -> int:
        """The base offset of the next `Propose`."""
        return self._replica.log.end_offset

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record in the log or snapshot, 0 for an empty log."""
        return self._replica.log.last_epoch

    @property
    def epoch_start_offset(self) -> int | None:
        """Offset of the LeaderChange record of the own epoch; None unless leader."""
        state = self._replica.state
        return state.epoch_start_offset if isinstance(state, Leader) else None

    @property
    def voters(self) -> "VoterSet":
        """The voter set in force: the last one in the log, committed or not."""
        return self._replica.voters

    @property
    def kraft_version(self) -> int:
        """The level in force, committed or not."""
        return self._replica.history.kraft_version

    def voters_at(self, offset: int) -> "VoterSet | None":
        """The recorded voter set in force at `offset`, for a snapshot that ends behind it. None while the
        voters are those of the configuration: such a snapshot has no VotersRecord.
        """
        return self._replica.history.voters_at(offset)

    def kraft_version_at(self, offset: int) -> int:
        """kraft.version in force at `offset`, for a snapshot that ends behind it."""
        return self._replica.history.kraft_version_at(offset)

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record at `offset`, for the id of a snapshot that ends behind it."""
        return self._replica.log.epoch_at(offset)

    @property
    def is_shut_down(self) -> bool:
        """Whether a `Shutdown` has run its course.

        A resigned leader stays until another replica stands for election, which may need its vote, and then for
        REDIRECT_MS.
        """
        if self._leaves_at_ms is None:
            return False
        state = self._replica.state
        is_alone = isinstance(state, Resigned) and state.has_no_successor
        return is_alone or self._replica.now_ms >= self._leaves_at_ms

    def high_watermark_of(self, node_id: int) -> int:
        """The high watermark of another node, -1 if unknown: only a leader knows it."""
        leader = self._replica.state
        return leader.progress.high_watermark_of(node_id) if isinstance(leader, Leader) else -1

    def describe_quorum(self, now_ms: int) -> "QuorumDescription":
        """The response to DescribeQuorum. A replica that does not lead reports the voter set in its log."""
        leader = self._replica.state
        if not isinstance(leader, Leader):
            return QuorumDescription(
                error_code=ErrorCode.not_leader_or_follower,
                leader_id=leader.leader_id if self.is_led else NO_NODE_ID,
                leader_epoch=leader.epoch,
                voters=tuple(
                    ReplicaDescription(key=voter.key, endpoints=voter.endpoints)
                    for voter in self.voters.voters
                ),
            )
        return QuorumDescription(
            leader_id=leader.leader_id,
            leader_epoch=leader.epoch,
            high_watermark=-1 if leader.high_watermark is None else leader.high_watermark,
            voters=tuple(self._describe(voter, now_ms) for voter in leader.progress.voters.values()),
            observers=tuple(self._describe(replica, now_ms) for replica in leader.progress.observers(now_ms)),
        )

    def _describe(self, replica: "ReplicaProgress", now_ms: int) -> ReplicaDescription:
        is_own = replica.key.node_id == self._replica.key.node_id
        return ReplicaDescription(
            key=replica.key,
            log_end_offset=-1 if replica.end_offset is None else replica.end_offset,
            last_fetch_timestamp_ms=now_ms if is_own else replica.last_fetch_ms,
            last_caught_up_timestamp_ms=now_ms if is_own else replica.last_caught_up_ms,
            endpoints=replica.endpoints,
        )
