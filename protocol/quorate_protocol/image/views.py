"""Queries of an image that several packages need; each is cheap enough to run often."""

from collections.abc import Iterator, Mapping
from typing import Final

from quorate_protocol.image.image import MetadataImage
from quorate_protocol.image.partitions import PartitionRegistration
from quorate_protocol.image.topics import TopicImage
from quorate_protocol.kafka.enums import ConfigResourceType
from quorate_protocol.plain_data import dataclass

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"


def partitions_of_broker(
    image: MetadataImage, broker_id: int
) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
    """Yield the partitions with a replica on ``broker_id``: topic, partition id, partition.

    Only topics with a replica there are scanned. The image may change in between, so that some have changed since.
    """
    for name in tuple(image.index.topics_of_broker(broker_id)):
        topic = image.topics.by_name.get(name)
        if topic is None:
            continue  # deleted since
        for partition_id, partition in tuple(topic.partitions.items()):
            if broker_id in partition.replicas:
                yield topic, partition_id, partition


def leads_any_partition(image: MetadataImage, broker_id: int) -> bool:
    """Whether ``broker_id`` leads a partition; answered from the index."""
    return image.index.leaderships(broker_id) > 0


def min_insync_replicas(image: MetadataImage, otherwise: int) -> tuple[int, Mapping[str, int]]:
    """Return `min.insync.replicas` of topics in general, and by name of those topics that have their own.

    `otherwise` is the brokers' value without a dynamic config.
    """
    general = _number(image.configs.get((ConfigResourceType.BROKER, ""), {}), otherwise)
    own = {
        name: _number(configs, general)
        for (kind, name), configs in image.configs.items()
        if kind == ConfigResourceType.TOPIC and MIN_INSYNC_REPLICAS in configs
    }
    return general, own


def _number(configs: Mapping[str, str], otherwise: int) -> int:
    try:
        return int(configs.get(MIN_INSYNC_REPLICAS, otherwise))
    except ValueError:
        return otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageCounts:
    """The gauges of kafka.controller:type=KafkaController that follow from an image."""

    active_brokers: int
    """Unfenced, including those in controlled shutdown (ActiveBrokerCount)."""
    fenced_brokers: int
    brokers_in_controlled_shutdown: int
    controllers: int
    topics: int
    partitions: int
    offline_partitions: int
    """Without a leader."""
    preferred_replica_imbalance: int
    """Not led by their preferred replica."""


def counts(image: MetadataImage) -> ImageCounts:
    """Count nodes, topics and partitions. The time depends on the number of brokers only."""
    brokers = image.cluster.brokers.values()
    fenced = sum(broker.fenced for broker in brokers)
    return ImageCounts(
        active_brokers=len(brokers) - fenced,
        fenced_brokers=fenced,
        brokers_in_controlled_shutdown=sum(broker.in_controlled_shutdown for broker in brokers),
        controllers=len(image.cluster.controllers),
        topics=len(image.topics.by_id),
        partitions=image.index.num_partitions,
        offline_partitions=len(image.index.leaderless),
        preferred_replica_imbalance=len(image.index.imbalanced),
    )
