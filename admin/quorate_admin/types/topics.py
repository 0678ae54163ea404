"""Topics: those to create, and descriptions."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from quorate_protocol.kafka.enums import AclOperation

from quorate_admin.errors import ServerError
from quorate_admin.types.configs import ConfigEntry


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 leaves a number to the cluster's default.

    `assignments` places the replicas: partition -> broker ids, the preferred leader first. Both numbers are then
    left at -1.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """A topic that was created, or would have been (CreateTopics).

    `configs` is None if the server does not return them: because it is too old (CreateTopics below version 5, which
    leaves both numbers at -1), or because of missing permissions, which `configs_error` reports.
    """

    name: str
    topic_id: uuid.UUID | None
    partitions: int
    replication_factor: int
    configs: tuple[ConfigEntry, ...] | None
    configs_error: ServerError | None


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The new total number of partitions of a topic.

    `assignments` places the replicas of the new partitions, in order; None leaves that to the cluster.
    """

    total_count: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicListing:
    """A topic in a listing. `topic_id` is None on servers without topic ids (Metadata below version 10)."""

    name: str
    topic_id: uuid.UUID | None
    is_internal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """A partition; brokers by id, replicas with the preferred leader first.

    `leader` is None while the partition has no leader; `leader_epoch` is -1 if the server does not return it.
    `eligible_leader_replicas` and `last_known_elr` (KIP-966) are None if the server does not return them.
    """

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    eligible_leader_replicas: tuple[int, ...] | None
    last_known_elr: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic with its partitions, in order.

    `authorized_operations` are those of the client's principal; None unless requested.
    """

    name: str
    topic_id: uuid.UUID | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    authorized_operations: frozenset[AclOperation] | None
