"""Throttles of drains: rates of brokers, and the replicas of topics to which they apply. Pure.

Kafka throttles the replicas that a topic lists (`leader.replication.throttled.replicas` and the one of followers) by
the rates of their brokers, as long as they are not in sync. A drain sets both before replicas move, keeps them as the
manifest has them, and removes them when nothing is drained any more. No progress is stored; what is a drain's own is
read from the cluster:

    replicas of a topic   of partitions that list a broker which leaves as a source
    rates                 of single brokers, while such replicas are listed, and those that are the rate of a pool

A KafkaRebalance sets its rates as defaults of all brokers, which are weaker than these.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from quorate_operator.placement.cluster import ObservedPartition
from quorate_operator.planning.cluster import KafkaFacts, Role
from quorate_operator.planning.steps import SetThrottles

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
THROTTLED_REPLICAS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)


class Copy(NamedTuple):
    """A partition whose replicas are copied by a drain, and the brokers that have it afterwards."""

    partition: ObservedPartition
    target: tuple[int, ...]


@dataclass(slots=True)
class _Replicas:
    """The throttled replicas of a topic: pairs of a partition and a broker."""

    sources: set[tuple[int, int]] = field(default_factory=set)
    new: set[tuple[int, int]] = field(default_factory=set)

    def texts(self) -> tuple[str, str]:
        return _text(self.sources), _text(self.new)


def plan_throttles(
    kafka: KafkaFacts,
    copies: Iterable[Copy],
    *,
    leaving: Collection[int],
    rate_bytes: int | None,
    rates_of_pools: Collection[int],
) -> SetThrottles | None:
    """Return the step that makes throttles those of `copies`; None if they are.

    `rate_bytes` is that of the drains under way, and None without any; `rates_of_pools` are those of all manifests.
    """
    wanted = _wanted(copies) if rate_bytes is not None else {}
    listed = {topic: _listed(values) for topic, values in kafka.throttled.items()}
    is_own = wanted or any(_own_partitions(replicas, leaving) for replicas in listed.values() if replicas)
    texts = {str(rate) for rate in rates_of_pools}
    left = {
        broker_id
        for broker_id, rates in kafka.replication_rates.items()
        if is_own or not texts.isdisjoint(rates.values())
    }
    if not is_own and not left:
        return None
    rates: dict[int, int | None] = {}
    if wanted and rate_bytes is not None:
        due = {LEADER_RATE: str(rate_bytes), FOLLOWER_RATE: str(rate_bytes)}
        brokers = (entry.node_id for entry in kafka.registrations.values() if entry.role is Role.BROKER)
        rates = {
            broker_id: rate_bytes
            for broker_id in sorted(brokers)
            if kafka.replication_rates.get(broker_id) != due
        }
    else:
        rates = dict.fromkeys(sorted(left))
    topics = {
        topic: lists
        for topic in sorted(wanted.keys() | listed.keys())
        if (lists := _changed(kafka, topic, wanted, listed, leaving)) is not None
    }
    if not rates and not topics:
        return None
    what = f"to {rate_bytes} bytes per second" if wanted else "no longer: no broker is drained"
    return SetThrottles(
        rates=rates, topics=topics, reason=f"replicas that leave brokers are throttled {what}"
    )


def _wanted(copies: Iterable[Copy]) -> dict[str, _Replicas]:
    wanted: dict[str, _Replicas] = defaultdict(_Replicas)
    for partition, target in copies:
        number = partition.partition.number
        sources = [broker_id for broker_id in partition.replicas if broker_id not in partition.adding]
        new = [broker_id for broker_id in target if broker_id not in sources]
        if new:
            replicas = wanted[partition.partition.topic]
            replicas.sources |= {(number, broker_id) for broker_id in sources}
            replicas.new |= {(number, broker_id) for broker_id in new}
    return dict(wanted)


def _changed(
    kafka: KafkaFacts,
    topic: str,
    wanted: Mapping[str, _Replicas],
    listed: Mapping[str, _Replicas | None],
    leaving: Collection[int],
) -> tuple[str, str] | None:
    """Return the lists of a topic if they have to be changed. During a drain, those of other clients stay."""
    there = listed.get(topic, _Replicas())
    if there is None:
        return None
    moving = {
        found.partition.number
        for found in kafka.partitions
        if found.partition.topic == topic and found.is_moving
    }
    every = {number for number, _ in (*there.sources, *there.new)}
    ended = _own_partitions(there, leaving) if wanted else every - moving
    due = wanted.get(topic, _Replicas())
    merged = _Replicas(
        sources={pair for pair in there.sources if pair[0] not in ended} | due.sources,
        new={pair for pair in there.new if pair[0] not in ended} | due.new,
    )
    return None if merged == there else merged.texts()


def _own_partitions(replicas: _Replicas, leaving: Collection[int]) -> set[int]:
    """Return the partitions that list a broker which leaves as a source."""
    return {number for number, broker_id in replicas.sources if broker_id in leaving}


def _listed(values: Mapping[str, str]) -> _Replicas | None:
    """Return the throttled replicas in a topic's configs; None where they are not listed one by one."""
    try:
        return _Replicas(
            sources=_pairs(values.get(LEADER_REPLICAS)), new=_pairs(values.get(FOLLOWER_REPLICAS))
        )
    except ValueError:
        return None


def _pairs(text: str | None) -> set[tuple[int, int]]:
    """Return partitions and brokers of `0:1,0:2`. Raises ValueError for `*` and other texts."""
    pairs = (entry.split(":") for entry in (text or "").split(",") if entry.strip())
    return {(int(number), int(broker_id)) for number, broker_id in pairs}


def _text(pairs: Iterable[tuple[int, int]]) -> str:
    return ",".join(f"{number}:{broker_id}" for number, broker_id in sorted(pairs))
