"""UpdateFeatures: levels that everybody supports, and nothing lost (KIP-584, KIP-778, KIP-1022, KIP-853)."""

from datetime import timedelta

import pytest
from quorate_controller.control.api import ControlError, KRaftVersionUpgrade
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from quorate_protocol.records.generated import (
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
)

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
ELR = "eligible.leader.replicas.version"


def update(*updates, validate_only=False):
    return UpdateFeaturesRequest(
        timeout=timedelta(seconds=1),
        feature_updates=tuple(
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
            for name, level, upgrade_type in updates
        ),
        validate_only=validate_only,
    )


def level(name, value):
    return FeatureLevelRecord(name=name, feature_level=value)


def test_an_upgrade_writes_the_level(harness):
    response = harness.apply(update(("group.version", 1, UPGRADE)))
    assert (response.error_code, response.error_message) == (ErrorCode.none, None)
    assert harness.records == [level("group.version", 1)]
    assert harness.image.features["group.version"] == 1


def test_validation_alone_writes_nothing(harness):
    response = harness.apply(update(("group.version", 1, UPGRADE), validate_only=True))
    assert response.error_code is ErrorCode.none
    assert harness.records == []
    response = harness.apply(update(("group.version", 9, UPGRADE), validate_only=True))
    assert response.error_code is ErrorCode.invalid_update_version


def test_one_bad_update_refuses_all(harness):
    response = harness.apply(update(("group.version", 1, UPGRADE), ("streams.version", 9, UPGRADE)))
    assert response.error_code is ErrorCode.invalid_update_version
    assert response.error_message.startswith("The update failed for all features since")
    assert harness.records == []


def test_versions_0_and_1_name_each_updated_feature(harness):
    response = harness.apply(update(("group.version", 1, UPGRADE)), api_version=1)
    (result,) = response.results
    assert (result.feature, result.error_code) == ("group.version", ErrorCode.none)
    response = harness.apply(update(("group.version", 9, UPGRADE)), api_version=1)
    assert response.results == ()
    assert response.error_code is ErrorCode.invalid_update_version


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("group.version", 1, 0), "The controller does not support the given upgrade type."),
        (("group.version", 1, 4), "The controller does not support the given upgrade type."),
        (("group.version", -1, UPGRADE), "A feature version cannot be less than 0."),
        (("group.version", 2, UPGRADE), "Local controller 3000 only supports versions 0-1"),
        (("group.version", 1, SAFE_DOWNGRADE), "Can't downgrade to a newer version."),
        (("transaction.version", 1, UPGRADE), "without setting the upgrade type"),
        (("unknown", 1, UPGRADE), "Local controller 3000 does not support this feature."),
        (("unknown", 0, SAFE_DOWNGRADE), "Feature unknown not found."),
        (("metadata.version", 34, UPGRADE), "Local controller 3000 only supports versions 7-33"),
        (("metadata.version", 29, UPGRADE), "without setting the upgrade type"),
        (("metadata.version", 29, SAFE_DOWNGRADE), "it might delete metadata information"),
        (("metadata.version", 29, UNSAFE_DOWNGRADE), "Unsafe metadata downgrade is not supported"),
        (("kraft.version", 0, SAFE_DOWNGRADE), "Can't downgrade the version of this feature."),
        (("kraft.version", 2, UPGRADE), "Local controller 3000 only supports versions 0-1"),
    ],
)
def test_updates_that_are_refused(new_harness, given, text):
    harness = new_harness(features={"transaction.version": 2})
    response = harness.apply(update(given))
    assert response.error_code is ErrorCode.invalid_update_version
    assert text in response.error_message
    assert harness.records == []


def test_downgrade_within_unchanged_records_is_safe(new_harness):
    harness = new_harness(29)
    assert harness.apply(update(("metadata.version", 23, SAFE_DOWNGRADE))).error_code is ErrorCode.none
    assert harness.image.metadata_version == 23
    response = harness.apply(update(("metadata.version", 22, SAFE_DOWNGRADE)))
    assert "downgrade from 23 to 22" in response.error_message


def test_level_0_switches_a_feature_off(new_harness):
    harness = new_harness(features={"group.version": 1})
    harness.apply(update(("group.version", 0, SAFE_DOWNGRADE)))
    assert harness.records == [level("group.version", 0)]
    assert "group.version" not in harness.image.features


def test_every_broker_must_support_the_level(new_harness):
    harness = new_harness(29)
    harness.register(1, features={"metadata.version": (7, 29), "kraft.version": (0, 1)})
    response = harness.apply(update(("metadata.version", 30, UPGRADE)))
    assert "Broker 1 only supports versions 7-29" in response.error_message
    response = harness.apply(update(("group.version", 1, UPGRADE)))
    assert "Broker 1 does not support this feature." in response.error_message


def test_every_registered_controller_must_support_the_level(harness):
    harness.register_controller(3001, metadata_version=(7, 30))
    response = harness.apply(update(("metadata.version", 31, UPGRADE)))
    assert "Controller 3001 only supports versions 7-30" in response.error_message
    harness.register_controller(3001, metadata_version=(7, 33))
    assert harness.apply(update(("metadata.version", 31, UPGRADE))).error_code is ErrorCode.none


def test_every_voter_must_have_registered(harness):
    harness.quorum.voter_ids = frozenset({3000, 3001})
    response = harness.apply(update(("metadata.version", 31, UPGRADE)))
    assert "controller 3001 has not registered" in response.error_message
    harness.register_controller(3001)
    assert harness.apply(update(("metadata.version", 31, UPGRADE))).error_code is ErrorCode.none


def test_controllers_are_not_asked_before_they_can_register(new_harness):
    harness = new_harness(14)
    harness.quorum.voter_ids = frozenset({3000, 3001})
    assert harness.apply(update(("metadata.version", 15, UPGRADE))).error_code is ErrorCode.none


def test_a_feature_may_depend_on_metadata_version(new_harness):
    harness = new_harness(22)
    response = harness.apply(update((ELR, 1, UPGRADE)))
    assert "depends on metadata.version level 23" in response.error_message
    response = harness.apply(update(("metadata.version", 23, UPGRADE), (ELR, 1, UPGRADE)))
    assert response.error_code is ErrorCode.none


def test_eligible_leader_replicas_need_one_min_insync_replicas(new_harness):
    """All controllers compute the same (KIP-966)."""
    harness = new_harness(static_configs={"min.insync.replicas": "2"})
    harness.replay(
        ConfigRecord(resource_type=4, resource_name="1", name="min.insync.replicas", value="3"),
        ConfigRecord(resource_type=4, resource_name="1", name="log.cleaner.threads", value="3"),
    )
    harness.apply(update((ELR, 1, UPGRADE)))
    assert harness.records == [
        ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"),
        ConfigRecord(resource_type=4, resource_name="1", name="min.insync.replicas", value=None),
        level(ELR, 1),
    ]
    harness.apply(update((ELR, 1, UPGRADE)))
    assert harness.records == [level(ELR, 1)]


def test_eligible_leader_replicas_end_with_their_feature(harness):
    harness.apply(update((ELR, 1, UPGRADE)))
    harness.start_broker(1)
    harness.start_broker(2)
    topic_id = harness.add_topic("a", 1, 2)
    harness.replay(
        PartitionChangeRecord(topic_id=topic_id, partition_id=0, isr=(1,), eligible_leader_replicas=(2,))
    )
    harness.apply(update((ELR, 0, SAFE_DOWNGRADE)))
    assert harness.records == [level(ELR, 0), ClearElrRecord(topic_name="")]
    assert harness.image.topics.by_name["a"].partitions[0].elr == ()
    harness.apply(update((ELR, 1, UPGRADE)))
    assert harness.records == [level(ELR, 1)]


def test_kraft_version_is_left_to_raft(harness):
    harness.quorum.kraft_version = 0
    result = harness.decide(update(("kraft.version", 1, UPGRADE), validate_only=True))
    assert (result.records, result.kraft_version) == ((), None)
    result = harness.decide(update(("kraft.version", 1, UPGRADE)))
    assert result.kraft_version == KRaftVersionUpgrade(level=1)
    assert result.records == (NoOpRecord(),)
    assert harness.quorum.upgrades == [1, 1]


def test_raft_may_refuse_a_kraft_version(harness):
    harness.quorum.kraft_version = 0
    harness.quorum.refusal = ControlError(ErrorCode.invalid_update_version, "voter 3001 is not ready")
    response = harness.apply(update(("kraft.version", 1, UPGRADE)))
    assert response.error_code is ErrorCode.invalid_update_version
    assert response.error_message.endswith("voter 3001 is not ready")


def test_the_present_kraft_version_changes_nothing(harness):
    result = harness.decide(update(("kraft.version", 1, UPGRADE)))
    assert (result.records, result.kraft_version) == ((), None)
    assert result.response.error_code is ErrorCode.none
