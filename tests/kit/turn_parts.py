"""Parts of a `ControllerNode` that write down what a turn does with them, in one journal.

Raft responds to each event by a `Ready` of the test; the disk can fail at any operation. The metadata
between decisions and their commit are the real ones.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from quorate_controller.config.endpoints import ListenerAddress
from quorate_controller.config.own_keys import ResponsePolicy
from quorate_controller.control.api import ControlResult
from quorate_controller.node.consistency import BrokerWaits, FirstCatchUp
from quorate_controller.node.metadata import MetadataState
from quorate_controller.node.own_requests import ControllerIdentity, OwnRequests, RegistrationKeeper
from quorate_controller.node.snapshot_turns import HeartbeatKeeper, SnapshotTurns
from quorate_controller.node.turn import ControllerNode
from quorate_controller.raft.events import Persisted, Propose, Ready, Role, RoleChange, SnapshotTaken
from quorate_controller.raft.model import RaftSafetyError
from quorate_controller.raft.peers import NEVER_MS
from quorate_controller.storage.errors import FileMissingError
from quorate_protocol.image import MetadataImage
from quorate_protocol.kafka.apis import ApiKey
from quorate_protocol.kafka.enums import SecurityProtocol
from quorate_protocol.kafka.extensions.controller_heartbeat_request import SnapshotState
from quorate_protocol.records.batch import scan_batches

NODE_ID = 1
EPOCH = 3
NOW_MS = 1_000_000


class ScriptedDisk:
    """Storage that writes down what it is asked for. `fails_at` names an operation that raises `failure`."""

    def __init__(self, journal: list[Any]) -> None:
        self._journal = journal
        self.fails_at = ""
        self.failure: Exception = OSError("no failure was given")
        self.log = SimpleNamespace(start_offset=0, end_offset=0, read=self._read_log)
        self.snapshots = SimpleNamespace(
            ids=(),
            serves=lambda snapshot_id: snapshot_id in self.snapshots.ids,
            size=self._size_of_snapshot,
            read=self._read_snapshot,
        )
        self.log_start_moves_to: int | None = None

    def _do(self, operation: str, *facts: object) -> None:
        self._journal.append((operation, *facts))
        if operation == self.fails_at:
            raise self.failure

    def save_hard_state(self, state: object, *, kraft_version: int) -> None:
        self._do("hard state", state, kraft_version)

    def truncate_to(self, offset: int) -> None:
        assert offset >= self.log.start_offset, (offset, self.log.start_offset)
        self._do("truncate", offset)
        self.log.end_offset = min(self.log.end_offset, offset)

    def append(self, data: bytes) -> None:
        self._do("append", data)
        for batch in scan_batches(data):
            assert batch.base_offset == self.log.end_offset, (batch, self.log.end_offset)
            self.log.end_offset = batch.last_offset + 1

    def flush(self) -> None:
        self._do("flush")

    def keep_recovery_point(self, now_ms: int) -> None:
        self._do("recovery point", now_ms)

    def write_snapshot_chunk(self, snapshot_id: object, position: int, data: bytes) -> None:
        self._do("snapshot chunk", snapshot_id, position, data)

    def clean(self, now_ms: int) -> int | None:
        self._do("clean", now_ms)
        return self.log_start_moves_to

    def close(self) -> None:
        self._do("close")

    def _read_log(self, start_offset: int, size_bytes_max: int, end_offset: int) -> bytes:
        self._do("read log", start_offset, size_bytes_max, end_offset)
        return b"records"

    def _size_of_snapshot(self, snapshot_id: object) -> int:
        if snapshot_id not in self.snapshots.ids:
            raise FileMissingError(Path("scripted"), "there is no such snapshot")
        return 100

    def _read_snapshot(self, snapshot_id: object, position: int, size_bytes_max: int) -> bytes:
        self._size_of_snapshot(snapshot_id)
        self._do("read snapshot", snapshot_id, position, size_bytes_max)
        return b"chunk"


class ScriptedRaft:
    """Raft of one role, which appends what is proposed and otherwise does what `answers` says for a type of event."""

    def __init__(self, journal: list[Any], disk: ScriptedDisk) -> None:
        self._journal = journal
        self._disk = disk
        self.scripted: defaultdict[type, deque[Ready]] = defaultdict(deque)
        self.on_step: Callable[[object], None] = lambda _event: None
        self.deposed_at: dict[type, Role] = {}
        """The type of event in whose step the leadership ends, and the role after it."""
        self.deadline_ms = NEVER_MS
        self.high_watermark = 0
        self.has_caught_up = True
        self.epoch = EPOCH
        self.epoch_start_offset: int | None = None
        self.leader_id = NODE_ID
        self.is_led = True
        self.leader_endpoints = ()
        self.kraft_version = 1
        self.role = Role.FOLLOWER
        self.is_shut_down = False
        self.known_high_watermarks: dict[int, int] = {}
        """What other nodes know to be committed, by node id."""
        self._now_ms = 0

    @property
    def log_end_offset(self) -> int:
        return int(self._disk.log.end_offset)

    def start(self, _now_ms: int) -> Ready:
        return Ready()

    def step(self, event: object, now_ms: int) -> Ready:
        self._refuse(event, now_ms)
        self._now_ms = now_ms
        self._journal.append(("step", type(event).__name__, getattr(event, "end_offset", None)))
        if type(event) in self.deposed_at:
            self.step_down(self.deposed_at.pop(type(event)))
        self.on_step(event)
        if self.scripted[type(event)]:
            return self.scripted[type(event)].popleft()
        return Ready(append=event.batches) if isinstance(event, Propose) else Ready()

    def _refuse(self, event: object, now_ms: int) -> None:
        """Raise what raft raises at an event that breaks a promise."""
        if now_ms < self._now_ms:
            raise RaftSafetyError(f"time went back from {self._now_ms} to {now_ms}")
        match event:
            case Propose(batches=batches):
                if self.role is not Role.LEADER:
                    raise RaftSafetyError(f"records proposed as {self.role}")
                end_offset = self.log_end_offset
                for batch in scan_batches(batches):
                    if (batch.base_offset, batch.partition_leader_epoch) != (end_offset, self.epoch):
                        raise RaftSafetyError(
                            f"a batch {batch} is proposed at {end_offset} in epoch {self.epoch}"
                        )
                    end_offset = batch.last_offset + 1
            case Persisted(end_offset=end_offset) if end_offset > self.log_end_offset:
                raise RaftSafetyError(f"{end_offset} is durable, but was never appended")
            case SnapshotTaken(snapshot_id=snapshot_id) if snapshot_id.offset > self.high_watermark:
                raise RaftSafetyError(f"snapshot {snapshot_id} has more than what is committed")

    def high_watermark_of(self, node_id: int) -> int:
        return self.known_high_watermarks.get(node_id, -1)

    def kraft_version_at(self, _offset: int) -> int:
        return self.kraft_version

    def lead(self) -> RoleChange:
        """Become the leader of an epoch that began at the end of the log."""
        self.role, self.epoch_start_offset = Role.LEADER, self.log_end_offset - 1
        return RoleChange(
            role=Role.LEADER, epoch=EPOCH, leader_id=NODE_ID, epoch_start_offset=self.epoch_start_offset
        )

    def step_down(self, role: Role) -> None:
        """Lead no more."""
        self.role, self.epoch_start_offset, self.leader_id = role, None, -1


class ScriptedRequest(str):
    """A request of a client that only a scripted control decides."""

    __slots__ = ()
    __api_key__ = ApiKey.CREATE_TOPICS


class ScriptedNodeRequest(str):
    """A request of a node that only a scripted control decides."""

    __slots__ = ()
    __api_key__ = ApiKey.ALLOCATE_PRODUCER_IDS


class ScriptedControl:
    """Control that decides each request as the test says."""

    def __init__(self, journal: list[Any]) -> None:
        self._journal = journal
        self.is_active = False
        self.deadline_ms: int | None = None
        self.decisions: deque[ControlResult | Exception] = deque()
        self.ticks: deque[tuple[ControlResult | Exception | None, int | None]] = deque()
        """What each timer decides, and when the next one is due."""

    def decide(self, request: object, _context: object) -> ControlResult:
        self._journal.append(("decide", request))
        decision = self.decisions.popleft()
        if isinstance(decision, Exception):
            raise decision
        return decision

    def activate(self, _now_ms: int) -> ControlResult | None:
        self._journal.append(("activate",))
        self.is_active = True
        return None

    def deactivate(self) -> None:
        self._journal.append(("deactivate",))
        self.is_active, self.deadline_ms = False, None

    def tick(self, now_ms: int) -> ControlResult | None:
        self._journal.append(("tick", now_ms))
        result, self.deadline_ms = self.ticks.popleft()
        if isinstance(result, Exception):
            raise result
        return result

    def observe(self, records: Sequence[object], base_offset: int, _now_ms: int) -> None:
        """What was replayed needs no notes here."""


class ScriptedSnapshots:
    """Writer and loader of snapshots, which have nothing to do unless the test says so."""

    def __init__(self, journal: list[Any]) -> None:
        self._journal = journal
        self.is_loading = False
        self.written: deque[object] = deque()
        self.loaded: deque[object] = deque()
        self.state = SnapshotState.IDLE

    def deadline_ms(self) -> None:
        return None

    def applied(self, _size_bytes: int) -> None:
        """Nothing becomes due by size."""

    def restart(self, now_ms: int) -> None:
        self._journal.append(("restart snapshots", now_ms))

    def is_due(self, _image: object, _now_ms: int) -> bool:
        return False

    def write_slice(self, _now_ms: int) -> object:
        return self.written.popleft() if self.written else None

    def begin(self, snapshot_id: object) -> None:
        self._journal.append(("load", snapshot_id))

    def load_slice(self) -> object:
        return self.loaded.popleft() if self.loaded else None


class TurnBench:
    """A node of such parts. `journal` has what it did, in order."""

    def __init__(self) -> None:
        self.journal: list[Any] = []
        self.disk = ScriptedDisk(self.journal)
        self.raft = ScriptedRaft(self.journal, self.disk)
        self.control = ScriptedControl(self.journal)
        self.snapshots = ScriptedSnapshots(self.journal)
        image = MetadataImage()
        self.clock_ms = NOW_MS
        self.metadata = MetadataState(image, cast("Any", self.control), clock=lambda: NOW_MS)
        identity = ControllerIdentity(
            node_id=NODE_ID,
            incarnation_id=UUID(int=1),
            listeners=(ListenerAddress(name="CONTROLLER", host="h", port=9093),),
            protocols={"CONTROLLER": SecurityProtocol.PLAINTEXT},
            features={},
        )
        self.node = ControllerNode(
            raft=cast("Any", self.raft),
            storage=cast("Any", self.disk),
            metadata=self.metadata,
            snapshotter=cast("Any", self.snapshots),
            loader=cast("Any", self.snapshots),
            own_requests=OwnRequests(
                raft=cast("Any", self.raft),
                metadata=self.metadata,
                snapshotter=cast("Any", self.snapshots),
                registration=RegistrationKeeper(identity, Random(1)),
                heartbeats=HeartbeatKeeper(cast("Any", self.raft), NODE_ID),
                listener="CONTROLLER",
            ),
            snapshot_turns=SnapshotTurns(cast("Any", self.raft), node_id=NODE_ID, hands_over=False),
            broker_waits=BrokerWaits(ResponsePolicy()),
            clock=lambda: self.clock_ms,
            first_catch_up=FirstCatchUp(raft=cast("Any", self.raft), metadata=self.metadata, now_ms=NOW_MS),
            now_ms=NOW_MS,
        )

    def script(self, event: type, ready: Ready) -> None:
        """Script the effects of the next event of a type."""
        self.raft.scripted[event].append(ready)

    def depose_at(self, event: type, role: Role = Role.UNATTACHED, **effects: Any) -> None:
        """Have raft lose its leadership in the step that takes the next event of a type."""
        self.raft.deposed_at[event] = role
        self.script(event, Ready(role=RoleChange(role=role, epoch=EPOCH + 1), **effects))

    def lead(self) -> None:
        """Make the node active, with an empty log."""
        self.raft.epoch_start_offset, self.raft.role = -1, Role.LEADER
        self.node.turn([], NOW_MS)
        assert self.node.is_active
        self.journal.clear()

    def has_committed(self, end_offset: int) -> None:
        """Let everything below an offset be committed, and in the image."""
        self.disk.log.end_offset = self.raft.high_watermark = self.metadata.applied_offset = end_offset

    def commit(self) -> None:
        """Let the high watermark reach the end of the log."""
        self.raft.high_watermark = self.raft.log_end_offset

    def done(self) -> list[str]:
        """The names of what was done."""
        return [entry[1] if entry[0] == "step" else entry[0] for entry in self.journal]
