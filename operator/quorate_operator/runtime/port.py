"""The port between planning and the place where a cluster runs: local processes, or Kubernetes."""

from collections.abc import Mapping
from typing import Protocol

from quorate_operator.planning.cluster import (
    Address,
    DesiredCluster,
    Formation,
    KafkaFacts,
    ObservedCluster,
    ObservedNode,
    Publication,
    Reached,
    Verification,
)
from quorate_operator.planning.steps import Action, KafkaAction, RuntimeAction


class Runtime(Protocol):
    """Looks at a cluster and changes it, one step at a time: what a reconcile needs."""

    async def observe(self, desired: DesiredCluster) -> ObservedCluster:
        """The cluster as it is now, with every node that is desired or is there all the same."""

    async def apply(self, action: Action, desired: DesiredCluster) -> None:
        """Do one step; returns when it is done. Raises StepError."""


class Infrastructure(Protocol):
    """The half of a runtime that differs from place to place: processes or pods, directories or volumes, names."""

    async def nodes(self, desired: DesiredCluster) -> Mapping[int, ObservedNode]:
        """Every node that is desired or is there all the same.

        One that has a process is STARTING, or READY or UNREADY if it is known that this process was ready once:
        what it is now is judged by the gateway's facts.
        """

    async def formation(self) -> Formation | None:
        """The identity that was settled for the cluster, if it was."""

    async def note_leader(self, kraft_version: int) -> None:
        """Write down that a leader was seen: `formation()` is formed from now on, and from kraft.version 1 on
        no longer static."""

    async def publications(self) -> tuple[Publication, ...]:
        """Every address that is pointed at a node here."""

    async def verifications(self) -> tuple[Verification, ...]:
        """Whom names of others led to, as it was written down."""

    async def note_verifications(self, node_id: int, verified: tuple[Verification, ...]) -> None:
        """Write down what is known of the names of a node, in the place of what was known of it before."""

    async def apply(self, action: RuntimeAction, desired: DesiredCluster) -> None:
        """Do one step. Raises StepError."""

    def contacts(self, desired: DesiredCluster) -> Mapping[int, Address]:
        """Where the operator itself reaches each node that has a process: not by what is advertised."""


class Gateway(Protocol):
    """The half of a runtime that is the same everywhere: what Kafka tells and does."""

    async def observe(
        self, controllers: Mapping[int, Address], brokers: Mapping[int, Address], draining: frozenset[int]
    ) -> KafkaFacts | None:
        """What the quorum and brokers say; partitions for `draining` brokers alone. None while no leader answers."""

    @property
    def problem(self) -> str | None:
        """Why `observe` could not tell more although a leader answers; None when nothing is in the way."""

    async def probe(
        self, addresses: frozenset[Address], node_ids: frozenset[int] = frozenset()
    ) -> Mapping[Address, Reached]:
        """Who answers at each address, by cluster id and node id. Never raises.

        `node_ids` are those that may answer; the id of another is not found out.
        """

    async def apply(self, action: KafkaAction) -> None:
        """Do one step; returns when Kafka has answered that it is done. Raises StepError."""

    async def close(self) -> None:
        """Close every connection."""
