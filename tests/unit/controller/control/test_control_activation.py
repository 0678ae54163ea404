"""What a new active controller writes first (KIP-868), and which controllers register (KIP-919)."""

from random import Random
from uuid import UUID

import pytest
from quorate_controller.control.api import BootstrapMetadata, ControlConfig
from quorate_controller.control.controller import QuorumController, default_bootstrap
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image import MetadataImage
from quorate_protocol.kafka.generated.controller_registration_request import (
    ControllerRegistrationRequest,
    Feature,
    Listener,
)
from quorate_protocol.records.generated import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UserScramCredentialRecord,
)

BEGIN = BeginTransactionRecord(name="Bootstrap records")
ABORT = AbortTransactionRecord(reason="Controller failover")


def activate(image, quorum=None, **config):
    control = QuorumController(
        ControlConfig(node_id=3000, cluster_id="c", **config), image, Random(0), quorum
    )
    return control.activate(0)


def level(name, value):
    return FeatureLevelRecord(name=name, feature_level=value)


def replay(image, *records):
    image.replay_batch(records, base_offset=image.end_offset, epoch=1, timestamp_ms=0)
    image.commit(image.end_offset)


def test_an_empty_log_gets_the_bootstrap_metadata_in_a_transaction():
    credential = UserScramCredentialRecord(
        name="admin", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"k", iterations=4096
    )
    given = (level("metadata.version", 25), level("group.version", 1), credential)
    result = activate(MetadataImage(), bootstrap=BootstrapMetadata(records=given))
    assert result.records == (BEGIN, *given, EndTransactionRecord())
    assert not result.atomic


def test_before_metadata_version_13_the_bootstrap_is_one_batch():
    given = (level("metadata.version", 12),)
    result = activate(MetadataImage(), bootstrap=BootstrapMetadata(records=given))
    assert result.records == given
    assert result.atomic


def test_eligible_leader_replicas_bring_min_insync_replicas_along():
    """One value for the cluster from the start (KIP-966)."""
    result = activate(
        MetadataImage(), bootstrap=default_bootstrap(), static_configs={"min.insync.replicas": "2"}
    )
    assert result.records[-2:] == (
        ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"),
        EndTransactionRecord(),
    )


def test_the_default_bootstrap_is_that_of_the_latest_release():
    assert default_bootstrap().records == (
        level("metadata.version", 33),
        level("eligible.leader.replicas.version", 1),
        level("group.version", 1),
        level("share.version", 2),
        level("streams.version", 1),
        level("transaction.version", 2),
    )
    assert activate(MetadataImage()).records[1:7] == default_bootstrap().records


def test_a_log_in_order_needs_nothing():
    image = MetadataImage()
    replay(image, *activate(image).records)
    assert activate(image).records == ()


def test_a_broker_that_an_aborted_transaction_fenced_has_a_session():
    image = MetadataImage()
    broker = RegisterBrokerRecord(
        broker_id=1,
        is_migrating_zk_broker=False,
        incarnation_id=UUID(int=1),
        broker_epoch=1,
        end_points=(),
        features=(),
        rack=None,
        fenced=False,
        in_controlled_shutdown=False,
        log_dirs=(),
    )
    replay(image, level("metadata.version", 25), broker)
    replay(image, BeginTransactionRecord(name="big"))
    replay(image, BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=1))
    config = ControlConfig(node_id=3000, cluster_id="c")
    control = QuorumController(config, image, Random(0), None)
    records = control.activate(0).records
    assert records == (ABORT,)
    offset = image.end_offset
    replay(image, *records)
    control.observe(records, offset, 0)
    assert not image.cluster.brokers[1].fenced
    result = control.tick(config.broker_session_timeout_ms + 1)
    assert result is not None
    assert result.records == (BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=1),)


def test_an_abandoned_transaction_is_aborted():
    image = MetadataImage()
    replay(image, *activate(image).records)
    replay(image, BeginTransactionRecord(name="big"), level("group.version", 0))
    result = activate(image)
    assert result.records == (ABORT,)
    replay(image, *result.records)
    assert image.features["group.version"] == 1


@pytest.mark.parametrize("written", [1, 2, 4])
def test_a_partial_bootstrap_is_begun_again(written):
    image = MetadataImage()
    bootstrap = activate(image).records
    replay(image, *bootstrap[:written])
    result = activate(image)
    assert result.records == (ABORT, *bootstrap)
    replay(image, *result.records)
    assert image.metadata_version == 33
    assert image.transaction is None


# ControllerRegistration


def registration(**fields):
    given = {
        "controller_id": 3001,
        "incarnation_id": UUID(int=5),
        "zk_migration_ready": False,
        "listeners": (Listener(name="CONTROLLER", host="c1", port=9093, security_protocol=0),),
        "features": (Feature(name="metadata.version", min_supported_version=7, max_supported_version=30),),
    }
    return ControllerRegistrationRequest(**(given | fields))


def test_a_controller_registers_with_endpoints_and_features(harness):
    response = harness.apply(registration())
    assert response.error_code is ErrorCode.none
    assert isinstance(harness.records[0], RegisterControllerRecord)
    controller = harness.image.cluster.controllers[3001]
    assert controller.listeners["CONTROLLER"] == ("CONTROLLER", "c1", 9093, 0)
    assert controller.supported_features == {"metadata.version": (7, 30)}


def test_a_later_registration_replaces_the_earlier_one(harness):
    """Restarts and refreshes; one without listeners or for an absent node is fine."""
    harness.apply(registration())
    harness.apply(registration(incarnation_id=UUID(int=6), listeners=()))
    controller = harness.image.cluster.controllers[3001]
    assert controller.incarnation_id == UUID(int=6)
    assert controller.listeners == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"incarnation_id": None},
        {"listeners": (Listener(name="A", host="h", port=1, security_protocol=9),)},
    ],
)
def test_a_registration_that_no_controller_could_replay_is_refused(harness, fields):
    assert harness.refusal(registration(**fields)).error_code is ErrorCode.invalid_request


def test_controllers_register_from_metadata_version_15_on(new_harness):
    assert new_harness(14).refusal(registration()).error_code is ErrorCode.unsupported_version
    assert new_harness(15).apply(registration()).error_code is ErrorCode.none
