"""`RaftNode`: one replica of the metadata log, as a state machine that a driver feeds with events."""

from typing import TYPE_CHECKING, Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.records.batch import scan_batches

from quorate_controller.raft.handlers import epochs, membership, replication, responses
from quorate_controller.raft.messages import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    ConnectionLost,
    EndQuorumEpochRequest,
    Event,
    FetchRequest,
    FetchSnapshotRequest,
    LogStartMoved,
    Persisted,
    Propose,
    QuorumDescription,
    RaftResponse,
    Ready,
    RemoveRaftVoterRequest,
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
    UpdateRaftVoterRequest,
    VoteRequest,
)
from quorate_controller.raft.model import NO_NODE_ID
from quorate_controller.raft.outsider import OutsiderWatch
from quorate_controller.raft.peers import NEVER_MS
from quorate_controller.raft.roles.follower import Follower
from quorate_controller.raft.roles.leader import Leader, Resigned
from quorate_controller.raft.safety import RaftSafetyError
from quorate_controller.raft.transitions import ElectingReplica

if TYPE_CHECKING:
    from random import Random

    from quorate_controller.raft.model import Endpoint
    from quorate_controller.raft.progress import ReplicaProgress
    from quorate_controller.raft.replica import RoleState
    from quorate_controller.raft.startup import HardState, LogState, RaftConfig
    from quorate_controller.raft.voters import VoterSet

_POLLS_MAX = 8
"""A step passes through a few roles at most: Resigned, Unattached, Prospective, Candidate, Leader."""

TELL_SUCCESSOR_MS: Final = 500
"""How long a leader that has handed over stays, so that observers which ask it are told of its successor. Once it is
gone they look for the leader at all controllers, and on Kubernetes the address of a pod that is gone does not even
refuse connections: one attempt takes socket.connection.setup.timeout.ms, 10 s."""


class RaftNode:
    """A voter or observer of the quorum. Not thread-safe; deterministic for a given `rng`.

    `now_ms` is Unix milliseconds and never goes back. After construction call `start` once: it does what a
    restart demands (the only voter elects itself, others set their timers).
    """

    def __init__(
        self, *, config: "RaftConfig", hard_state: "HardState", log: "LogState", rng: "Random"
    ) -> None:
        if config.key.directory_id is None:
            raise RaftSafetyError(f"{config.key} does not know its directory")
        self._replica = ElectingReplica(config, hard_state, log, rng)
        self._deadline_ms = NEVER_MS
        self._told_role: RoleChange | None = None
        self._told_state: RoleState | None = None
        self._leaves_at_ms: int | None = None
        self._outsider_watch = OutsiderWatch()

    def start(self, now_ms: int) -> "Ready":
        """Start the replica. Call it once, before the first `step`."""
        self._replica.now_ms = now_ms
        self._replica.start()
        return self._finish()

    def step(self, event: "Event", now_ms: int) -> "Ready":
        """Take one event and say what follows from it. See `Ready` for the order of doing it.

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
            nothing to do or with `validate_only`; and the effects.

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
            replica.effects.reply(token, response)

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
        """Let the role do what is due, until it has settled."""
        replica = self._replica
        for _ in range(_POLLS_MAX):
            state = replica.state
            self._deadline_ms = NEVER_MS if self._is_at_rest() else state.poll(replica)
            if replica.state is state:
                break
        else:
            raise RaftSafetyError(f"roles do not settle: {replica.state}")
        if replica.state is not self._told_state:
            if self._leaves_at_ms is not None and isinstance(self._told_state, Resigned):
                self._leaves_at_ms = min(self._leaves_at_ms, replica.now_ms + TELL_SUCCESSOR_MS)
            self._told_state = replica.state
            change = RoleChange(
                role=replica.state.role,
                epoch=replica.epoch,
                leader_id=replica.state.leader_id,
                epoch_start_offset=self.epoch_start_offset,
            )
            if change != self._told_role:
                self._told_role = replica.effects.role = change
        if not self._is_at_rest():
            self._deadline_ms = min(self._deadline_ms, self._outsider_watch.look(replica))
        if self._leaves_at_ms is not None and not self.is_shut_down:
            self._deadline_ms = min(self._deadline_ms, self._leaves_at_ms)
        return replica.effects.take()

    def _is_at_rest(self) -> bool:
        """Whether the role must begin nothing: a snapshot is being put in place, or this replica has shut down."""
        return self._replica.restoring is not None or self.is_shut_down

    # ------------------------------------------------------------------------------------------ queries

    @property
    def deadline_ms(self) -> int:
        """When the next `Tick` is due at the latest."""
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
        """Whether this replica leads, or follows a leader that has answered a Fetch within the fetch timeout."""
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
        """Whether the log had everything that was committed, at least once since the start."""
        return self._replica.has_caught_up

    @property
    def log_start_offset(self) -> int:
        return self._replica.log.start_offset

    @property
    def log_end_offset(self) -> int:
        """Where the next `Propose` must start."""
        return self._replica.log.end_offset

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record in the log or snapshot, 0 when there is none."""
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

        A leader stays, resigned, until another replica stands for election: it may be needed for its majority. It
        then stays for TELL_SUCCESSOR_MS.
        """
        if self._leaves_at_ms is None:
            return False
        state = self._replica.state
        has_nobody = isinstance(state, Resigned) and state.has_nobody_to_hand_over_to
        return has_nobody or self._replica.now_ms >= self._leaves_at_ms

    def high_watermark_of(self, node_id: int) -> int:
        """The high watermark that another node knows, -1 if that is unknown: only a leader knows it."""
        leader = self._replica.state
        return leader.progress.high_watermark_of(node_id) if isinstance(leader, Leader) else -1

    def describe_quorum(self, now_ms: int) -> "QuorumDescription":
        """The response to DescribeQuorum. Without leading, a replica reports the voter set that it knows."""
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
