"""One run: a cluster drawn from the seed, twenty seconds of faults, then calm.

Safety is checked after every turn. In calm the cluster has to come back to life, keep its promises, and agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kit.simulator.appends import Appends
from kit.simulator.clients import Administrator, SimulatedBroker, check_nothing_lost
from kit.simulator.cluster import Cluster
from kit.simulator.coverage import Happening, counting_log_events
from kit.simulator.disk_logs import ANY_DIRECTORY
from kit.simulator.faults import Faults
from kit.simulator.giants import Giant
from kit.simulator.invariants import InvariantViolation, differing_images, is_majority
from kit.simulator.membership import Operator
from kit.simulator.operations import Operations
from kit.simulator.partition_clients import PartitionLeaders, Reassigner
from kit.simulator.schedules import DirectedFaults
from kit.simulator.shape import Shape, replay_command
from kit.simulator.slices import small_slices
from kit.simulator.users import USERS, History, User
from kit.simulator.work import counting_work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quorate_controller.node import ControllerNode

FAULTS_MS: Final = 20_000
FAULTS_UNDER_OPERATOR_MS: Final = 14_000
"""Less: what an operator still has to do is done in calm."""
CALM_PERIOD_MS: Final = 15_000
CALM_PERIODS: Final = 4
AGREEMENT_MS: Final = 1000
AGREEMENT_ATTEMPTS: Final = 10
REST_ATTEMPTS: Final = 30
FAULTS_SHOWN: Final = 8
REPLICAS_MAX: Final = 3
TROUBLES_WHERE_MANY: Final = 0.02
"""What the troubles of a broker are multiplied by where there are hundreds."""
MANY_TOPICS: Final = 0.5
FEW_TOPICS: Final = 0.1
"""How many of the administrator's requests create one: where brokers work on partitions, each is worked on."""


class Scenario:
    """A cluster, those who use it, and those who break it."""

    def __init__(self, seed: int, shape: Shape | None = None) -> None:
        self.shape = shape or Shape.of(seed)
        self.cluster = Cluster(seed, self.shape)
        self.world = self.cluster.world
        schedule = self.shape.schedule
        self.faults = Faults(self.cluster) if schedule is None else DirectedFaults(self.cluster, schedule)
        replication_factor = min(max(self.shape.brokers, 1), REPLICAS_MAX)
        self.administrator = Administrator(
            self.world,
            replication_factor=replication_factor if self.shape.works_on_partitions else 1,
            topics=FEW_TOPICS if self.shape.works_on_partitions else MANY_TOPICS,
        )
        self.operator = Operator(self.cluster) if self.shape.sizes else None
        self._brokers = [
            SimulatedBroker(
                self.world,
                broker_id,
                shuts_down=self.shape.works_on_partitions,
                directories=1 + broker_id % 2,
                troubles=TROUBLES_WHERE_MANY if self.shape.giant_partitions else 1,
            )
            for broker_id in range(self.shape.brokers)
        ]
        self._operations = Operations(self.world, self._brokers)
        self.history = History()
        self._users = [User(self.world, number, self.history, replication_factor) for number in range(USERS)]
        self._of_partitions: tuple[PartitionLeaders | Reassigner | Appends | Giant, ...] = ()
        if self.shape.giant_partitions:
            self._of_partitions = (Giant(self.world, self.shape.giant_partitions),)
        if self.shape.works_on_partitions:
            appends = Appends(self.world, self._brokers)
            leaders = PartitionLeaders(self.world, self._brokers, appends)
            self._of_partitions = (leaders, Reassigner(self.world), appends)
        self._target_offset: int | None = None
        """What the active controller had committed when it first did its work in calm."""

    def run(self) -> None:
        """Faults, then calm. Raises InvariantViolation."""
        world = self.world
        world.coverage.count(Happening.CLOCK_DRIFT, int(any(self.shape.drifts_ppm)))
        for machine in self.cluster.machines:
            self.cluster.boot(machine)
        self.faults.start()
        if self.operator is not None:
            self.operator.start()
        faults_ms = FAULTS_MS if self.operator is None else FAULTS_UNDER_OPERATOR_MS
        world.run_until(world.now_ms + faults_ms)
        self.faults.stop()
        promises = self.administrator.promises()
        if not self._comes_back(len(promises)):
            world.coverage.count(Happening.RUN_WITHOUT_QUORUM)
            self.history.check()
            return
        for node in world.alive:
            check_nothing_lost(promises, node)
        self._come_to_agree()
        self.history.check()

    def _comes_back(self, promised: int) -> bool:
        """Wait until the cluster is well. False when it cannot be: see `_can_come_back`."""
        for _ in range(CALM_PERIODS):
            self.world.run_until(self.world.now_ms + CALM_PERIOD_MS, lambda: self._is_well(promised))
            if self._is_well(promised):
                return True
            if self.operator is None and not self._can_come_back():
                return False
        raise InvariantViolation(
            "Liveness", f"no progress in {CALM_PERIODS * CALM_PERIOD_MS} ms of calm: {self._describe()}"
        )

    def _is_well(self, promised: int) -> bool:
        """One node leads, requests are acknowledged again, and all nodes have replayed what the leader committed."""
        nodes = self.world.alive
        active = [node for node in nodes if node.is_active]
        if len(active) != 1 or self.administrator.acknowledged <= promised:
            return False
        if active[0].raft.epoch < max(node.raft.epoch for node in nodes):
            # It stood still when the faults ended, and does not know yet that others have gone on.
            return False
        if self.operator is not None and not (self.operator.is_done and _all_registered(nodes)):
            return False
        if self._target_offset is None:
            self._target_offset = active[0].metadata.applied_offset
        return all(node.metadata.applied_offset >= self._target_offset for node in nodes)

    def _come_to_agree(self) -> None:
        """Clients request no more changes: soon all images are equal, though some may lag by a NoOp."""
        for someone in (self.administrator, self._operations, *self._users, *self._of_partitions):
            someone.stop()
        if self.shape.works_on_partitions:
            # The others take over what these led.
            self._come_to_rest(self._brokers[::2])
        for broker in self._brokers:
            broker.stop()
        for _ in range(AGREEMENT_ATTEMPTS):
            self.world.run_until(self.world.now_ms + AGREEMENT_MS)
            if not differing_images(self.world.alive):
                self.world.partitions.check_same(self.world.alive[0].metadata.image)
                self.world.checkpoints.check_image(self.world.alive[0].metadata.image)
                return
        raise InvariantViolation("SameImages", f"{differing_images(self.world.alive)}: {self._describe()}")

    def _come_to_rest(self, silent: Sequence[SimulatedBroker]) -> None:
        """Brokers fall silent. Soon they are fenced, and no partition waits for anything."""
        for broker in silent:
            broker.stop()
        partitions = self.world.partitions
        for _ in range(REST_ATTEMPTS):
            self.world.run_until(self.world.now_ms + AGREEMENT_MS)
            if partitions.are_inactive(broker.broker_id for broker in silent) and not partitions.unsettled():
                return
        raise partitions.unsettled() or InvariantViolation("Liveness", "a silent broker is not fenced")

    def _can_come_back(self) -> bool:
        """Whether the disks that the faults have left can elect a leader: some replica is a voter of the last
        VotersRecord that it has, and living voters of it without a longer log are a majority. What the nodes say of
        themselves does not matter: a node that has lost its voters still has to come back.
        """
        committed = self.world.committed
        machines = self.cluster.machines
        logs = {machine.replica: machine.disk_log.last() for machine in machines}
        for machine in machines:
            log = machine.disk_log
            voters = log.voters() or committed.voters_at(log.last()[1])
            there = frozenset(replica for replica, last in logs.items() if last <= logs[machine.replica])
            is_voter = machine.replica in voters or (machine.node_id, ANY_DIRECTORY) in voters
            if is_voter and is_majority(there, voters):
                return True
        return False

    def _describe(self) -> str:
        return "; ".join(
            f"{node.node_id}: {node.raft.role.value} epoch {node.raft.epoch} leader {node.raft.leader_id} "
            f"hw {node.raft.high_watermark} applied {node.metadata.applied_offset} end {node.raft.log_end_offset} "
            f"voters {node.raft.voters.ids} {'' if node.is_registered else 'not '}registered"
            for node in self.world.alive
        ) + ("" if self.operator is None else f"; {self.operator.describe()}")


def _all_registered(nodes: Sequence[ControllerNode]) -> bool:
    """Whether all images say of all living controllers what they are, of those that were unregistered, too."""
    ids = {node.node_id for node in nodes}
    return all(node.is_registered and ids <= node.metadata.image.cluster.controllers.keys() for node in nodes)


def run_seed(seed: int, shape: Shape | None = None) -> Scenario:
    """Run one seed to its end. What goes wrong has notes: shape, last faults, the command that repeats it."""
    scenario = Scenario(seed, shape)
    try:
        with (
            counting_log_events(scenario.world.coverage),
            counting_work(scenario.world.work),
            small_slices(enabled=scenario.shape.is_sliced),
        ):
            scenario.run()
    except Exception as error:
        error.add_note(f"shape: {scenario.shape}")
        error.add_note("last faults:\n  " + "\n  ".join(scenario.faults.history[-FAULTS_SHOWN:]))
        error.add_note(f"replay with: {replay_command(seed, scenario.shape)}")
        raise
    return scenario
