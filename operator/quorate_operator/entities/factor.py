"""Changes a replication factor: plans the replicas that partitions get and lose, some partitions at a time. Pure.

Replicas that can stay keep their order. A partition keeps a replica that is in sync. A partition whose replicas are
being moved, by anybody, is left alone. `planning.relocation` moves replicas of brokers that leave.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from quorate_operator.entities.plan import Broker, Refusal
from quorate_operator.planning.relocation import IN_FLIGHT_MAX

TOO_FEW_BROKERS = "TooFewBrokers"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPartition:
    """The replicas of a partition, with those that are being added and removed (KIP-455)."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: frozenset[int] = frozenset()
    removing: frozenset[int] = frozenset()

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def present(self) -> int:
        """Number of replicas without those that are being added."""
        return len(self.replicas) - len(self.adding)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorPlan:
    """New replicas by partition, the waits, and why some partitions can't have the factor."""

    replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    waits: tuple[str, ...] = ()
    refusal: Refusal | None = None


def plan_factor(
    factor: int | None, partitions: Mapping[int, ObservedPartition], brokers: Sequence[Broker]
) -> FactorPlan:
    """Plans reassignments to `factor` replicas for each partition; None keeps what is there."""
    moving = sum(partition.is_moving for partition in partitions.values())
    waits = [f"the replicas of {moving} of {len(partitions)} partition(s) to be moved"] if moving else []
    wrong = {
        number: one
        for number, one in sorted(partitions.items())
        if factor is not None and not one.is_moving and len(one.replicas) != factor
    }
    if factor is None or not wrong:
        return FactorPlan(waits=tuple(waits))
    choice = _Choice(partitions, brokers)
    replicas: dict[int, tuple[int, ...]] = {}
    refusal = None
    lost = 0
    for number, one in wrong.items():
        if not one.isr:
            lost += 1
            continue
        if moving + len(replicas) >= IN_FLIGHT_MAX:
            break
        chosen = choice.replicas(one, factor)
        if len(chosen) == factor:
            replicas[number] = chosen
        else:
            refusal = Refusal(
                code=TOO_FEW_BROKERS,
                message=f"spec.replicationFactor: {factor}: partition {number} could have {len(chosen)} replicas, on "
                f"brokers {', '.join(map(str, sorted(chosen)))}; no other broker is in service; add brokers",
            )
    if lost:
        waits.append(f"a leader of {lost} partition(s), to change the number of their replicas")
    return FactorPlan(replicas=replicas, waits=tuple(waits), refusal=refusal)


class _Choice:
    """Chooses replicas for one partition after the other. Each choice counts as load for the next one."""

    def __init__(self, partitions: Mapping[int, ObservedPartition], brokers: Sequence[Broker]) -> None:
        self._racks = {broker.broker_id: broker.rack for broker in brokers}
        self._usable = [broker.broker_id for broker in brokers if broker.is_usable]
        self._load = Counter(replica for partition in partitions.values() for replica in partition.replicas)

    def replicas(self, partition: ObservedPartition, factor: int) -> tuple[int, ...]:
        """Returns `factor` replicas, or fewer if there are too few brokers."""
        chosen = list(partition.replicas)
        kept = next(replica for replica in chosen if replica in partition.isr)
        while len(chosen) > factor:
            out = max(
                (replica for replica in chosen if replica != kept),
                key=lambda one: (one not in partition.isr, self._crowd(one, chosen), self._load[one], one),
            )
            chosen.remove(out)
            self._load[out] -= 1
        while len(chosen) < factor:
            possible = [one for one in self._usable if one not in chosen]
            if not possible:
                break
            added = min(possible, key=lambda one: (self._crowd(one, chosen), self._load[one], one))
            chosen.append(added)
            self._load[added] += 1
        return tuple(chosen)

    def _crowd(self, broker_id: int, replicas: Sequence[int]) -> int:
        """How many others of these replicas share the broker's rack."""
        rack = self._racks.get(broker_id)
        return (
            sum(self._racks.get(replica) == rack for replica in replicas if replica != broker_id)
            if rack
            else 0
        )
