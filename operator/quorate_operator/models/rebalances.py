"""KafkaRebalance: replicas and leaders of a Kafka cluster evened out over its brokers."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from quorate_operator.models.base import Model, NodeId, Size, quantity_bytes, rules
from quorate_operator.models.entities import ENTITY_RULES, EntityMetadata, EntitySpec, EntityStatus
from quorate_operator.models.status import StatusModel
from quorate_operator.models.topics import REPLICATION_FACTOR_MAX

ANNOTATION_APPROVE = "quorate.dev/approve"
"""The id of the proposal that is approved."""
ANNOTATION_REFRESH = "quorate.dev/refresh"
"""Any text: a new proposal is made when it changes."""
BROKERS_MAX = 100
PATTERNS_MAX = 100
PARTITIONS_AT_A_TIME_DEFAULT, PARTITIONS_AT_A_TIME_MAX = 10, 100
LOADS_MAX = 200
CLUSTER_BROKERS_MAX = 1_000

_BROKERS_NEEDED = "brokers: are needed with mode AddBrokers or RemoveBrokers, and not allowed with Full"
_ATOMIC = {"x-kubernetes-list-type": "atomic"}

_Replicas = Annotated[
    tuple[int, ...], Field(strict=False, max_length=REPLICATION_FACTOR_MAX, json_schema_extra=_ATOMIC)
]

TopicPattern = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._*-]+$", min_length=1, max_length=249)]
Patterns = Annotated[
    tuple[TopicPattern, ...], Field(strict=False, max_length=PATTERNS_MAX, json_schema_extra=_ATOMIC)
]


class RebalancedTopics(Model):
    """Names of topics; `*` stands for any text."""

    include: Patterns = Field(default=("*",), description="Topics that may be moved.")
    exclude: Patterns = Field(default=(), description="Of these, topics that stay where they are.")


class KafkaRebalanceSpec(EntitySpec):
    """What is balanced, and how fast. A proposal is made first; nothing moves before it is approved."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *ENTITY_RULES,
            {"rule": "(self.mode == 'Full') == (size(self.brokers) == 0)", "message": _BROKERS_NEEDED},
        )
    )

    mode: Literal["Full", "AddBrokers", "RemoveBrokers"] = Field(
        default="Full",
        description="Full: racks, replicas, bytes and leaders are evened out over all brokers, then the directories "
        "of each broker. AddBrokers: replicas "
        "move to `brokers` alone. RemoveBrokers: replicas move away from `brokers` alone.",
    )
    brokers: Annotated[
        tuple[NodeId, ...],
        Field(strict=False, max_length=BROKERS_MAX, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ] = Field(default=(), description="The node ids that AddBrokers and RemoveBrokers are about.")
    topics: RebalancedTopics = Field(
        default_factory=RebalancedTopics, description="Which topics are moved. Default: all of them."
    )
    throttle_bytes_per_second: Size | None = Field(
        default=None,
        description="How much each broker may send, receive, and copy between its directories, for the moves: 50Mi. "
        "Default: no limit.",
    )
    partitions_at_a_time: Annotated[int, Field(ge=1, le=PARTITIONS_AT_A_TIME_MAX)] = Field(
        default=PARTITIONS_AT_A_TIME_DEFAULT,
        description="Number of partitions in a slice, which are moved at the same time.",
    )
    approval: Literal["Manual", "Auto"] = Field(
        default="Manual",
        description="Manual: a proposal is carried out when the annotation quorate.dev/approve has its id. Auto: at "
        "once, also those that are made when brokers join or go.",
    )
    stopped: bool = Field(
        default=False,
        description="Whether to cancel the moves under way, to remove throttles, and to begin no others.",
    )

    @model_validator(mode="after")
    def _brokers_fit_the_mode(self) -> Self:
        if (self.mode == "Full") != (not self.brokers):
            raise ValueError(_BROKERS_NEEDED)
        return self

    @property
    def rate_bytes(self) -> int | None:
        """The throttle in bytes per second."""
        return (
            None if self.throttle_bytes_per_second is None else quantity_bytes(self.throttle_bytes_per_second)
        )


class KafkaRebalance(Model):
    """`kind: KafkaRebalance`."""

    api_version: Literal["quorate.dev/v1alpha1"]
    kind: Literal["KafkaRebalance"]
    metadata: EntityMetadata
    spec: KafkaRebalanceSpec


class ProposalStatus(StatusModel):
    """The proposal: its brokers, and how much moves."""

    id: str = Field(description="What the annotation quorate.dev/approve has to be.")
    goals: str = Field(description="A digest of the goals in the spec, and of quorate.dev/refresh.")
    brokers: Annotated[
        tuple[int, ...], Field(strict=False, max_length=CLUSTER_BROKERS_MAX, json_schema_extra=_ATOMIC)
    ] = Field(default=(), description="The brokers that it was made for.")
    partitions: int = Field(description="Number of partitions of which replicas move.")
    leaders: int = Field(description="Number of other partitions that get another preferred leader.")
    size_bytes: int = Field(description="How much is copied between brokers.")
    directory_replicas: int = Field(
        default=0, description="Number of replicas that move between directories of their brokers."
    )
    directory_bytes: int = Field(default=0, description="How much is copied between directories.")
    is_approved: bool = Field(default=False, description="Whether it was approved.")
    is_done: bool = Field(default=False, description="Whether nothing is left to move.")


class MoveStatus(StatusModel):
    """New replicas of a partition, the preferred leader first."""

    topic: str = Field(description="The topic.")
    partition: int = Field(description="The partition.")
    replicas: _Replicas = Field(description="The replicas before.")
    target: _Replicas = Field(description="The replicas afterwards.")
    size_bytes: int = Field(default=0, description="The size of the partition.")


class ProgressStatus(StatusModel):
    """The progress of the proposal."""

    slices: int = Field(default=0, description="Number of slices that are done.")
    partitions: int = Field(default=0, description="Number of partitions in them.")
    size_bytes: int = Field(default=0, description="How much they copied.")


class LoadStatus(StatusModel):
    """The load of a broker when the proposal is made, and after all its moves."""

    broker_id: int = Field(description="The node id.")
    replicas: int = Field(description="Number of replicas.")
    replicas_after: int = Field(description="Number of replicas afterwards.")
    leaders: int = Field(description="Number of partitions that prefer it as leader.")
    leaders_after: int = Field(description="Number of partitions that prefer it as leader afterwards.")
    size_bytes: int = Field(description="Size of the replicas.")
    size_bytes_after: int = Field(description="Size of the replicas afterwards.")


class KafkaRebalanceStatus(EntityStatus):
    """What the operator knows of a rebalance, and needs to know after a restart of the operator."""

    phase: str | None = Field(
        default=None,
        description="Waiting, ProposalReady, Rebalancing, Stopping, Stopped or Balanced: the reason of conditions.",
    )
    proposal: ProposalStatus | None = Field(default=None, description="The proposal.")
    progress: ProgressStatus | None = Field(default=None, description="What was done for it.")
    brokers: Annotated[
        tuple[LoadStatus, ...], Field(strict=False, max_length=LOADS_MAX, json_schema_extra=_ATOMIC)
    ] = Field(default=(), description="The brokers without and with the proposal; the first of them.")
    slice: Annotated[
        tuple[MoveStatus, ...],
        Field(strict=False, max_length=PARTITIONS_AT_A_TIME_MAX, json_schema_extra=_ATOMIC),
    ] = Field(default=(), description="The moves that were requested, or are next.")
    slice_state: str | None = Field(
        default=None,
        description="Moving: all moves of the slice were seen under way or done. Doubtful: some are neither any "
        "more. Otherwise they are requested.",
    )
    rates: Annotated[tuple[int, ...], Field(strict=False, max_length=8, json_schema_extra=_ATOMIC)] = Field(
        default=(),
        description="Throttles in bytes per second that the operator sets, and removes in the end.",
    )
