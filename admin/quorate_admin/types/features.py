"""Feature levels (KIP-584)."""

from collections.abc import Mapping
from dataclasses import dataclass

from quorate_protocol.kafka.enums import UpgradeType


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureDescription:
    """Feature levels (ApiVersions). `supported` has the lowest and highest that the node knows.

    `finalized` leaves out features at level 0; `finalized_epoch` is the offset of the metadata log that
    the levels are from, -1 if unknown.
    """

    finalized: Mapping[str, int]
    finalized_epoch: int
    supported: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureUpdate:
    """The level that a feature shall get; 0 disables it."""

    max_level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE
