"""One turn of a node: the order in which things become durable and leave, errors of the disk, changes of the role.

Raft, control and the disk are scripted and write a journal; the turn, and the metadata between a decision and its
commit, are the real ones.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kit.controller_parts import caller
from kit.turn_parts import EPOCH, NODE_ID, NOW_MS, ScriptedNodeRequest, ScriptedRequest, TurnBench
from quorate_controller.control.api import ControlError, ControlResult
from quorate_controller.node.events import ControlRequest, OwnRequestFailed
from quorate_controller.raft.events import (
    ConnectionLost,
    OutgoingResponse,
    Persisted,
    Propose,
    Ready,
    Role,
    RoleChange,
    Shutdown,
    SnapshotChunk,
    SnapshotRestored,
    Tick,
)
from quorate_controller.raft.messages import (
    FetchResponse,
    FetchSnapshotResponse,
    ReadRange,
    SnapshotRead,
    VoteResponse,
)
from quorate_controller.raft.model import SnapshotId
from quorate_controller.raft.startup import HardState
from quorate_controller.storage.errors import StorageError
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated.controller_registration_request import ControllerRegistrationRequest
from quorate_protocol.records.batch import build_batch
from quorate_protocol.records.framing import encode_record
from quorate_protocol.records.generated import NoOpRecord, TopicRecord

LOST = ConnectionLost(node_id=2)
"""An event that raft answers as a test says."""
SNAPSHOT_ID = SnapshotId(offset=8, epoch=2)
HARD_STATE = HardState(leader_epoch=EPOCH)
VOTE = OutgoingResponse(token=4, response=VoteResponse(vote_granted=True))


@pytest.fixture
def bench() -> TurnBench:
    """A follower with an empty log."""
    return TurnBench()


def batch(offset: int, count: int = 1) -> bytes:
    return build_batch([encode_record(NoOpRecord(), 0)] * count, offset, EPOCH, timestamp_ms=1)


def topic(number: int) -> ControlResult:
    """A decision that creates a topic."""
    record = TopicRecord(name=f"t{number}", topic_id=UUID(int=number + 1))
    return ControlResult(records=(record,), response=f"created {number}")


def request(token: int, deadline_ms: int = 1 << 62) -> ControlRequest:
    return ControlRequest(
        token=token, request=ScriptedRequest(f"r{token}"), caller=caller(), deadline_ms=deadline_ms
    )  # type: ignore[arg-type]


def of_node(token: int) -> ControlRequest:
    """A request of a node, which is decided before the events behind it."""
    return replace(request(token), request=ScriptedNodeRequest(f"n{token}"))  # type: ignore[arg-type]


def everything() -> Ready:
    """All that raft can want durable in one step, with a response that promises it."""
    return Ready(
        hard_state=HARD_STATE,
        truncate_to=0,
        append=batch(0, 2),
        snapshot_chunk=SnapshotChunk(snapshot_id=SNAPSHOT_ID, position=0, data=b"x"),
        responses=(VOTE,),
    )


def responses_of(effects: Any) -> list[tuple[int, Any]]:
    """Token and response or error code of each request."""
    return [
        (
            control_response.token,
            control_response.result.error_code
            if isinstance(control_response.result, ControlError)
            else control_response.result,
        )
        for control_response in effects.control_responses
    ]


# ------------------------------------------------------------------------------------------------- durability


def test_everything_is_durable_before_an_answer_leaves(bench: TurnBench) -> None:
    bench.script(ConnectionLost, everything())
    bench.script(Persisted, Ready(responses=(replace(VOTE, token=5),)))
    effects = bench.node.turn([LOST], NOW_MS)
    assert bench.done() == [
        "ConnectionLost",
        "hard state",
        "truncate",
        "append",
        "snapshot chunk",
        "flush",
        "recovery point",
        "Persisted",
    ]
    assert bench.journal[1] == ("hard state", HARD_STATE, 1)
    assert bench.journal[-1] == ("step", "Persisted", 2)
    assert [response.token for response in effects.raft_responses] == [4, 5]


def test_what_a_turn_appends_shares_a_flush(bench: TurnBench) -> None:
    """Group commit, in the order of the decisions, clients behind nodes."""
    bench.lead()
    bench.control.decisions.extend(topic(number) for number in range(4))
    bench.script(ConnectionLost, Ready(append=batch(2)))
    effects = bench.node.turn([request(0), of_node(1), of_node(2), LOST, of_node(3)], NOW_MS)
    assert bench.done() == [
        "decide",
        "decide",
        "Propose",
        "append",
        "ConnectionLost",
        "append",
        "decide",
        "decide",
        "Propose",
        "append",
        "flush",
        "recovery point",
        "Persisted",
    ]
    assert [entry[1] for entry in bench.journal if entry[0] == "decide"] == ["n1", "n2", "n3", "r0"]
    assert responses_of(effects) == []
    assert bench.disk.log.end_offset == 5


def test_answers_wait_for_their_commit_and_leave_once(bench: TurnBench) -> None:
    bench.lead()
    bench.control.decisions.extend([topic(0), topic(1), ControlResult(response="read")])
    assert responses_of(bench.node.turn([request(0)], NOW_MS)) == []
    assert responses_of(bench.node.turn([request(1), request(2)], NOW_MS)) == []
    bench.raft.high_watermark = 1
    assert responses_of(bench.node.turn([], NOW_MS)) == [(0, "created 0")]
    bench.raft.high_watermark = 2
    assert responses_of(bench.node.turn([], NOW_MS + 7)) == [(1, "created 1"), (2, "read")]
    assert responses_of(bench.node.turn([], NOW_MS + 8)) == []
    assert bench.node.commit_latency.count == 2


def test_a_single_voter_answers_in_the_turn_that_made_it_durable(bench: TurnBench) -> None:
    bench.lead()

    def commit(event: object) -> None:
        if isinstance(event, Persisted):
            bench.commit()

    bench.raft.on_step = commit
    bench.control.decisions.append(topic(0))
    assert responses_of(bench.node.turn([request(0)], NOW_MS)) == [(0, "created 0")]


def test_replies_carry_what_is_on_the_disk_at_the_end_of_the_turn(bench: TurnBench) -> None:
    """A Fetch gets the records of its turn, and nothing from outside of the log."""
    ranges = [(0, 9), (2, 2), (-1, 2), (3, 4)]
    reads = [ReadRange(start_offset=start, end_offset=end, size_bytes_max=10) for start, end in ranges]
    responses = tuple(
        OutgoingResponse(token=number, response=FetchResponse(read=read)) for number, read in enumerate(reads)
    )
    bench.script(ConnectionLost, Ready(append=batch(0, 2), responses=responses))
    effects = bench.node.turn([LOST], NOW_MS)
    assert [response.response.data for response in effects.raft_responses] == [
        b"records",
        b"records",
        b"",
        b"",
    ]
    assert bench.journal[-2:] == [("read log", 0, 10, 2), ("read log", 2, 10, 2)]
    assert bench.done().index("flush") < bench.done().index("read log")


def test_a_response_that_many_get_is_read_once(bench: TurnBench) -> None:
    read = ReadRange(start_offset=0, end_offset=2, size_bytes_max=10)
    shared = FetchResponse(read=read)
    responses = (
        OutgoingResponse(token=0, response=shared),
        OutgoingResponse(token=1, response=shared, is_for_observer=True),
        OutgoingResponse(token=2, response=FetchResponse(read=read)),
    )
    bench.script(ConnectionLost, Ready(append=batch(0, 2), responses=responses))
    first, second, third = bench.node.turn([LOST], NOW_MS).raft_responses
    assert first.response is second.response
    assert third.response is not first.response
    assert [effect.is_for_observer for effect in (first, second, third)] == [False, True, False]
    assert bench.done().count("read log") == 2


def test_a_snapshot_is_read_within_its_bounds(bench: TurnBench) -> None:
    bench.disk.snapshots.ids = (SNAPSHOT_ID,)
    other = SnapshotId(offset=9, epoch=2)
    wanted = [(SNAPSHOT_ID, 99), (SNAPSHOT_ID, 100), (SNAPSHOT_ID, -1), (other, 0)]
    responses = tuple(
        OutgoingResponse(
            token=number,
            response=FetchSnapshotResponse(
                snapshot_id=snapshot_id,
                position=position,
                read=SnapshotRead(snapshot_id=snapshot_id, position=position, size_bytes_max=10),
            ),
        )
        for number, (snapshot_id, position) in enumerate(wanted)
    )
    bench.script(ConnectionLost, Ready(responses=responses))
    filled = [response.response for response in bench.node.turn([LOST], NOW_MS).raft_responses]
    assert [effect.response.error_code for effect in filled] == [
        ErrorCode.none,
        ErrorCode.position_out_of_range,
        ErrorCode.position_out_of_range,
        ErrorCode.snapshot_not_found,
    ]
    assert [effect.data for effect in filled] == [b"chunk", b"", b"", b""]
    first = filled[0].response
    assert isinstance(first, FetchSnapshotResponse)
    assert (first.size_bytes, first.position) == (100, 99)


# ----------------------------------------------------------------------------------------- errors of the disk


@pytest.mark.parametrize(
    ("operation", "after"),
    [
        ("hard state", ["truncate", "append", "snapshot chunk", "flush", "recovery point", "Persisted"]),
        ("truncate", ["append", "snapshot chunk", "flush", "recovery point", "Persisted"]),
        ("append", ["snapshot chunk", "flush", "recovery point", "Persisted"]),
        ("snapshot chunk", ["flush", "recovery point", "Persisted"]),
        ("flush", ["recovery point", "Persisted"]),
        ("recovery point", ["Persisted"]),
    ],
)
def test_nothing_follows_an_error_of_the_disk(bench: TurnBench, operation: str, after: list[str]) -> None:
    """A turn on a failing disk sends no response and passes nothing to raft."""
    bench.lead()
    bench.control.decisions.append(topic(0))
    bench.script(ConnectionLost, everything())
    failure = StorageError(Path("data"), "is gone")
    bench.disk.fails_at, bench.disk.failure = operation, failure
    with pytest.raises(StorageError) as raised:
        bench.node.turn([LOST, request(0)], NOW_MS)
    assert raised.value is failure
    assert bench.done()[-1] == operation
    assert not set(bench.done()) & set(after)


@pytest.mark.parametrize("operation", ["read log", "read snapshot"])
def test_an_error_of_the_disk_answers_no_fetch(bench: TurnBench, operation: str) -> None:
    """A peer that can't be served is not answered with half a turn."""
    bench.disk.snapshots.ids = (SNAPSHOT_ID,)
    read: Any = (
        FetchResponse(read=ReadRange(start_offset=0, end_offset=1, size_bytes_max=10))
        if operation == "read log"
        else FetchSnapshotResponse(read=SnapshotRead(snapshot_id=SNAPSHOT_ID, position=0, size_bytes_max=10))
    )
    bench.script(ConnectionLost, Ready(responses=(VOTE, OutgoingResponse(token=5, response=read))))
    bench.disk.fails_at, bench.disk.failure = operation, StorageError(Path("data"), "is gone")
    with pytest.raises(StorageError):
        bench.node.turn([LOST], NOW_MS)


def test_an_error_while_files_are_cleaned_ends_the_turn(bench: TurnBench) -> None:
    """A snapshot counts when it is durable, and the log's start moves when the files are gone."""
    bench.has_committed(SNAPSHOT_ID.offset)
    bench.snapshots.written.append(SNAPSHOT_ID)
    bench.disk.fails_at, bench.disk.failure = "clean", StorageError(Path("data"), "is gone")
    with pytest.raises(StorageError):
        bench.node.turn([], NOW_MS)
    assert bench.done() == ["SnapshotTaken", "clean"]
    bench = TurnBench()
    bench.has_committed(SNAPSHOT_ID.offset)
    bench.snapshots.written.append(SNAPSHOT_ID)
    bench.disk.log_start_moves_to = 8
    effects = bench.node.turn([], NOW_MS)
    assert bench.done() == ["SnapshotTaken", "clean", "LogStartMoved"]
    assert [note.event for note in effects.notes] == ["snapshot_written", "log_start_moved"]


# --------------------------------------------------------------------------------------------- roles and time


def test_a_leader_is_active_once_its_log_is_replayed(bench: TurnBench) -> None:
    """The controller decides nothing on an image that lacks records."""
    bench.disk.log.end_offset = 0
    bench.script(ConnectionLost, Ready(append=batch(0)))

    def elected(event: object) -> None:
        if isinstance(event, Persisted):
            bench.script(Persisted, Ready(role=bench.raft.lead()))

    bench.raft.on_step = elected
    bench.node.turn([LOST], NOW_MS)
    assert "activate" not in bench.done()
    assert not bench.node.is_active
    bench.disk.log.read = lambda *_: batch(0)
    bench.commit()
    effects = bench.node.turn([], NOW_MS)
    assert bench.node.is_active
    assert [note.event for note in effects.notes if note.event == "active"] == ["active"]
    bench.node.turn([], NOW_MS)
    assert bench.done().count("activate") == 1
    assert bench.node.election_counts.leaders == 1


def test_who_is_deposed_within_a_turn_refuses_what_waits(bench: TurnBench) -> None:
    bench.lead()
    bench.control.decisions.extend([topic(0), topic(1)])
    bench.control.decisions.append(ControlError(ErrorCode.not_controller, "standby"))
    bench.node.turn([request(0)], NOW_MS)
    bench.depose_at(ConnectionLost, responses=(VOTE,))
    effects = bench.node.turn([of_node(1), LOST, of_node(2)], NOW_MS)
    assert responses_of(effects) == [(token, ErrorCode.not_controller) for token in range(3)]
    assert [note.event for note in effects.notes] == ["no_longer_active"]
    assert not bench.node.is_active
    assert bench.metadata.image.end_offset == 0
    bench.journal.clear()
    bench.commit()
    bench.disk.log.read = lambda *_: batch(0, 2)
    assert responses_of(bench.node.turn([], NOW_MS)) == []
    assert "Propose" not in bench.done()


def test_what_is_decided_after_the_loss_is_not_proposed(bench: TurnBench) -> None:
    bench.lead()
    bench.control.decisions.append(topic(0))
    bench.script(Propose, Ready(role=RoleChange(role=Role.RESIGNED, epoch=EPOCH)))
    effects = bench.node.turn([request(0)], NOW_MS)
    assert responses_of(effects) == [(0, ErrorCode.not_controller)]
    assert "append" not in bench.done()
    assert bench.metadata.pending_count == 0
    assert not bench.metadata.image.topics.by_name


def test_elections_and_leaders_are_counted_once(bench: TurnBench) -> None:
    for change in (
        RoleChange(role=Role.PROSPECTIVE, epoch=3),
        RoleChange(role=Role.CANDIDATE, epoch=4),
        RoleChange(role=Role.LEADER, epoch=4, leader_id=NODE_ID, epoch_start_offset=0),
        RoleChange(role=Role.RESIGNED, epoch=4, leader_id=NODE_ID),
        RoleChange(role=Role.FOLLOWER, epoch=5, leader_id=2),
        RoleChange(role=Role.FOLLOWER, epoch=5, leader_id=2),
    ):
        bench.script(ConnectionLost, Ready(role=change))
        bench.node.turn([LOST], NOW_MS)
    counts = bench.node.election_counts
    assert (counts.elections, counts.leaders) == (1, 2)


def test_raft_ticks_once_a_turn_and_after_the_events(bench: TurnBench) -> None:
    """A late process reads what arrived before it judges silence, and a timer that stays due does not loop."""
    bench.raft.deadline_ms = NOW_MS
    bench.node.turn([LOST, LOST], NOW_MS + 60_000)
    assert bench.done() == ["ConnectionLost", "ConnectionLost", "Tick"]
    bench.journal.clear()
    bench.raft.deadline_ms = NOW_MS + 60_002
    bench.node.turn([], NOW_MS + 60_001)
    assert bench.done() == []


def test_decisions_come_before_the_tick_in_the_log(bench: TurnBench) -> None:
    """Raft's own records of a tick follow what was decided before."""
    bench.lead()
    bench.control.decisions.append(topic(0))
    bench.raft.deadline_ms = NOW_MS
    bench.script(Tick, Ready(append=batch(1)))
    bench.node.turn([request(0)], NOW_MS)
    assert bench.done()[:5] == ["decide", "Propose", "append", "Tick", "append"]


def test_timers_of_control_run_until_the_next_is_in_the_future(bench: TurnBench) -> None:
    """What is due is decided in this turn, in batches of its own order; a fault ends the row."""
    bench.lead()
    bench.control.deadline_ms = NOW_MS
    bench.control.ticks.extend([(topic(0), NOW_MS), (None, NOW_MS + 1), (topic(1), NOW_MS + 5)])
    bench.node.turn([], NOW_MS + 2)
    assert bench.done().count("tick") == 3
    assert bench.disk.log.end_offset == 2
    assert bench.node.deadline_ms == NOW_MS + 5
    bench.control.ticks.extend([(OverflowError("ours"), NOW_MS + 5), (topic(2), None)])
    effects = bench.node.turn([], NOW_MS + 5)
    assert [note.event for note in effects.notes if note.exception] == ["decision_failed"]
    assert len(bench.control.ticks) == 1
    assert bench.done()[-2:] == ["tick", "Resign"]


def test_shutting_down_answers_what_waits(bench: TurnBench) -> None:
    bench.lead()
    bench.control.decisions.extend([topic(0), topic(1)])
    bench.node.turn([request(0)], NOW_MS)
    bench.depose_at(Shutdown, Role.RESIGNED, responses=(VOTE,))
    effects = bench.node.turn([of_node(1), Shutdown(timeout_ms=5_000)], NOW_MS)
    assert responses_of(effects) == [(0, ErrorCode.not_controller), (1, ErrorCode.not_controller)]
    assert [response.token for response in effects.raft_responses] == [VOTE.token]
    assert bench.disk.log.end_offset == 2, "what was decided before is durable, and may still be committed"
    bench.node.close()
    assert bench.done()[-1] == "close"


def test_a_loaded_snapshot_is_reported_and_what_raft_wants_then_is_done(bench: TurnBench) -> None:
    bench.script(ConnectionLost, Ready(restore=SNAPSHOT_ID))
    bench.node.turn([LOST], NOW_MS)
    assert ("load", SNAPSHOT_ID) in bench.journal
    bench.snapshots.is_loading = True
    assert bench.node.deadline_ms == bench.node.now_ms, "the next slice is due at once"
    bench.snapshots.is_loading = False
    bench.snapshots.loaded.append(SnapshotRestored(snapshot_id=SNAPSHOT_ID, kraft_version=1, voters=None))
    bench.script(SnapshotRestored, Ready(hard_state=HARD_STATE, responses=(VOTE,)))
    bench.journal.clear()
    effects = bench.node.turn([], NOW_MS + 1)
    assert bench.done() == ["restart snapshots", "SnapshotRestored", "hard state"]
    assert [note.event for note in effects.notes] == ["snapshot_loaded"]
    assert [response.token for response in effects.raft_responses] == [VOTE.token]


def test_a_registration_without_an_answer_is_told(bench: TurnBench) -> None:
    request = ControllerRegistrationRequest(
        controller_id=1, incarnation_id=None, zk_migration_ready=False, listeners=(), features=()
    )
    effects = bench.node.turn([OwnRequestFailed(request=request, reason="no route")], NOW_MS)
    (note,) = effects.notes
    assert (note.event, note.is_warning) == ("registration_failed", True)
    assert note.facts == {"error": "no response", "message": "no route"}
    assert bench.done() == []


def test_effects_belong_to_one_turn(bench: TurnBench) -> None:
    bench.script(ConnectionLost, Ready(responses=(VOTE,)))
    assert len(bench.node.turn([LOST], NOW_MS).raft_responses) == 1
    effects = bench.node.turn([], NOW_MS)
    assert [effects.raft_responses, effects.sends, effects.control_responses, effects.notes] == [[]] * 4


def test_a_request_is_told_its_circumstances(bench: TurnBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control decides with the time and the offset of its records."""
    bench.lead()
    seen: list[Any] = []

    def decide(_request: object, context: Any) -> ControlResult:
        seen.append(context)
        return topic(len(seen))

    monkeypatch.setattr(bench.control, "decide", decide)
    bench.node.turn([request(0), request(1)], NOW_MS + 3)
    assert [(context.now_ms, context.next_offset, context.listener) for context in seen] == [
        (NOW_MS + 3, 0, "CONTROLLER"),
        (NOW_MS + 3, 1, "CONTROLLER"),
    ]
