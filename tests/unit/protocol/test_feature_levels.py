"""The table of feature levels: names, defaults, dependencies."""

import pytest
from quorate_protocol import features
from quorate_protocol.kafka.releases import RELEASES, Release


@pytest.mark.parametrize(
    ("text", "level"),
    [("3.3-IV3", 7), ("3.3", 7), ("3.9.2", 21), ("4.0", 25), ("4.3.1", 30), ("4.4-IV0", 31), ("4.4", 33)],
)
def test_versions_go_by_full_name_and_by_release(text, level):
    assert features.metadata_version_named(text) == level


@pytest.mark.parametrize("text", ["3.2", "4.5", "4.3-IV9", "", "x", "30"])
def test_unknown_versions_are_refused(text):
    with pytest.raises(ValueError, match=r"Supported metadata.version are: 3.3-IV3, .*, 4.4-IV2, 4.5-IV0"):
        features.metadata_version_named(text)


def test_levels_have_names():
    assert features.metadata_version_name(30) == "4.3-IV0"
    assert features.metadata_version_name(35) == "35"
    assert features.METADATA_VERSIONS[23].release == "4.0"


@pytest.mark.parametrize(
    ("current", "target", "loses"),
    [(30, 30, False), (30, 29, True), (29, 23, False), (23, 22, True), (22, 17, False), (33, 7, True)],
)
def test_downgrades_across_changed_records_lose_something(current, target, loses):
    assert features.loses_records(current, target) is loses


def _recorded(release: Release) -> dict[str, int]:
    """The levels for production but for kraft.version, which is no record of the metadata log."""
    return {name: level for name, level in release.feature_levels.items() if name != features.KRAFT_VERSION}


@pytest.mark.parametrize(
    ("metadata_version", "levels"),
    [
        (7, {}),
        (22, {"group.version": 1}),
        (24, {"group.version": 1, "transaction.version": 2}),
        (26, {"eligible.leader.replicas.version": 1, "group.version": 1, "transaction.version": 2}),
        (
            30,
            {
                "eligible.leader.replicas.version": 1,
                "group.version": 1,
                "share.version": 1,
                "streams.version": 1,
                "transaction.version": 2,
            },
        ),
        *((release.metadata_version, _recorded(release)) for release in RELEASES.values()),
    ],
)
def test_default_levels_follow_metadata_version(metadata_version, levels):
    assert features.default_levels(metadata_version) == levels


def test_dependencies_name_what_is_missing():
    """Eligible leader replicas need 4.0-IV1."""
    name = features.ELIGIBLE_LEADER_REPLICAS
    text = features.unmet_dependency(name, 1, {"metadata.version": 22})
    assert text == f"{name} could not be set to 1 because it depends on metadata.version level 23"
    assert features.unmet_dependency(name, 1, {"metadata.version": 23}) is None
    assert features.unmet_dependency(name, 0, {"metadata.version": 22}) is None
    assert features.unmet_dependency("group.version", 1, {"metadata.version": 7}) is None
