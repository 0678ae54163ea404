"""Finds which registrations block which levels of which features.

Kafka takes a new level when the active controller, every registered broker, every registered controller and every
voter (registered, from metadata.version 15 on) supports it. If it refuses a level, it names the first node that does
not support it. So the blockers are known from the registrations in the metadata log or, if the log can't be read,
from requests with `validateOnly` for one level after the other, which change nothing.
"""

import re
from collections.abc import Generator, Iterable, Mapping

from quorate_protocol.features import CONTROLLER_REGISTRATION_SINCE, FEATURES, METADATA_VERSION
from quorate_protocol.plain_data import dataclass

from quorate_admin.diagnosis.facts import Blocker, FeatureOutlook, NodeKind, RegisteredNode

_REFUSALS = (
    re.compile(
        r"\b(?:Local )?(?P<kind>[Bb]roker|[Cc]ontroller) (?P<id>\d+) only supports versions "
        r"(?P<low>\d+)(?:-(?P<high>\d+))?"
    ),
    re.compile(r"\b(?:Local )?(?P<kind>[Bb]roker|[Cc]ontroller) (?P<id>\d+) does not support this feature"),
    re.compile(r"\b(?P<kind>[Cc]ontroller) (?P<id>\d+) has not registered"),
)
_RANGE, _NO_FEATURE, _NOT_REGISTERED = _REFUSALS


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelProbe:
    """A question for the active controller: would it take this level (UpdateFeatures with validateOnly)?"""

    feature: str
    level: int


def parse_refusal(message: str) -> Blocker | None:
    """Parse the message of INVALID_UPDATE_VERSION. Returns the node that blocks the level; None for another reason.

    For instance: `Invalid update version 30 for feature metadata.version. Controller 99 only supports
    versions 7-27`.
    """
    for pattern in _REFUSALS:
        match = pattern.search(message)
        if match is None:
            continue
        kind, node_id = NodeKind(match["kind"].lower()), int(match["id"])
        if pattern is _RANGE:
            low = int(match["low"])
            return Blocker(kind=kind, node_id=node_id, lowest=low, highest=int(match["high"] or low))
        return Blocker(kind=kind, node_id=node_id, is_registered=pattern is _NO_FEATURE)
    return None


def probe_outlook(
    feature: str, finalized: int, target: int
) -> Generator[LevelProbe, str | None, FeatureOutlook]:
    """Find the highest level of a feature. Yields probes; expects None (accepted) or the refusal's message for each.

    Each refusal names one blocker. The next probe is for the highest level that this blocker supports, so blockers
    that are less restrictive are not found.
    """
    level, blockers, obstacle = target, list[Blocker](), None
    while level > finalized:
        message = yield LevelProbe(feature=feature, level=level)
        if message is None:
            break
        blocker = parse_refusal(message)
        if blocker is None:
            obstacle = obstacle or message
            level -= 1
            continue
        blockers.append(blocker)
        level = min(level - 1, blocker.highest) if blocker.is_registered else finalized
    return FeatureOutlook(
        feature=feature,
        finalized=finalized,
        target=target,
        reachable=max(level, finalized),
        blockers=tuple(blockers),
        obstacle=obstacle,
    )


def registered_outlooks(
    finalized: Mapping[str, int],
    supported: Mapping[str, int],
    nodes: Iterable[RegisteredNode],
    voter_ids: Iterable[int],
) -> tuple[FeatureOutlook, ...]:
    """Return which level each feature can have according to the registrations in the log.

    `supported` has the highest level that any node runs, `nodes` are all brokers and controllers with their
    `features`, `voter_ids` those that have to be registered. Dependencies on metadata.version are those of
    Kafka 4.4.0.
    """
    registered = list(nodes)
    missing = missing_voters(finalized, registered, voter_ids)
    outlooks = []
    for feature, target in sorted(supported.items()):
        current = finalized.get(feature, 0)
        blockers = [
            Blocker.of(node, feature)
            for node in registered
            if current < target and not supports(node.features, feature, target)
        ]
        blockers.sort(key=lambda blocker: (-blocker.highest, blocker.kind, blocker.node_id))
        highest = ((node.features or {}).get(feature, (0, 0))[1] for node in registered)
        reachable = current if missing else min(highest, default=target)
        obstacle = None
        needed = _needed_metadata_version(feature, min(reachable, target))
        if needed > finalized.get(METADATA_VERSION, 0):
            reachable, obstacle = current, f"{feature} depends on {METADATA_VERSION} {needed}"
        outlooks.append(
            FeatureOutlook(
                feature=feature,
                finalized=current,
                target=max(target, current),
                reachable=max(min(reachable, target), current),
                blockers=(*missing, *blockers),
                obstacle=obstacle,
            )
        )
    return tuple(outlooks)


def supports(features: Mapping[str, tuple[int, int]] | None, feature: str, level: int) -> bool:
    """Whether a node with these feature ranges supports a level; one that lacks a feature supports level 0 of it."""
    low, high = (features or {}).get(feature, (0, 0))
    return low <= level <= high


def missing_voters(
    finalized: Mapping[str, int], registered: Iterable[RegisteredNode], voter_ids: Iterable[int]
) -> list[Blocker]:
    """Return the voters that are not registered. They block every level of every feature."""
    if finalized.get(METADATA_VERSION, 0) < CONTROLLER_REGISTRATION_SINCE:
        return []  # controllers do not register at such a level, so Kafka does not check them
    known = {node.node_id for node in registered if node.kind is NodeKind.CONTROLLER}
    return [
        Blocker(kind=NodeKind.CONTROLLER, node_id=node_id, is_registered=False)
        for node_id in sorted(set(voter_ids) - known)
    ]


def _needed_metadata_version(feature: str, level: int) -> int:
    known = FEATURES.get(feature)
    return 0 if known is None else known.needs_metadata_version.get(level, 0)
