"""Converting messages between versions."""

import uuid
from datetime import timedelta
from types import SimpleNamespace

import pytest
from quorate_protocol.errors import ErrorCode, UnsupportedVersion
from quorate_protocol.kafka.apis import APIS, CONTROLLER_APIS
from quorate_protocol.kafka.generated.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from quorate_protocol.kafka.generated.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from quorate_protocol.kafka.generated.broker_registration_request import BrokerRegistrationRequest
from quorate_protocol.kafka.generated.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from quorate_protocol.kafka.generated.end_quorum_epoch_request import EndQuorumEpochRequest
from quorate_protocol.kafka.generated.fetch_request import FetchRequest
from quorate_protocol.kafka.generated.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from quorate_protocol.kafka.schemas import older_classes
from quorate_protocol.wire.codec import encode
from quorate_protocol.wire.convert import convert
from quorate_protocol.wire.schema import zero_entity

alter_partition_v2 = SimpleNamespace(**older_classes("AlterPartitionRequest", 2))
end_quorum_epoch_v0 = SimpleNamespace(**older_classes("EndQuorumEpochRequest", 0))
fetch_v12 = SimpleNamespace(**older_classes("FetchRequest", 12))
update_features_v0 = SimpleNamespace(**older_classes("UpdateFeaturesRequest", 0))

TOPIC_ID = uuid.UUID("b5a1c9b6-6f4e-4f0f-8f36-5d3c3f1a2b4c")
SECOND = timedelta(seconds=1)


def test_same_class_is_the_same_object() -> None:
    request = DeleteTopicsRequest(topics=(), timeout=SECOND)
    assert convert(request, DeleteTopicsRequest) is request


def test_ignorable_fields_are_dropped_for_an_old_peer() -> None:
    response = ApiVersionsResponse(
        error_code=ErrorCode.unsupported_version,
        api_keys=(ApiVersion(api_key=18, min_version=0, max_version=5),),
        throttle_time=SECOND,
        supported_features=(SupportedFeatureKey(name="metadata.version", min_version=7, max_version=30),),
    )
    old = convert(response, APIS[18].response_class(0))
    assert (old.error_code, len(old.api_keys)) == (ErrorCode.unsupported_version, 1)
    assert encode(old) == b"\x00\x23\x00\x00\x00\x01\x00\x12\x00\x00\x00\x05"


def test_field_that_may_not_be_lost_is_refused() -> None:
    request = BrokerRegistrationRequest(
        broker_id=1,
        cluster_id="c",
        incarnation_id=TOPIC_ID,
        listeners=(),
        features=(),
        rack=None,
        log_dirs=(TOPIC_ID,),
    )
    v0, broker_registration_v1 = APIS[62].request_class(0), APIS[62].request_class(1)
    assert convert(request, broker_registration_v1).cluster_id == "c"
    migrating = convert(convert(request, broker_registration_v1), BrokerRegistrationRequest)
    assert migrating.log_dirs == ()
    with pytest.raises(UnsupportedVersion, match="is_migrating_zk_broker"):
        convert(
            broker_registration_v1(
                broker_id=1,
                cluster_id="c",
                incarnation_id=None,
                listeners=(),
                features=(),
                rack=None,
                is_migrating_zk_broker=True,
            ),
            v0,
        )


def test_topics_to_delete_by_name_become_topics() -> None:
    delete_topics_v1 = APIS[20].request_class(1)
    old = delete_topics_v1(topic_names=("a", "b"), timeout=SECOND)
    new = DeleteTopicsRequest(
        topics=(
            DeleteTopicState(name="a", topic_id=None),
            DeleteTopicState(name="b", topic_id=None),
        ),
        timeout=SECOND,
    )
    assert convert(old, DeleteTopicsRequest) == new
    assert convert(new, delete_topics_v1) == old
    by_id = DeleteTopicsRequest(topics=(DeleteTopicState(name=None, topic_id=TOPIC_ID),), timeout=SECOND)
    with pytest.raises(UnsupportedVersion, match="by id"):
        convert(by_id, delete_topics_v1)


def test_new_isr_of_ids_becomes_one_with_epochs() -> None:
    """AlterPartition 2 reads like 3, with unknown broker epochs."""
    old = alter_partition_v2.AlterPartitionRequest(
        broker_id=1,
        broker_epoch=9,
        topics=(
            alter_partition_v2.TopicData(
                topic_id=TOPIC_ID,
                partitions=(
                    alter_partition_v2.PartitionData(
                        partition_index=0,
                        leader_epoch=1,
                        new_isr=(1, 2),
                        partition_epoch=3,
                    ),
                ),
            ),
        ),
    )
    partition = PartitionData(
        partition_index=0,
        leader_epoch=1,
        new_isr_with_epochs=(
            BrokerState(broker_id=1, broker_epoch=-1),
            BrokerState(broker_id=2, broker_epoch=-1),
        ),
        partition_epoch=3,
    )
    new = AlterPartitionRequest(
        broker_id=1, broker_epoch=9, topics=(TopicData(topic_id=TOPIC_ID, partitions=(partition,)),)
    )
    assert convert(old, AlterPartitionRequest) == new
    assert convert(new, alter_partition_v2.AlterPartitionRequest) == old


def test_replica_of_an_old_fetch_and_the_metadata_topic() -> None:
    old = fetch_v12.FetchRequest(
        replica_id=3,
        max_wait=SECOND,
        min_bytes=0,
        topics=(
            fetch_v12.FetchTopic(
                topic="__cluster_metadata",
                partitions=(fetch_v12.FetchPartition(partition=0, fetch_offset=7, partition_max_bytes=1),),
            ),
            fetch_v12.FetchTopic(topic="other", partitions=()),
        ),
        forgotten_topics_data=(),
    )
    new = convert(old, FetchRequest)
    assert new.replica_state.replica_id == 3
    assert [topic.topic_id for topic in new.topics] == [uuid.UUID(int=1), None]
    again = convert(new, fetch_v12.FetchRequest)
    assert again.replica_id == 3
    assert [topic.topic for topic in again.topics] == ["__cluster_metadata", ""]


def test_successors_and_upgrade_types_of_the_first_versions() -> None:
    partition = end_quorum_epoch_v0.PartitionData(
        partition_index=0, leader_id=1, leader_epoch=2, preferred_successors=(3, 2)
    )
    topic = end_quorum_epoch_v0.TopicData(topic_name="__cluster_metadata", partitions=(partition,))
    resignation = end_quorum_epoch_v0.EndQuorumEpochRequest(topics=(topic,))
    converted = convert(resignation, EndQuorumEpochRequest)
    candidates = converted.topics[0].partitions[0].preferred_candidates
    assert [(each.candidate_id, each.candidate_directory_id) for each in candidates] == [(3, None), (2, None)]
    assert convert(converted, end_quorum_epoch_v0.EndQuorumEpochRequest) == resignation

    for is_allowed, upgrade_type in ((False, 1), (True, 2)):
        update = update_features_v0.FeatureUpdateKey(
            feature="f", max_version_level=1, allow_downgrade=is_allowed
        )
        old = update_features_v0.UpdateFeaturesRequest(feature_updates=(update,))
        new = convert(old, UpdateFeaturesRequest)
        expected = FeatureUpdateKey(feature="f", max_version_level=1, upgrade_type=upgrade_type)
        assert new.feature_updates == (expected,)
        assert convert(new, update_features_v0.UpdateFeaturesRequest) == old


@pytest.mark.parametrize("key", sorted(CONTROLLER_APIS))
def test_every_version_converts_up_and_back(key: int) -> None:
    api = CONTROLLER_APIS[key]
    for version in range(api.version_min, api.version_max + 1):
        for entity, canonical in (
            (api.request_class(version), api.canonical_request),
            (api.response_class(version), api.canonical_response),
        ):
            message = zero_entity(entity)
            assert convert(convert(message, canonical), entity) == message
