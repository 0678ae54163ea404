"""The vocabulary that topics and users share: the cluster as brokers describe it, changes, refusals, plans."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from quorate_operator.planning.cluster import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A registered broker; `is_usable` if it may get replicas: unfenced, and not to leave."""

    broker_id: int
    rack: str | None = None
    is_usable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedKafka:
    """The cluster as one of its brokers describes it. `reserved` are principals that no resource may keep."""

    cluster_id: str
    brokers: tuple[Broker, ...]
    reserved: frozenset[str] = frozenset()
    leaving: frozenset[int] = frozenset()
    """Brokers that are decommissioned."""
    addresses: Mapping[int, Address] = field(default_factory=dict)
    """Where single brokers can be asked, as far as that is known."""


class Change(Protocol):
    """One request to the cluster. Applied again, it has the same result."""

    @property
    def text(self) -> str:
        """What is changed, from and to, in one line without secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Something that is asked for and not done: `code` for programs, `message` for people."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityPlan:
    """What is due for one resource.

    `changes` are made in their order. `waits` are conditions that others bring about. `status` is the part of the
    status that its kind has, in the names of the manifest; it is stored before the changes are made.
    """

    changes: Sequence[Change] = ()
    waits: Sequence[str] = ()
    refusals: Sequence[Refusal] = ()
    status: Mapping[str, Any] = field(default_factory=dict)
    note: str | None = None
    """Something to tell once: that the topic was there already."""
    state: str | None = None
    """The reason of its conditions, for a kind that has states of its own. What changes then is not a drift."""
    goes_on: bool = False
    """Whether the next look is due as soon as after a change."""
