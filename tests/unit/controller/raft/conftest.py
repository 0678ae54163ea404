"""A raft node under a script, with a driver that makes everything durable at once, and shorthands."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

import pytest
from quorate_controller.raft.events import (
    FailureReason,
    Note,
    OutgoingResponse,
    Persisted,
    Ready,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    RoleChange,
    Send,
    SnapshotChunk,
    Tick,
)
from quorate_controller.raft.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    RaftRequest,
    RaftResponse,
    VoteResponse,
)
from quorate_controller.raft.model import (
    BOOTSTRAP_SNAPSHOT_ID,
    Endpoint,
    ReplicaKey,
    SnapshotId,
    VersionRange,
    Voter,
)
from quorate_controller.raft.node import RaftNode
from quorate_controller.raft.startup import (
    BootstrapServer,
    EpochStart,
    HardState,
    KRaftVersionAt,
    LogState,
    RaftConfig,
    VotersAt,
)
from quorate_controller.raft.voters import VoterSet
from quorate_protocol.records.batch import build_batch

LISTENER = "CONTROLLER"
CLUSTER_ID = "cluster"
START_MS = 1_000_000


@dataclass
class StepResult:
    """All that one step brought about, the steps of the driver's answers included."""

    readies: list[Ready] = field(default_factory=list)

    @property
    def sends(self) -> list[Send]:
        return [send for ready in self.readies for send in ready.sends]

    @property
    def requests(self) -> dict[int, RaftRequest]:
        """The requests sent, by receiver."""
        return {send.destination.node_id: send.request for send in self.sends}

    @property
    def responses(self) -> list[OutgoingResponse]:
        return [outgoing for ready in self.readies for outgoing in ready.responses]

    @property
    def hard_state(self) -> HardState | None:
        return next((ready.hard_state for ready in reversed(self.readies) if ready.hard_state), None)

    @property
    def appended(self) -> bytes:
        return b"".join(ready.append for ready in self.readies)

    @property
    def truncated_to(self) -> list[int]:
        return [ready.truncate_to for ready in self.readies if ready.truncate_to is not None]

    @property
    def chunks(self) -> list[SnapshotChunk]:
        return [ready.snapshot_chunk for ready in self.readies if ready.snapshot_chunk is not None]

    @property
    def restores(self) -> list[SnapshotId]:
        return [ready.restore for ready in self.readies if ready.restore is not None]

    @property
    def roles(self) -> list[RoleChange]:
        return [ready.role for ready in self.readies if ready.role is not None]

    @property
    def high_watermark(self) -> int | None:
        marks = [ready.high_watermark for ready in self.readies if ready.high_watermark is not None]
        return marks[-1] if marks else None

    @property
    def warnings(self) -> list[Note]:
        return [note for ready in self.readies for note in ready.notes if note.is_warning]


class Scripted:
    """One node, fed by hand. Everything it appends is durable at once unless `is_slow_disk`."""

    def __init__(self, node: RaftNode, now_ms: int = START_MS) -> None:
        self.node = node
        self.now_ms = now_ms
        self.is_slow_disk = False
        self._token = 0

    def _follow_up(self, ready: Ready) -> StepResult:
        result = StepResult(readies=[ready])
        if ready.append and not self.is_slow_disk:
            result.readies += self.step(Persisted(end_offset=self.node.log_end_offset)).readies
        return result

    def start(self) -> StepResult:
        return self._follow_up(self.node.start(self.now_ms))

    def step(self, event: object, after_ms: int = 0) -> StepResult:
        self.now_ms += after_ms
        return self._follow_up(self.node.step(event, self.now_ms))  # type: ignore[arg-type]

    def wait(self, duration_ms: int) -> StepResult:
        """Let time pass, with a Tick whenever the node asks for one."""
        result, end_ms = StepResult(), self.now_ms + duration_ms
        while self.node.deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, self.node.deadline_ms)
            result.readies += self.step(Tick()).readies
        self.now_ms = end_ms
        return result

    def wait_for_deadline(self) -> StepResult:
        """Let time pass until the node has asked for a Tick, and give it one."""
        self.now_ms = max(self.now_ms, self.node.deadline_ms)
        return self.step(Tick())

    def ask(self, request: RaftRequest, listener: str = LISTENER) -> tuple[RaftResponse | None, StepResult]:
        """Receive a request: the response to it, None if it is held back, and all effects."""
        self._token += 1
        token = self._token
        result = self.step(RequestReceived(token=token, request=request, listener=listener))
        responses = [outgoing.response for outgoing in result.responses if outgoing.token == token]
        return (responses[0] if responses else None), result

    def respond(self, send: Send, response: RaftResponse) -> StepResult:
        return self.step(ResponseReceived(request_id=send.request_id, response=response))

    def fail(self, send: Send, reason: FailureReason = FailureReason.UNREACHABLE) -> StepResult:
        return self.step(RequestFailed(request_id=send.request_id, reason=reason))

    def win_votes(self, result: StepResult, *, epoch: int | None = None) -> StepResult:
        """Grant every vote that is asked for in `result`."""
        last = result
        for send in result.sends:
            granted = VoteResponse(
                leader_epoch=self.node.epoch if epoch is None else epoch, vote_granted=True
            )
            last = self.respond(send, granted)
            if last.roles:
                break
        return last

    def become_leader(self) -> StepResult:
        """Run for election and win it."""
        prospective = self.wait_for_deadline()
        while not prospective.sends:
            prospective = self.wait_for_deadline()
        return self.win_votes(self.win_votes(prospective))


class Lab:
    """Builds nodes and the small things that scripts are made of. Node n listens on host n, port 9000 + n."""

    listener = LISTENER
    cluster_id = CLUSTER_ID
    start_ms = START_MS

    def directory(self, node_id: int) -> UUID:
        return UUID(int=0xD000 + node_id)

    def key(self, node_id: int) -> ReplicaKey:
        return ReplicaKey(node_id=node_id, directory_id=self.directory(node_id))

    def endpoints(self, node_id: int) -> tuple[Endpoint, ...]:
        return (Endpoint(listener=LISTENER, host=f"host{node_id}", port=9000 + node_id),)

    def voter(self, node_id: int) -> Voter:
        return Voter(
            key=self.key(node_id),
            endpoints=self.endpoints(node_id),
            kraft_versions=VersionRange(lowest=0, highest=1),
        )

    def voters(self, *node_ids: int) -> VoterSet:
        return VoterSet.of(self.voter(node_id) for node_id in node_ids)

    def static_voters(self, *node_ids: int) -> VoterSet:
        return VoterSet.of(
            Voter(
                key=ReplicaKey(node_id=node_id),
                endpoints=self.endpoints(node_id),
                kraft_versions=VersionRange(lowest=0, highest=0),
            )
            for node_id in node_ids
        )

    def config(self, node_id: int, **changes: object) -> RaftConfig:
        fields: dict[str, object] = {
            "cluster_id": CLUSTER_ID,
            "key": self.key(node_id),
            "listener": LISTENER,
            "endpoints": self.endpoints(node_id),
            "bootstrap_servers": (BootstrapServer(host="bootstrap", port=9999),),
        }
        return RaftConfig(**(fields | changes))  # type: ignore[arg-type]

    def formatted(self, *voter_ids: int) -> LogState:
        """The log of a freshly formatted dynamic quorum."""
        return LogState(
            snapshot_id=BOOTSTRAP_SNAPSHOT_ID,
            voters=(VotersAt(offset=-1, voters=self.voters(*voter_ids)),),
            kraft_versions=(KRaftVersionAt(offset=-1, kraft_version=1),),
        )

    def log(self, *voter_ids: int, epochs: Iterable[tuple[int, int]] = ((1, 0),), end: int = 10) -> LogState:
        """A log with records: the voters are in its first one."""
        return LogState(
            end_offset=end,
            epochs=tuple(EpochStart(epoch=epoch, start_offset=offset) for epoch, offset in epochs),
            voters=(VotersAt(offset=0, voters=self.voters(*voter_ids)),),
            kraft_versions=(KRaftVersionAt(offset=0, kraft_version=1),),
        )

    def node(
        self,
        node_id: int = 1,
        *,
        log: LogState | None = None,
        hard_state: HardState | None = None,
        seed: int = 7,
        **config: object,
    ) -> Scripted:
        """A node of the quorum 1, 2, 3 unless `log` says otherwise; not started yet."""
        return Scripted(
            RaftNode(
                config=self.config(node_id, **config),
                hard_state=hard_state or HardState(),
                log=log or self.formatted(1, 2, 3),
                rng=Random(seed),
            )
        )

    def leader(self, **node: object) -> Scripted:
        """Node 1 as the leader of the quorum 1, 2, 3, or of what `node` says."""
        scripted = self.node(1, **node)  # type: ignore[arg-type]
        scripted.start()
        scripted.become_leader()
        return scripted

    def fetch(self, node_id: int, offset: int, epoch: int = 2) -> FetchRequest:
        """A Fetch from the end of a log that ends at `offset`, in the leader's epoch 2, that does not wait."""
        return FetchRequest(
            cluster_id=CLUSTER_ID,
            replica=self.key(node_id),
            current_leader_epoch=2,
            fetch_offset=offset,
            last_fetched_epoch=epoch,
            max_wait_ms=0,
        )

    def begin_epoch(self, leader: int = 2, epoch: int = 5) -> BeginQuorumEpochRequest:
        """The announcement of that leader, in version 0 but with its endpoints."""
        return BeginQuorumEpochRequest(
            cluster_id=None,
            voter=None,
            leader_id=leader,
            leader_epoch=epoch,
            leader_endpoints=self.endpoints(leader),
        )

    def follower(
        self, node_id: int = 1, *, leader: int = 2, epoch: int = 5, has_fetched: bool = False, **node: object
    ) -> tuple[Scripted, Send]:
        """A follower, and its Fetch in flight. Its log ends at 10, in epoch 1, unless `node` says otherwise."""
        scripted = self.node(node_id, **({"log": self.log(1, 2, 3)} | node))  # type: ignore[arg-type]
        scripted.start()
        (*_, send) = scripted.ask(self.begin_epoch(leader, epoch))[1].sends
        if has_fetched:
            response = FetchResponse(leader_id=leader, leader_epoch=epoch, high_watermark=10)
            (send,) = scripted.respond(send, response).sends
        return scripted, send

    def batch(self, base_offset: int, epoch: int, count: int = 1) -> bytes:
        return build_batch([b"record"] * count, base_offset, epoch, START_MS)


@pytest.fixture
def lab() -> Lab:
    """The builder of scripts."""
    return Lab()
