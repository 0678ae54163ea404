"""The output of `quorate topics --describe`."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from quorate_admin.types.configs import ConfigEntry
from quorate_admin.types.partitions import PartitionReassignment, TopicPartition
from quorate_admin.types.topics import PartitionDescription, TopicDescription
from quorate_protocol.plain_data import dataclass
from quorate_protocol.uuids import uuid_to_text

from quorate.console.java_text import hash_order, joined, null_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """The filters for partitions and topics; without any, all are included."""

    under_replicated: bool = False
    unavailable: bool = False
    under_min_isr: bool = False
    at_min_isr: bool = False
    topics_with_overrides: bool = False

    @property
    def selects_partitions(self) -> bool:
        """Whether only partitions in some state are printed, without the lines of topics."""
        return self.under_replicated or self.unavailable or self.under_min_isr or self.at_min_isr


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedPartition:
    """A partition with its reassignment, if one is in progress."""

    topic: str
    info: PartitionDescription
    reassignment: PartitionReassignment | None

    @property
    def replication_factor(self) -> int:
        """The number of replicas, without those that are being added.

        A reassignment may have completed between the two requests; it counts while some of its replicas are listed.
        """
        moving = self.reassignment
        if moving is not None and {*moving.adding_replicas, *moving.removing_replicas} & {
            *self.info.replicas
        }:
            return len(moving.replicas) - len(moving.adding_replicas)
        return len(self.info.replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTopic:
    """A topic with its configs and partitions, in order."""

    topic: TopicDescription
    configs: Mapping[str, ConfigEntry]
    partitions: tuple[DescribedPartition, ...]
    replication_factor: int
    """The replication factor of the first partition."""

    @property
    def overrides(self) -> dict[str, str | None]:
        """The configs that are not Kafka's defaults, in the order in which Kafka's tool prints them."""
        return {
            name: self.configs[name].value
            for name in hash_order(self.configs)
            if not self.configs[name].is_default
        }

    @property
    def min_isr(self) -> int:
        """The minimum number of in-sync replicas for writes with acks=all."""
        return int(self.configs["min.insync.replicas"].value or 1)


def combine(
    topics: Iterable[TopicDescription],
    configs: Mapping[str, Iterable[ConfigEntry]],
    reassignments: Mapping[TopicPartition, PartitionReassignment],
) -> list[DescribedTopic]:
    """Combine the responses of several requests, in the order of Kafka's tool."""
    described = []
    by_name = {topic.name: topic for topic in topics}
    for topic in (by_name[name] for name in hash_order(by_name, capacity=len(by_name))):
        partitions = tuple(
            DescribedPartition(
                topic=topic.name,
                info=info,
                reassignment=reassignments.get(TopicPartition(topic.name, info.partition)),
            )
            for info in topic.partitions
        )
        described.append(
            DescribedTopic(
                topic=topic,
                configs={entry.name: entry for entry in configs[topic.name]},
                partitions=partitions,
                replication_factor=partitions[0].replication_factor,
            )
        )
    return described


def select(
    topics: Iterable[DescribedTopic], reports: Reports, live_brokers: Collection[int] | None
) -> list[DescribedTopic]:
    """The topics and partitions that the filters include. `live_brokers` is None if each leader is live."""
    selected = []
    for described in topics:
        if reports.topics_with_overrides and not described.overrides:
            continue
        partitions = tuple(
            partition
            for partition in described.partitions
            if not reports.selects_partitions
            or _is_reported(partition, described.min_isr, reports, live_brokers)
        )
        if partitions or not reports.selects_partitions:
            selected.append(replace(described, partitions=partitions))
    return selected


def _is_reported(
    partition: DescribedPartition, min_isr: int, reports: Reports, live_brokers: Collection[int] | None
) -> bool:
    info = partition.info
    is_led = info.leader is not None and (live_brokers is None or info.leader in live_brokers)
    return (
        (reports.under_replicated and partition.replication_factor > len(info.isr))
        or (reports.unavailable and not is_led)
        or (reports.under_min_isr and (info.leader is None or len(info.isr) < min_isr))
        or (reports.at_min_isr and len(info.isr) == min_isr)
    )


def description_text(topics: Iterable[DescribedTopic], reports: Reports) -> str:
    """Kafka's text: a line for each topic, then one for each partition."""
    lines = []
    for described in topics:
        if not reports.selects_partitions:
            lines.append(_topic_line(described))
        if not reports.topics_with_overrides:
            lines += map(_partition_line, described.partitions)
    return "".join(f"{line}\n" for line in lines)


def _topic_line(described: DescribedTopic) -> str:
    topic, configs = described.topic, described.overrides
    fields = [f"Topic: {topic.name}"]
    if topic.topic_id is not None:
        fields.append(f"TopicId: {uuid_to_text(topic.topic_id)}")
    fields += [
        f"PartitionCount: {len(topic.partitions)}",
        f"ReplicationFactor: {described.replication_factor}",
        f"Configs: {','.join(f'{name}={null_text(value)}' for name, value in configs.items())}",
    ]
    return "\t".join(fields)


def _partition_line(partition: DescribedPartition) -> str:
    info, moving = partition.info, partition.reassignment
    fields = [
        "",
        f"Topic: {partition.topic}",
        f"Partition: {info.partition}",
        f"Leader: {'none' if info.leader is None else info.leader}",
        f"Replicas: {_ids(info.replicas)}",
        f"Isr: {_ids(info.isr)}",
    ]
    if moving is not None:
        fields += [
            f"Adding Replicas: {_ids(moving.adding_replicas)}",
            f"Removing Replicas: {_ids(moving.removing_replicas)}",
        ]
    fields += [
        f"Elr: {_ids(info.eligible_leader_replicas)}",
        f"LastKnownElr: {_ids(info.last_known_elr)}",
    ]
    return "\t".join(fields)


def _ids(brokers: Iterable[int] | None) -> str:
    return "N/A" if brokers is None else joined(brokers)


def description_json(topics: Iterable[DescribedTopic]) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "topics": [
            {
                "name": described.topic.name,
                "topicId": None
                if described.topic.topic_id is None
                else uuid_to_text(described.topic.topic_id),
                "isInternal": described.topic.is_internal,
                "partitionCount": len(described.topic.partitions),
                "replicationFactor": described.replication_factor,
                "configs": described.overrides,
                "partitions": [_partition_json(partition) for partition in described.partitions],
            }
            for described in topics
        ]
    }


def _partition_json(partition: DescribedPartition) -> dict[str, Any]:
    info, moving = partition.info, partition.reassignment
    return {
        "partition": info.partition,
        "leader": info.leader,
        "leaderEpoch": info.leader_epoch,
        "replicas": list(info.replicas),
        "isr": list(info.isr),
        "offlineReplicas": list(info.offline_replicas),
        "addingReplicas": list(moving.adding_replicas) if moving else [],
        "removingReplicas": list(moving.removing_replicas) if moving else [],
        "eligibleLeaderReplicas": _list_or_none(info.eligible_leader_replicas),
        "lastKnownElr": _list_or_none(info.last_known_elr),
    }


def _list_or_none(brokers: Iterable[int] | None) -> list[int] | None:
    return None if brokers is None else list(brokers)
