"""Leaders of partitions that report their ISRs, and an operator who reassigns replicas: each response is
compared with the committed records.

    invariant                   of every response
    --------------------------  ------------------------------------------------------------------------------------
    StaleAlterPartition         a report about an epoch that has passed, or with a wrong broker epoch, changes nothing
    OneChangePerEpoch           of all reports about one partition epoch, one at most changes the partition
    AcknowledgedAlterPartition  the state in the response is committed
    AcknowledgedReassignment    a reassignment that was granted is committed with exactly the replicas asked for; one
                                that was cancelled is over
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from kit.simulator.clients import active_node_id
from kit.simulator.coverage import Happening
from kit.simulator.invariants import InvariantViolation
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from quorate_protocol.kafka.generated.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kit.simulator.appends import Appends
    from kit.simulator.clients import SimulatedBroker
    from kit.simulator.partitions import Key
    from kit.simulator.world import World
    from quorate_protocol.image.partitions import PartitionRegistration

REPORT_MS: Final = (20, 400)
REASSIGN_MS: Final = (50, 600)
KNOWS_AN_OLD_STATE: Final = 0.15
IS_IN_SYNC: Final = 0.8
NAMES_A_WRONG_EPOCH: Final = 0.05
ASKS_FOR_AN_INACTIVE_BROKER: Final = 0.05
CANCEL: Final = 0.3
CANCEL_NOTHING: Final = 0.05
REPLACE: Final = 0.1
REPLICAS_MAX: Final = 3
TRIES: Final = 8
"""Partitions that the operator tries until one needs a change."""


@dataclass(frozen=True, slots=True)
class Report:
    """A report of a leader about one partition."""

    key: Key
    asked: PartitionData
    committed_epoch: int
    """The partition epoch that was committed when it was sent."""
    is_impossible: bool
    """It names an epoch that the broker had before, or never."""


class PartitionLeaders:
    """Each broker that leads partitions reports its ISRs, now and then from what it knew long ago."""

    def __init__(self, world: World, brokers: Sequence[SimulatedBroker], appends: Appends) -> None:
        self._world = world
        self._rng = world.rng
        self._brokers = brokers
        self._appends = appends
        self._stopped = False
        self._changed: set[tuple[Key, int]] = set()
        world.schedule(1000, self._work)

    def stop(self) -> None:
        """Send nothing more."""
        self._stopped = True

    def _work(self) -> None:
        if self._stopped:
            return
        broker = self._rng.choice(self._brokers)
        led = self._world.partitions.led_by(broker.broker_id)
        if broker.epoch is not None and led:
            self._report(broker.broker_id, broker.epoch, self._rng.choice(led))
        self._world.schedule(self._rng.randint(*REPORT_MS), self._work)

    def _report(self, broker_id: int, broker_epoch: int, key: Key) -> None:
        states = self._world.partitions.history[key]
        known = states[-1]
        if self._rng.random() < KNOWS_AN_OLD_STATE:
            known = self._rng.choice([state for state in states if broker_id in state.replicas])
        isr, is_impossible = self._isr(broker_id, known, key)
        self._appends.isr_asked_for(key, known, frozenset(state.broker_id for state in isr))
        asked = PartitionData(
            partition_index=key[1],
            leader_epoch=known.leader_epoch,
            new_isr_with_epochs=isr,
            partition_epoch=known.partition_epoch,
        )
        report = Report(key, asked, states[-1].partition_epoch, is_impossible)
        request = AlterPartitionRequest(
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            topics=(TopicData(topic_id=key[0], partitions=(asked,)),),
        )
        node_id, sent_ms = active_node_id(self._world), self._world.now_ms

        def on_response(response: Any) -> None:
            if not isinstance(response, Exception) and response.error_code is ErrorCode.none:
                is_fresh = self._world.knew_all_at(self._world.machines[node_id]) >= sent_ms
                self._judge(report, response.topics[0].partitions[0], is_fresh=is_fresh)

        self._world.network.ask(node_id, request, on_response)

    def _isr(
        self, leader_id: int, known: PartitionRegistration, key: Key
    ) -> tuple[tuple[BrokerState, ...], bool]:
        """The replicas in sync, each with its epoch, and whether one of these epochs is wrong."""
        states, is_impossible = [], False
        for broker_id in known.replicas:
            broker = self._world.partitions.brokers.get(broker_id)
            is_active = broker is not None and broker.is_active
            chance = IS_IN_SYNC if is_active else ASKS_FOR_AN_INACTIVE_BROKER
            if broker is None or (broker_id != leader_id and self._rng.random() >= chance):
                continue
            epoch = broker.epoch
            is_new = broker_id not in known.isr and broker_id != leader_id
            if is_new and not self._appends.catches_up(key, known, broker_id, epoch):
                continue
            if broker_id != leader_id and self._rng.random() < NAMES_A_WRONG_EPOCH:
                # The epoch of an earlier incarnation, or no epoch at all.
                epoch, is_impossible = epoch - 1, True
            states.append(BrokerState(broker_id=broker_id, broker_epoch=epoch))
        return tuple(states), is_impossible

    def _judge(self, report: Report, response: Any, *, is_fresh: bool) -> None:
        before, after = report.asked.partition_epoch, response.partition_epoch
        is_stale = before < report.committed_epoch
        if response.error_code is not ErrorCode.none:
            self._world.coverage.count(Happening.STALE_REPORT_REFUSED, int(is_stale))
            self._world.coverage.count(
                Happening.INELIGIBLE_REPLICA_REFUSED, int(response.error_code is ErrorCode.ineligible_replica)
            )
            return
        what = f"partition {report.key}: {report.asked} got {response}"
        if (
            after not in (before, before + 1)
            or report.is_impossible
            or (is_stale and (after > before or is_fresh))
        ):
            raise InvariantViolation("StaleAlterPartition", what)
        if after == before:
            return
        self._world.coverage.count(Happening.ISR_CHANGED)
        if (report.key, before) in self._changed:
            raise InvariantViolation("OneChangePerEpoch", what)
        self._changed.add((report.key, before))
        states = self._world.partitions.history.get(report.key)
        # Without a state the topic is deleted by now.
        if states is not None and not any(
            state.partition_epoch == after and state.isr == response.isr for state in states
        ):
            raise InvariantViolation("AcknowledgedAlterPartition", what)


class Reassigner:
    """Gives partitions other replicas, and sometimes changes its mind."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng
        self._stopped = False
        self._open: dict[Key, set[int]] = {}
        """Requests without a response yet: they may be carried out at any time."""
        self._disturbed: set[int] = set()
        """Requests that others on the same partition may have come between."""
        self._number = 0
        world.schedule(2000, self._work)

    def stop(self) -> None:
        """Ask for nothing more."""
        self._stopped = True

    def _work(self) -> None:
        if self._stopped:
            return
        history = self._world.partitions.history
        keys = tuple(history)
        for _ in range(min(TRIES, len(keys))):
            key = self._rng.choice(keys)
            state = history[key][-1]
            chance = CANCEL if state.is_reassigning else CANCEL_NOTHING
            if self._rng.random() < chance:
                self._ask(key, None)
                break
            if not state.is_reassigning or self._rng.random() < REPLACE:
                self._ask(key, self._replicas())
                break
        self._world.schedule(self._rng.randint(*REASSIGN_MS), self._work)

    def _replicas(self) -> tuple[int, ...]:
        ids = sorted(self._world.partitions.brokers)
        return tuple(self._rng.sample(ids, min(len(ids), self._rng.randint(1, REPLICAS_MAX))))

    def _ask(self, key: Key, replicas: tuple[int, ...] | None) -> None:
        partitions = self._world.partitions
        partition = ReassignablePartition(partition_index=key[1], replicas=replicas)
        topic = ReassignableTopic(name=partitions.names[key[0]], partitions=(partition,))
        request = AlterPartitionReassignmentsRequest(timeout=timedelta(seconds=30), topics=(topic,))
        first = len(partitions.history[key]) - 1
        self._number += 1
        number, others = self._number, self._open.setdefault(key, set())
        if others:
            self._disturbed |= {number, *others}
        others.add(number)

        def on_response(response: Any) -> None:
            if isinstance(response, Exception):
                return  # it may have been written before its controller was deposed
            others.discard(number)
            if response.error_code is not ErrorCode.none:
                return
            if response.responses[0].partitions[0].error_code is ErrorCode.none and key in partitions.history:
                self._judge(number, key, replicas, partitions.history[key][first:])

        self._world.network.ask(active_node_id(self._world), request, on_response)

    def _judge(
        self, number: int, key: Key, replicas: tuple[int, ...] | None, states: Sequence[PartitionRegistration]
    ) -> None:
        """`states` are those since the request was sent."""
        self._world.coverage.count(Happening.REASSIGNMENT_GRANTED)
        if replicas is None:
            is_kept = any(not state.is_reassigning for state in states)
        else:
            # A replacing reassignment keeps a part of the replaced one, as in Kafka: it is not judged.
            is_replacing = states[0].is_reassigning or number in self._disturbed
            is_kept = is_replacing or any(_target(state) == replicas for state in states)
        if not is_kept:
            raise InvariantViolation(
                "AcknowledgedReassignment", f"partition {key} to {replicas}: {states[-3:]}"
            )


def _target(state: PartitionRegistration) -> tuple[int, ...]:
    """The replicas when the reassignment is done."""
    return tuple(replica for replica in state.replicas if replica not in state.removing_replicas)
