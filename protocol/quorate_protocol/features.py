"""Feature levels of Apache Kafka: levels, dependencies, defaults (KIP-584, KIP-1022).

A level means the same in every release that knows it. Which levels a release has for production is in
:mod:`quorate_protocol.kafka.releases`.
"""

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Final

from quorate_protocol.kafka.releases import DEFAULT_RELEASE, NEWEST_RELEASE, RELEASES, release_line
from quorate_protocol.plain_data import dataclass

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
ELIGIBLE_LEADER_REPLICAS: Final = "eligible.leader.replicas.version"

METADATA_VERSION_MIN: Final = 7
METADATA_VERSION_MAX: Final = RELEASES[NEWEST_RELEASE].metadata_version
"""The highest level that our controllers support: the newest release's for production."""
METADATA_VERSION_OF_NEW_CLUSTERS: Final = RELEASES[DEFAULT_RELEASE].metadata_version
"""The level of a new cluster that asks for none."""

# First metadata.version with a capability.
SCRAM_SINCE: Final = 11
KEEPS_LEADER_EPOCH_ON_ISR_SHRINK_SINCE: Final = 12
TRANSACTIONS_SINCE: Final = 13
DELEGATION_TOKENS_SINCE: Final = 14
CONTROLLER_REGISTRATION_SINCE: Final = 15
DIRECTORY_ASSIGNMENT_SINCE: Final = 17
ELIGIBLE_LEADER_REPLICAS_SINCE: Final = 23
CORDONED_DIRECTORIES_SINCE: Final = 30
ADDRESS_BLOCKS_SINCE: Final = 32
CONTROLLER_UNREGISTRATION_SINCE: Final = 33


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataVersion:
    """One level of metadata.version."""

    level: int
    name: str
    """Kafka's name of the level, for instance ``4.3-IV0``."""
    changes_records: bool
    """Whether records changed with this level: a downgrade to an earlier one would lose data."""

    @property
    def release(self) -> str:
        """The release that introduced it, for instance ``4.3``."""
        return self.name.partition("-")[0]


def _metadata_versions() -> Mapping[int, MetadataVersion]:
    names = (
        "3.3-IV3! 3.4-IV0! 3.5-IV0 3.5-IV1 3.5-IV2! 3.6-IV0 3.6-IV1! 3.6-IV2! 3.7-IV0! 3.7-IV1 3.7-IV2! "
        "3.7-IV3 3.7-IV4 3.8-IV0 3.9-IV0 4.0-IV0 4.0-IV1! 4.0-IV2 4.0-IV3 4.1-IV0 4.1-IV1 4.2-IV0 4.2-IV1 "
        "4.3-IV0! 4.4-IV0 4.4-IV1! 4.4-IV2! 4.5-IV0"
    )
    return MappingProxyType(
        {
            level: MetadataVersion(level=level, name=name.rstrip("!"), changes_records=name.endswith("!"))
            for level, name in enumerate(names.split(), start=METADATA_VERSION_MIN)
        }
    )


METADATA_VERSIONS: Final = _metadata_versions()
"""Every level that a release knows, by number; those above METADATA_VERSION_MAX are known for tests only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One feature other than metadata.version. Level 0 means that it is disabled."""

    name: str
    default_since: Mapping[int, int]
    """Level -> first metadata.version at which a new cluster gets it; level 0 is the default before."""
    needs_metadata_version: Mapping[int, int] = field(default_factory=dict)
    """Level -> metadata.version without which it can't be set; METADATA_VERSION_MIN if not listed."""

    @property
    def level_max(self) -> int:
        """The highest level, which is the newest release's for production."""
        return RELEASES[NEWEST_RELEASE].feature_levels[self.name]

    def default_level(self, metadata_version: int) -> int:
        """Return the default level for a new cluster with this metadata.version."""
        return max(
            (level for level, since in self.default_since.items() if since <= metadata_version), default=0
        )


FEATURES: Final[Mapping[str, Feature]] = MappingProxyType(
    {
        feature.name: feature
        for feature in (
            Feature(name=KRAFT_VERSION, default_since={1: 21}),
            Feature(name="transaction.version", default_since={1: 24, 2: 24}),
            Feature(name="group.version", default_since={1: 22}),
            Feature(
                name=ELIGIBLE_LEADER_REPLICAS,
                default_since={1: 26},
                needs_metadata_version={1: ELIGIBLE_LEADER_REPLICAS_SINCE},
            ),
            Feature(name="share.version", default_since={1: 28, 2: 31}),
            Feature(name="streams.version", default_since={1: 29}),
        )
    }
)

SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {METADATA_VERSION: (METADATA_VERSION_MIN, METADATA_VERSION_MAX)}
    | {feature.name: (0, feature.level_max) for feature in FEATURES.values()}
)
"""Lowest and highest level of each feature that our controllers run: as registered and as listed in ApiVersions."""


def metadata_version_named(text: str) -> int:
    """Return the level for a name such as ``4.3-IV0``, or the highest level of a release (``4.3``, ``4.3.1``).

    A release that is not out yet has no stable level; only the full names of its levels are accepted, as in Kafka.

    Raises:
        ValueError: there is no such version; the message lists those that exist.
    """
    line = release_line(text)
    for version in reversed(tuple(METADATA_VERSIONS.values())):
        if version.name == text:
            return version.level
        if version.release == line and "-" not in text and version.level <= METADATA_VERSION_MAX:
            return version.level
    known = ", ".join(version.name for version in METADATA_VERSIONS.values())
    raise ValueError(f"Unknown metadata.version '{text}'. Supported metadata.version are: {known}")


def metadata_version_name(level: int) -> str:
    """Return ``4.3-IV0`` for 30; the number itself for an unknown level."""
    version = METADATA_VERSIONS.get(level)
    return version.name if version else str(level)


def loses_records(current: int, target: int) -> bool:
    """Whether a downgrade can lose data: records that may exist at ``current`` have no form at ``target``."""
    return any(METADATA_VERSIONS[level].changes_records for level in range(target + 1, current + 1))


def default_levels(metadata_version: int) -> dict[str, int]:
    """Return the default levels above 0 for a new cluster, by feature; without kraft.version."""
    levels = {
        name: feature.default_level(metadata_version)
        for name, feature in sorted(FEATURES.items())
        if name != KRAFT_VERSION
    }
    return {name: level for name, level in levels.items() if level > 0}


def unmet_dependency(name: str, level: int, levels: Mapping[str, int]) -> str | None:
    """Return why ``name`` can't be at ``level`` in a cluster with ``levels``; None if it can."""
    feature = FEATURES[name]
    needed = feature.needs_metadata_version.get(level, METADATA_VERSION_MIN)
    if level == 0 or levels.get(METADATA_VERSION, 0) >= needed:
        return None
    return f"{name} could not be set to {level} because it depends on {METADATA_VERSION} level {needed}"
