"""The nodes that manifests ask for. The runtime completes hosts, ports and images, which only it knows."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from quorate_operator.models.base import (
    ANNOTATION_FORCE_RESTART,
    ANNOTATION_PAUSE,
    ANNOTATION_REPLACE,
    ANNOTATION_RESTART,
    ANNOTATION_SKIP_ROLLOUT,
    duration_ms,
    quantity_bytes,
)
from quorate_operator.models.drains import Drain
from quorate_operator.models.manifests import Manifests
from quorate_operator.models.placed_controllers import mates
from quorate_operator.models.pod_templates import WEEKDAYS, MaintenanceWindow
from quorate_operator.models.storage import unbind_after_ms
from quorate_operator.models.v1alpha1 import KafkaBroker, KafkaController
from quorate_operator.planning.cluster import (
    FORCE,
    DesiredCluster,
    DesiredNode,
    Implementation,
    Lifecycle,
    Role,
    RolloutPolicy,
    VolumePolicy,
)
from quorate_operator.planning.losses import RecoveryRequest
from quorate_operator.planning.windows import Window

TOPIC_DEFAULTS: Final = (
    "default.replication.factor",
    "min.insync.replicas",
    "num.partitions",
    "unclean.leader.election.enable",
)
"""Properties of brokers by which the active controller decides."""


def desired_cluster(manifests: Manifests) -> DesiredCluster:
    quorum = manifests.controllers
    nodes = [
        DesiredNode(
            node_id=node_id,
            role=Role.CONTROLLER,
            pool=quorum.metadata.name,
            place=node_id - quorum.spec.first_node_id,
            implementation=Implementation(quorum.spec.implementation_of(node_id)),
            kafka_version=quorum.spec.version,
            listeners=quorum.spec.listeners,
            config=_controller_config(quorum, manifests),
            revision=_revision(node_id, quorum.spec.version, quorum.metadata.annotations),
            skips_rollout=_skips_rollout(node_id, quorum.metadata.annotations),
            replacement=quorum.metadata.annotations.get(f"{ANNOTATION_REPLACE}-{node_id}") or None,
            volumes=_volumes(quorum),
            log_levels=quorum.spec.log_levels,
        )
        for node_id in quorum.spec.all_node_ids()
    ]
    drained: list[DesiredNode] = []
    leaving = set(quorum.spec.decommission)
    for pool in manifests.brokers:
        leaving |= set(pool.spec.decommission)
        if pool.metadata.name in manifests.drained_pools:
            drained += _brokers(quorum, pool, pool.spec.all_node_ids())
            leaving |= set(pool.spec.all_node_ids())
        else:
            nodes += _brokers(quorum, pool, pool.spec.all_node_ids())
    pools: tuple[KafkaController | KafkaBroker, ...] = (quorum, *manifests.brokers)
    return DesiredCluster(
        name=quorum.metadata.name,
        cluster_id=quorum.spec.cluster_id,
        metadata_version=quorum.spec.metadata_version,
        dynamic_quorum=quorum.spec.quorum == "dynamic",
        nodes=tuple(nodes),
        keeps_history=quorum.spec.history is not None,
        lifecycle=_lifecycle(quorum),
        rollouts={pool.metadata.name: _rollout(pool, manifests.drained_pools) for pool in pools},
        decommission=frozenset(leaving),
        drained_pools=manifests.drained_pools,
        drained=tuple(drained),
        recovery=_recovery(quorum),
    )


def in_pods(desired: DesiredCluster, manifests: Manifests) -> DesiredCluster:
    """Return the cluster with the nodes that share pods, for a runtime that starts pods."""
    beside = mates(manifests.controllers, manifests.brokers)
    known = {node.node_id for node in desired.nodes}
    nodes = tuple(
        replace(node, pod_mate=mate) if (mate := beside.get(node.node_id)) in known else node
        for node in desired.nodes
    )
    return replace(desired, nodes=nodes)


def _brokers(quorum: KafkaController, pool: KafkaBroker, node_ids: Iterable[int]) -> list[DesiredNode]:
    return [
        DesiredNode(
            node_id=node_id,
            role=Role.BROKER,
            pool=pool.metadata.name,
            place=node_id - pool.spec.first_node_id,
            implementation=Implementation.JAVA,
            kafka_version=pool.spec.version,
            listeners=pool.spec.listeners,
            config={**_authorization(quorum), **pool.spec.config},
            revision=_revision(node_id, pool.spec.version, pool.metadata.annotations),
            skips_rollout=_skips_rollout(node_id, pool.metadata.annotations),
            replacement=pool.metadata.annotations.get(f"{ANNOTATION_REPLACE}-{node_id}") or None,
            rack=pool.spec.rack_of(node_id),
            volumes=_volumes(pool),
            log_levels=pool.spec.log_levels,
        )
        for node_id in node_ids
    ]


def _volumes(pool: KafkaController | KafkaBroker) -> dict[int, int]:
    return {volume.id: quantity_bytes(volume.size) for volume in pool.spec.storage.wanted}


def _controller_config(quorum: KafkaController, manifests: Manifests) -> Mapping[str, str]:
    """Return the configuration; a history sets the age at which segments are closed, unless the manifest does."""
    config = {**_authorization(quorum), **_topic_defaults(manifests), **quorum.spec.config}
    if quorum.spec.history is None:
        return config
    interval_ms = duration_ms(quorum.spec.history.segment_interval)
    return {"metadata.log.segment.ms": str(interval_ms), **config}


def _topic_defaults(manifests: Manifests) -> Mapping[str, str]:
    """Return the defaults of topics that all pools which set them agree on.

    Controllers decide by their own: a topic that is created without a factor has that of the controllers, whatever
    brokers are configured with, and with eligible leader replicas (KIP-966) the controllers' `min.insync.replicas` is
    that of the cluster.
    """
    pools = [pool for pool in manifests.brokers if pool.metadata.name not in manifests.drained_pools]
    values = {
        name: {pool.spec.config[name] for pool in pools if name in pool.spec.config}
        for name in TOPIC_DEFAULTS
    }
    return {name: next(iter(found)) for name, found in values.items() if len(found) == 1}


def _authorization(quorum: KafkaController) -> Mapping[str, str]:
    return {} if quorum.spec.authorization is None else quorum.spec.authorization.properties


def _revision(node_id: int, version: str, annotations: Mapping[str, str]) -> dict[str, str]:
    revision = {"version": version}
    asked = [
        annotations[name]
        for name in (ANNOTATION_RESTART, f"{ANNOTATION_RESTART}-{node_id}")
        if name in annotations
    ]
    if asked:
        revision["restart"] = " ".join(asked)
    if forced := annotations.get(f"{ANNOTATION_FORCE_RESTART}-{node_id}"):
        revision[FORCE] = forced
    return revision


def _skips_rollout(node_id: int, annotations: Mapping[str, str]) -> bool:
    return annotations.get(f"{ANNOTATION_SKIP_ROLLOUT}-{node_id}") == "true"


def _recovery(quorum: KafkaController) -> RecoveryRequest | None:
    asked = quorum.spec.recovery
    return None if asked is None else RecoveryRequest(asked.survivor, asked.cluster_id, asked.leader_epoch)


def _lifecycle(quorum: KafkaController) -> Lifecycle:
    """Return the lifecycle. The annotation wins over a hibernation: a paused cluster is not changed."""
    if quorum.metadata.annotations.get(ANNOTATION_PAUSE) == "true":
        return Lifecycle.PAUSED
    return Lifecycle(quorum.spec.state.lower())


def _rollout(pool: KafkaController | KafkaBroker, drained_pools: Collection[str]) -> RolloutPolicy:
    drain = pool.spec.drain if isinstance(pool, KafkaBroker) else Drain()
    grace_s = pool.spec.template.termination_grace_period_seconds
    is_drained = pool.metadata.name in drained_pools
    volumes = VolumePolicy(pool.spec.storage.on_decommission.lower())
    return RolloutPolicy(
        overlap_ms=pool.spec.rollout.overlap_ms,
        max_unavailable=pool.spec.rollout.max_unavailable,
        volumes=VolumePolicy.DELETE if is_drained else volumes,
        grace_ms=None if grace_s is None else grace_s * 1000,
        windows=tuple(_window(window) for window in pool.spec.rollout.windows),
        unbind_after_ms=unbind_after_ms(pool.spec.storage),
        drain_bytes_per_second=drain.rate_bytes,
        drains_on_scale_down=drain.on_scale_down == "Drain",
    )


def _window(window: MaintenanceWindow) -> Window:
    return Window(
        days=frozenset(WEEKDAYS.index(day) for day in window.days),
        start_ms=window.start_ms,
        duration_ms=window.duration_ms,
    )
