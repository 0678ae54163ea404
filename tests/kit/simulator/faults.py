"""Injects faults. Which fault, where and when is drawn from the world's random source."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kit.simulator.clients import active_node_id
from kit.simulator.coverage import Happening
from kit.simulator.disk import DiskError, PowerLoss
from kit.simulator.foreign import ForeignTransaction
from kit.simulator.network import LISTENER
from kit.simulator.wire import Release
from kit.simulator.world import CLUSTER_ID, PORT
from quorate_controller.raft.events import Resign
from quorate_controller.raft.messages import AddRaftVoterRequest, RemoveRaftVoterRequest
from quorate_controller.raft.model import NO_NODE_ID, Endpoint, ReplicaKey
from quorate_protocol.kafka.generated.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from quorate_protocol.records.batch import scan_batches

if TYPE_CHECKING:
    from collections.abc import Callable

    from kit.simulator.cluster import Cluster
    from kit.simulator.world import Machine, World
    from quorate_controller.node import ControllerNode
    from quorate_protocol.records.batch import BatchHeader

OPERATIONS_MAX: Final = 40
"""How many disk operations a doomed disk still does, at most."""
CLOCK_STEPS_MS: Final = (500, 60_000, 172_800_000)
FULL_MS_MAX: Final = 4000
STALLS_MS: Final = (300, 1500, 6000)
"""Some elections are over before the last one is."""
REBOOT_MS_MAX: Final = 4000
QUICK_REBOOT_MS_MAX: Final = 20
STRIKE_AT_VOTER: Final = 0.8
STRIKE_AT_LEADER: Final = 0.05
"""How likely a storm strikes, about forty times a second."""
INTERRUPT: Final = 0.15
"""How likely long work is interrupted, about thirty times a second."""
LINK_IS_CUT: Final = 0.7
LEADER_DIES_OF_ITS_REMOVAL: Final = 0.5
ADMINISTRATOR_IS_WISE: Final = 0.95
VOTERS_MIN_FOR_DISK_LOSS: Final = 3
ROTTEN_SUFFIXES: Final = (".log", ".checkpoint", ".index", ".timeindex")
"""Files that have checksums, or are written again. Kafka's quorum-state and meta.properties have no checksums."""
PRE_VOTE_SINCE: Final = Release.KAFKA_4_0
"""The first release with pre-votes, by which voters are looked up."""
KRAFT_VERSION_ATTEMPTS: Final = 20
KRAFT_VERSION_RETRY_MS: Final = 500


class Faults:
    """Breaks something every now and then until `stop`; `history` has the faults and their times."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._rng = cluster.world.rng
        self._stopped = False
        self._transactions = 0
        self.history: list[str] = []
        self._choices = self._choices_for_shape()
        self._world.mend = self._mend

    def start(self) -> None:
        """Begin to inject faults soon."""
        network, rng = self._world.network, self._rng
        is_stormy = self._cluster.shape.is_stormy
        network.delay_ms_max = rng.choice((50, 100)) if is_stormy else rng.choice((1, 5, 20, 100))
        network.loss = rng.choice((0.0, 0.0, 0.02, 0.1))
        network.duplication = rng.choice((0.0, 0.05))
        network.for_successors = rng.choice((0.0, 0.1, 0.5)) if is_stormy else rng.choice((0.0, 0.02))
        self._world.schedule(rng.randint(500, 1500), self._break_something)
        if self._cluster.shape.is_sliced:
            self._world.schedule(0, self._interrupt)
        if is_stormy:
            self._world.schedule(0, self._strike)
            self._world.schedule(0, self._flap)

    def stop(self) -> None:
        """No more faults; what is broken is repaired."""
        self._stopped = True
        self._world.network.calm_down()
        for machine in self._cluster.machines:
            machine.disk.recover()
            machine.disk.is_full = False
            machine.disk_pause_ms_max = 0
            self._cluster.boot(machine)

    def _choices_for_shape(self) -> list[Callable[[], str]]:
        choices = [
            self._power_failure,
            self._power_failure,
            self._kill,
            self._shut_down,
            self._disk_error,
            self._full_disk,
            self._failed_sync,
            self._slow_disk,
            self._stall,
            self._suspend,
            self._step_clock,
            self._partition,
            self._cut_off_leader,
            self._cut_link,
            self._cut_link_one_way,
            self._break_connections,
            self._heal,
            self._heal,
            self._restart_all,
            self._resign,
            self._leave_transaction_open,
            self._rename,
            self._rot,
        ]
        if self._cluster.shape.rots:
            choices += [self._rot] * len(choices)
        if self._cluster.shape.sizes:
            choices += [self._rename, self._steal_name, self._steal_name]
        elif self._cluster.shape.is_dynamic:
            choices += [
                self._remove_voter,
                self._remove_leader,
                self._add_voter,
                self._add_voter,
                self._lose_disk,
            ]
            if min(self._cluster.shape.releases) >= PRE_VOTE_SINCE:
                choices += [self._move_all]
        else:
            choices += [self._raise_kraft_version, self._raise_kraft_version]
        return choices

    def _break_something(self) -> None:
        if self._stopped:
            return
        self.history.append(f"{self._world.now_ms}: {self._rng.choice(self._choices)()}")
        self._world.schedule(self._rng.randint(100, 1500), self._break_something)

    def _any_machine(self) -> Machine:
        return self._rng.choice(self._cluster.machines)

    def _leader(self) -> Machine:
        """The active controller, else any machine."""
        return self._world.machines[active_node_id(self._world)]

    def _reboot_later(self, machine: Machine, *, delay_ms_max: int = REBOOT_MS_MAX) -> None:
        """Boot a machine once it is down: its end may still be ahead."""

        def reboot() -> None:
            if machine.node is None:
                self._cluster.boot(machine)
            elif machine.is_leaving or not self._stopped:
                self._reboot_later(machine)

        self._world.schedule(self._rng.randint(1, delay_ms_max), reboot)

    # ----------------------------------------------------------------------------- processes and disks

    def _strike(self) -> None:
        """Cut the power of a machine for a moment: one that has just voted while there is no leader, or a leader.

        So one election follows another, and voters know of their votes only from their disks.
        """
        if self._stopped:
            return
        running = [machine for machine in self._cluster.machines if machine.node is not None]
        voters = [machine for machine in running if _has_voted_for_another(machine)]
        leaders = [machine for machine in running if machine.leads]
        chosen = (voters, STRIKE_AT_VOTER) if voters else (leaders, STRIKE_AT_LEADER)
        if chosen[0] and self._rng.random() < chosen[1]:
            machine = self._rng.choice(chosen[0])
            self._world.crash(machine)
            self._reboot_later(machine, delay_ms_max=QUICK_REBOOT_MS_MAX)
        self._world.schedule(self._rng.randint(5, 50), self._strike)

    def _interrupt(self) -> None:
        """Interrupt long work between two slices: the controller is deposed, killed, or loses power."""
        if self._stopped:
            return
        busy = [machine for machine in self._cluster.machines if _is_amid_slices(machine)]
        if busy and self._rng.random() < INTERRUPT:
            machine = self._rng.choice(busy)
            end = self._rng.choice((self._world.crash, self._world.kill, self._depose, self._depose))
            end(machine)
            if machine.node is None:
                self._reboot_later(machine, delay_ms_max=QUICK_REBOOT_MS_MAX)
            self.history.append(f"{self._world.now_ms}: {machine.node_id} is interrupted between slices")
        self._world.schedule(self._rng.randint(10, 60), self._interrupt)

    def _depose(self, machine: Machine) -> None:
        assert machine.node is not None
        self._world.deliver(machine, Resign(epoch=machine.node.raft.epoch))

    def _power_failure(self) -> str:
        machine = self._any_machine()
        if machine.node is None:
            return f"{machine.node_id} is down already"
        machine.disk.fail_after(self._rng.randint(1, OPERATIONS_MAX), PowerLoss())
        self._reboot_later(machine)
        return f"power of {machine.node_id} is about to fail"

    def _disk_error(self) -> str:
        machine = self._any_machine()
        error = DiskError(Path("/simulated"), "input/output error")
        machine.disk.fail_after(self._rng.randint(1, OPERATIONS_MAX), error)
        self._reboot_later(machine)
        return f"the disk of {machine.node_id} is about to fail once"

    def _full_disk(self) -> str:
        """A disk is full for a while. Its process ends, and can't start meanwhile."""
        machine = self._any_machine()
        disk = machine.disk
        disk.is_full = True
        self._world.coverage.count(Happening.FULL_DISK)

        def make_space() -> None:
            disk.is_full = False
            if machine.node is None:
                self._reboot_later(machine)

        self._world.schedule(self._rng.randint(1, FULL_MS_MAX), make_space)
        return f"the disk of {machine.node_id} is full"

    def _failed_sync(self) -> str:
        """The next sync fails, and what it should have written is lost, though it can be read until power fails."""
        machine = self._any_machine()
        machine.disk.fails_to_sync = True
        self._world.coverage.count(Happening.FAILED_SYNC)
        self._reboot_later(machine)
        return f"the next sync of {machine.node_id} fails"

    def _slow_disk(self) -> str:
        machine = self._any_machine()
        machine.disk_pause_ms_max = self._rng.choice((0, 3, 30, 300))
        return f"turns of {machine.node_id} take up to {machine.disk_pause_ms_max} ms"

    def _stall(self) -> str:
        machine = self._rng.choice((self._leader(), self._any_machine()))
        duration_ms = self._rng.choice(STALLS_MS)
        self._world.stall(machine, duration_ms)
        return f"{machine.node_id} stands still for {duration_ms} ms"

    def _suspend(self) -> str:
        machine = self._rng.choice((self._leader(), self._any_machine()))
        duration_ms = self._rng.choice(STALLS_MS)
        self._world.suspend(machine, duration_ms)
        return f"the host of {machine.node_id} is suspended for {duration_ms} ms"

    def _step_clock(self) -> str:
        machine = self._any_machine()
        by_ms = self._rng.choice(CLOCK_STEPS_MS) * self._rng.choice((1, -1))
        machine.stepped_ms += by_ms
        self._world.coverage.count(Happening.CLOCK_STEP)
        return f"the clock of {machine.node_id} is set by {by_ms} ms"

    def _kill(self) -> str:
        machine = self._any_machine()
        if machine.node is not None:
            self._world.coverage.count(Happening.PROCESS_KILLED)
            self._world.kill(machine)
            self._reboot_later(machine)
        return f"{machine.node_id} is killed"

    def _shut_down(self) -> str:
        machine = self._rng.choice((self._leader(), self._any_machine()))
        self._world.shut_down(machine)
        self._reboot_later(machine)
        return f"{machine.node_id} shuts down"

    def _restart_all(self) -> str:
        for machine in self._cluster.machines:
            if machine.node is not None:
                self._world.crash(machine)
                self._reboot_later(machine)
        return "power of all fails"

    def _rename(self) -> str:
        """The machine comes back under another name: a voter has to send it to the leader."""
        machine = self._any_machine()
        machine.name_number += 1
        if machine.node is not None:
            self._world.kill(machine)
            self._reboot_later(machine)
        return f"{machine.node_id} is called {machine.host} from now on"

    def _move_all(self) -> str:
        """All hosts get new addresses at once (KIP-1347). The old ones lead nowhere, or to other machines."""
        world, machines = self._world, self._cluster.machines
        successors: list[Machine | None] = [None] * len(machines)
        if len(machines) > 1 and self._rng.random() < 0.5:
            shift = self._rng.randrange(1, len(machines))
            successors = [*machines[shift:], *machines[:shift]]
        for machine, successor in zip(machines, successors, strict=True):
            for name in machine.names:
                world.network.lost_names[name] = None if successor is None else successor.node_id
            machine.name_number += 1
            if machine.node is not None:
                world.crash(machine)
                self._reboot_later(machine)
        world.coverage.count(Happening.ALL_MOVED)
        return "all machines have new names" + (
            "" if successors[0] is None else ", and others have the old ones"
        )

    def _steal_name(self) -> str:
        """A name that a machine had leads to another one, as where addresses are assigned again."""
        renamed = [machine for machine in self._cluster.machines if machine.name_number]
        if not renamed:
            return "nobody has given up a name yet"
        machine, thief = self._rng.choice(renamed), self._any_machine()
        number = self._rng.randrange(machine.name_number)
        name = f"node{machine.node_id}-{number}" if number else f"node{machine.node_id}"
        self._world.network.stolen_names[name] = thief.node_id
        return f"{name} leads to {thief.node_id} from now on"

    def _rot(self) -> str:
        """Flip a bit of a file while its node is down, but only if all others have its whole log.

        A log may lose a damaged end, which looks like a torn write, and a Fetch under way may commit that end.
        """
        machine = self._any_machine()
        nodes = [other.node for other in self._cluster.machines]
        if machine.node is None or None in nodes or machine.rot is not None:
            return "no bit may turn"
        own = machine.node.raft
        if not all(
            node.raft.last_epoch == own.last_epoch and node.raft.log_end_offset >= own.log_end_offset
            for node in nodes
            if node is not None
        ):
            return "no bit may turn: somebody is behind"
        if self._is_needed(machine):
            return "no bit may turn: the voters are too few"
        machine.sound_batch = _last_batch(machine.node)
        self._world.kill(machine)
        machine.rot = machine.disk.rot(self._rng, ROTTEN_SUFFIXES)
        self._world.coverage.count(Happening.ROT)
        self._reboot_later(machine)
        return f"on {machine.node_id}, {machine.rot} turns"

    def _mend(self, machine: Machine) -> None:
        """A damaged disk is replaced, if one may be lost, or restored from a backup."""
        if self._cluster.shape.is_dynamic and not self._stopped and self._may_lose_disk(machine):
            self._cluster.replace_disk(machine)
            self._world.coverage.count(Happening.DISK_LOST)
        elif machine.rot is not None:
            machine.rot.turn()
            machine.rot = None
        self._reboot_later(machine)

    def _may_lose_disk(self, machine: Machine) -> bool:
        """Once per run, and when other voters are a majority."""
        is_first = not any(other.directory_number for other in self._cluster.machines)
        return is_first and not self._is_needed(machine)

    def _is_needed(self, machine: Machine) -> bool:
        """Whether some disk names it as one of so few voters that the others are no majority."""
        committed = self._world.committed
        sets = {other.disk_log.voters(committed.end_offset) for other in self._cluster.machines}
        return any(
            len(voters) < VOTERS_MIN_FOR_DISK_LOSS and machine.node_id in dict(voters)
            for voters in (committed.voters, *filter(None, sets))
        )

    def _lose_disk(self) -> str:
        """A disk is replaced by an empty one: a new replica."""
        machine = self._any_machine()
        if not self._may_lose_disk(machine):
            return "no disk may be lost"
        if machine.node is not None:
            self._world.crash(machine)
        self._cluster.replace_disk(machine)
        self._world.coverage.count(Happening.DISK_LOST)
        self._reboot_later(machine)
        return f"the disk of {machine.node_id} is lost"

    # ----------------------------------------------------------------------------------------- network

    def _partition(self) -> str:
        ids = list(self._world.machines)
        return self._cut_off(set(self._rng.sample(ids, self._rng.randint(0, len(ids)))))

    def _cut_off_leader(self) -> str:
        return self._cut_off({self._leader().node_id})

    def _cut_off(self, side: set[int]) -> str:
        self._world.coverage.count(Happening.PARTITION)
        self._world.network.cut = {
            frozenset((left, right)) for left in side for right in self._world.machines if right not in side
        }
        return f"{sorted(side)} are cut off from the rest"

    def _cut_link(self) -> str:
        """Two machines do not reach each other, while all others reach both."""
        self._world.coverage.count(Happening.PARTITION)
        left, right = self._any_machine().node_id, self._any_machine().node_id
        self._world.network.cut.add(frozenset((left, right)))
        return f"{left} and {right} do not reach each other"

    def _cut_link_one_way(self) -> str:
        """Lose requests or their responses in one direction."""
        self._world.coverage.count(Happening.ONE_WAY_CUT)
        source, target = self._leader().node_id, self._any_machine().node_id
        if self._rng.random() < 0.5:
            source, target = target, source
        self._world.network.cut_one_way.add((source, target))
        return f"what {source} sends to {target} is lost"

    def _break_connections(self) -> str:
        """All connections between two machines end, while their processes live and the network is whole."""
        left, right = self._leader(), self._any_machine()
        break_connections(self._world, left, right)
        return f"connections between {left.node_id} and {right.node_id} break"

    def _flap(self) -> None:
        """In a storm, some link is cut most of the time, so that a new leader does not reach all nodes at once."""
        if self._stopped:
            return
        self._world.network.cut.clear()
        if self._rng.random() < LINK_IS_CUT:
            self._cut_link()
        self._world.schedule(self._rng.randint(100, 600), self._flap)

    def _heal(self) -> str:
        self._world.network.heal()
        return "the network is whole again"

    # ---------------------------------------------------------------------------------- administrators

    def _resign(self) -> str:
        machine = self._leader()
        if machine.node is not None:
            self._world.deliver(machine, Resign(epoch=machine.node.raft.epoch))
        return f"{machine.node_id} is asked to resign"

    def _leave_transaction_open(self) -> str:
        self._transactions += 1
        request = ForeignTransaction(self._transactions)
        self._world.network.ask(self._leader().node_id, request, lambda _: None)
        return f"{self._leader().node_id} is to leave a metadata transaction open"

    def _remove_voter(self) -> str:
        leader = self._leader().node
        if leader is None or not leader.raft.voters.voters:
            return "nobody knows a voter to remove"
        return self._remove(self._rng.choice(leader.raft.voters.voters).key)

    def _remove_leader(self) -> str:
        """A leader is to remove itself, and may die over it."""
        machine = self._leader()
        if machine.node is not None and self._rng.random() < LEADER_DIES_OF_ITS_REMOVAL:
            machine.disk.fail_after(self._rng.randint(1, 5), PowerLoss())
            self._reboot_later(machine, delay_ms_max=QUICK_REBOOT_MS_MAX)
        return self._remove(replica_on(machine))

    def _remove(self, key: ReplicaKey) -> str:
        """Ask for a removal. While a voter is gone for good, a careful administrator removes that one first."""
        machine = self._leader()
        if machine.node is not None and self._rng.random() < ADMINISTRATOR_IS_WISE:
            living = [replica_on(machine) for machine in self._cluster.machines]
            voters = [voter.key for voter in machine.node.raft.voters]
            key = next((voter for voter in voters if voter.directory_id and voter not in living), key)
        request = RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter=key)
        self._world.network.ask_raft(machine.node_id, request)
        return f"voter {key} is to be removed"

    def _add_voter(self) -> str:
        leader = self._leader().node
        voters = () if leader is None else leader.raft.voters.ids
        others = [machine for machine in self._cluster.machines if machine.node_id not in voters]
        machine = self._rng.choice(others or self._cluster.machines)
        request = AddRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            timeout_ms=5000,
            voter=replica_on(machine),
            endpoints=(Endpoint(listener=LISTENER, host=machine.host, port=PORT),),
        )
        self._world.network.ask_raft(self._leader().node_id, request)
        return f"voter {machine.node_id} is to be added"

    def _raise_kraft_version(self) -> str:
        self._ask_for_kraft_version(attempts=KRAFT_VERSION_ATTEMPTS)
        return "kraft.version is to be raised"

    def _ask_for_kraft_version(self, *, attempts: int) -> None:
        """Ask again for a while: each new leader first needs an UpdateRaftVoter of every voter."""
        if self._stopped or not attempts:
            return
        update = FeatureUpdateKey(feature="kraft.version", max_version_level=1, upgrade_type=1)
        request = UpdateFeaturesRequest(feature_updates=(update,), validate_only=False)
        self._world.network.ask(self._leader().node_id, request, lambda _: None)
        self._world.schedule(
            KRAFT_VERSION_RETRY_MS, partial(self._ask_for_kraft_version, attempts=attempts - 1)
        )


def replica_on(machine: Machine) -> ReplicaKey:
    return ReplicaKey(node_id=machine.node_id, directory_id=machine.directory_id)


def break_connections(world: World, left: Machine, right: Machine) -> None:
    """Both ends see it."""
    world.coverage.count(Happening.CONNECTION_BROKEN)
    world.network.break_connection(left, right)
    world.network.break_connection(right, left)


def _has_voted_for_another(machine: Machine) -> bool:
    """Whether it has given its vote in an election that has no winner yet."""
    raft = machine.node.raft if machine.node is not None else None
    return (
        raft is not None
        and raft.voted_id not in {NO_NODE_ID, machine.node_id}
        and raft.leader_id == NO_NODE_ID
    )


def _is_amid_slices(machine: Machine) -> bool:
    node = machine.node
    if node is None:
        return False
    return bool(node.metadata.control._transitions._departures) or node.loader.is_loading or node._is_behind


def _last_batch(node: ControllerNode) -> BatchHeader | None:
    """The header of the last batch in a node's log; None if a snapshot has replaced the whole log."""
    log = node.storage.log
    position, last = log.start_offset, None
    while data := log.read(position, 1 << 20):
        last = list(scan_batches(data))[-1]
        position = last.last_offset + 1
    return last
