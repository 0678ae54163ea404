"""Feature levels: finalized when every registered node supports them (KIP-584), lowered where nothing is lost."""

from quorate_admin.diagnosis import Blocker
from quorate_protocol import features
from quorate_protocol.features import KRAFT_VERSION, METADATA_VERSION, metadata_version_name
from quorate_protocol.kafka.releases import NEWEST_RELEASE, release_line, version_key

from quorate_operator.planning.cluster import (
    DesiredCluster,
    DesiredNode,
    Implementation,
    KafkaFacts,
    ObservedCluster,
    Role,
)
from quorate_operator.planning.registrations import judge, removable
from quorate_operator.planning.safety import view_quorum
from quorate_operator.planning.steps import FinalizeFeature, Part, Refusal, labels, wait_for


def target_level(desired: DesiredCluster) -> int | None:
    """Return the desired level of metadata.version; None if none is desired, or if it is unknown."""
    if desired.metadata_version is None:
        return None
    try:
        return features.metadata_version_named(desired.metadata_version)
    except ValueError:
        return None


def initial_metadata_version(desired: DesiredCluster) -> str:
    """Return the metadata.version that volumes are formatted with: the desired one, else that of the oldest release.

    A cluster that starts at the level of its oldest release has no node that can't register.
    """
    if desired.metadata_version is not None:
        return desired.metadata_version
    oldest = min((NEWEST_RELEASE, *(node.kafka_version for node in desired.nodes)), key=version_key)
    return release_line(oldest)


def plan_features(desired: DesiredCluster, observed: ObservedCluster, pending: frozenset[int]) -> Part:
    """Plan the next level to finalize; `pending` are the nodes that restart, start or leave before."""
    if observed.kafka is None:
        return Part()
    target = target_level(desired)
    if desired.metadata_version is not None and target is None:
        known = ", ".join(version.name for version in features.METADATA_VERSIONS.values())
        return Part(
            refusals=(
                Refusal(
                    "UnknownMetadataVersion",
                    f"spec.metadataVersion: {desired.metadata_version!r}: there is no such version; "
                    f"there are {known}",
                ),
            )
        )
    current = observed.kafka.features.get(METADATA_VERSION)
    if target is not None and current is not None and target != current:
        return _metadata_version(desired, observed, current, target, pending)
    return _others(desired, observed, target, pending)


def forbids_version(node: DesiredNode, observed: ObservedCluster) -> Refusal | None:
    """Return why the node may not start with its release: it does not support the finalized metadata.version."""
    if observed.kafka is None or node.implementation is not Implementation.JAVA:
        return None
    current = observed.kafka.features.get(METADATA_VERSION, 0)
    highest = _highest_level(node.kafka_version)
    if highest is None or current <= highest:
        return None
    return Refusal(
        "UnsafeDowngrade",
        f"{node.label} is not restarted with version {node.kafka_version}, which supports metadata.version up to "
        f"{metadata_version_name(highest)}: {metadata_version_name(current)} is finalized. Lower "
        "spec.metadataVersion first, if it can be lowered, or keep the version",
    )


def _highest_level(kafka_version: str) -> int | None:
    line = version_key(release_line(kafka_version))
    return max(
        (
            level
            for level, version in features.METADATA_VERSIONS.items()
            if version_key(version.release) <= line
        ),
        default=None,
    )


def _metadata_version(
    desired: DesiredCluster,
    observed: ObservedCluster,
    current: int,
    target: int,
    pending: frozenset[int],
) -> Part:
    is_downgrade = target < current
    way = f"{metadata_version_name(current)} -> {metadata_version_name(target)}"
    if is_downgrade and (
        current not in features.METADATA_VERSIONS or features.loses_records(current, target)
    ):
        return Part(refusals=(_unsafe(current, target),))
    return _finalize(desired, observed, METADATA_VERSION, target, pending, way=way, is_downgrade=is_downgrade)


def _unsafe(current: int, target: int) -> Refusal:
    changed = [
        version.name
        for level, version in features.METADATA_VERSIONS.items()
        if target < level <= current and version.changes_records
    ]
    what = (
        f"records changed with {', '.join(changed)}" if changed else "that level is unknown to this operator"
    )
    return Refusal(
        "UnsafeDowngrade",
        f"metadata.version is not lowered from {metadata_version_name(current)} to {metadata_version_name(target)}: "
        f"{what}, and metadata could be lost. Set spec.metadataVersion to {metadata_version_name(current)}",
    )


def _others(
    desired: DesiredCluster, observed: ObservedCluster, target: int | None, pending: frozenset[int]
) -> Part:
    """Plan one of the features that come with the release, or that are desired by name."""
    assert observed.kafka is not None
    asked = {**(features.default_levels(target) if target is not None else {}), **desired.features}
    for name, level in asked.items():
        current = observed.kafka.features.get(name, 0)
        by_name = name in desired.features
        # The level of a release only raises a feature: a higher one was set on purpose.
        if name == KRAFT_VERSION or level == current or (level < current and not by_name):
            continue
        if name in features.FEATURES:
            unmet = features.unmet_dependency(name, level, observed.kafka.features)
            if unmet is not None:
                return Part(refusals=(Refusal("UpgradeBlocked", unmet),))
        return _finalize(
            desired,
            observed,
            name,
            level,
            pending,
            way=f"{current} -> {level}",
            is_downgrade=level < current,
        )
    return Part()


def _finalize(
    desired: DesiredCluster,
    observed: ObservedCluster,
    name: str,
    level: int,
    pending: frozenset[int],
    *,
    way: str,
    is_downgrade: bool,
) -> Part:
    assert observed.kafka is not None
    against = judge(observed).blockers(name, level)
    # Ghosts are refreshed or unregistered first; a controller that has just stopped will be a ghost soon.
    leaving = {registration.node_id for registration in removable(desired, observed)}
    stubborn = [
        blocker for blocker in against if blocker.is_registered and blocker.node_id not in pending | leaving
    ]
    if stubborn:
        return Part(refusals=(_blocked(name, level, stubborn, observed.kafka),))
    if against:
        waited = tuple(sorted({blocker.node_id for blocker in against}))
        what = f"{name} {way}: every registered node has to support it; waiting for {_named(observed.kafka, waited)}"
        return Part(rest=(wait_for(what, *waited),))
    if pending and not is_downgrade:
        # A level can't simply be lowered again: it waits until the desired release runs everywhere.
        waited = tuple(sorted(pending))
        what = f"{name} {way}: {_named(observed.kafka, waited)} do not run the desired release yet"
        return Part(rest=(wait_for(what, *waited),))
    why = "it is desired, and no record is lost" if is_downgrade else "every registered node supports it"
    step = FinalizeFeature(
        feature=name, level=level, is_downgrade=is_downgrade, reason=f"{name} {way}: {why}"
    )
    return Part(due=(step,), rest=(wait_for(f"{name} to be at {way.rpartition(' -> ')[2]}"),))


def _blocked(name: str, level: int, against: list[Blocker], kafka: KafkaFacts) -> Refusal:
    ranges = ", ".join(
        f"{blocker.kind}-{blocker.node_id} supports {blocker.lowest}-{blocker.highest}" for blocker in against
    )
    shown = f"{metadata_version_name(level)} ({level})" if name == METADATA_VERSION else str(level)
    now = kafka.features.get(name, 0)
    return Refusal(
        "UpgradeBlocked",
        f"{name} {shown} can't be finalized, it stays {now}: {ranges}. Upgrade them (spec.version), "
        "or set a level that all of them support",
    )


def _named(kafka: KafkaFacts, node_ids: tuple[int, ...]) -> str:
    by_role = {
        role: [
            node_id
            for node_id in node_ids
            if (kafka.registrations[node_id].role if node_id in kafka.registrations else Role.CONTROLLER)
            is role
        ]
        for role in Role
    }
    return ", ".join(labels(role, members) for role, members in by_role.items() if members)


def plan_migration(desired: DesiredCluster, observed: ObservedCluster) -> Part:
    """Plan the change from static voters to a dynamic quorum (KIP-853) while it serves. It can't be undone.

    1. every voter runs and has caught up
    2. kraft.version 1 is finalized: the leader writes the voters, with their disks, into the log
    3. each node restarts with bootstrap servers in place of voters: its configuration differs, see `rollout`

    A runtime writes voters into configurations as long as `Formation.is_static` holds.
    """
    view = view_quorum(observed)
    if view is None or desired.dynamic_quorum == view.is_dynamic:
        return Part()
    if view.is_dynamic:
        message = (
            "spec.quorum: static: the quorum is dynamic already (kraft.version 1), and Kafka cannot make it static "
            "again. Set spec.quorum: dynamic"
        )
        return Part(refusals=(Refusal("NoWayBack", message),))
    if view.dead:
        behind = labels(Role.CONTROLLER, view.dead)
        what = f"{behind} to catch up: each voter registers its directory id with a dynamic quorum"
        return Part(rest=(wait_for(what, *view.dead),))
    reason = "kraft.version 0 -> 1: the quorum becomes dynamic, and its voters are written into the log"
    return Part(
        due=(FinalizeFeature(feature=KRAFT_VERSION, level=1, reason=reason),),
        rest=(wait_for("the quorum to be dynamic (kraft.version 1)"),),
    )
