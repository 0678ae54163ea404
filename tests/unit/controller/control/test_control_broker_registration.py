"""BrokerRegistration, UnregisterBroker, AllocateProducerIds: who is which broker (KIP-631, KIP-966,
KIP-730).
"""

from uuid import UUID

import pytest
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated.allocate_producer_ids_request import AllocateProducerIdsRequest
from quorate_protocol.kafka.generated.broker_registration_request import Listener
from quorate_protocol.kafka.generated.unregister_broker_request import UnregisterBrokerRequest
from quorate_protocol.records.generated import (
    PartitionChangeRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)


def test_epoch_of_a_new_broker_is_the_offset_of_its_record(harness):
    offset = harness.image.end_offset
    assert harness.register(1) == offset
    (record,) = harness.records
    assert isinstance(record, RegisterBrokerRecord)
    assert record.broker_epoch == offset
    assert record.fenced
    assert harness.register(2) > offset


def test_registration_is_kept_as_sent(harness):
    harness.register(7, rack="r1", log_dirs=(harness.directory(7, 1), harness.directory(7, 0)))
    broker = harness.broker(7)
    assert broker.rack == "r1"
    assert broker.listeners["PLAINTEXT"] == ("PLAINTEXT", "b7", 9092, 0)
    assert broker.supported_features["metadata.version"] == (7, 30)
    assert broker.directories == (harness.directory(7, 0), harness.directory(7, 1))
    assert broker.cordoned_directories is None


def test_same_incarnation_keeps_epoch_and_state(harness):
    epoch = harness.start_broker(1)
    listeners = (Listener(name="PLAINTEXT", host="moved", port=9092, security_protocol=0),)
    assert harness.register(1, listeners=listeners) == epoch
    assert not harness.broker().fenced
    assert harness.broker().listeners["PLAINTEXT"].host == "moved"


def test_same_incarnation_in_controlled_shutdown_stays_there(harness):
    harness.start_broker(1)
    harness.start_broker(2)
    harness.add_topic("t", 1, 2)
    harness.heartbeat(1, want_shut_down=True)
    assert harness.broker().in_controlled_shutdown
    harness.register(1)
    assert harness.broker().in_controlled_shutdown


def test_other_incarnation_waits_for_the_session_to_end(harness):
    """The running broker wins an id conflict."""
    epoch = harness.start_broker(1)
    error = harness.refusal(harness.registration(1, incarnation=2))
    assert error.error_code is ErrorCode.duplicate_broker_registration
    harness.now_ms += 9_001
    assert harness.register(1, incarnation=2) > epoch
    assert harness.broker().fenced


def test_a_fenced_broker_that_sends_heartbeats_has_a_session_too(harness):
    harness.register(1)
    harness.register(1, incarnation=2)
    harness.heartbeat(1, want_fence=True)
    error = harness.refusal(harness.registration(1, incarnation=3))
    assert error.error_code is ErrorCode.duplicate_broker_registration


def test_new_incarnation_begins_without_the_session_of_the_last_one(harness):
    harness.start_broker(1)
    harness.now_ms += 9_001
    harness.register(1, incarnation=2)
    harness.register(1, incarnation=3)


@pytest.mark.parametrize(
    ("fields", "error_code", "text"),
    [
        ({"cluster_id": "other"}, ErrorCode.inconsistent_cluster_id, "got cluster ID other"),
        ({"log_dirs": ()}, ErrorCode.invalid_registration, "No directories"),
        ({"log_dirs": (UUID(int=99),)}, ErrorCode.invalid_registration, "Reserved directory"),
        ({"log_dirs": (None,)}, ErrorCode.invalid_registration, "Reserved directory"),
        ({"log_dirs": (UUID(int=500), UUID(int=500))}, ErrorCode.invalid_registration, "Duplicate directory"),
        ({"is_migrating_zk_broker": True}, ErrorCode.broker_id_not_registered, "ZK brokers"),
        ({"incarnation_id": None}, ErrorCode.invalid_registration, "incarnation"),
        (
            {"listeners": (Listener(name="A", host="h", port=1, security_protocol=77),)},
            ErrorCode.invalid_registration,
            "unknown security protocol 77",
        ),
        ({"features": {"group.version": (0, 1)}}, ErrorCode.invalid_registration, "metadata.version"),
        ({"features": {"metadata.version": (7, 29)}}, ErrorCode.unsupported_version, "between 7 and 29"),
        (
            {"features": {"metadata.version": (7, 30)}},
            ErrorCode.unsupported_version,
            "finalized version 1 of kraft.version",
        ),
        (
            {"features": {"metadata.version": (7, 30), "kraft.version": (0, 1), "new": (1, 2)}},
            ErrorCode.unsupported_version,
            "finalized version 0 of new",
        ),
    ],
)
def test_registrations_that_are_refused(harness, fields, error_code, text):
    error = harness.refusal(harness.registration(1, **fields))
    assert error.error_code is error_code
    assert text in error.message


def test_directories_of_another_broker_are_refused(harness):
    harness.register(1)
    error = harness.refusal(harness.registration(2, log_dirs=(harness.directory(1),)))
    assert error.error_code is ErrorCode.invalid_registration
    assert error.message == f"Broker 1 is already registered with directory {harness.directory(1)}"


def test_directories_mean_nothing_before_metadata_version_17(new_harness):
    harness = new_harness(16)
    harness.register(1)
    harness.register(2, log_dirs=())
    assert harness.broker(1).directories == ()


def test_new_incarnation_leaves_isr_and_leadership(harness):
    harness.start_broker(1)
    harness.start_broker(2)
    harness.add_topic("t", 1, 2)
    harness.now_ms += 9_001
    offset = harness.image.end_offset
    epoch = harness.register(1, incarnation=2)
    change, record = harness.records
    assert isinstance(change, PartitionChangeRecord)
    assert (change.leader, change.isr) == (2, (2,))
    assert isinstance(record, RegisterBrokerRecord)
    assert epoch == offset + 1


@pytest.mark.parametrize(
    ("previous_epoch", "api_version", "is_eligible"),
    [("same", 4, True), ("same", 2, False), ("other", 4, False)],
)
def test_only_a_proven_clean_shutdown_keeps_eligibility(
    new_harness, previous_epoch, api_version, is_eligible
):
    """ELR members may have lost data (KIP-966)."""
    harness = new_harness(features={"eligible.leader.replicas.version": 1})
    epoch = harness.start_broker(1)
    topic_id = harness.add_topic("t", 1)
    harness.run_until(harness.now_ms + 9_001)
    partition = harness.image.topics.by_id[topic_id].partitions[0]
    assert partition.elr == (1,)
    previous = epoch if previous_epoch == "same" else epoch + 1
    harness.apply(
        harness.registration(1, incarnation=2, previous_broker_epoch=previous), api_version=api_version
    )
    partition = harness.image.topics.by_id[topic_id].partitions[0]
    assert partition.elr == ((1,) if is_eligible else ())


def test_unregister_forgets_the_broker_and_its_replicas_state(harness):
    epoch = harness.start_broker(1)
    harness.start_broker(2)
    harness.add_topic("t", 1, 2)
    response = harness.apply(UnregisterBrokerRequest(broker_id=1))
    assert response.error_code is ErrorCode.none
    change, record = harness.records
    assert (change.leader, change.isr) == (2, (2,))
    assert record == UnregisterBrokerRecord(broker_id=1, broker_epoch=epoch)
    error = harness.refusal(UnregisterBrokerRequest(broker_id=1))
    assert error.error_code is ErrorCode.broker_id_not_registered
    assert error.message == "Broker ID 1 is not currently registered"


def test_producer_id_blocks_follow_each_other(harness):
    epochs = {broker_id: harness.register(broker_id) for broker_id in (1, 2)}
    starts = []
    for broker_id in (1, 2, 1):
        request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epochs[broker_id])
        response = harness.apply(request)
        assert response.producer_id_len == 1000
        starts.append(response.producer_id_start)
    assert starts == [0, 1000, 2000]
    assert harness.records == [ProducerIdsRecord(broker_id=1, broker_epoch=epochs[1], next_producer_id=3000)]


def test_producer_ids_are_for_registered_epochs_only(harness):
    epoch = harness.register(1)
    for broker_id, broker_epoch in ((1, epoch + 1), (2, epoch)):
        request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch)
        assert harness.refusal(request).error_code is ErrorCode.stale_broker_epoch


def test_producer_ids_run_out_at_64_bits(harness):
    epoch = harness.register(1)
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
    last = 2**63 - 1 - 1000
    harness.replay(ProducerIdsRecord(broker_id=1, broker_epoch=epoch, next_producer_id=last))
    assert harness.apply(request).producer_id_start == last
    assert harness.refusal(request).error_code is ErrorCode.unknown_server_error
