"""Directed schedules: faults in the very order in which one forgotten rule of Raft loses what was committed.

Chance alone hardly ever brings them about, since each takes half a dozen steps. A schedule looks at the cluster every
millisecond and takes its next step once what it waits for has come. With the rules in place it does no harm.

    schedule       the rule that it tests                                               from
    -------------  -------------------------------------------------------------------  -----------------------------
    old epoch      a leader commits no older epoch's records by counting replicas       Raft 5.4.2, figure 8
    rival changes  a leader changes no voters before it has committed in its own epoch  Ongaro on raft-dev, July 2015
    double change  a leader changes no voters while the change before is uncommitted    Ongaro's dissertation, 4.1
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kit.simulator.coverage import Happening
from kit.simulator.faults import Faults, replica_on
from kit.simulator.shape import Schedule
from kit.simulator.world import CLUSTER_ID
from quorate_controller.raft.messages import RemoveRaftVoterRequest
from quorate_controller.raft.voters import majority_size

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    Condition = Callable[[], bool]
    Steps = Generator[Condition, None, None]
    """A schedule is suspended until the condition that it yields holds."""

    from kit.simulator.cluster import Cluster
    from kit.simulator.world import Machine

LOOK_EVERY_MS: Final = 1
WAIT_MS_MAX: Final = 8000
"""Some elections: a step that waits longer was overtaken by chance, and the schedule starts again."""
REST_MS: Final = (200, 1000)
ADD_EVERY_MS: Final = 200
ASK_EVERY_MS: Final = 20
ASK_MS: Final = 600
"""How long a leader is asked for a change: less than it leads without a majority."""
RIVALS_MIN: Final = 4
"""With three voters, a majority of each set that one removal leaves has a voter of a majority of any other."""


class DirectedFaults(Faults):
    """Runs the steps of a schedule, again and again until `stop`."""

    def __init__(self, cluster: Cluster, schedule: Schedule) -> None:
        super().__init__(cluster)
        self._plan = {
            Schedule.OLD_EPOCH: self._old_epoch,
            Schedule.RIVAL_CHANGES: self._rival_changes,
            Schedule.DOUBLE_CHANGE: self._double_change,
        }[schedule]
        self._steps: Steps | None = None
        self._is_time: Condition | None = None
        self._due_ms = 0

    def start(self) -> None:
        """From now on, the steps of the schedule are taken, and nothing else goes wrong."""
        self._world.network.delay_ms_max = self._rng.choice((1, 5, 20))
        self._run_due_step()

    def _run_due_step(self) -> None:
        """Run the next step if it is due; after the last one and a rest, the schedule starts again."""
        if self._stopped:
            return
        if self._steps is None:
            self._steps = self._plan()
        is_at_end = False
        if self._is_time is None or self._is_time():
            self._is_time = next(self._steps, None)
            self._due_ms = self._world.now_ms + WAIT_MS_MAX
            is_at_end = self._is_time is None
            self._world.coverage.count(Happening.SCHEDULE_DONE, int(is_at_end))
        if is_at_end or self._world.now_ms >= self._due_ms:
            self._note(self._heal())
            self._steps = self._is_time = None
            self._world.schedule(self._rng.randint(*REST_MS), self._run_due_step)
        else:
            self._world.schedule(LOOK_EVERY_MS, self._run_due_step)

    def _note(self, what: str) -> None:
        self.history.append(f"{self._world.now_ms}: {what}")

    # ------------------------------------------------------------------------------------------ schedules

    def _old_epoch(self) -> Steps:
        """A leader has records that no other node has; a second leader, too. The first one is elected again, and is
        away when others have its old records, but none of its new epoch. Then the second one is elected again.
        """
        first = yield from self._next_leader(0, is_active=True)
        rest = self._without(first)
        self._split([first], rest)
        second = yield from self._next_leader(_epoch(first))
        rest.remove(second)
        self._split([first], [second], rest)
        # As few as elect the first one: they cannot elect one of their own, which has less.
        others = self._rng.sample(rest, majority_size(len(rest) + 2) - 1)
        yield self._pause(500)
        base_offset, epoch = _end_offset(others), _epoch(second)
        self._split([first, *others], [second])
        yield lambda: first.leads and _epoch(first) > epoch
        yield lambda: all(_end_offset([machine]) > base_offset for machine in others)
        yield self._pause(4 * self._world.network.delay_ms_max)
        epoch = _epoch(first)
        self._split([first], [second, *others])
        for machine in others:
            # A node with the high watermark would not truncate committed records. A new process has none.
            self._restart(machine)
        yield from self._next_leader(epoch, is_active=True)
        yield self._pause(100)

    def _rival_changes(self) -> Steps:
        """Two leaders of four voters remove one voter each, the second one before it has committed anything in its
        epoch. Each of the two new sets has a majority without a voter of the other one's.
        """
        first = yield from self._next_leader(0, is_active=True)
        while len(self._voters(first)) < RIVALS_MIN:
            self._note(self._add_voter())
            yield self._pause(ADD_EVERY_MS)
            first = yield from self._next_leader(0, is_active=True)
        rest = self._without(first)
        removed = self._rng.choice(rest)
        self._split([first], rest)
        self._remove_at(first, removed)
        second = yield from self._next_leader(_epoch(first))
        rest.remove(second)
        ally = removed if removed is not second else self._rng.choice(rest)
        others = [machine for machine in rest if machine is not ally]
        self._split([second, ally], [first], others)
        yield from self._ask_for_removal(second, first)
        epoch = _epoch(second)
        self._split([first, *others], [second, ally])
        yield from self._next_leader(epoch, is_active=True)
        yield self._pause(100)

    def _double_change(self) -> Steps:
        """An isolated leader is asked to remove all other voters, one after the other: it would be its own majority
        in the end, while the others have elected a leader of their own.
        """
        first = yield from self._next_leader(0, is_active=True)
        rest = [machine for machine in self._voters(first) if machine is not first]
        self._split([first], self._without(first))
        self._rng.shuffle(rest)
        for machine in rest:
            yield from self._ask_for_removal(first, machine)
        yield from self._next_leader(_epoch(first), is_active=True)
        self._note(self._heal())
        yield self._pause(1000)

    # ---------------------------------------------------------------------------------------------- steps

    def _next_leader(self, epoch: int, *, is_active: bool = False) -> Generator[Condition, None, Machine]:
        """Wait for a leader of a higher epoch."""

        def leaders() -> list[Machine]:
            return [
                machine
                for machine in self._cluster.machines
                if machine.leads
                and _epoch(machine) > epoch
                and (not is_active or (machine.node is not None and machine.node.is_active))
            ]

        yield lambda: bool(leaders())
        leader = max(leaders(), key=_epoch)
        self._note(f"{leader.node_id} leads epoch {_epoch(leader)}")
        return leader

    def _ask_for_removal(self, leader: Machine, voter: Machine) -> Steps:
        """Ask the leader again and again, until it has appended the removal or it seems that it never will."""
        end_ms = self._world.now_ms + ASK_MS

        def is_over() -> bool:
            return self._world.now_ms >= end_ms or voter not in self._voters(leader)

        while not is_over():
            self._remove_at(leader, voter)
            yield self._pause(ASK_EVERY_MS)

    def _remove_at(self, leader: Machine, voter: Machine) -> None:
        request = RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter=replica_on(voter))
        self._world.network.ask_raft(leader.node_id, request)
        self._note(f"{leader.node_id} is asked to remove {voter.node_id}")

    def _restart(self, machine: Machine) -> None:
        self._world.coverage.count(Happening.PROCESS_KILLED)
        self._world.kill(machine)
        self._cluster.boot(machine)
        self._note(f"{machine.node_id} is restarted")

    def _pause(self, pause_ms_max: int) -> Condition:
        end_ms = self._world.now_ms + self._rng.randint(1, pause_ms_max)
        return lambda: self._world.now_ms >= end_ms

    def _without(self, machine: Machine) -> list[Machine]:
        return [other for other in self._cluster.machines if other is not machine]

    def _voters(self, leader: Machine) -> list[Machine]:
        """The voters as that node has them."""
        ids = leader.node.raft.voters.ids if leader.node is not None else ()
        return [machine for machine in self._cluster.machines if machine.node_id in ids]

    def _split(self, *sides: Iterable[Machine]) -> None:
        """Let messages pass within each side alone. A machine on no side reaches no other."""
        self._world.coverage.count(Happening.PARTITION)
        side_of = {machine.node_id: number for number, side in enumerate(sides) for machine in side}
        ids = list(self._world.machines)
        self._world.network.cut = {
            frozenset((left, right))
            for left in ids
            for right in ids
            if left < right and (left not in side_of or side_of[left] != side_of.get(right))
        }
        self._note(f"cut into {[[machine.node_id for machine in side] for side in sides]}")


def _epoch(machine: Machine) -> int:
    return -1 if machine.node is None else machine.node.raft.epoch


def _end_offset(machines: Iterable[Machine]) -> int:
    return max(machine.node.raft.log_end_offset for machine in machines if machine.node is not None)
