"""The rules that image and configs give for changing partitions, gathered for one decision."""

from typing import TYPE_CHECKING, Final
from uuid import UUID

from quorate_protocol.features import ELIGIBLE_LEADER_REPLICAS
from quorate_protocol.records.generated import PartitionChangeRecord

from quorate_controller.control.api import TopicConfigs
from quorate_controller.control.partition_change import Election, Rules, Wanted, change_partition

if TYPE_CHECKING:
    from quorate_protocol.image import MetadataImage
    from quorate_protocol.image.topics import TopicImage

FIRST_PARTITION: Final = 0


def is_elr_enabled(image: "MetadataImage") -> bool:
    """Does the cluster keep eligible leader replicas (KIP-966)?"""
    return image.features.get(ELIGIBLE_LEADER_REPLICAS, 0) > 0


class PartitionChanges:
    """Changes partitions as the image demands; make one for each decision, since it remembers what it read.

    A decision about a broker is made before the image says that it is fenced or unfenced: `leaving` is a
    broker that may not lead any more, `returning` one that may again, whatever the image has.
    """

    def __init__(
        self,
        image: "MetadataImage",
        configs: TopicConfigs,
        *,
        leaving: int | None = None,
        returning: int | None = None,
    ) -> None:
        self._image = image
        self._configs = configs
        self._leaving = leaving
        self._returning = returning
        self._elr_enabled = is_elr_enabled(image)
        self._rules: dict[UUID, Rules] = {}
        self._elections: dict[UUID, Election] = {}
        self._leaders: dict[tuple[int, UUID], bool] = {}

    def change(self, topic: "TopicImage", partition_id: int, wanted: Wanted) -> PartitionChangeRecord | None:
        """Returns the record that changes this partition to the target, or None."""
        rules = self._rules.get(topic.topic_id)
        if rules is None:
            rules = self._rules[topic.topic_id] = self._rules_for(topic)
        return change_partition(topic.topic_id, partition_id, topic.partitions[partition_id], wanted, rules)

    def election(self, topic: "TopicImage") -> Election:
        """How a leader of this topic is found when a partition would be without."""
        election = self._elections.get(topic.topic_id)
        if election is None:
            is_unclean = self._configs.unclean_leader_election(topic.name)
            election = Election.UNCLEAN if is_unclean else Election.ONLINE
            self._elections[topic.topic_id] = election
        return election

    def _rules_for(self, topic: "TopicImage") -> Rules:
        min_insync_replicas = 1
        if self._elr_enabled:
            replication_factor = len(topic.partitions[FIRST_PARTITION].replicas)
            min_insync_replicas = min(self._configs.min_insync_replicas(topic.name), replication_factor)
        return Rules(
            metadata_version=self._image.metadata_version,
            elr_enabled=self._elr_enabled,
            min_insync_replicas=min_insync_replicas,
            may_lead=self._may_lead,
        )

    def _may_lead(self, broker_id: int, directory: UUID) -> bool:
        key = (broker_id, directory)
        may_lead = self._leaders.get(key)
        if may_lead is None:
            may_lead = self._leaders[key] = self._is_active(broker_id, directory)
        return may_lead

    def _is_active(self, broker_id: int, directory: UUID) -> bool:
        broker = self._image.cluster.brokers.get(broker_id)
        if broker is None or broker_id == self._leaving:
            return False
        if not broker.is_active and broker_id != self._returning:
            return False
        return broker.has_online_directory(directory)
