"""Plans one topic: creation or adoption, more partitions, configs, another replication factor, deletion. Pure."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Self
from uuid import UUID

from quorate_protocol.uuids import uuid_to_text

from quorate_operator.entities.plan import Change, EntityPlan
from quorate_operator.models.topics import KafkaTopic
from quorate_operator.placement.assignment import Assignment
from quorate_operator.placement.cluster import ObservedPartition
from quorate_operator.placement.goals import change_factor
from quorate_operator.planning.space import refuse_without_room
from quorate_operator.planning.steps import Refusal

CANT_SHRINK = "PartitionsCantShrink"
TOO_FEW_BROKERS = "TooFewBrokers"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedTopic:
    """A topic as brokers describe it; `config` has what was set for this topic alone."""

    topic_id: UUID | None
    partitions: Mapping[int, ObservedPartition]
    config: Mapping[str, str]
    assignment: Assignment | None = None
    """The replicas of all topics that were observed together, if the factor of one of them changes. Plans change it
    one after the other, so that each leaves room for the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTopic:
    """What the status stores: whether the resource has had the topic, with which id, and which configs it had."""

    is_managed: bool = False
    topic_id: str | None = None
    config: frozenset[str] = frozenset()

    @classmethod
    def of_status(cls, status: Mapping[str, Any]) -> Self:
        return cls(
            is_managed=status.get("topicName") is not None,
            topic_id=status.get("topicId"),
            config=frozenset(status.get("managedConfig") or ()),
        )


NOTHING_STORED: Final = StoredTopic()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic:
    """CreateTopics; None leaves a number to the cluster's default."""

    topic: str
    partitions: int | None
    replication_factor: int | None
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        numbers = {"partitions": self.partitions, "replicas": self.replication_factor}
        reported = [f"{number} {what}" for what, number in numbers.items() if number is not None]
        return f"create the topic {self.topic} with {' and '.join(reported) or 'default numbers'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """CreatePartitions."""

    topic: str
    present: int
    count: int

    @property
    def text(self) -> str:
        return f"partitions: {self.count}, not {self.present}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfig:
    """IncrementalAlterConfigs: `values` are set, `resets` removed. `present` has the current values of both."""

    topic: str
    values: Mapping[str, str] = field(default_factory=dict)
    resets: tuple[str, ...] = ()
    present: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        reported = [f"{name}: {value}, not {self._present(name)}" for name, value in self.values.items()]
        return "; ".join((*reported, *(f"{name}: reset, not {self._present(name)}" for name in self.resets)))

    def _present(self, name: str) -> str:
        return self.present.get(name, "the default")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignReplicas:
    """AlterPartitionReassignments: all replicas of some partitions, the preferred leader first."""

    topic: str
    replicas: Mapping[int, tuple[int, ...]]
    replication_factor: int

    @property
    def text(self) -> str:
        return f"replicationFactor: {self.replication_factor}, for {len(self.replicas)} partition(s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopic:
    """DeleteTopics, by topic id where there is one: another topic with the same name is not deleted."""

    topic: str
    topic_id: UUID | None

    @property
    def text(self) -> str:
        return f"delete the topic {self.topic}"


def plan_topic(
    resource: KafkaTopic, observed: ObservedTopic | None, *, stored: StoredTopic = NOTHING_STORED
) -> EntityPlan:
    """Plan a topic whose resource stays; `observed` is None if it does not exist."""
    spec, name = resource.spec, resource.topic_name
    if observed is None:
        create = CreateTopic(
            topic=name,
            partitions=spec.partitions,
            replication_factor=spec.replication_factor,
            config=spec.config,
        )
        return EntityPlan(
            changes=(create,),
            status=_status(name, managedConfig=sorted(spec.config)),
            note=f"the topic {name} was deleted outside the operator; it is created again"
            if stored.topic_id
            else None,
        )
    changes: list[Change] = []
    refusals: list[Refusal] = []
    count = len(observed.partitions)
    if spec.partitions is not None and spec.partitions > count:
        changes.append(AddPartitions(topic=name, present=count, count=spec.partitions))
    elif spec.partitions is not None and spec.partitions < count:
        refusals.append(
            Refusal(
                code=CANT_SHRINK,
                message=f"spec.partitions: {spec.partitions}: the topic {name} has {count}, and partitions can't be "
                f"removed; set it to {count}, or create another topic",
            )
        )
    changes += _config_changes(name, spec.config, observed.config, stored.config)
    factor = plan_factor(spec.replication_factor, observed)
    if factor.replicas:
        assert spec.replication_factor is not None
        changes.append(
            ReassignReplicas(topic=name, replicas=factor.replicas, replication_factor=spec.replication_factor)
        )
    if factor.refusal is not None:
        refusals.append(factor.refusal)
    topic_id = None if observed.topic_id is None else uuid_to_text(observed.topic_id)
    return EntityPlan(
        changes=tuple(changes),
        waits=factor.waits,
        refusals=tuple(refusals),
        status=_status(
            name,
            topicId=topic_id,
            partitions=count,
            replicationFactor=min(
                (
                    len(partition.replicas) - len(partition.adding)
                    for partition in observed.partitions.values()
                ),
                default=None,
            ),
            reassigningPartitions=sum(partition.is_moving for partition in observed.partitions.values())
            or None,
            managedConfig=sorted({*spec.config, *(stored.config & observed.config.keys())}),
        ),
        note=_found(name, topic_id, stored),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorPlan:
    """New replicas by partition, the waits, and why some partitions can't have the factor."""

    replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    waits: tuple[str, ...] = ()
    refusal: Refusal | None = None


def has_factor(factor: int | None, partition: ObservedPartition) -> bool:
    """Whether nothing is to be changed now: a partition whose replicas are being moved, by anyone, is left alone."""
    return factor is None or partition.is_moving or len(partition.replicas) == factor


def plan_factor(factor: int | None, observed: ObservedTopic) -> FactorPlan:
    """Plan reassignments to `factor` replicas for each partition; None keeps what is there.

    If a factor changes, `observed` needs its assignment.
    """
    partitions = observed.partitions
    moving = sum(partition.is_moving for partition in partitions.values())
    waits = [f"the replicas of {moving} of {len(partitions)} partition(s) to be moved"] if moving else []
    wrong = {
        partition.partition
        for partition in partitions.values()
        if factor is not None and not has_factor(factor, partition)
    }
    led = {key for key in wrong if partitions[key.number].isr}
    if len(wrong) > len(led):
        waits.append(
            f"a leader of {len(wrong) - len(led)} partition(s), to change the number of their replicas"
        )
    if factor is None or not led:
        return FactorPlan(waits=tuple(waits))
    assignment = observed.assignment
    assert assignment is not None
    indexes = [assignment.index_of[key] for key in sorted(led)]
    short = change_factor(assignment, factor, indexes)
    # The limit in flight is for the topics together: the moves of another one may leave nothing for this one.
    held = sum(len(assignment.replicas[index]) != factor for index in indexes) - len(short)
    if held:
        waits.append(f"other reassignments to end, before {held} partition(s) get {factor} replicas")
    return FactorPlan(
        replicas={
            assignment.partitions[index].partition.number: tuple(assignment.replicas[index])
            for index in indexes
            if len(assignment.replicas[index]) == factor
        },
        waits=tuple(waits),
        refusal=_refusal(factor, assignment, short[-1]) if short else None,
    )


def _refusal(factor: int, assignment: Assignment, index: int) -> Refusal:
    """Return why a partition gets no more replicas."""
    partition = assignment.partitions[index]
    label = f"spec.replicationFactor: {factor}: partition {partition.partition.number}"
    full = refuse_without_room(assignment, index, label, "gets no other replica")
    if full is not None:
        return full
    others = [target for target in assignment.targets if target not in partition.replicas]
    possible = sorted((*partition.replicas, *others))
    message = (
        f"{label} could have {len(possible)} replicas, on brokers {', '.join(map(str, possible))}; no other broker "
        "is in service; add brokers"
    )
    return Refusal(code=TOO_FEW_BROKERS, message=message)


def plan_topic_deletion(
    resource: KafkaTopic, observed: ObservedTopic | None, stored: StoredTopic
) -> EntityPlan:
    """Plan for a topic whose resource is deleted. A topic that the resource never had stays."""
    if observed is None or not stored.is_managed or resource.spec.deletion_policy == "Retain":
        return EntityPlan()
    return EntityPlan(changes=(DeleteTopic(topic=resource.topic_name, topic_id=observed.topic_id),))


def _status(name: str, **known: object) -> dict[str, object]:
    """Return every field, None for one that is not known."""
    fields = ("topicId", "partitions", "replicationFactor", "reassigningPartitions", "managedConfig")
    return {"topicName": name, **{field: known.get(field) for field in fields}}


def _found(name: str, topic_id: str | None, stored: StoredTopic) -> str | None:
    if not stored.is_managed:
        return f"the topic {name} exists, and is managed by this resource from now on"
    if stored.topic_id in (None, topic_id):
        return None
    return (
        f"the topic {name} was recreated outside the operator: its id was {stored.topic_id} and is {topic_id}"
    )


def _config_changes(
    topic: str, desired: Mapping[str, str], observed: Mapping[str, str], managed: frozenset[str]
) -> list[Change]:
    values = {
        name: value
        for name, value in sorted(desired.items())
        if name not in observed or not is_same_value(observed[name], value)
    }
    resets = tuple(sorted(name for name in managed if name in observed and name not in desired))
    if not values and not resets:
        return []
    present = {name: observed[name] for name in (*values, *resets) if name in observed}
    return [AlterConfig(topic=topic, values=values, resets=resets, present=present)]


def is_same_value(value: str, other: str) -> bool:
    """Whether Kafka takes two texts for the same value. It returns numbers in its own spelling: 0.5 for 0.50."""
    if value == other:
        return True
    if [part.strip() for part in value.split(",")] == [part.strip() for part in other.split(",")]:
        return True
    if {value.strip().lower(), other.strip().lower()} <= {"true", "false"}:
        return value.strip().lower() == other.strip().lower()
    with suppress(InvalidOperation):  # not two numbers
        return Decimal(value.strip()) == Decimal(other.strip())
    return False
