"""The follower's side of Fetch: append, truncate, promise only what is durable (KIP-595)."""

from dataclasses import replace

import pytest
from quorate_controller.raft.events import FailureReason, Persisted, Role
from quorate_controller.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    LeaderEndpoint,
)
from quorate_controller.raft.model import Endpoint, OffsetAndEpoch
from quorate_controller.raft.startup import HardState, LogState
from quorate_protocol.errors import ErrorCode


def fetch_response(**changes: object) -> FetchResponse:
    fields: dict[str, object] = {"leader_id": 2, "leader_epoch": 5, "high_watermark": 10}
    return FetchResponse(**(fields | changes))  # type: ignore[arg-type]


def test_a_fetch_says_how_far_the_log_reaches(lab) -> None:
    """The request has every field a leader needs."""
    _, send = lab.follower()
    assert send.request == FetchRequest(
        cluster_id=lab.cluster_id,
        replica=lab.key(1),
        current_leader_epoch=5,
        fetch_offset=10,
        last_fetched_epoch=1,
        max_wait_ms=500,
        max_bytes=2**20,
        high_watermark=-1,
    )
    assert (send.destination.node_id, send.destination.host, send.destination.port) == (2, "host2", 9002)


def test_following_is_durable(lab) -> None:
    node = lab.node(1, log=lab.log(1, 2, 3))
    node.start()
    _, result = node.ask(lab.begin_epoch())
    assert result.hard_state == HardState(leader_epoch=5, leader_id=2)


def test_the_next_fetch_waits_for_the_disk(lab) -> None:
    node, send = lab.follower()
    node.is_slow_disk = True
    result = node.respond(send, fetch_response(records=lab.batch(10, 5, 3), high_watermark=12))
    assert result.appended == lab.batch(10, 5, 3)
    assert not result.sends
    assert not node.wait(100).sends
    (next_send,) = node.step(Persisted(end_offset=13)).sends
    assert next_send.request.fetch_offset == 13
    assert next_send.request.last_fetched_epoch == 5
    assert next_send.request.high_watermark == 12


def test_the_high_watermark_is_at_most_the_own_end(lab) -> None:
    node, send = lab.follower()
    assert node.respond(send, fetch_response(high_watermark=99)).high_watermark == 10


def test_a_follower_has_caught_up_once_it_has_all_that_is_committed(lab) -> None:
    node, send = lab.follower()
    (send,) = node.respond(send, fetch_response(high_watermark=-1)).sends
    assert not node.node.has_caught_up
    (send,) = node.respond(send, fetch_response(records=lab.batch(10, 5, 3), high_watermark=14)).sends
    assert node.node.high_watermark == 13
    assert not node.node.has_caught_up
    (send,) = node.respond(send, fetch_response(records=lab.batch(13, 5, 1), high_watermark=14)).sends
    assert node.node.has_caught_up
    node.respond(send, fetch_response(high_watermark=99))
    assert node.node.has_caught_up


def test_a_follower_is_led_while_its_leader_answers(lab) -> None:
    node, send = lab.follower()
    assert not node.node.is_led
    node.respond(send, fetch_response(high_watermark=8))
    assert node.node.is_led
    node.wait(20_000)
    assert (node.node.leader_id, node.node.is_led) == (2, False)


def test_the_high_watermark_never_falls(lab) -> None:
    node, send = lab.follower()
    (send,) = node.respond(send, fetch_response(high_watermark=8)).sends
    (send,) = node.respond(send, fetch_response(high_watermark=-1)).sends
    result = node.respond(send, fetch_response(high_watermark=5))
    assert result.high_watermark is None
    assert node.node.high_watermark == 8


def test_a_diverging_log_is_cut_and_fetched_on(lab) -> None:
    """What the leader lacks goes, and the next Fetch starts there."""
    node, send = lab.follower(log=lab.log(1, 2, 3, epochs=((1, 0), (3, 7))))
    result = node.respond(send, fetch_response(diverging_epoch=OffsetAndEpoch(epoch=2, offset=8)))
    assert result.truncated_to == [7]
    assert result.sends[0].request.fetch_offset == 7
    assert result.sends[0].request.last_fetched_epoch == 1


def test_what_is_committed_is_never_cut(lab) -> None:
    node, send = lab.follower()
    (send,) = node.respond(send, fetch_response(high_watermark=9)).sends
    result = node.respond(send, fetch_response(diverging_epoch=OffsetAndEpoch(epoch=1, offset=5)))
    assert not result.truncated_to
    assert [note.event for note in result.warnings] == ["truncation_below_high_watermark"]
    assert node.node.log_end_offset == 10


@pytest.mark.parametrize(
    ("base_offset", "epoch", "damage", "fault"),
    [
        (11, 5, b"", "base offset 11 instead of 10"),
        (10, 6, b"", "epoch 6 outside of 1 to 5"),
        (10, 0, b"", "epoch 0 outside of 1 to 5"),
        (10, 5, b"\xff", "checksum"),
        (10, 5, b"\x00" * 72, "magic"),
    ],
    ids=["gap", "epoch from the future", "epoch from the past", "flipped byte", "zeros"],
)
def test_bad_records_are_not_appended(lab, base_offset: int, epoch: int, damage: bytes, fault: str) -> None:
    """A leader's garbage stays out of the log, and is asked for again later."""
    node, send = lab.follower()
    records = lab.batch(base_offset, epoch)
    records = records[: len(records) - len(damage)] + damage
    result = node.respond(send, fetch_response(records=records))
    assert not result.appended
    assert fault in str(result.warnings[0].facts)
    assert node.node.log_end_offset == 10
    assert node.node.high_watermark == -1
    assert 2 not in result.requests


def test_good_batches_before_a_bad_one_are_kept(lab) -> None:
    """Progress is made; a batch cut short by the size limit is no fault."""
    node, send = lab.follower()
    good = lab.batch(10, 5, 2)
    result = node.respond(send, fetch_response(records=good + lab.batch(12, 5)[:-10]))
    assert result.appended == good
    assert not result.warnings
    assert result.sends[0].request.fetch_offset == 12


def test_silence_of_the_leader_starts_an_election(lab) -> None:
    """A voter stands after the fetch timeout, counted from the last answer."""
    node, send = lab.follower()
    node.wait(1900)
    (send,) = node.respond(send, fetch_response()).sends
    node.wait(1999)
    assert node.node.role is Role.FOLLOWER
    node.wait(1)
    assert node.node.role is Role.PROSPECTIVE


def test_an_unreachable_leader_makes_a_follower_ask_around(lab) -> None:
    node, send = lab.follower()
    result = node.fail(send, FailureReason.TIMED_OUT)
    assert result.sends[0].destination.node_id != 2
    assert isinstance(result.sends[0].request, FetchRequest)
    not_leader = FetchResponse(
        error_code=ErrorCode.not_leader_or_follower,
        leader_id=3,
        leader_epoch=6,
        leader_endpoint=LeaderEndpoint(node_id=3, host="host3", port=9003),
    )
    result = node.respond(result.sends[0], not_leader)
    assert (node.node.leader_id, node.node.epoch) == (3, 6)
    assert result.sends[0].destination.host == "host3"


def test_asking_around_is_paced(lab) -> None:
    node = lab.node(4, log=lab.log(1, 2, 3))
    result, count = node.start(), 0
    end_ms = node.now_ms + 1000
    refusal = FetchResponse(error_code=ErrorCode.not_leader_or_follower, leader_epoch=0)
    while node.now_ms < end_ms:
        for send in result.sends:
            count += 1
            node.respond(send, refusal)
        result = node.wait_for_deadline()
    assert 10 < count <= 51


def test_an_observer_finds_the_leader_through_a_bootstrap_server(lab) -> None:
    node = lab.node(4, log=LogState())
    (send,) = node.start().sends
    assert (send.destination.node_id, send.destination.host) == (-2, "bootstrap")
    assert (send.request.fetch_offset, send.request.last_fetched_epoch) == (0, 0)
    found = FetchResponse(
        error_code=ErrorCode.fenced_leader_epoch,
        leader_id=2,
        leader_epoch=5,
        leader_endpoint=LeaderEndpoint(node_id=2, host="host2", port=9002),
    )
    result = node.respond(send, found)
    assert result.sends[0].destination.node_id == 2
    assert node.node.role is Role.FOLLOWER
    assert not node.node.is_voter


def test_an_observer_never_stands(lab) -> None:
    node, _ = lab.follower(node_id=4)
    node.wait(10_000)
    assert node.node.role is Role.FOLLOWER


def test_a_leader_without_an_endpoint_is_not_followed(lab) -> None:
    node = lab.node(1, log=lab.log(1, 2, 3))
    node.start()
    elsewhere = (Endpoint(listener="OTHER", host="host9", port=9),)
    request = BeginQuorumEpochRequest(
        cluster_id=None, voter=None, leader_id=9, leader_epoch=5, leader_endpoints=elsewhere
    )
    _, result = node.ask(request)
    assert node.node.role is Role.UNATTACHED
    assert (node.node.epoch, node.node.leader_id) == (5, 9)
    assert [note.event for note in result.warnings] == ["leader_unreachable"]


def test_endpoints_without_our_listener_do_not_replace_the_leaders(lab) -> None:
    """What a peer reports never leaves a follower without a way to its leader."""
    node, send = lab.follower()
    elsewhere = tuple(Endpoint(listener=name, host="host2", port=9) for name in ("OTHER", "ANOTHER"))
    node.ask(
        BeginQuorumEpochRequest(
            cluster_id=None, voter=None, leader_id=2, leader_epoch=5, leader_endpoints=elsewhere
        )
    )
    (following_send,) = node.respond(send, fetch_response()).sends
    assert following_send.destination == send.destination


def test_what_a_resigned_leader_had_on_its_way_does_not_keep_it(lab) -> None:
    """A resignation ends the leader, although it may overtake a response on another connection."""
    node, send = lab.follower()
    candidates = (lab.key(3), lab.key(1))
    node.ask(
        EndQuorumEpochRequest(cluster_id=None, leader_id=2, leader_epoch=5, preferred_candidates=candidates)
    )
    node.respond(send, fetch_response())
    node.wait(500)
    assert node.node.role is Role.PROSPECTIVE


def test_a_leader_that_resigned_is_not_flooded(lab) -> None:
    node, send = lab.follower()
    refusal = FetchResponse(error_code=ErrorCode.not_leader_or_follower, leader_id=2, leader_epoch=5)
    result = node.respond(send, refusal)
    assert all(again.destination.node_id != 2 for again in result.sends)


def test_an_answer_of_another_leader_is_ignored(lab) -> None:
    node, send = lab.follower()
    result = node.respond(send, fetch_response(leader_id=3, records=lab.batch(10, 5)))
    assert not result.appended
    assert node.node.leader_id == 2


MOVED = (Endpoint(listener="CONTROLLER", host="moved", port=9999),)


def test_a_leader_that_is_not_where_we_learned_is_sought_where_the_voter_set_has_it(lab) -> None:
    """A wrong address that was learned is dropped (KIP-1242)."""
    node = lab.node(1, log=lab.log(2, 3, 4))
    node.start()
    _, result = node.ask(replace(lab.begin_epoch(), leader_endpoints=MOVED))
    send = result.sends[-1]
    assert send.destination.host == "moved"
    pending = node.fail(send, FailureReason.MISROUTED).sends
    hosts = []
    for _ in range(40):
        hosts += [sending.destination.host for sending in pending]
        failed = [node.fail(sending, FailureReason.TIMED_OUT) for sending in pending]
        pending = [sending for result in (*failed, node.wait(5)) for sending in result.sends]
    assert "moved" not in hosts
    assert hosts.count("host2") > 1
    assert node.node.leader_id == 2


@pytest.mark.parametrize("is_voter", [True, False], ids=["voter", "observer"])
def test_a_leader_that_left_the_address_in_the_voter_set_is_asked_for(lab, is_voter: bool) -> None:
    """Where to find the leader is asked again after a wrong address (KIP-1242)."""
    log = lab.log(1, 2, 3) if is_voter else lab.log(2, 3, 4)
    node, send = lab.follower(log=log)
    result = node.fail(send, FailureReason.MISROUTED)
    asked = [sending for sending in result.sends if sending.destination.node_id != 2]
    for _ in range(20):
        if asked:
            break
        result = node.wait(5)
        for sending in result.sends:
            if isinstance(sending.request, FetchRequest) and sending.destination.node_id == 2:
                node.fail(sending, FailureReason.MISROUTED)
            elif isinstance(sending.request, FetchRequest):
                asked.append(sending)
    reported = LeaderEndpoint(node_id=2, host="moved", port=9999)
    response = FetchResponse(
        error_code=ErrorCode.not_leader_or_follower, leader_id=2, leader_epoch=5, leader_endpoint=reported
    )
    result = node.respond(asked[0], response)
    sent = [
        sending for sending in result.sends + node.wait(60).sends if isinstance(sending.request, FetchRequest)
    ]
    assert (2, "moved") in [(sending.destination.node_id, sending.destination.host) for sending in sent]


def test_a_wrong_address_does_not_put_off_an_election(lab) -> None:
    """A dead leader whose address another node has got is replaced as fast as any."""
    node, send = lab.follower()
    result = node.fail(send, FailureReason.MISROUTED)
    waited_ms = 0
    while node.node.role is Role.FOLLOWER and waited_ms < 1000:
        for sending in result.sends:
            if isinstance(sending.request, FetchRequest):
                node.fail(sending, FailureReason.MISROUTED)
        result = node.wait(5)
        waited_ms += 5
    assert node.node.role is Role.PROSPECTIVE
    assert waited_ms <= 200


def test_an_answer_of_an_older_epoch_is_ignored(lab) -> None:
    node, send = lab.follower()
    assert not node.respond(send, fetch_response(leader_epoch=4, records=lab.batch(10, 4))).appended
    assert node.node.epoch == 5


def test_a_refusal_of_the_whole_request_is_reported(lab) -> None:
    """A wrong cluster id at the leader's address is seen in the log."""
    node, send = lab.follower()
    refused = fetch_response(top_level_error_code=ErrorCode.inconsistent_cluster_id, records=lab.batch(10, 5))
    result = node.respond(send, refused)
    assert not result.appended
    (warning,) = result.warnings
    assert (warning.event, warning.facts["error"]) == ("request_refused", "inconsistent_cluster_id")


def test_who_asked_the_leader_by_chance_follows_it_and_takes_its_records(lab) -> None:
    node = lab.node(4, log=lab.log(1, 2, 3), hard_state=HardState(leader_epoch=5))
    (send,) = node.start().sends
    leader = LeaderEndpoint(node_id=2, host="host2", port=9002)
    result = node.respond(send, fetch_response(leader_endpoint=leader, records=lab.batch(10, 5)))
    assert (node.node.role, node.node.leader_id, node.node.epoch) == (Role.FOLLOWER, 2, 5)
    assert result.appended == lab.batch(10, 5)
