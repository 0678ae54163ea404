"""What differs by kind: how resources are observed, planned and changed."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from quorate_admin.client import AdminClient
from quorate_admin.errors import ServerError

from quorate_operator.entities.plan import Change, EntityPlan, ObservedKafka
from quorate_operator.entities.topics import HadTopic, ObservedTopic, plan_topic, plan_topic_deletion
from quorate_operator.gateway.topics import TopicChange, change_topic, observe_topics
from quorate_operator.models.manifests import Entity
from quorate_operator.models.topics import KafkaTopic
from quorate_operator.runtime.kubernetes.api import TOPICS, Kind


class Keeper(Protocol):
    """Fetches, decides and applies for one kind."""

    @property
    def kind(self) -> Kind:
        """The kind."""

    def name_of(self, resource: Entity) -> str:
        """Returns the name in Kafka, which one resource may have."""

    async def observe(self, client: AdminClient, resources: Sequence[Entity]) -> Mapping[str, object]:
        """Returns what there is, or a ServerError, by name in Kafka. Raises AdminError, ApiError."""

    def plan(
        self,
        resource: Entity,
        observed: object,
        kafka: ObservedKafka,
        status: Mapping[str, Any],
        *,
        is_deleted: bool,
    ) -> EntityPlan:
        """Plans one resource. Pure."""

    async def apply(self, client: AdminClient, change: Change) -> None:
        """Makes one change. Raises AdminError, ApiError."""


class TopicKeeper:
    """Implements `Keeper` for KafkaTopics."""

    kind = TOPICS

    def name_of(self, resource: Entity) -> str:
        return _topic(resource).topic_name

    async def observe(
        self, client: AdminClient, resources: Sequence[Entity]
    ) -> Mapping[str, ObservedTopic | ServerError | None]:
        return await observe_topics(client, map(self.name_of, resources))

    def plan(
        self,
        resource: Entity,
        observed: object,
        kafka: ObservedKafka,
        status: Mapping[str, Any],
        *,
        is_deleted: bool,
    ) -> EntityPlan:
        assert observed is None or isinstance(observed, ObservedTopic)
        had = HadTopic.of_status(status)
        if is_deleted:
            return plan_topic_deletion(_topic(resource), observed, had)
        return plan_topic(_topic(resource), observed, kafka, had=had)

    async def apply(self, client: AdminClient, change: Change) -> None:
        assert isinstance(change, TopicChange)
        await change_topic(client, change)


def _topic(resource: Entity) -> KafkaTopic:
    assert isinstance(resource, KafkaTopic)
    return resource
