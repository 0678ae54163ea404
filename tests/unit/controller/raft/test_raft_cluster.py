"""Whole clusters of raft cores on a network that delays, reorders and loses, with crashes and voter changes.

Each run is decided by one seed. In the first phase anything may go wrong and only safety is asked for; then
faults end, and the cluster must agree. A failure names the seed: run the test again with it.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from quorate_controller.raft.events import (
    ConnectionLost,
    FailureReason,
    LogStartMoved,
    Persisted,
    Propose,
    Ready,
    RequestFailed,
    RequestReceived,
    Resign,
    ResponseReceived,
    Role,
    Send,
    SnapshotRestored,
    SnapshotTaken,
    Tick,
)
from quorate_controller.raft.messages import (
    AddRaftVoterRequest,
    ApiVersionsProbe,
    ApiVersionsProbeResponse,
    FetchResponse,
    FetchSnapshotResponse,
    RaftResponse,
    RemoveRaftVoterRequest,
    VoteRequest,
)
from quorate_controller.raft.model import SnapshotId, VersionRange
from quorate_controller.raft.node import RaftNode
from quorate_controller.raft.records import quorum_changes
from quorate_controller.raft.startup import (
    BootstrapServer,
    EpochStart,
    HardState,
    KRaftVersionAt,
    LogState,
    VotersAt,
)
from quorate_controller.raft.voters import VoterSet
from quorate_protocol.errors import ErrorCode
from quorate_protocol.records.batch import build_batch, scan_batches

FAULTS_MS = 30_000
CALM_MS = 20_000
LATENCY_MS_MAX = 20
SNAPSHOT_CHUNK_BYTES = 400
BOOTSTRAP_SERVERS = tuple(BootstrapServer(host=f"host{node_id}", port=9000 + node_id) for node_id in range(3))


@dataclass(frozen=True)
class Batch:
    base_offset: int
    last_offset: int
    epoch: int
    data: bytes


@dataclass(frozen=True)
class Snapshot:
    """In place of a state: the batches that made it."""

    batches: tuple[Batch, ...]
    kraft_version: int
    voters: VoterSet | None
    data: bytes = b"x" * 1000


@dataclass
class Disk:
    """What survives a crash."""

    hard_state: HardState = field(default_factory=HardState)
    batches: list[Batch] = field(default_factory=list)
    snapshots: dict[SnapshotId, Snapshot] = field(default_factory=dict)
    start_offset: int = 0
    downloaded: int = 0
    formatted: LogState = field(default_factory=LogState)

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else self.start_offset

    def log_state(self) -> LogState:
        latest = max(self.snapshots, default=None)
        voters, versions = list(self.formatted.voters), list(self.formatted.kraft_versions)
        if latest is not None:
            snapshot = self.snapshots[latest]
            versions = [KRaftVersionAt(offset=latest.offset - 1, kraft_version=snapshot.kraft_version)]
            voters = [VotersAt(offset=latest.offset - 1, voters=snapshot.voters)] if snapshot.voters else []
        epochs: list[EpochStart] = []
        for batch in self.batches:
            if not epochs or epochs[-1].epoch != batch.epoch:
                epochs.append(EpochStart(epoch=batch.epoch, start_offset=batch.base_offset))
            for header in scan_batches(batch.data):
                for offset, change in quorum_changes(batch.data, header) if header.is_control else ():
                    if latest is not None and offset < latest.offset:
                        continue
                    if isinstance(change, VoterSet):
                        voters.append(VotersAt(offset=offset, voters=change))
                    else:
                        versions.append(KRaftVersionAt(offset=offset, kraft_version=change))
        return LogState(
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            epochs=tuple(epochs),
            snapshot_id=latest or self.formatted.snapshot_id,
            earliest_snapshot_id=min(self.snapshots, default=None),
            voters=tuple(voters),
            kraft_versions=tuple(versions),
        )

    def read(self, start_offset: int, end_offset: int, size_bytes_max: int) -> bytes:
        data = b""
        for batch in self.batches:
            if start_offset <= batch.base_offset < end_offset and (not data or len(data) < size_bytes_max):
                data += batch.data
        return data

    def take_snapshot(self, offset: int, node: RaftNode) -> SnapshotId:
        """A snapshot of everything below `offset`, with all batches that ever led there."""
        latest = max(self.snapshots, default=None)
        before = self.snapshots[latest].batches if latest is not None else ()
        known = before[-1].last_offset + 1 if before else 0
        batches = (*before, *(batch for batch in self.batches if known <= batch.base_offset < offset))
        snapshot_id = SnapshotId(offset=offset, epoch=node.epoch_at(offset - 1))
        self.snapshots[snapshot_id] = Snapshot(
            batches=batches,
            kraft_version=node.kraft_version_at(offset - 1),
            voters=node.voters_at(offset - 1),
        )
        return snapshot_id


class Member:
    """One replica: its disk, and its node while it runs."""

    def __init__(self, node_id: int, disk: Disk) -> None:
        self.node_id = node_id
        self.disk = disk
        self.node: RaftNode | None = None
        self.incarnation = 0
        self.high_watermark = -1


class Cluster:
    """The members, the network between them, the clock, and what must never be seen."""

    def __init__(self, lab, seed: int, *, voters: int, observers: int, is_static: bool = False) -> None:
        self.lab = lab
        self.rng = Random(seed)
        self.now_ms = lab.start_ms
        self.is_faulty = True
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._tokens: dict[int, Callable[[RaftResponse], None]] = {}
        self._next_token = 0
        self._under_way: dict[int, list[Callable[[], None]]] = {}
        """By receiver: what breaks off the requests that it got, answered or not."""
        self._cut: set[int] = set()
        self._no_pre_vote = {node_id for node_id in range(voters) if self.rng.random() < 0.1}
        self.committed: dict[int, Batch] = {}
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[int, int], int] = {}
        self.epochs: dict[int, int] = {}
        self.proposals = 0
        self._snapshots: dict[SnapshotId, Snapshot] = {}
        ids = range(voters)
        self._static = lab.static_voters(*ids) if is_static else VoterSet()
        formatted = LogState() if is_static else lab.formatted(*ids)
        self.members = [
            Member(node_id, Disk(formatted=formatted if node_id < voters else LogState()))
            for node_id in range(voters + observers)
        ]
        for member in self.members:
            self.start(member)

    # ------------------------------------------------------------------------------------------- clock

    def at(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._sequence, action))

    def run(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while True:
            next_ms = self._events[0][0] if self._events else end_ms
            for member in self.members:
                if member.node is not None:
                    next_ms = min(next_ms, member.node.deadline_ms)
            if next_ms >= end_ms:
                self.now_ms = end_ms
                return
            self.now_ms = max(self.now_ms, next_ms)
            while self._events and self._events[0][0] <= self.now_ms:
                heapq.heappop(self._events)[2]()
            for member in self.members:
                if member.node is not None and member.node.deadline_ms <= self.now_ms:
                    self.step(member, Tick())

    # --------------------------------------------------------------------------------------- lifecycle

    def start(self, member: Member) -> None:
        member.incarnation += 1
        member.high_watermark = -1
        node = RaftNode(
            config=self.lab.config(
                member.node_id, static_voters=self._static, bootstrap_servers=BOOTSTRAP_SERVERS
            ),
            hard_state=member.disk.hard_state,
            log=member.disk.log_state(),
            rng=Random(self.rng.random()),
        )
        member.node = node
        self._carry_out(member, node.start(self.now_ms))

    def crash(self, member: Member) -> None:
        member.node = None
        for other in self.members:
            if other.node is not None and other is not member:
                self._report_connection_lost(other, member.node_id)
        for break_off in self._under_way.pop(member.node_id, ()):
            self.at(self.rng.randrange(LATENCY_MS_MAX), break_off)

    def _report_connection_lost(self, member: Member, node_id: int) -> None:
        incarnation = member.incarnation

        def report() -> None:
            if member.node is not None and member.incarnation == incarnation:
                self.step(member, ConnectionLost(node_id=node_id))

        self.at(self.rng.randrange(LATENCY_MS_MAX), report)

    # ----------------------------------------------------------------------------------------- driving

    def step(self, member: Member, event: object) -> None:
        assert member.node is not None
        self._carry_out(member, member.node.step(event, self.now_ms))

    def _carry_out(self, member: Member, ready: Ready) -> None:
        node, disk = member.node, member.disk
        assert node is not None
        if ready.hard_state is not None:
            disk.hard_state = ready.hard_state
        if ready.truncate_to is not None:
            disk.batches = [batch for batch in disk.batches if batch.last_offset < ready.truncate_to]
            assert disk.end_offset == ready.truncate_to, "logs are cut between batches"
        for header in scan_batches(ready.append):
            data = ready.append[header.position : header.position + header.size_bytes]
            disk.batches.append(
                Batch(header.base_offset, header.last_offset, header.partition_leader_epoch, data)
            )
        if ready.snapshot_chunk is not None:
            disk.downloaded = ready.snapshot_chunk.position + len(ready.snapshot_chunk.data)
        restored = self._restore(disk, ready.restore) if ready.restore is not None else None
        self._check(member, ready)
        for send in ready.sends:
            self._deliver(member, send)
        for outgoing in ready.responses:
            self._tokens.pop(outgoing.token)(self._fill(disk, outgoing.response))
        if ready.append:
            self.step(member, Persisted(end_offset=disk.end_offset))
        if restored is not None:
            self.step(member, restored)
        if node.role is Role.LEADER and ready.role is not None and self.rng.random() < 0.5:
            self._propose(member)

    def _restore(self, disk: Disk, snapshot_id: SnapshotId) -> SnapshotRestored:
        snapshot = self._snapshots[snapshot_id]
        assert disk.downloaded == len(snapshot.data)
        disk.snapshots = {snapshot_id: snapshot}
        disk.batches, disk.start_offset = [], snapshot_id.offset
        return SnapshotRestored(
            snapshot_id=snapshot_id, kraft_version=snapshot.kraft_version, voters=snapshot.voters
        )

    def _fill(self, disk: Disk, response: RaftResponse) -> RaftResponse:
        if isinstance(response, FetchResponse) and response.read is not None:
            read = response.read
            records = disk.read(read.start_offset, read.end_offset, read.size_bytes_max)
            return replace(response, records=records, read=None)
        if isinstance(response, FetchSnapshotResponse) and response.read is not None:
            snapshot = disk.snapshots.get(response.read.snapshot_id)
            if snapshot is None:
                return response.refused(ErrorCode.snapshot_not_found)
            start, size = response.read.position, min(response.read.size_bytes_max, 400)
            return replace(
                response,
                records=snapshot.data[start : start + size],
                size_bytes=len(snapshot.data),
                read=None,
            )
        return response

    # ----------------------------------------------------------------------------------------- network

    def _is_lost(self, *node_ids: int) -> bool:
        return self.is_faulty and (bool(self._cut & set(node_ids)) or self.rng.random() < 0.02)

    def _latency_ms(self) -> int:
        is_slow = self.is_faulty and self.rng.random() < 0.03
        return self.rng.randrange(1, 1500 if is_slow else LATENCY_MS_MAX)

    def _deliver(self, sender: Member, send: Send) -> None:
        """Bring a request to its receiver and the response back, or a failure in place of it."""
        incarnation = sender.incarnation
        is_done = False

        def finish(event: object) -> None:
            nonlocal is_done
            if not is_done and sender.node is not None and sender.incarnation == incarnation:
                is_done = True
                self.step(sender, event)

        def fail(reason: FailureReason) -> Callable[[], None]:
            return lambda: finish(RequestFailed(request_id=send.request_id, reason=reason))

        receiver = self._resolve(send)
        self.at(send.timeout_ms, fail(FailureReason.TIMED_OUT))

        def arrive() -> None:
            if receiver is None or receiver.node is None:
                self.at(self._latency_ms(), fail(FailureReason.UNREACHABLE))
            elif isinstance(send.request, ApiVersionsProbe):
                response = ApiVersionsProbeResponse(kraft_versions=VersionRange(lowest=0, highest=1))
                self.at(self._latency_ms(), lambda: respond(response))
            elif isinstance(send.request, VoteRequest) and self._must_refuse_pre_vote(receiver, send.request):
                self.at(self._latency_ms(), fail(FailureReason.UNSUPPORTED_VERSION))
            else:
                self._under_way.setdefault(receiver.node_id, []).append(fail(FailureReason.DISCONNECTED))
                self._receive(receiver, send.request, lambda response: back(receiver, response))

        def back(receiver: Member, response: RaftResponse) -> None:
            if not self._is_lost(sender.node_id, receiver.node_id):
                self.at(self._latency_ms(), lambda: respond(response))

        def respond(response: RaftResponse) -> None:
            finish(ResponseReceived(request_id=send.request_id, response=response))

        if not self._is_lost(sender.node_id, receiver.node_id if receiver is not None else -1):
            self.at(self._latency_ms(), arrive)
            if self.is_faulty and self.rng.random() < 0.02:
                self.at(self._latency_ms(), arrive)

    def _resolve(self, send: Send) -> Member | None:
        node_id = send.destination.port - 9000
        return self.members[node_id] if 0 <= node_id < len(self.members) else None

    def _must_refuse_pre_vote(self, receiver: Member, request: VoteRequest) -> bool:
        return request.pre_vote and receiver.node_id in self._no_pre_vote

    def _receive(self, receiver: Member, request: object, respond: Callable[[RaftResponse], None]) -> None:
        token = self._next_token
        self._next_token += 1
        self._tokens[token] = respond
        self.step(receiver, RequestReceived(token=token, request=request, listener=self.lab.listener))

    # -------------------------------------------------------------------------------------- operations

    @property
    def running(self) -> list[Member]:
        return [member for member in self.members if member.node is not None]

    def leader(self) -> Member | None:
        """The leader of the highest epoch, as far as one thinks to be it."""
        leading = [member for member in self.running if member.node and member.node.role is Role.LEADER]
        return max(leading, key=lambda member: member.node.epoch if member.node else 0, default=None)

    def _propose(self, member: Member) -> None:
        node = member.node
        assert node is not None
        self.proposals += 1
        values = [b"record %d" % self.proposals] * self.rng.randrange(1, 4)
        batch = build_batch(values, node.log_end_offset, node.epoch, self.now_ms)
        self.step(member, Propose(batches=batch))

    def propose(self) -> None:
        leading = [member for member in self.running if member.node and member.node.role is Role.LEADER]
        if leading:
            self._propose(self.rng.choice(leading))

    def change_voters(self) -> None:
        leader = self.leader()
        if leader is None or leader.node is None:
            return
        voters = leader.node.voters
        member = self.rng.choice(self.members)
        request: object
        if voters.get(member.node_id) is None:
            request = AddRaftVoterRequest(
                cluster_id=self.lab.cluster_id,
                timeout_ms=1000,
                voter=self.lab.key(member.node_id),
                endpoints=self.lab.endpoints(member.node_id),
            )
        elif len(voters) > 2 or self.rng.random() < 0.2:
            request = RemoveRaftVoterRequest(
                cluster_id=self.lab.cluster_id, voter=self.lab.key(member.node_id)
            )
        else:
            return
        self._receive(leader, request, lambda _: None)

    def snapshot(self) -> None:
        member = self.rng.choice(self.running) if self.running else None
        if member is None or member.node is None:
            return
        node, disk = member.node, member.disk
        ends = [batch.last_offset + 1 for batch in disk.batches if batch.last_offset < node.high_watermark]
        if not ends:
            return
        offset = self.rng.choice(ends)
        if offset > max((snapshot_id.offset for snapshot_id in disk.snapshots), default=0):
            snapshot_id = disk.take_snapshot(offset, node)
            self._snapshots[snapshot_id] = disk.snapshots[snapshot_id]
            self.step(member, SnapshotTaken(snapshot_id=snapshot_id))
        if self.rng.random() < 0.7 and disk.snapshots:
            start = self.rng.choice(sorted(disk.snapshots))
            disk.snapshots = {key: value for key, value in disk.snapshots.items() if key >= start}
            disk.start_offset = max(disk.start_offset, start.offset)
            disk.batches = [batch for batch in disk.batches if batch.base_offset >= disk.start_offset]
            self.step(member, LogStartMoved(start_offset=disk.start_offset))

    def crash_or_restart(self) -> None:
        member = self.rng.choice(self.members)
        if member.node is None:
            self.start(member)
        elif len(self.running) > len(self.members) // 2:
            self.crash(member)

    def cut_or_heal(self) -> None:
        self._cut = set() if self._cut else {self.rng.choice(self.members).node_id}

    def resign(self) -> None:
        leader = self.leader()
        if leader is not None and leader.node is not None:
            self.step(leader, Resign(epoch=leader.node.epoch))

    def misbehave(self, duration_ms: int, *, can_change_voters: bool) -> None:
        """Let things go wrong, at random, for a while."""
        actions = [self.propose] * 20 + [self.crash_or_restart] * 2 + [self.snapshot] * 2
        actions += [self.cut_or_heal, self.resign]
        if can_change_voters:
            actions += [self.change_voters] * 4
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            self.run(self.rng.randrange(1, 200))
            self.rng.choice(actions)()

    def calm_down(self) -> None:
        """End all faults, and start all members."""
        self.is_faulty = False
        self._cut = set()
        for member in self.members:
            if member.node is None:
                self.start(member)
        self.run(CALM_MS)

    # ------------------------------------------------------------------------------------------ checks

    def _check(self, member: Member, ready: Ready) -> None:
        node, disk = member.node, member.disk
        assert node is not None
        assert node.deadline_ms > self.now_ms, "no busy loop"
        assert node.epoch >= self.epochs.get(member.node_id, 0), "MonotonicEpoch"
        self.epochs[member.node_id] = node.epoch
        voted_key = disk.hard_state.voted_key
        if voted_key is not None:
            vote = self.votes.setdefault((member.node_id, disk.hard_state.leader_epoch), voted_key.node_id)
            assert vote == voted_key.node_id, "one vote per epoch"
        if ready.role is not None and ready.role.role is Role.LEADER:
            leader_id = self.leaders.setdefault(ready.role.epoch, member.node_id)
            assert leader_id == member.node_id, "SingleLeader"
        if ready.high_watermark is not None:
            assert ready.high_watermark > member.high_watermark, "MonotonicHighWatermark"
            member.high_watermark = ready.high_watermark
            self._check_committed(member)

    def _check_committed(self, member: Member) -> None:
        """ConsistentCommittedData: all replicas commit the same at an offset, for ever."""
        disk = member.disk
        latest = max(disk.snapshots, default=None)
        inside = disk.snapshots[latest].batches if latest is not None else ()
        for batch in (*inside, *disk.batches):
            if batch.last_offset < member.high_watermark:
                assert self.committed.setdefault(batch.base_offset, batch) == batch, "ConsistentCommittedData"

    def check_agreement(self) -> None:
        """After the calm: one leader, and everybody has the same log and high watermark."""
        leader = self.leader()
        assert leader is not None, "a leader is elected"
        assert leader.node is not None
        before = leader.node.high_watermark
        self._propose(leader)
        self.run(3_000)
        assert leader.node.high_watermark > before, "the leader commits"
        for member in self.members:
            assert member.node is not None
            assert member.node.leader_id == leader.node_id
            assert member.disk.end_offset == leader.disk.end_offset
            assert member.high_watermark == leader.high_watermark
            assert member.node.voters == leader.node.voters
            assert member.disk.batches[-1:] in ([], leader.disk.batches[-1:])
            self._check_committed(member)


@pytest.mark.parametrize("seed", range(12))
def test_faults_never_break_safety_and_calm_brings_agreement(lab, seed: int) -> None:
    """Elections, replication, snapshots and restarts keep the log consistent."""
    rng = Random(seed)
    cluster = Cluster(lab, seed, voters=rng.choice([1, 2, 3, 3, 3, 5]), observers=rng.randrange(3))
    cluster.misbehave(FAULTS_MS, can_change_voters=False)
    cluster.calm_down()
    cluster.check_agreement()
    assert len(cluster.committed) > 10


@pytest.mark.parametrize("seed", range(100, 112))
def test_voter_changes_never_break_safety(lab, seed: int) -> None:
    cluster = Cluster(lab, seed, voters=3, observers=3)
    cluster.misbehave(FAULTS_MS, can_change_voters=True)
    cluster.calm_down()
    cluster.check_agreement()


@pytest.mark.parametrize("seed", range(200, 206))
def test_a_static_quorum_is_as_safe(lab, seed: int) -> None:
    """Kraft.version 0 elects and replicates without directory ids."""
    cluster = Cluster(lab, seed, voters=3, observers=1, is_static=True)
    cluster.misbehave(FAULTS_MS, can_change_voters=False)
    cluster.calm_down()
    cluster.check_agreement()
