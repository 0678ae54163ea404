"""Which controller runs beside which broker: those with the same offset, counted from the first ids of both pools.

So a controller and its volume stay with one broker for good. A controller whose broker is decommissioned is, too, and
the next offset takes its place.
"""

from collections.abc import Mapping, Sequence

from quorate_operator.models.v1alpha1 import CONTROLLER_IDS, KafkaBroker, KafkaController

_CONTROLLER_PORT = 9093
_FREE_PORTS = range(9092, 9192)
"""Where listeners of brokers without a port get one, except for `_CONTROLLER_PORT`."""


def placed(quorum: KafkaController, pools: Sequence[KafkaBroker]) -> KafkaController:
    """Return the quorum with `decommission` extended by the controllers whose brokers are decommissioned.

    Raises ValueError: the path of a field, its value, and what is needed.
    """
    placement = quorum.spec.placement
    if not placement.is_with_brokers:
        return quorum
    pool = next((pool for pool in pools if pool.metadata.name == placement.pool), None)
    if pool is None:
        names = ", ".join(pool.metadata.name for pool in pools) or "none"
        raise ValueError(
            f"placement.pool: {placement.pool!r}: no such KafkaBroker of this cluster; there are {names}"
        )
    _check_ports(quorum, pool)
    first, own = pool.spec.first_node_id, quorum.spec.first_node_id
    beside = {own + node_id - first for node_id in pool.spec.decommission if node_id - first < CONTROLLER_IDS}
    leaving = tuple(sorted({*quorum.spec.decommission, *beside}))
    found = quorum.model_copy(update={"spec": quorum.spec.model_copy(update={"decommission": leaving})})
    brokers = set(pool.spec.all_node_ids())
    alone = [node_id for node_id in found.spec.all_node_ids() if first + node_id - own not in brokers]
    if alone:
        able = len(found.spec.all_node_ids()) - len(alone)
        raise ValueError(
            f"replicas: {quorum.spec.replicas}: {pool.metadata.name} has brokers for {able} controllers: controller "
            f"{alone[0]} would run in the pod of broker {first + alone[0] - own}, which is not one of its "
            f"{pool.spec.replicas} replicas"
        )
    return found


def mates(quorum: KafkaController, pools: Sequence[KafkaBroker]) -> Mapping[int, int]:
    """Return the other node of each pod that is to have two, by node id. The quorum is that of `placed`."""
    pool = next((pool for pool in pools if pool.metadata.name == quorum.spec.placement.pool), None)
    if pool is None:
        return {}
    difference = pool.spec.first_node_id - quorum.spec.first_node_id
    pairs = {node_id: node_id + difference for node_id in quorum.spec.all_node_ids()}
    return pairs | {broker_id: node_id for node_id, broker_id in pairs.items()}


def _check_ports(quorum: KafkaController, pool: KafkaBroker) -> None:
    """Raise ValueError if a listener of the pods has a port of the controllers."""
    listeners = quorum.spec.listeners
    for place, own in enumerate(listeners):
        if own.port is None and len(listeners) > 1:
            raise ValueError(
                f"listeners[{place}].port: is needed with placement.type WithBrokers and several listeners, so that "
                f"it differs from those of {pool.metadata.name}, in whose pods the controllers run"
            )
        port = own.port or _CONTROLLER_PORT
        for listener in pool.spec.listeners:
            takes_any = listener.port is None and port in _FREE_PORTS and port != _CONTROLLER_PORT
            if listener.port == port or takes_any:
                raise ValueError(
                    f"listeners[{place}].port: {port}: is, or may become, that of {listener.name} of "
                    f"{pool.metadata.name}, in whose pods the controllers run: must be another one, or "
                    f"{listener.name} needs another port"
                )
