"""Voters that answer at no address of the voter set are looked up at the bootstrap servers (KIP-1347)."""

from dataclasses import replace

import pytest
from quorate_controller.raft.events import FailureReason, Role, Send
from quorate_controller.raft.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    LeaderEndpoint,
    UpdateRaftVoterRequest,
    VoteRequest,
    VoteResponse,
)
from quorate_controller.raft.model import Endpoint
from quorate_controller.raft.startup import BootstrapServer
from quorate_protocol.errors import ErrorCode

SERVERS = tuple(BootstrapServer(host=f"new{node_id}", port=9000) for node_id in (1, 2, 3))


def moved(lab, node_id: int = 1, **config):
    """A voter of 1, 2, 3 whose hosts all have new names: it advertises its own, and bootstrap servers name all."""
    endpoints = (Endpoint(listener=lab.listener, host=f"new{node_id}", port=9000),)
    defaults = {"bootstrap_servers": SERVERS, "endpoints": endpoints, "log": lab.log(1, 2, 3)}
    return lab.node(node_id, **(defaults | config))


def is_old(send: Send) -> bool:
    return send.destination.host.startswith("host")


def stand(node):
    """Let it stand, and refuse each connection to an old address. Returns what it asked at the others."""
    result = node.wait_for_deadline()
    while node.node.role is not Role.PROSPECTIVE:
        result = node.wait_for_deadline()
    lookups = []
    for send in result.sends:
        if is_old(send):
            lookups += node.fail(send, FailureReason.UNREACHABLE).sends
    return lookups


def refuse_others(node, lookups: list[Send], homes: dict[str, int]):
    """Answer as the voters of `homes` do, by host: a vote for its own key alone. Returns the last result."""
    todo, result = list(lookups), None
    while todo:
        send = todo.pop(0)
        is_meant = homes.get(send.destination.host) == send.request.voter.node_id
        response = VoteResponse(leader_epoch=node.node.epoch, vote_granted=True)
        if not is_meant:
            response = replace(response, vote_granted=False, error_code=ErrorCode.invalid_voter_key)
        result = node.respond(send, response)
        if result.roles:
            return result
        todo += [sending for sending in result.sends if not is_old(sending)]
    return result


HOMES = {"new1": 1, "new2": 2, "new3": 3}


def test_a_voter_that_reaches_nobody_asks_the_bootstrap_servers_by_key(lab):
    """Each lookup is a pre-vote with the cluster, id and directory of a voter, and goes to an unnamed server."""
    node = moved(lab)
    node.start()
    lookups = stand(node)
    assert {send.destination.host for send in lookups} == {"new2", "new3"}, "not to itself"
    for send in lookups:
        assert send.destination.node_id < 0
        assert isinstance(send.request, VoteRequest)
        assert send.request.pre_vote
        assert send.request.cluster_id == lab.cluster_id
        assert send.request.voter in (lab.key(2), lab.key(3))


def test_voters_that_were_found_elect_a_leader_and_hear_of_it(lab):
    """Vote and BeginQuorumEpoch go to the address that was found, and name the voter there."""
    node = moved(lab)
    node.start()
    candidate = refuse_others(node, stand(node), HOMES)
    assert node.node.role is Role.CANDIDATE
    votes = [send for send in candidate.sends if isinstance(send.request, VoteRequest)]
    found = [send for send in votes if not is_old(send)]
    assert found
    assert all(HOMES[send.destination.host] == send.destination.node_id for send in found)
    elected = node.respond(found[0], VoteResponse(leader_epoch=node.node.epoch, vote_granted=True))
    assert node.node.role is Role.LEADER
    announced = [send for send in elected.sends if isinstance(send.request, BeginQuorumEpochRequest)]
    assert found[0].destination in [send.destination for send in announced]
    recorded = node.node.voters.get(1)
    assert recorded.endpoints[0].host == "new1", "its own new address is in the log at once"


@pytest.mark.parametrize(
    ("error", "top_level"),
    [
        (ErrorCode.invalid_voter_key, ErrorCode.none),
        (ErrorCode.none, ErrorCode.inconsistent_cluster_id),
    ],
)
def test_another_node_directory_or_cluster_is_never_taken_for_the_voter(lab, error, top_level):
    """A server that grants everything but refuses the key or the cluster does not count, and is not used."""
    node = moved(lab)
    node.start()
    todo = stand(node)
    asked = 0
    while todo and asked < 50:
        send, asked = todo.pop(), asked + 1
        refusal = VoteResponse(
            leader_epoch=node.node.epoch, vote_granted=True, error_code=error, top_level_error_code=top_level
        )
        todo += [sending for sending in node.respond(send, refusal).sends if not is_old(sending)]
    assert node.node.role is Role.PROSPECTIVE
    assert asked == 4, "each of two servers is asked for each of two voters, and then rests"
    later = node.wait(10_000)
    assert all(is_old(send) or send.destination.node_id < 0 for send in later.sends)


def test_a_leader_announces_itself_to_voters_that_it_cannot_reach(lab):
    node = moved(lab)
    node.start()
    candidate = refuse_others(node, stand(node), HOMES | {"new3": 0})
    found = next(send for send in candidate.sends if not is_old(send))
    elected = node.respond(found, VoteResponse(leader_epoch=node.node.epoch, vote_granted=True))
    old = next(send for send in elected.sends if is_old(send))
    assert old.request.voter == lab.key(3)
    node.fail(old)
    node.ask(replace(lab.fetch(2, 10, epoch=1), current_leader_epoch=node.node.epoch))
    result = node.wait(1_200)
    asked = [send for send in result.sends if send.destination.node_id < 0]
    assert {send.destination.host for send in asked} == {"new2", "new3"}
    assert all(send.request.voter == lab.key(3) for send in asked)
    assert all(isinstance(send.request, BeginQuorumEpochRequest) for send in asked)


def test_nobody_is_looked_up_while_a_majority_answers(lab):
    """One voter of three is down: the other one answers, and no server gets a request that means another node."""
    node = moved(lab)
    node.start()
    result = node.wait_for_deadline()
    while not [send for send in result.sends if isinstance(send.request, VoteRequest)]:
        result = node.wait_for_deadline()
    two, three = result.sends
    after = node.fail(two, FailureReason.UNREACHABLE)
    assert not [send for send in after.sends if send.destination.node_id < 0]
    granted = node.respond(three, VoteResponse(leader_epoch=node.node.epoch, vote_granted=True))
    assert node.node.role is Role.CANDIDATE
    assert not [send for send in granted.sends if send.destination.node_id < 0]


def test_addresses_that_do_not_even_refuse_are_given_up_after_one_election(lab):
    """Packets to the old addresses vanish: the next time that it stands, the servers are asked at once."""
    node = moved(lab)
    node.start()
    result = node.wait(6_000)
    lookups = [send for send in result.sends if isinstance(send.request, VoteRequest) and not is_old(send)]
    assert {send.destination.host for send in lookups} == {"new2", "new3"}


def test_static_voters_are_not_looked_up(lab):
    """They have no directory ids: any node with the id could answer."""
    node = moved(
        lab, static_voters=lab.static_voters(1, 2, 3), log=replace(lab.log(), voters=(), end_offset=0)
    )
    node.start()
    assert not [send for send in stand(node) if isinstance(send.request, VoteRequest)]


def test_a_server_without_pre_votes_is_passed_over(lab):
    """A broker has no Vote at all: that is no reason to stand without pre-votes."""
    node = moved(lab)
    node.start()
    for send in stand(node):
        node.fail(send, FailureReason.UNSUPPORTED_VERSION)
    assert node.node.role is Role.PROSPECTIVE


def test_a_voter_that_moves_again_is_looked_up_again(lab):
    """The address that was found leads to another node: it is given up with the first request."""
    node = moved(lab)
    node.start()
    candidate = refuse_others(node, stand(node), HOMES)
    found = next(send for send in candidate.sends if not is_old(send))
    node.fail(found, FailureReason.MISROUTED)
    result = node.wait(10_000)
    later = [
        send
        for send in result.sends
        if isinstance(send.request, VoteRequest) and send.request.voter.node_id == found.destination.node_id
    ]
    assert not [send for send in later if send.destination == found.destination]
    assert [send for send in later if send.destination.node_id < 0]


def test_a_follower_of_the_new_leader_has_its_address_recorded(lab):
    """It learns the leader from a bootstrap server, and sends UpdateRaftVoter with its new address."""
    node = moved(lab, node_id=2)
    result = node.start()
    while not [send for send in result.sends if isinstance(send.request, FetchRequest)]:
        result = node.wait_for_deadline()
    asked = next(send for send in result.sends if isinstance(send.request, FetchRequest))
    led = FetchResponse(
        error_code=ErrorCode.not_leader_or_follower,
        leader_id=1,
        leader_epoch=2,
        leader_endpoint=LeaderEndpoint(node_id=1, host="new1", port=9000),
    )
    result = node.respond(asked, led)
    assert node.node.role is Role.FOLLOWER
    fetch = next(send for send in result.sends if isinstance(send.request, FetchRequest))
    sends = node.respond(fetch, FetchResponse(leader_id=1, leader_epoch=2, high_watermark=-1)).sends
    while not [send for send in sends if isinstance(send.request, UpdateRaftVoterRequest)]:
        node.wait(500)  # the leader holds each Fetch
        sends = node.respond(sends[-1], FetchResponse(leader_id=1, leader_epoch=2, high_watermark=-1)).sends
    update = sends[-1]
    assert (update.destination.host, update.request.endpoints[0].host) == ("new1", "new2")
