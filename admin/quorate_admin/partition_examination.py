"""Counts the partitions of a cluster that brokers describe, without keeping them all in memory."""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence

from quorate_protocol.errors import ErrorCode
from quorate_protocol.image.views import MIN_INSYNC_REPLICAS
from quorate_protocol.kafka.enums import ConfigResourceType

from quorate_admin.client import AdminClient
from quorate_admin.diagnosis import PartitionFacts, PartitionTally
from quorate_admin.errors import AdminError
from quorate_admin.types.configs import ConfigResource
from quorate_admin.types.topics import PartitionDescription, TopicDescription

TOPICS_PER_REQUEST = 500
PARTITIONS_TIMEOUT_MS = 30_000
"""The time after which the remaining topics are left out."""
REQUEST_TIMEOUT_MS = 10_000


class PartitionsExamined:
    """The partitions that were counted, and the reasons why others, or their configs, were not."""

    def __init__(self, registered: Collection[int]) -> None:
        self._tally = PartitionTally(registered)
        self.problem: str | None = None
        """Why not all partitions were counted."""
        self.min_isr_problem: str | None = None
        """Why `min.insync.replicas` of some topics is unknown."""

    @property
    def facts(self) -> PartitionFacts:
        """What was counted."""
        return self._tally.facts()

    def add(self, topic: TopicDescription, min_isr: int | None) -> None:
        """Count the partitions of a topic."""
        self._tally.add_topic()
        for partition in topic.partitions:
            self._tally.add(
                topic.name,
                partition.partition,
                replicas=partition.replicas,
                isr=partition.isr,
                has_leader=partition.leader is not None,
                min_isr=min_isr,
            )


async def examine_partitions(admin: AdminClient, registered: Collection[int]) -> PartitionsExamined:
    """Count the partitions that brokers describe to this client. `registered` are the ids of all brokers.

    Topics that the client may not describe are not listed to it. Errors are in the result.
    """
    examined = PartitionsExamined(registered)
    ends_at = time.monotonic() + PARTITIONS_TIMEOUT_MS / 1000

    def left_ms() -> int:
        return min(REQUEST_TIMEOUT_MS, max(1, round((ends_at - time.monotonic()) * 1000)))

    try:
        async with asyncio.timeout(PARTITIONS_TIMEOUT_MS / 1000):
            names = sorted(await admin.list_topics(list_internal=True, timeout_ms=left_ms()))
            for at in range(0, len(names), TOPICS_PER_REQUEST):
                await _examine_topics(admin, names[at : at + TOPICS_PER_REQUEST], examined, left_ms())
    except AdminError as error:
        examined.problem = str(error)
    except TimeoutError:
        examined.problem = f"the brokers did not describe the other topics in {PARTITIONS_TIMEOUT_MS} ms"
    return examined


async def _examine_topics(
    admin: AdminClient, names: Sequence[str], examined: PartitionsExamined, timeout_ms: int
) -> None:
    described = await admin.describe_topics(names, timeout_ms=timeout_ms)
    for error in described.errors.values():
        if error.error_code is not ErrorCode.unknown_topic_or_partition:  # deleted since it was listed
            examined.problem = str(error)
    lacking = [
        topic.name for topic in described.values.values() if any(map(_lacks_replicas, topic.partitions))
    ]
    min_isr = await _min_isr(admin, lacking, examined, timeout_ms) if lacking else {}
    for topic in described.values.values():
        examined.add(topic, min_isr.get(topic.name))


def _lacks_replicas(partition: PartitionDescription) -> bool:
    return partition.leader is not None and len(partition.isr) < len(partition.replicas)


async def _min_isr(
    admin: AdminClient, names: Sequence[str], examined: PartitionsExamined, timeout_ms: int
) -> Mapping[str, int]:
    """`min.insync.replicas` by topic, of those that brokers return."""
    resources = {name: ConfigResource(ConfigResourceType.TOPIC, name) for name in names}
    try:
        configs = await admin.describe_configs(resources.values(), timeout_ms=timeout_ms)
    except AdminError as refused:
        examined.min_isr_problem = str(refused)
        return {}
    for error in configs.errors.values():
        examined.min_isr_problem = str(error)
    found = {
        name: next(
            (entry.value for entry in configs.values.get(resource, ()) if entry.name == MIN_INSYNC_REPLICAS),
            None,
        )
        for name, resource in resources.items()
    }
    return {name: int(value) for name, value in found.items() if value is not None and value.isdecimal()}
