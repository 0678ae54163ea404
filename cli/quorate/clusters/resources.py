"""A cluster as its resources on the API server: a KafkaController, and the KafkaBrokers that refer to it. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from quorate_operator.models.base import ANNOTATION_PAUSE
from quorate_operator.models.status import Condition, KafkaBrokerStatus, KafkaControllerStatus
from quorate_operator.models.v1alpha1 import BROKER_IDS, CONTROLLER_IDS
from quorate_protocol.plain_data import dataclass

KafkaObject = Mapping[str, Any]
"""A KafkaController or KafkaBroker as JSON. Its spec may be of a newer version: only what is needed is read."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A KafkaController or a KafkaBroker."""

    resource: KafkaObject

    @property
    def kind(self) -> str:
        """KafkaController or KafkaBroker."""
        return str(self.resource["kind"])

    @property
    def name(self) -> str:
        """metadata.name."""
        return str(self.resource["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """metadata.namespace."""
        return str(self.resource["metadata"]["namespace"])

    @property
    def spec(self) -> Mapping[str, Any]:
        """The spec, with the defaults that the API server filled in."""
        spec: Mapping[str, Any] = self.resource.get("spec", {})
        return spec

    @property
    def is_controllers(self) -> bool:
        """Whether the pool is a KafkaController."""
        return self.kind == "KafkaController"

    @property
    def is_paused_by_spec(self) -> bool:
        """Whether the spec of a KafkaController pauses its cluster."""
        return self.spec.get("state") == "Paused"

    @property
    def decommission(self) -> tuple[int, ...]:
        """The node ids that were asked to leave."""
        return tuple(self.spec.get("decommission", ()))

    @property
    def generation(self) -> int:
        """metadata.generation: it grows with each change of the spec."""
        return int(self.resource["metadata"].get("generation", 0))

    @property
    def conditions(self) -> dict[str, Condition]:
        """The conditions of the status, by type."""
        return {condition.type: condition for condition in self.status.conditions}

    @property
    def status(self) -> KafkaControllerStatus | KafkaBrokerStatus:
        """The status that the operator wrote; empty before it wrote one."""
        model = KafkaControllerStatus if self.is_controllers else KafkaBrokerStatus
        return model.model_validate(self.resource.get("status", {}))

    def may_have(self, node_id: int) -> bool:
        """Whether a node id is in the range that this pool takes its ids from."""
        first = self.first_node_id
        ids = CONTROLLER_IDS if self.is_controllers else BROKER_IDS
        return first is not None and first <= node_id < first + ids

    @property
    def first_node_id(self) -> int | None:
        """The first id of the range that the pool takes its ids from; None before the operator has chosen it."""
        node_ids = self.spec.get("nodeIds")
        return None if node_ids is None else int(node_ids["first"])

    def node_ids(self) -> tuple[int, ...]:
        """The desired node ids: the first `replicas` ids of the range that are not decommissioned."""
        first, replicas = self.first_node_id, int(self.spec["replicas"])
        if first is None:
            return ()
        leaving = frozenset(self.decommission)
        window = range(first, first + replicas + len(leaving))
        return tuple(node_id for node_id in window if node_id not in leaving)[:replicas]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A quorum and its pools of brokers."""

    controllers: Pool
    brokers: tuple[Pool, ...]

    @property
    def name(self) -> str:
        """The name of the KafkaController."""
        return self.controllers.name

    @property
    def namespace(self) -> str:
        """The namespace of all its resources."""
        return self.controllers.namespace

    @property
    def pools(self) -> tuple[Pool, ...]:
        """All pools, the quorum first."""
        return (self.controllers, *self.brokers)

    @property
    def status(self) -> KafkaControllerStatus:
        """The status of the quorum and of the cluster as a whole."""
        status = self.controllers.status
        assert isinstance(status, KafkaControllerStatus)
        return status

    @property
    def is_paused(self) -> bool:
        """Whether the cluster is paused, by its spec or by annotation."""
        annotations = self.controllers.resource["metadata"].get("annotations", {})
        return self.controllers.is_paused_by_spec or annotations.get(ANNOTATION_PAUSE) == "true"

    def pool_with(self, node_id: int) -> Pool | None:
        """The pool that has the node, or whose range has the id; or None."""
        has = (pool for pool in self.pools if node_id in (*pool.node_ids(), *pool.decommission))
        may = sorted(
            (pool for pool in self.pools if pool.may_have(node_id)),
            key=lambda pool: pool.first_node_id or 0,
        )
        return next(has, may[-1] if may else None)


def clusters_of(controllers: Iterable[KafkaObject], brokers: Iterable[KafkaObject]) -> Iterator[Cluster]:
    """The clusters that these resources make up, by namespace and name."""
    pools = [Pool(broker) for broker in brokers]
    quorums = sorted(
        (Pool(controller) for controller in controllers), key=lambda pool: (pool.namespace, pool.name)
    )
    for quorum in quorums:
        own = (
            pool
            for pool in pools
            if pool.namespace == quorum.namespace and pool.spec.get("controllers") == quorum.name
        )
        yield Cluster(controllers=quorum, brokers=tuple(sorted(own, key=lambda pool: pool.name)))
