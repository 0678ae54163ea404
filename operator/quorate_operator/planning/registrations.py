"""Registrations of controllers that are gone: ghosts (KIP-1312).

A ghost is registered, and neither desired, nor a voter, nor does it have a process. From metadata.version 33 on it
is unregistered. Below, it is let be, unless its range of levels blocks an upgrade that is asked for: then it is
registered again with the range of the cluster and no endpoints (ADR 9), and unregistered when 33 is reached. So is
one that still tells of addresses which others are to have.
"""

from collections.abc import Iterable

from quorate_protocol.features import (
    CONTROLLER_UNREGISTRATION_SINCE,
    METADATA_VERSION,
    metadata_version_name,
)

from quorate_operator.planning.addresses import has_publications
from quorate_operator.planning.cluster import (
    DesiredCluster,
    KafkaFacts,
    ObservedCluster,
    ObservedRegistration,
    Role,
)
from quorate_operator.planning.part import Part
from quorate_operator.planning.steps import RefreshRegistration, UnregisterController


def plan_registrations(desired: DesiredCluster, observed: ObservedCluster, target: int | None) -> Part:
    """Ghosts go, or stop blocking `target`, the metadata.version that is asked for."""
    if observed.kafka is None:
        return Part()
    due: list[UnregisterController | RefreshRegistration] = []
    for ghost in ghosts(desired, observed):
        if can_unregister(observed.kafka):
            reason = "it is gone: it runs no more and is no voter"
            due.append(UnregisterController(node_id=ghost.node_id, reason=reason))
        elif (obstacle := _obstacle(ghost, observed, target)) is not None:
            reason = f"it is gone, and its registration {obstacle}"
            due.append(RefreshRegistration(node_id=ghost.node_id, reason=reason))
    return Part(due=tuple(due))


def _obstacle(ghost: ObservedRegistration, observed: ObservedCluster, target: int | None) -> str | None:
    """What a ghost that can't be unregistered yet is in the way of."""
    if target is not None and blocks(ghost, METADATA_VERSION, target):
        lowest, highest = ghost.features.get(METADATA_VERSION, (0, 0))
        return f"(metadata.version {lowest} to {highest}) blocks {metadata_version_name(target)}"
    if ghost.endpoints and has_publications(observed, ghost.node_id):
        return "tells of addresses that can't be given to another node meanwhile"
    return None


def ghosts(desired: DesiredCluster, observed: ObservedCluster) -> tuple[ObservedRegistration, ...]:
    """The registered controllers that are gone for good."""
    if observed.kafka is None:
        return ()
    asked = {node.node_id for node in desired.nodes}
    return tuple(
        registration
        for node_id, registration in sorted(observed.kafka.registrations.items())
        if registration.role is Role.CONTROLLER
        and node_id not in asked
        and node_id not in observed.kafka.quorum.voters
        and not _may_run(observed, node_id)
    )


def awaits_unregistration(observed: ObservedCluster, node_id: int) -> bool:
    """Whether the controller is registered and that can be ended."""
    return (
        observed.kafka is not None
        and can_unregister(observed.kafka)
        and node_id in observed.kafka.registrations
    )


def can_unregister(kafka: KafkaFacts) -> bool:
    """Whether the cluster knows UnregisterController."""
    return kafka.features.get(METADATA_VERSION, 0) >= CONTROLLER_UNREGISTRATION_SINCE


def blockers(
    registrations: Iterable[ObservedRegistration], feature: str, level: int
) -> tuple[ObservedRegistration, ...]:
    """Those of the registered nodes that don't support a level of a feature."""
    return tuple(registration for registration in registrations if blocks(registration, feature, level))


def blocks(registration: ObservedRegistration, feature: str, level: int) -> bool:
    """Whether the node does not support the level; one that does not name a feature supports level 0 of it."""
    lowest, highest = registration.features.get(feature, (0, 0))
    return not lowest <= level <= highest


def _may_run(observed: ObservedCluster, node_id: int) -> bool:
    seen = observed.nodes.get(node_id)
    return seen is not None and (seen.state.runs or seen.unreachable_host)
