"""KafkaTopic: a topic of a Kafka cluster as a resource."""

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, model_validator

from quorate_operator.models.base import CONFIG_PROPERTIES_MAX, Model, PropertyValue, rules
from quorate_operator.models.entities import (
    SHARED_ENTITY_RULES,
    DeletionPolicy,
    EntityMetadata,
    EntityStatus,
    SharedEntitySpec,
)

TOPIC_NAME_LENGTH_MAX = 249
PARTITIONS_MAX = 100_000
REPLICATION_FACTOR_MAX = 32

_INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")
_RESERVED_NAMES = (".", "..", *_INTERNAL)
_RESERVED = f"must be neither . nor .., nor one of those that brokers keep: {', '.join(_INTERNAL)}"
_NAME_IS_FIXED = "topicName can't be changed: Kafka can't rename a topic; create another resource"

TopicName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9._-]+$", min_length=1, max_length=TOPIC_NAME_LENGTH_MAX),
    Field(json_schema_extra=rules({"rule": f"!(self in {list(_RESERVED_NAMES)})", "message": _RESERVED})),
]


def _check_config(name: str) -> str:
    if not re.fullmatch(r"[a-z0-9._-]{1,253}", name):
        raise ValueError("must be the name of a topic's config: lower-case letters, digits, '.', '_' and '-'")
    return name


ConfigName = Annotated[str, AfterValidator(_check_config)]


class KafkaTopicSpec(SharedEntitySpec):
    """A topic. It is created, or adopted if it exists; what the spec does not name stays as it is."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *SHARED_ENTITY_RULES,
            {
                "rule": "has(self.topicName) == has(oldSelf.topicName) && "
                "(!has(self.topicName) || self.topicName == oldSelf.topicName)",
                "message": _NAME_IS_FIXED,
            },
        )
    )

    topic_name: TopicName | None = Field(
        default=None, description="The name in Kafka. Default: metadata.name. It can't be changed."
    )
    partitions: Annotated[int, Field(ge=1, le=PARTITIONS_MAX)] | None = Field(
        default=None,
        description="Number of partitions. It can't become smaller. Default: num.partitions for a new topic, and "
        "no change later.",
    )
    replication_factor: Annotated[int, Field(ge=1, le=REPLICATION_FACTOR_MAX)] | None = Field(
        default=None,
        description="Number of replicas of each partition; a change reassigns partitions. Default: "
        "default.replication.factor for a new topic, and no change later.",
    )
    config: Annotated[dict[ConfigName, PropertyValue], Field(max_length=CONFIG_PROPERTIES_MAX)] = Field(
        default_factory=dict,
        description="Configs of the topic with Kafka's names. On Kubernetes, quote true and 0.5. A config that is "
        "removed here is reset; one that was never here stays.",
    )
    deletion_policy: DeletionPolicy = Field(
        default="Retain",
        description="What happens to the topic, with its records, when the resource is deleted.",
    )

    @model_validator(mode="after")
    def _name_is_not_reserved(self) -> Self:
        if self.topic_name in _RESERVED_NAMES:
            raise ValueError(f"topicName: {self.topic_name!r}: {_RESERVED}")
        return self


class KafkaTopic(Model):
    """`kind: KafkaTopic`."""

    api_version: Literal["quorate.dev/v1alpha1"]
    kind: Literal["KafkaTopic"]
    metadata: EntityMetadata
    spec: KafkaTopicSpec

    @property
    def topic_name(self) -> str:
        """The name in Kafka."""
        return self.spec.topic_name or self.metadata.name


class KafkaTopicStatus(EntityStatus):
    """What the operator knows of a topic."""

    topic_name: str | None = Field(default=None, description="The name in Kafka.")
    topic_id: str | None = Field(
        default=None, description="The topic's id. Without one, the operator has not had the topic yet."
    )
    partitions: int | None = Field(default=None, description="Number of partitions.")
    replication_factor: int | None = Field(
        default=None,
        description="Number of replicas of each partition; the smallest while they differ.",
    )
    reassigning_partitions: int | None = Field(
        default=None, description="Number of partitions whose replicas are being moved."
    )
    managed_config: Annotated[
        tuple[str, ...],
        Field(
            strict=False,
            max_length=CONFIG_PROPERTIES_MAX,
            json_schema_extra={"x-kubernetes-list-type": "atomic"},
        ),
    ] = Field(
        default=(), description="Configs that the operator has set: reset once the spec has them no more."
    )
