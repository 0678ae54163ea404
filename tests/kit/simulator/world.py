"""The world of one run: machines with simulated disks and clocks, a network that misbehaves, and one queue of events.

Everything random comes from one seed, so that a run can be repeated. Time jumps from event to event.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kit.simulator import foreign, java_like
from kit.simulator.checkpoints import Checkpoints
from kit.simulator.committed import CommittedRecords
from kit.simulator.coverage import Coverage, Happening
from kit.simulator.disk import DiskError, PowerLoss, Rot, SimulatedDisk
from kit.simulator.disk_logs import DiskLog
from kit.simulator.invariants import Invariants, InvariantViolation
from kit.simulator.network import Network
from kit.simulator.partitions import CommittedPartitions
from kit.simulator.slices import TURN_MS
from kit.simulator.wire import Release
from kit.simulator.work import Work
from quorate_controller.driver import Clock
from quorate_controller.node.assembly import open_node
from quorate_controller.raft.events import Role, Shutdown
from quorate_controller.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kit.simulator.disk_logs import Voters
    from quorate_controller.config import ControllerConfig
    from quorate_controller.node import ControllerNode, Effects
    from quorate_protocol.records.batch import BatchHeader

CLUSTER_ID: Final = "c2ltdWxhdGVkY2x1c3Rlcg"
PORT: Final = 9093
EPOCH_MS: Final = 1_700_000_000_000
"""When simulated time begins."""
SHUTDOWN_TIMEOUT_MS: Final = 5000
LONG_TURN_MS: Final = 50
STEPS_PER_MS_MAX: Final = 20_000
"""A world that does more within a millisecond is in an endless loop."""


@dataclass(slots=True, eq=False)
class Machine:
    """A host: its disk, its clock and its release survive its process."""

    node_id: int
    release: Release = Release.KAFKA_4_3
    is_java_like: bool = False
    """See `java_like`."""
    drift_ppm: int = 0
    stepped_ms: int = 0
    """By how much its clock was set."""
    suspended_ms: int = 0
    """For how long it was suspended, in all, by a clock of its own that runs on."""
    clock: Clock | None = None
    """The clocks of its process, or of the last one."""
    slowness: int = 1
    """How many times as long as elsewhere its turns take; see `work`."""
    disk: SimulatedDisk = field(default_factory=SimulatedDisk)
    disk_log: DiskLog = field(init=False)
    lost_disk_logs: list[tuple[tuple[int, int], DiskLog]] = field(default_factory=list)
    """Node id and directory id of each disk that it has lost, and what was on it."""
    directory_number: int = 0
    """How many disks it has lost."""
    name_number: int = 0
    """How many times its advertised name has changed."""
    rot: Rot | None = None
    """The damage of its disk, until it is repaired."""
    sound_batch: BatchHeader | None = None
    """The last batch of its log before a bit turned, until a process has looked at it."""
    disk_pause_ms_max: int = 0
    """How long the writes of a turn take at most."""
    node: ControllerNode | None = None
    was_active: bool = False
    """Whether it was the active controller before its last turn: what leaves now was decided in that turn."""
    is_leaving: bool = False
    """Whether its process was asked to shut down."""
    incarnation: int = 0
    timer_generation: int = 0
    inbox: list[Any] = field(default_factory=list)
    is_turn_due: bool = False
    busy_until_ms: int = 0

    def __post_init__(self) -> None:
        self.disk_log = DiskLog(self.disk)

    @property
    def leads(self) -> bool:
        """Whether its process leads the quorum, as far as it knows."""
        return self.node is not None and self.node.raft.role is Role.LEADER

    @property
    def directory_id(self) -> UUID:
        """The id of the directory on its present disk."""
        return UUID(int=(self.node_id << 16 | self.directory_number) + (4 << 76))

    @property
    def replica(self) -> tuple[int, int]:
        """Node id and directory id, as `Voters` have them."""
        return self.node_id, self.directory_id.int

    def disk_logs(self) -> Iterator[tuple[tuple[int, int], DiskLog]]:
        """What is on its disk, and what was on those that it has lost, each with the replica that it belonged to."""
        yield self.replica, self.disk_log
        yield from self.lost_disk_logs

    def lose_disk(self) -> None:
        """An empty disk is in the place of its disk."""
        self.lost_disk_logs.append((self.replica, self.disk_log))
        self.disk = SimulatedDisk()
        self.disk_log = DiskLog(self.disk)
        self.directory_number += 1
        self.rot = self.sound_batch = None

    @property
    def host(self) -> str:
        """The name that it advertises; its former names still lead to it, unless all machines moved at once."""
        return self.names[-1]

    @property
    def names(self) -> list[str]:
        """Its names, the present one last."""
        former = [f"node{self.node_id}-{number}" for number in range(1, self.name_number + 1)]
        return [f"node{self.node_id}", *former]

    def wall_s(self, world_ms: int) -> float:
        """What the clock of its system shows: it drifts, and is set."""
        return self._seconds(world_ms, self.stepped_ms)

    def monotonic_s(self, world_ms: int) -> float:
        """The same, of the clock that is never set, and that stands still while the host is suspended."""
        return self._seconds(world_ms, -self.suspended_ms)

    def _seconds(self, world_ms: int, offset_ms: int) -> float:
        drift_ms = (world_ms - EPOCH_MS) * self.drift_ppm // 1_000_000
        # In the middle of a millisecond, where no rounding matters.
        return (world_ms + drift_ms + offset_ms + 0.5) / 1000


class World:
    """Owns time and randomness. `schedule` is the only way anything happens."""

    def __init__(
        self, seed: int, initial_voters: Voters, *, is_dynamic: bool, is_wired: bool, is_sliced: bool
    ) -> None:
        self.rng = Random(seed)
        self.now_ms = EPOCH_MS
        self.machines: dict[int, Machine] = {}
        self.coverage = Coverage(is_dynamic=is_dynamic)
        self.partitions = CommittedPartitions(self.coverage.count, is_sliced=is_sliced)
        self.committed = CommittedRecords(initial_voters, kraft_version=int(is_dynamic))
        self.committed.on_control = self.coverage.control_record
        self.committed.on_metadata = self.coverage.metadata_records
        self.committed.on_effect = self.partitions.batch
        self.checkpoints = Checkpoints(self.committed, self.coverage.count)
        self.invariants = Invariants(self.committed, self.machines)
        self._turn_ms = TURN_MS if is_sliced else 0
        self.work = Work()
        self.network = Network(self, is_wired=is_wired)
        self.steps = 0
        self.mend: Callable[[Machine], None] = lambda _machine: None
        """Called when a machine has refused to run on its damaged disk."""
        self._led_since: dict[int, int] = {}
        """Epoch -> when a leader of it was first seen."""
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = itertools.count()

    # -------------------------------------------------------------------------------------------- time

    def schedule(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Run `action` in `delay_ms` of simulated time."""
        heapq.heappush(self._queue, (self.now_ms + max(delay_ms, 0), next(self._sequence), action))

    def run_until(self, end_ms: int, done: Callable[[], bool] | None = None) -> None:
        """Run until `end_ms`, or until `done` says so, which is asked once per millisecond at most."""
        steps_now = 0
        while self._queue and self._queue[0][0] <= end_ms:
            due_ms, _, action = heapq.heappop(self._queue)
            if due_ms > self.now_ms:
                steps_now = 0
                if done is not None and done():
                    heapq.heappush(self._queue, (due_ms, -1, action))
                    return
                self.now_ms = due_ms
            steps_now += 1
            if steps_now > STEPS_PER_MS_MAX:
                raise InvariantViolation(
                    "Liveness", f"time stands still at {self.now_ms}: a node turns in circles"
                )
            self.steps += 1
            action()
        self.now_ms = max(self.now_ms, end_ms)

    # ---------------------------------------------------------------------------------------- machines

    @property
    def alive(self) -> list[ControllerNode]:
        """The controllers whose process runs."""
        return [machine.node for machine in self.machines.values() if machine.node is not None]

    def knew_all_at(self, machine: Machine) -> int:
        """The last moment at which what the process answers now must have contained all that was acknowledged: an
        active controller knows all until another one is elected, a standby may be as late as it likes.
        """
        node = machine.node
        if node is None or not (machine.was_active and node.is_active):
            return EPOCH_MS
        later = (since_ms for epoch, since_ms in self._led_since.items() if epoch > node.raft.epoch)
        return min(later, default=self.now_ms)

    def clock_ms(self, machine: Machine) -> int:
        """The time of turns on a machine."""
        return self.now_ms if machine.clock is None else machine.clock.now_ms()

    @staticmethod
    def directory(node_id: int) -> Path:
        """Where a machine keeps its log."""
        return Path(f"/simulated/node{node_id}")

    def boot(self, machine: Machine, config: ControllerConfig) -> None:
        """Start the process of a machine on whatever its disk holds."""
        assert machine.node is None
        machine.incarnation += 1
        self.invariants.node_started(machine.node_id)
        self.work.begin(machine.disk, machine.slowness)
        clock = machine.clock = Clock(
            lambda: machine.wall_s(self.now_ms + self.work.elapsed_ms),
            lambda: machine.monotonic_s(self.now_ms + self.work.elapsed_ms),
        )
        try:
            machine.node = open_node(
                config,
                file_system=machine.disk,
                rng=Random(self.rng.getrandbits(64)),
                clock=clock.now_ms,
                unix_ms_of=clock.unix_ms_of,
            )
            if machine.is_java_like:
                java_like.take_time(machine.node)
            foreign.teach(self, machine, machine.node)
            self._look_before_cleaning(machine, machine.node)
            self._has_opened(machine, machine.node)
            effects = machine.node.start(clock.now_ms())
        except PowerLoss:
            self.crash(machine)
        except DiskError:
            self.kill(machine)
        except StorageError as error:
            self._refused(machine, error)
        else:
            self._took_turn(machine, effects)

    def _has_opened(self, machine: Machine, node: ControllerNode) -> None:
        """A process has found nothing wrong, or nothing that it cannot mend."""
        batch, machine.sound_batch = machine.sound_batch, None
        if batch is None:
            return
        end_offset = node.raft.log_end_offset
        if end_offset < batch.base_offset:
            raise InvariantViolation(
                "OnlyTornEnds", f"node {node.node_id} begins with {end_offset} for {machine.rot}: {batch}"
            )
        is_shorter = end_offset <= batch.last_offset
        self.coverage.count(Happening.ROT_CUT_OFF if is_shorter else Happening.ROT_HARMLESS)

    def _refused(self, machine: Machine, error: StorageError) -> None:
        """A process ends for what it found on its disk: only where the disk is damaged, and it says where."""
        if machine.rot is None:
            raise InvariantViolation("OnlyDamageIsRefused", str(error)) from error
        if machine.rot.path.parent not in (error.path, error.path.parent):
            raise InvariantViolation("DamageIsNamed", f"{machine.rot}: {error}")
        machine.sound_batch = None
        self.coverage.count(Happening.ROT_REFUSED)
        self.kill(machine)
        self.mend(machine)

    def _look_before_cleaning(self, machine: Machine, node: ControllerNode) -> None:
        """One turn may commit records, write a snapshot and delete the records: they are looked at before."""
        clean = node.storage.clean

        def look_and_clean(now_ms: int) -> int | None:
            self.invariants.consistent_committed_data(machine, node)
            return clean(now_ms)

        node.storage.clean = look_and_clean  # type: ignore[method-assign]

    def crash(self, machine: Machine) -> None:
        """Power fails: the process is gone, the disk keeps what was synced and a random part of the rest."""
        self.coverage.count(Happening.POWER_FAILURE)
        self.coverage.count(Happening.TORN_WRITE, machine.disk.crash(self.rng))
        self._process_ended(machine)

    def kill(self, machine: Machine) -> None:
        """The process is gone; the operating system keeps what it wrote."""
        machine.disk.end_process()
        self._process_ended(machine)

    def stall(self, machine: Machine, duration_ms: int) -> None:
        """Suspend the process, as under a debugger or on a host that swaps: its messages and timers wait."""
        if machine.node is not None:
            self.coverage.count(Happening.STALL)
            machine.busy_until_ms = max(machine.busy_until_ms, self.now_ms + duration_ms)

    def suspend(self, machine: Machine, duration_ms: int) -> None:
        """Suspend the host: the process stands still, and so does the clock by which it measures time."""
        if machine.node is not None:
            self.coverage.count(Happening.SUSPENDED)
            begins_ms, ends_ms = max(machine.busy_until_ms, self.now_ms), self.now_ms + duration_ms
            stood_ms = max(ends_ms - begins_ms, 0)
            machine.suspended_ms += stood_ms + stood_ms * machine.drift_ppm // 1_000_000
            machine.busy_until_ms = max(begins_ms, ends_ms)

    def shut_down(self, machine: Machine) -> None:
        """Ask the process to leave in good order, as SIGTERM does."""
        incarnation = machine.incarnation
        machine.is_leaving = machine.node is not None

        def give_up() -> None:
            if machine.incarnation == incarnation and machine.node is not None:
                self.kill(machine)

        self.deliver(machine, Shutdown(timeout_ms=SHUTDOWN_TIMEOUT_MS))
        self.schedule(SHUTDOWN_TIMEOUT_MS + 1000, give_up)

    def _process_ended(self, machine: Machine) -> None:
        if machine.node is not None:
            self.coverage.process_ended(machine.node)
        machine.node = None
        machine.is_leaving = machine.was_active = False
        machine.incarnation += 1
        machine.inbox.clear()
        machine.is_turn_due = False
        machine.busy_until_ms = 0
        self.network.process_ended(machine)

    # ------------------------------------------------------------------------------------------- turns

    def deliver(self, machine: Machine, event: Any) -> None:
        """An event for the process of a machine, if it has one: it takes it in its next turn."""
        if machine.node is None:
            return
        if machine.is_java_like:
            event = java_like.as_heard(event)
        if event is not None:
            machine.inbox.append(event)
            self._turn_soon(machine)

    def _turn_soon(self, machine: Machine) -> None:
        if not machine.is_turn_due:
            machine.is_turn_due = True
            self.schedule(
                machine.busy_until_ms - self.now_ms, partial(self._turn, machine, machine.incarnation)
            )

    def _turn(self, machine: Machine, incarnation: int) -> None:
        """One turn of a node with all that has come for it; its effects leave when work and disk are done."""
        node = machine.node
        if node is None or machine.incarnation != incarnation:
            return
        if self.now_ms < machine.busy_until_ms:
            # It was stalled after this turn became due.
            self.schedule(machine.busy_until_ms - self.now_ms, partial(self._turn, machine, incarnation))
            return
        machine.is_turn_due = False
        taken = 1 if machine.is_java_like else len(machine.inbox)
        events, machine.inbox = machine.inbox[:taken], machine.inbox[taken:]
        self.coverage.count(Happening.EVENTS_SHARED_A_TURN, int(len(events) > 1))
        image = node.metadata.image
        had_uncommitted = node.is_active and image.end_offset > image.committed_end_offset
        machine.was_active = node.is_active
        was_leader = node.raft.epoch_start_offset is not None
        snapshot_before = node.storage.snapshots.latest
        self.work.begin(machine.disk, machine.slowness)
        try:
            effects = node.turn(events, self.clock_ms(machine))
        except PowerLoss:
            self.crash(machine)
            return
        except DiskError:
            self.coverage.count(Happening.DISK_ERROR)
            self.kill(machine)
            return
        except StorageError as error:
            self._refused(machine, error)
            return
        self.coverage.count(Happening.REVERT, int(had_uncommitted and not node.is_active))
        restored = any(note.event == "snapshot_loaded" for note in effects.notes)
        self.invariants.leader_loads_no_snapshot(
            machine.node_id,
            was_leader=was_leader and node.raft.epoch_start_offset is not None,
            restored=restored and node.storage.snapshots.latest != snapshot_before,
        )
        self._took_turn(machine, effects)
        if machine.inbox and machine.node is not None:
            self._turn_soon(machine)

    def _took_turn(self, machine: Machine, effects: Effects) -> None:
        assert machine.node is not None
        work_ms = self.work.end()
        for note in effects.notes:
            if note.exception is not None:
                raise InvariantViolation(
                    "NoUnforeseenError", f"{note.event} {note.facts}"
                ) from note.exception
        self.invariants.check(machine, machine.node)
        self._read_checkpoints(machine)
        self.coverage.turn_taken(machine.node, effects, is_java_like=machine.is_java_like)
        if machine.node.raft.epoch_start_offset is not None:
            self._led_since.setdefault(machine.node.raft.epoch, self.now_ms)
        pause_ms = self.rng.randint(0, machine.disk_pause_ms_max) if machine.disk_pause_ms_max else 0
        self.coverage.count(Happening.SLOW_DISK, int(pause_ms > 0))
        self.coverage.count(Happening.LONG_TURN, int(work_ms >= LONG_TURN_MS))
        pause_ms += work_ms
        if pause_ms:
            machine.busy_until_ms = self.now_ms + pause_ms
            self.schedule(pause_ms, partial(self._send, machine, machine.incarnation, effects))
        else:
            self._send(machine, machine.incarnation, effects)

    def _read_checkpoints(self, machine: Machine) -> None:
        """Read back the checkpoints that have got their names."""
        renamed = machine.disk.renamed_checkpoints
        while renamed:
            self.checkpoints.check(machine.node_id, *renamed.pop(0))

    def _send(self, machine: Machine, incarnation: int, effects: Effects) -> None:
        node = machine.node
        if node is None or machine.incarnation != incarnation:
            return
        for send in effects.sends:
            self.network.transmit(machine, send)
        for outgoing in effects.raft_responses:
            self.network.deliver_raft_response(outgoing.token, outgoing.response)
        for response in effects.control_responses:
            self.network.deliver_control_response(response.token, response.result)
        for own in effects.own_requests:
            self.network.ask_active(machine, own)
        if node.raft.is_shut_down:
            self._close(machine, node)
        else:
            self._set_timer(machine, node)

    def _close(self, machine: Machine, node: ControllerNode) -> None:
        self.coverage.count(Happening.SHUTDOWN)
        try:
            node.close()
        except PowerLoss:
            self.crash(machine)
        except DiskError:
            self.kill(machine)
        else:
            self.kill(machine)

    def _set_timer(self, machine: Machine, node: ControllerNode) -> None:
        machine.timer_generation += 1
        generation, incarnation = machine.timer_generation, machine.incarnation

        def fire() -> None:
            if machine.timer_generation == generation and machine.incarnation == incarnation:
                self._turn_soon(machine)

        delay_ms = node.deadline_ms - self.clock_ms(machine)
        self.schedule(max(delay_ms, self.rng.randint(0, self._turn_ms)) if self._turn_ms else delay_ms, fire)
