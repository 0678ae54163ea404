"""Requests that are refused again and again come ever less often, with the simulated clock."""

from random import Random

import pytest
from quorate_controller.raft.effects import Effects
from quorate_controller.raft.events import Destination, FailureReason, Role
from quorate_controller.raft.messages import FetchRequest, FetchResponse, VoteRequest, VoteResponse
from quorate_controller.raft.model import ReplicaKey
from quorate_controller.raft.peers import BACKOFF_JITTER, BACKOFF_MS_MAX, Peers
from quorate_protocol.errors import ErrorCode

MINUTE_MS = 60_000
REQUESTS_PER_MINUTE_MAX = 120
"""Two a second: the longest pause is a second, less its jitter, and a new role asks once at once."""


def run(node, duration_ms: int, respond) -> list:
    """Answer each request by `respond` (None: not at all). Returns the requests with their times."""
    sent, end_ms = [], node.now_ms + duration_ms
    todo = []
    while node.now_ms < end_ms:
        while todo:
            send = todo.pop(0)
            sent.append((node.now_ms, send))
            response = respond(send)
            if isinstance(response, FailureReason):
                todo += node.fail(send, response).sends
            elif response is not None:
                todo += node.respond(send, response).sends
        todo += node.wait_for_deadline().sends
    return sent


@pytest.mark.parametrize(
    "refusal",
    [
        {"error_code": ErrorCode.invalid_voter_key},
        {"top_level_error_code": ErrorCode.inconsistent_cluster_id},
        {"top_level_error_code": ErrorCode.inconsistent_voter_set},
        {"top_level_error_code": ErrorCode.cluster_authorization_failed},
        {"error_code": ErrorCode.invalid_request},
    ],
    ids=lambda refusal: next(iter(refusal.values())).name,
)
def test_a_voter_that_refuses_votes_is_asked_less_often(lab, refusal):
    """No node leads, because both other voters refuse, as those with fresh disks do."""
    node = lab.node(1, log=lab.log(1, 2, 3), bootstrap_servers=())
    node.start()

    def respond(send):
        if isinstance(send.request, VoteRequest):
            return VoteResponse(leader_epoch=node.node.epoch, **refusal)
        return FetchResponse(error_code=ErrorCode.not_leader_or_follower, leader_epoch=node.node.epoch)

    votes = [send for _, send in run(node, MINUTE_MS, respond) if isinstance(send.request, VoteRequest)]
    assert {send.destination.node_id for send in votes} == {2, 3}, "nobody is given up"
    for voter_id in (2, 3):
        count = sum(send.destination.node_id == voter_id for send in votes)
        assert 20 <= count <= REQUESTS_PER_MINUTE_MAX


@pytest.mark.parametrize("error", [ErrorCode.inconsistent_cluster_id, ErrorCode.cluster_authorization_failed])
def test_an_observer_whose_fetch_is_refused_asks_less_often(lab, error):
    """An observer of one leader, which refuses it."""
    node = lab.node(4, log=lab.log(1), bootstrap_servers=())
    node.start()
    sent = run(node, MINUTE_MS, lambda _: FetchResponse(top_level_error_code=error))
    fetches = [send for _, send in sent if isinstance(send.request, FetchRequest)]
    assert 20 <= len(fetches) <= REQUESTS_PER_MINUTE_MAX


def test_a_replica_that_finds_no_leader_asks_less_often(lab):
    """Every voter answers at once that it knows no leader."""
    node = lab.node(4, log=lab.log(1, 2, 3), bootstrap_servers=())
    node.start()
    no_leader = FetchResponse(error_code=ErrorCode.not_leader_or_follower, leader_epoch=0)
    sent = run(node, MINUTE_MS, lambda _: no_leader)
    assert 60 <= len(sent) <= 3 * REQUESTS_PER_MINUTE_MAX


def standing_alone(lab):
    """Node 1 of three, in a pre-vote, whose requests have failed for a minute: it pauses before the next ones."""
    node = lab.node(1, log=lab.log(1, 2, 3), bootstrap_servers=())
    node.start()
    run(node, MINUTE_MS, lambda _: FailureReason.UNREACHABLE)
    while node.node.role is not Role.PROSPECTIVE:
        node.wait_for_deadline()
    for send in node.wait(1).sends:
        node.fail(send)
    return node


def pre_vote_of(lab, node, replica: ReplicaKey) -> VoteRequest:
    """A pre-vote of that replica to node 1."""
    return VoteRequest(
        cluster_id=lab.cluster_id,
        voter=lab.key(1),
        replica=replica,
        replica_epoch=node.node.epoch,
        last_offset=0,
        last_offset_epoch=0,
        pre_vote=True,
    )


def test_a_voter_that_asks_itself_is_asked_at_once(lab):
    """Its own pre-vote shows that it runs: ours does not wait for the pause."""
    node = standing_alone(lab)
    _, result = node.ask(pre_vote_of(lab, node, lab.key(2)))
    sends = [*result.sends, *node.wait(1).sends]
    assert 2 in [send.destination.node_id for send in sends]


def test_a_replica_with_another_directory_does_not_end_the_pause(lab):
    """It has the voter's id, and is not the voter."""
    node = standing_alone(lab)
    clone = ReplicaKey(node_id=2, directory_id=lab.directory(9))
    _, result = node.ask(pre_vote_of(lab, node, clone))
    assert 2 not in [send.destination.node_id for send in result.sends]


def peers(retry_backoff_ms: int = 20) -> Peers:
    return Peers(
        request_timeout_ms=2_000,
        retry_backoff_ms=retry_backoff_ms,
        backoff_ms_max=BACKOFF_MS_MAX,
        rng=Random(1),
    )


def pauses(these: Peers, count: int) -> list[int]:
    found = []
    for _ in range(count):
        these.back_off(2, 0)
        found.append(these.wake_ms(0))
        these.forget_all()
    return found


def test_pauses_double_up_to_a_second_and_role_changes_do_not_begin_anew():
    """The first is the configured retry backoff, the others vary by a fifth."""
    expected = [20, 40, 80, 160, 320, 640, 1_000, 1_000, 1_000]
    found = pauses(peers(), len(expected))
    assert found[0] == 20
    for pause_ms, expected_ms in zip(found, expected, strict=True):
        assert abs(pause_ms - expected_ms) <= expected_ms * BACKOFF_JITTER
    assert len(set(found[6:])) > 1, "two nodes that began together do not stay together"


def test_a_longer_configured_backoff_holds():
    """An administrator who asks for 5 s gets at least that, less the jitter."""
    assert all(pause_ms >= 4_000 for pause_ms in pauses(peers(5_000), 4))


def test_a_response_ends_the_growth():
    """The next failure is the first one again."""
    these = peers()
    pauses(these, 8)
    these.succeeded(2)
    assert pauses(these, 1) == [20]
    these.send(Effects(), Destination(node_id=2, host="host2", port=1), VOTE, 0)
    assert not these.is_ready(2, 0)


VOTE = VoteRequest(
    cluster_id=None,
    voter=None,
    replica=ReplicaKey(node_id=1),
    replica_epoch=1,
    last_offset=0,
    last_offset_epoch=0,
)
