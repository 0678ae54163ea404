"""ControllerRegistration (KIP-919) and UnregisterController (KIP-1312): who counts as a controller."""

from typing import Any
from uuid import UUID

import pytest
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image.snapshot import image_to_records
from quorate_protocol.kafka.generated.controller_registration_request import (
    ControllerRegistrationRequest,
    Feature,
    Listener,
)
from quorate_protocol.kafka.generated.unregister_controller_request import UnregisterControllerRequest
from quorate_protocol.kafka.generated.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from quorate_protocol.records.generated import RegisterControllerRecord, UnregisterControllerRecord

UNREGISTRATION = 33


def unregister(controller_id: int) -> UnregisterControllerRequest:
    return UnregisterControllerRequest(controller_id=controller_id)


def registration(controller_id: int = 3001, **fields: Any) -> ControllerRegistrationRequest:
    defaults: dict[str, Any] = {
        "incarnation_id": UUID(int=7),
        "zk_migration_ready": False,
        "listeners": (Listener(name="CONTROLLER", host="c", port=9093, security_protocol=0),),
        "features": (Feature(name="metadata.version", min_supported_version=7, max_supported_version=33),),
    }
    return ControllerRegistrationRequest(controller_id=controller_id, **(defaults | fields))


def test_unregistering_takes_a_controller_out_of_image_and_snapshot(new_harness: Any) -> None:
    harness = new_harness(UNREGISTRATION)
    harness.register_controller(3001)
    harness.register_controller(3002)
    before = harness.image.cluster.controllers[3001]
    response = harness.apply(unregister(3001))
    assert (response.error_code, response.error_message) == (ErrorCode.none, "")
    assert harness.records == [UnregisterControllerRecord(controller_id=3001)]
    assert list(harness.image.cluster.controllers) == [3002]
    snapshot = image_to_records(harness.image.committed_copy())
    assert [one.controller_id for one in snapshot if isinstance(one, RegisterControllerRecord)] == [3002]

    harness.register_controller(3001)
    offset = harness.image.end_offset
    records = [UnregisterControllerRecord(controller_id=3001)]
    harness.image.replay_batch(records, base_offset=offset, epoch=1, timestamp_ms=harness.now_ms)
    assert 3001 not in harness.image.cluster.controllers
    harness.image.revert_to(offset)
    assert harness.image.cluster.controllers[3001] == before


def test_an_unregistered_controller_blocks_no_level(new_harness: Any) -> None:
    """What KIP-1312 is for."""
    harness = new_harness(UNREGISTRATION)
    harness.register_controller(harness.quorum.leader_id)
    harness.register_controller(3001, metadata_version=(7, 33), share_version=(0, 0))
    update = UpdateFeaturesRequest(
        feature_updates=(FeatureUpdateKey(feature="share.version", max_version_level=1, upgrade_type=1),),
    )
    assert "Controller 3001" in harness.apply(update).error_message
    harness.apply(unregister(3001))
    assert harness.apply(update).error_code is ErrorCode.none


@pytest.mark.parametrize(
    ("level", "voters", "registered", "error_code"),
    [
        (15, {3000, 3001}, False, ErrorCode.invalid_request),
        (33, {3000, 3001}, True, ErrorCode.invalid_request),
        (32, {3000}, False, ErrorCode.unsupported_version),
        (32, {3000}, True, ErrorCode.unsupported_version),
        (33, {3000}, False, ErrorCode.controller_id_not_registered),
    ],
)
def test_refusals_come_in_the_announced_order(
    new_harness: Any, level: int, voters: set[int], registered: bool, error_code: ErrorCode
) -> None:
    harness = new_harness(level)
    if registered:
        harness.register_controller(3001)
    harness.quorum.voter_ids = frozenset(voters)
    assert harness.refusal(unregister(3001)).error_code is error_code


def test_a_standby_refuses_before_it_looks(new_harness: Any) -> None:
    harness = new_harness(15)
    harness.control.deactivate()
    error = harness.refusal(unregister(harness.quorum.leader_id))
    assert error.error_code is ErrorCode.not_controller


def test_refusals_say_what_to_do(new_harness: Any) -> None:
    harness = new_harness(30)
    text = harness.refusal(unregister(3001)).message
    assert text.startswith("The current MetadataVersion is too old to support controller unregistration")
    assert "30 (4.3-IV0)" in text
    assert "33 (4.4-IV2)" in text
    assert "refresh" in text
    text = harness.refusal(unregister(3000)).message
    assert text.startswith("Cannot unregister controller 3000 because it is part of the voter set.")
    assert "remove it from the voters" in text


def test_registrations_need_their_level(new_harness: Any) -> None:
    """No record that old nodes can't read."""
    error = new_harness(14).refusal(registration())
    assert error.error_code is ErrorCode.unsupported_version
    harness = new_harness(15)
    assert harness.apply(registration()).error_code is ErrorCode.none
    assert [type(record) for record in harness.records] == [RegisterControllerRecord]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"incarnation_id": None}, "No incarnation ID"),
        (
            {"listeners": (Listener(name="X", host="h", port=1, security_protocol=9),)},
            "Listener X has unknown security protocol 9",
        ),
    ],
)
def test_registrations_that_nobody_could_replay_are_refused(
    harness: Any, fields: dict[str, Any], text: str
) -> None:
    error = harness.refusal(registration(**fields))
    assert error.error_code is ErrorCode.invalid_request
    assert text in error.message


def test_a_ghost_is_refreshed_by_a_registration_without_listeners(harness: Any) -> None:
    harness.register_controller(3001, metadata_version=(7, 27))
    response = harness.apply(registration(3001, listeners=()))
    assert response.error_code is ErrorCode.none
    ghost = harness.image.cluster.controllers[3001]
    assert ghost.listeners == {}
    assert ghost.supported_features["metadata.version"] == (7, 33)
    assert ghost.incarnation_id == UUID(int=7)


def test_nobody_registers_as_the_active_controller(new_harness: Any) -> None:
    own = UUID(int=5)
    harness = new_harness(incarnation_id=own)
    own_id = harness.config.node_id
    assert harness.apply(registration(own_id, incarnation_id=own)).error_code is ErrorCode.none
    error = harness.refusal(registration(own_id))
    assert error.error_code is ErrorCode.invalid_request
    assert "is the active controller" in error.message
    assert harness.apply(registration(3001)).error_code is ErrorCode.none
