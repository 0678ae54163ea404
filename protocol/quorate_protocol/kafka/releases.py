"""The releases of Apache Kafka that Quorate speaks: a row each, and the one that new clusters get.

Everything that depends on a release is derived from these rows or has a table with a column for each: the feature
levels for production (here), the levels themselves (:mod:`quorate_protocol.features`), the config definitions
(``config_schema.json``), the API versions (:mod:`.apis`). The tests compare each row with the jars of its release.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from quorate_protocol.plain_data import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One release of Kafka."""

    version: str
    """For instance ``4.3.1``."""
    metadata_version: int
    """The highest metadata.version for production, which a cluster formatted by this release gets."""
    feature_levels: Mapping[str, int]
    """The highest level for production of each other feature."""


def _rows(*releases: Release) -> Mapping[str, Release]:
    return MappingProxyType({release.version: release for release in releases})


RELEASES: Final = _rows(
    Release(
        version="4.3.1",
        metadata_version=30,
        feature_levels={
            "eligible.leader.replicas.version": 1,
            "group.version": 1,
            "kraft.version": 1,
            "share.version": 1,
            "streams.version": 1,
            "transaction.version": 2,
        },
    ),
    Release(
        version="4.4.0",
        metadata_version=33,
        feature_levels={
            "eligible.leader.replicas.version": 1,
            "group.version": 1,
            "kraft.version": 1,
            "share.version": 2,
            "streams.version": 1,
            "transaction.version": 2,
        },
    ),
)
"""The supported releases by version, oldest first."""

DEFAULT_RELEASE: Final = "4.4.0"
"""The default release of clusters. A new cluster gets its metadata.version."""


def version_key(version: str) -> tuple[int, ...]:
    """Return the sort key of a version: (4, 10, 0) for ``4.10.0``."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


def release_line(version: str) -> str:
    """Return the release line of a version: ``4.3`` for ``4.3.1``."""
    return ".".join(version.split(".")[:2])


OLDEST_RELEASE: Final = next(iter(RELEASES))
NEWEST_RELEASE: Final = tuple(RELEASES)[-1]
"""Levels up to this release's are stable; our controllers support all of them."""
