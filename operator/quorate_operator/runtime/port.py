"""The ports between the reconcile loop and the place where a cluster runs: local processes, or Kubernetes.

`Runtime` is what the loop needs. `ClusterRuntime` implements it for one cluster, out of an `Infrastructure`, which
differs from place to place, and a `Gateway`, which is the same everywhere.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

from quorate_operator.models.manifests import Manifests
from quorate_operator.models.status import HistoryStatus, ListenerStatus
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
from quorate_operator.planning.steps import Action, KafkaAction, Plan, RuntimeAction


class Runtime(Protocol):
    """Completes, observes and changes one cluster: all that the reconcile loop needs."""

    async def complete(self, desired: DesiredCluster, manifests: Manifests) -> DesiredCluster:
        """Returns the desired cluster with what only this place knows: addresses and revisions.

        Comes first in each look.

        Raises:
            ManifestError: the manifests can't be used here.
        """

    async def observe(self, desired: DesiredCluster) -> ObservedCluster:
        """Returns the cluster as it is now, with every node that is desired or present."""

    def permitted(self, plan: Plan, desired: DesiredCluster) -> Plan:
        """Returns the plan without the steps that this place is not ready for, with waits instead."""

    async def apply(self, action: Action, desired: DesiredCluster) -> None:
        """Applies one step; returns when it is done. Applied again, it has the same result.

        Raises:
            StepError: the step failed.
        """

    async def keep(self, desired: DesiredCluster, observed: ObservedCluster) -> None:
        """Keeps what surrounds the nodes as it should be: Services, budgets, log files, the cluster's history."""

    async def close(self) -> None:
        """Closes every connection."""


class Infrastructure(Protocol):
    """The half of a runtime that differs from place to place: processes or pods, directories or volumes, names."""

    async def complete(self, desired: DesiredCluster, manifests: Manifests) -> DesiredCluster:
        """See `Runtime.complete`."""

    async def nodes(self, desired: DesiredCluster) -> Mapping[int, ObservedNode]:
        """Returns every node that is desired or present.

        A node with a process is STARTING, or READY or UNREADY if this process is known to have been ready before.
        `ClusterRuntime` judges from the gateway's facts what it is now.
        """

    async def formation(self) -> Formation | None:
        """Returns the identity that was settled for the cluster, or None."""

    async def note_leader(self, kraft_version: int) -> None:
        """Writes down that a leader was seen.

        From then on `formation()` is formed, and with kraft.version 1 or later no longer static.
        """

    async def publications(self) -> tuple[Publication, ...]:
        """Returns every address that points at a node here."""

    async def verifications(self) -> tuple[Verification, ...]:
        """Returns where addresses that others manage led to, as it was written down."""

    async def note_verifications(self, node_id: int, verified: tuple[Verification, ...]) -> None:
        """Writes down where a node's addresses lead to, in place of what was written down before."""

    def permitted(self, plan: Plan, desired: DesiredCluster) -> Plan:
        """See `Runtime.permitted`."""

    async def apply(self, action: RuntimeAction, desired: DesiredCluster) -> None:
        """Applies one step.

        Raises:
            StepError: the step failed.
        """

    async def keep(self, desired: DesiredCluster, observed: ObservedCluster) -> None:
        """See `Runtime.keep`."""

    def contacts(self, desired: DesiredCluster) -> Mapping[int, Address]:
        """Returns where the operator itself reaches each node that has a process, whatever the node advertises."""


class Removal(Protocol):
    """What an infrastructure knows and does beyond plans: of deleted resources, and of new ones.

    A played cluster has none: its manifest is edited, and `quorate play stop` leaves the data.
    """

    def pools_of_nodes(self) -> Mapping[int, str]:
        """Returns the pool of each node of which anything is left, by node id."""

    async def departing(self, pools: Collection[str]) -> Mapping[int, ObservedNode]:
        """Returns the nodes of deleted pools of which a pod or a volume is left."""

    async def stop_pods(self, grace_ms: int, pools: Collection[str] | None = None) -> None:
        """Stops the pods of these pools, brokers first; without `pools`, all pods of the cluster.

        Raises:
            StepError: a pod did not stop.
        """

    async def delete_volumes(self, pools: Collection[str]) -> None:
        """Deletes the volumes of deleted pools.

        Raises:
            StepError: a volume was not deleted.
        """


class Reports(Protocol):
    """What an infrastructure adds to the status of resources."""

    def history(self) -> HistoryStatus | None:
        """Returns what is known of the lake; None without one."""

    def listeners(
        self, desired: DesiredCluster, observed: ObservedCluster, pool: str
    ) -> tuple[ListenerStatus, ...] | None:
        """Returns what clients of a pool's listeners need to know; None while no leader tells of its brokers."""


class Gateway(Protocol):
    """The half of a runtime that is the same everywhere: what Kafka reports and does."""

    async def observe(
        self,
        controllers: Mapping[int, Address],
        brokers: Mapping[int, Address],
        draining: frozenset[int],
        loggers: Mapping[int, frozenset[str]],
        directories_of: frozenset[int] = frozenset(),
    ) -> KafkaFacts | None:
        """Returns what quorum and brokers report. None without a leader.

        Partitions are reported of `draining` brokers alone, levels of the `loggers` that are named, by node, and log
        directories of the brokers `directories_of`.
        """

    @property
    def problem(self) -> str | None:
        """Why `observe` returned no more although a leader answers; None if nothing is wrong."""

    async def probe(
        self, addresses: frozenset[Address], node_ids: frozenset[int] = frozenset()
    ) -> Mapping[Address, Reached]:
        """Returns who answers at each address, by cluster id and node id. Never raises.

        Only node ids in `node_ids` are recognized.
        """

    async def apply(self, action: KafkaAction) -> None:
        """Applies one step; returns when Kafka has confirmed it.

        Raises:
            StepError: the step failed.
        """

    async def close(self) -> None:
        """Closes every connection."""
