"""The types that topics, users and rebalances share: the cluster as brokers describe it, changes, plans."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from quorate_operator.placement.cluster import Broker
from quorate_operator.planning.cluster import Address
from quorate_operator.planning.steps import Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedKafka:
    """The cluster as one of its brokers describes it. `reserved` are principals that no resource may keep."""

    cluster_id: str
    brokers: tuple[Broker, ...]
    reserved: frozenset[str] = frozenset()
    decommissioned: frozenset[int] = frozenset()
    """Brokers that are decommissioned."""
    addresses: Mapping[int, Address] = field(default_factory=dict)
    """The known addresses of single brokers, by broker id."""


class Change(Protocol):
    """One request to the cluster. Applied again, it has the same result."""

    @property
    def text(self) -> str:
        """The change in words, with the old and the new value, in one line without secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityPlan:
    """What is due for one resource.

    `changes` are made in their order. `waits` are conditions that others bring about. `status` has the fields of the
    status that are specific to its kind, with the names of the manifest; it is stored before the changes are made.
    """

    changes: Sequence[Change] = ()
    waits: Sequence[str] = ()
    refusals: Sequence[Refusal] = ()
    status: Mapping[str, Any] = field(default_factory=dict)
    note: str | None = None
    """A note that is reported once, as an Event: for instance that the topic existed already."""
    state: str | None = None
    """The reason of its conditions, for a kind that has states of its own. Its changes are not reported as drift."""
    continues: bool = False
    """Whether the next pass is due as soon as after a change."""
