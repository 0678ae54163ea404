"""Turns to write a checkpoint belong to the leadership that gave them, on both sides (KIP-631)."""

from types import SimpleNamespace
from typing import Any

import pytest
from quorate_controller.node.snapshot_turns import PATIENCE_MS, HeartbeatKeeper, SnapshotTurns
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.extensions.controller_heartbeat_request import (
    ControllerHeartbeatRequest,
    SnapshotState,
)
from quorate_protocol.kafka.extensions.controller_heartbeat_response import ControllerHeartbeatResponse

NOW_MS = 1_000_000
ACTIVE, STANDBY, OTHER_STANDBY = 1, 2, 3
IDLE, DUE, WRITING = SnapshotState.IDLE, SnapshotState.DUE, SnapshotState.WRITING
TURN = ControllerHeartbeatResponse(error_code=ErrorCode.none, start_snapshot=True)


@pytest.fixture
def quorum() -> Any:
    """What turns need of raft: all three voters are caught up."""
    voters = (ACTIVE, STANDBY, OTHER_STANDBY)
    described = tuple(
        SimpleNamespace(key=SimpleNamespace(node_id=voter), last_caught_up_timestamp_ms=NOW_MS)
        for voter in voters
    )
    return SimpleNamespace(
        epoch=7,
        leader_id=ACTIVE,
        voters=SimpleNamespace(voters=tuple(SimpleNamespace(node_id=voter) for voter in voters)),
        describe_quorum=lambda _now_ms: SimpleNamespace(voters=described),
    )


@pytest.mark.parametrize("changes_after_response", [False, True])
def test_a_turn_of_a_former_leader_does_not_count(quorum: Any, changes_after_response: bool) -> None:
    keeper = HeartbeatKeeper(quorum, STANDBY)
    keeper.request(DUE, -1, NOW_MS)
    if changes_after_response:
        keeper.responded(TURN, NOW_MS)
        quorum.epoch += 1
    else:
        quorum.epoch += 1
        keeper.responded(TURN, NOW_MS)
    assert not keeper.may_begin(NOW_MS, NOW_MS)
    assert not keeper.may_begin(NOW_MS, NOW_MS + PATIENCE_MS - 1)
    assert keeper.may_begin(NOW_MS, NOW_MS + PATIENCE_MS)


def test_a_turn_that_was_not_needed_is_given_back(quorum: Any) -> None:
    keeper = HeartbeatKeeper(quorum, STANDBY)
    keeper.request(DUE, -1, NOW_MS)
    keeper.responded(TURN, NOW_MS)
    keeper.request(IDLE, 500, NOW_MS)
    keeper.failed(is_unsupported=False)
    assert not keeper.may_begin(NOW_MS, NOW_MS)


def test_a_former_leader_without_the_api_does_not_silence_the_next(quorum: Any) -> None:
    keeper = HeartbeatKeeper(quorum, STANDBY)
    keeper.request(IDLE, -1, NOW_MS)
    quorum.leader_id, quorum.epoch = OTHER_STANDBY, quorum.epoch + 1
    keeper.failed(is_unsupported=True)
    assert keeper.is_coordinated
    quorum.leader_id, quorum.epoch = ACTIVE, quorum.epoch + 1
    keeper.request(IDLE, -1, NOW_MS)
    keeper.failed(is_unsupported=True)
    assert not keeper.is_coordinated


def test_an_active_controller_hears_of_the_others_anew_in_each_epoch(quorum: Any) -> None:
    """What a standby did under a former leadership delays no other controller."""
    turns = SnapshotTurns(quorum, node_id=ACTIVE, hands_over=True)

    def has_turn(node_id: int, state: SnapshotState) -> bool:
        request = ControllerHeartbeatRequest(
            controller_id=node_id, last_snapshot_offset=-1, snapshot_state=state
        )
        response = turns.heartbeat(request, {ACTIVE, STANDBY, OTHER_STANDBY}, NOW_MS)
        assert isinstance(response, ControllerHeartbeatResponse)
        return response.start_snapshot

    assert not has_turn(OTHER_STANDBY, IDLE)
    assert turns.has_successor(NOW_MS)
    assert has_turn(STANDBY, DUE)
    assert not has_turn(STANDBY, WRITING)
    assert not has_turn(OTHER_STANDBY, DUE)
    quorum.epoch += 2
    assert not turns.has_successor(NOW_MS)
    assert has_turn(OTHER_STANDBY, DUE)
    assert not has_turn(STANDBY, DUE)
