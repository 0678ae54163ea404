"""Which controller may write a checkpoint when: the active controller's side and that of a standby (KIP-631)."""

from types import SimpleNamespace
from typing import Any

import pytest
from quorate_controller.control.api import ControlError
from quorate_controller.node.events import OWN_REQUEST_TIMEOUT_MS
from quorate_controller.node.snapshot_turns import (
    BEHIND_MS_MAX,
    HANDOVER_PAUSE_MS,
    INTERVAL_MS,
    INTERVAL_WAITING_MS,
    PATIENCE_MS,
    SILENCE_MS_MAX,
    WAITING_MS_MAX,
    HeartbeatKeeper,
    SnapshotTurns,
)
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.extensions.controller_heartbeat_request import (
    ControllerHeartbeatRequest,
    SnapshotState,
)
from quorate_protocol.kafka.extensions.controller_heartbeat_response import ControllerHeartbeatResponse

NOW_MS = 1_000_000
OWN_ID = 1
IDLE, DUE, WRITING = SnapshotState.IDLE, SnapshotState.DUE, SnapshotState.WRITING


class Quorum:
    """Raft as far as turns need it. `behind` are voters that have not been caught up for too long."""

    def __init__(self, *voters: int) -> None:
        self.epoch = 7
        self.leader_id = OWN_ID
        self.voters = SimpleNamespace(voters=tuple(SimpleNamespace(node_id=voter) for voter in voters))
        self.behind: set[int] = set()

    def describe_quorum(self, now_ms: int) -> Any:
        return SimpleNamespace(
            voters=tuple(
                SimpleNamespace(
                    key=SimpleNamespace(node_id=voter.node_id),
                    last_caught_up_timestamp_ms=now_ms - (voter.node_id in self.behind) * (BEHIND_MS_MAX + 1),
                )
                for voter in self.voters.voters
            )
        )


class Active:
    """The active controller of three, and heartbeats to it."""

    def __init__(self, *, hands_over: bool = False) -> None:
        self.quorum: Any = Quorum(1, 2, 3)
        self.turns = SnapshotTurns(self.quorum, node_id=OWN_ID, hands_over=hands_over)

    def has_turn(self, node_id: int, state: int, at_ms: int = NOW_MS, *, offset: int = -1) -> bool:
        """A heartbeat of a registered controller. Returns whether it has the turn."""
        response = self.response(node_id, state, at_ms, offset=offset)
        assert isinstance(response, ControllerHeartbeatResponse)
        return response.start_snapshot

    def response(self, node_id: int, state: int, at_ms: int = NOW_MS, *, offset: int = -1) -> Any:
        request = ControllerHeartbeatRequest(
            controller_id=node_id, last_snapshot_offset=offset, snapshot_state=state
        )
        return self.turns.heartbeat(request, {1, 2, 3, 4}, at_ms)


def test_one_controller_has_the_turn_until_it_has_written() -> None:
    """One checkpoint at a time, the active controller's among them."""
    active = Active()
    assert active.has_turn(2, DUE)
    assert not active.has_turn(3, DUE)
    assert not active.turns.own(DUE, -1, NOW_MS)
    assert active.has_turn(2, DUE), "the answer was lost: it asks again"
    assert not active.has_turn(2, WRITING)
    assert not active.turns.own(DUE, -1, NOW_MS)
    assert not active.has_turn(2, IDLE)
    assert active.turns.own(DUE, -1, NOW_MS)
    assert not active.turns.own(WRITING, -1, NOW_MS)
    assert not active.has_turn(3, DUE)
    assert not active.turns.own(IDLE, -1, NOW_MS)
    assert active.has_turn(3, DUE)


def test_the_oldest_snapshot_is_replaced_first() -> None:
    """LastSnapshotOffset decides among those that wait."""
    active = Active()
    assert not active.has_turn(4, WRITING)
    assert not active.has_turn(2, DUE, offset=500)
    assert not active.has_turn(3, DUE, offset=100)
    assert not active.turns.own(DUE, 300, NOW_MS)
    assert not active.has_turn(4, IDLE, offset=900)
    assert not active.has_turn(2, DUE, offset=500)
    assert not active.turns.own(DUE, 300, NOW_MS)
    assert active.has_turn(3, DUE, offset=100)
    assert active.turns.last_snapshot_offsets(NOW_MS) == {2: 500, 3: 100, 4: 900}
    assert not active.has_turn(3, IDLE, offset=950)
    assert not active.has_turn(2, DUE, offset=500)
    assert active.turns.own(DUE, 300, NOW_MS)


def test_nobody_waits_for_long_for_a_controller_that_fell_silent() -> None:
    active = Active()
    assert not active.has_turn(4, WRITING)
    assert not active.has_turn(3, DUE, offset=100)
    assert not active.has_turn(4, IDLE, offset=900)
    assert not active.has_turn(2, DUE, NOW_MS + WAITING_MS_MAX, offset=500)
    assert active.has_turn(2, DUE, NOW_MS + WAITING_MS_MAX + 1, offset=500)
    assert active.turns.last_snapshot_offsets(NOW_MS + SILENCE_MS_MAX + 1) == {2: 500}


def test_an_impossible_offset_is_refused() -> None:
    refused = Active().response(2, DUE, offset=-2)
    assert isinstance(refused, ControlError)
    assert refused.error_code is ErrorCode.invalid_request


def test_who_writes_without_a_turn_is_waited_for() -> None:
    """The first turn after an election does not come on top of a checkpoint that is being written."""
    active = Active()
    assert not active.has_turn(2, WRITING)
    assert not active.has_turn(3, DUE)
    assert not active.has_turn(2, IDLE)
    assert active.has_turn(3, DUE)


def test_a_controller_that_died_in_its_turn_loses_it() -> None:
    active = Active()
    assert active.has_turn(2, DUE)
    assert not active.has_turn(3, DUE, NOW_MS + SILENCE_MS_MAX)
    assert active.has_turn(3, DUE, NOW_MS + SILENCE_MS_MAX + 1)


def test_a_turn_ends_with_the_epoch() -> None:
    """Soft state of one leadership does not reach into the next."""
    active = Active()
    assert active.has_turn(2, DUE)
    active.quorum.epoch += 1
    assert active.has_turn(3, DUE)


@pytest.mark.parametrize(
    ("voters", "behind", "has_turn"),
    [
        ((1, 2, 3), {3}, False),
        ((1, 2, 3, 4, 5), {5}, True),
        ((1, 2, 3, 4, 5), {4, 5}, False),
        ((1, 2), set(), True),
        ((1,), set(), True),
        ((2, 3), {3}, False),
    ],
)
def test_nobody_writes_while_the_loss_of_one_would_cost_the_majority(
    voters: tuple[int, ...], behind: set[int], has_turn: bool
) -> None:
    """Fewer checkpoints when too many voters have fallen behind (KIP-631)."""
    quorum: Any = Quorum(*voters)
    quorum.behind = behind
    turns = SnapshotTurns(quorum, node_id=OWN_ID, hands_over=False)
    assert turns.own(DUE, -1, NOW_MS) is has_turn


def test_leadership_goes_to_one_of_ours_that_is_caught_up_and_idle() -> None:
    """The active controller hands over before its own checkpoint, but never in vain."""
    active = Active(hands_over=True)
    assert not active.turns.has_successor(NOW_MS)
    active.has_turn(2, DUE)
    active.quorum.behind = {3}
    active.has_turn(3, IDLE)
    active.has_turn(4, IDLE)
    assert not active.turns.has_successor(NOW_MS)
    active.quorum.behind = set()
    assert active.turns.has_successor(NOW_MS)
    active.turns.handed_over(NOW_MS)
    assert not active.turns.has_successor(NOW_MS + HANDOVER_PAUSE_MS - 1)
    active.has_turn(3, IDLE, NOW_MS + HANDOVER_PAUSE_MS)
    assert active.turns.has_successor(NOW_MS + HANDOVER_PAUSE_MS)
    default = Active()
    default.has_turn(2, IDLE)
    assert not default.turns.has_successor(NOW_MS)


@pytest.mark.parametrize(
    ("node_id", "state", "error_code"),
    [
        (9, WRITING, ErrorCode.unknown_controller_id),
        (OWN_ID, WRITING, ErrorCode.unknown_controller_id),
        (2, 3, ErrorCode.invalid_request),
        (2, -1, ErrorCode.invalid_request),
    ],
)
def test_strangers_and_unknown_states_are_refused(node_id: int, state: int, error_code: ErrorCode) -> None:
    active = Active()
    response = active.response(node_id, state)
    assert isinstance(response, ControlError)
    assert response.error_code is error_code
    assert active.has_turn(3, DUE), "nobody known is writing"


# ---------------------------------------------------------------------------------------------- a standby


def new_keeper() -> tuple[Any, HeartbeatKeeper]:
    """A standby with id 2, led by 1."""
    quorum: Any = Quorum(1, 2, 3)
    return quorum, HeartbeatKeeper(quorum, 2)


def responded_to(keeper: HeartbeatKeeper, state: SnapshotState, now_ms: int, *, start: bool = False) -> None:
    """A heartbeat and its response."""
    keeper.request(state, -1, now_ms)
    response = ControllerHeartbeatResponse(error_code=ErrorCode.none, start_snapshot=start)
    keeper.responded(response, now_ms)


def test_heartbeats_are_rare_but_for_changes_and_waits() -> None:
    """An idle standby costs next to nothing, a waiting one gets its turn soon."""
    _quorum, keeper = new_keeper()
    assert keeper.deadline_ms(IDLE) == 0
    keeper.request(IDLE, -1, NOW_MS)
    assert keeper.deadline_ms(DUE) == NOW_MS + 2 * OWN_REQUEST_TIMEOUT_MS
    keeper.failed(is_unsupported=False)
    assert keeper.deadline_ms(IDLE) == NOW_MS + INTERVAL_MS
    assert keeper.deadline_ms(DUE) == 0
    responded_to(keeper, DUE, NOW_MS)
    assert keeper.deadline_ms(DUE) == NOW_MS + INTERVAL_WAITING_MS
    assert keeper.deadline_ms(WRITING) == 0


def test_a_leader_without_the_api_is_asked_once_in_its_epoch() -> None:
    """Beside an active controller of Java each controller decides for itself."""
    quorum, keeper = new_keeper()
    keeper.request(IDLE, -1, NOW_MS)
    keeper.failed(is_unsupported=True)
    assert keeper.deadline_ms(DUE) is None
    assert keeper.may_begin(NOW_MS, NOW_MS)
    quorum.epoch += 1
    assert keeper.deadline_ms(DUE) == 0
    assert not keeper.may_begin(NOW_MS, NOW_MS)
    quorum.leader_id = 2
    assert keeper.deadline_ms(DUE) is None


def test_a_standby_waits_for_its_turn_and_not_for_a_silent_leader() -> None:
    _quorum, keeper = new_keeper()
    responded_to(keeper, DUE, NOW_MS)
    assert not keeper.may_begin(NOW_MS, NOW_MS + PATIENCE_MS - 1)
    assert keeper.may_begin(NOW_MS, NOW_MS + PATIENCE_MS)
    responded_to(keeper, DUE, NOW_MS + PATIENCE_MS, start=True)
    assert keeper.may_begin(NOW_MS, NOW_MS + PATIENCE_MS)
    assert not keeper.may_begin(NOW_MS + PATIENCE_MS, NOW_MS + PATIENCE_MS)


def test_a_turn_that_is_not_needed_any_more_is_not_kept() -> None:
    _quorum, keeper = new_keeper()
    responded_to(keeper, DUE, NOW_MS, start=True)
    responded_to(keeper, IDLE, NOW_MS + 1)
    assert not keeper.may_begin(NOW_MS + 2, NOW_MS + 2)


def test_an_error_is_no_answer() -> None:
    """A leader that knows this controller not yet does not hold it up."""
    _quorum, keeper = new_keeper()
    keeper.request(DUE, -1, NOW_MS)
    keeper.responded(ControllerHeartbeatResponse(error_code=ErrorCode.unknown_controller_id), NOW_MS + 9_000)
    assert not keeper.may_begin(NOW_MS, NOW_MS + PATIENCE_MS - 1)
    assert keeper.may_begin(NOW_MS, NOW_MS + PATIENCE_MS)
