"""The node at the other end of an outbound connection: identities, misrouted peers, new voters (KIP-1242)."""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from kit.peer_connections import FETCH, VOTE_GRANTED, FakePeer, PeerBench, vote
from kit.waiting import turn_until
from quorate_controller.raft import messages as m
from quorate_controller.raft.events import FailureReason, RequestFailed, ResponseReceived
from quorate_controller.raft.model import VersionRange
from quorate_controller.server import peers
from quorate_controller.server.raft_wire import response_to_wire
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated.describe_cluster_response import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from quorate_protocol.kafka.generated.describe_configs_response import (
    DescribeConfigsResponse,
    DescribeConfigsResult,
)


@pytest.mark.parametrize(
    ("node_id", "highest", "meant"),
    [(2, 5, ("c", 2)), (-2, 5, (None, -1)), (2, 4, (None, -1))],
    ids=["a voter", "a bootstrap server", "a voter of Kafka 4.3"],
)
async def test_a_peer_is_told_whom_we_mean(
    bench: PeerBench, node_id: int, highest: int, meant: tuple[str | None, int]
) -> None:
    """KIP-1242 between controllers."""
    bench.peer.ranges[18] = (0, highest)
    await bench.start()
    bench.send(vote(), node_id=node_id)
    assert isinstance((await bench.wait_events(1))[0], ResponseReceived)
    asked = [request for request in bench.peer.requests if request.api.key == 18]
    assert (asked[-1].body.cluster_id, asked[-1].body.node_id) == meant
    assert asked[-1].version == highest


async def test_a_peer_that_is_somebody_else_is_left(
    bench: PeerBench, caplog: pytest.LogCaptureFixture
) -> None:
    """KIP-1242 protects quorums from wrong addresses."""
    bench.peer.node_id = 3
    await bench.start()
    first, second = bench.send(vote()), bench.send(vote())
    assert await bench.wait_events(2) == [
        RequestFailed(request_id=request_id, reason=FailureReason.MISROUTED) for request_id in (first, second)
    ]
    assert bench.counters.misrouted_peer_connections == 1
    assert bench.peer.seen(52) == []
    (reported,) = [record for record in caplog.records if record.message == "peer_misrouted"]
    assert reported.facts["peer"] == f"2 (127.0.0.1:{bench.port})"  # type: ignore[attr-defined]
    moved = FakePeer()
    new_port = await moved.start()
    voted = bench.send(vote(), port=new_port)
    assert (await bench.wait_events(3))[-1] == ResponseReceived(request_id=voted, response=VOTE_GRANTED)
    moved.stop()


def not_leader(_body: Any) -> Any:
    response = m.FetchResponse(error_code=ErrorCode.not_leader_or_follower, leader_id=2, leader_epoch=5)
    return response_to_wire(response)


def identity_of(node_id: int, cluster_id: str = "c") -> dict[int, Callable[[Any], Any]]:
    """The answers to DescribeCluster and DescribeConfigs of a Java controller, which checks no identity."""

    def describe_cluster(_body: Any) -> Any:
        nodes = tuple(
            DescribeClusterBroker(broker_id=listed_id, host="h", port=1, rack=None, is_fenced=False)
            for listed_id in (2, node_id)
        )
        return DescribeClusterResponse(
            throttle_time=timedelta(), error_code=ErrorCode.none, cluster_id=cluster_id, brokers=nodes
        )

    def describe_configs(body: Any) -> Any:
        results = tuple(
            DescribeConfigsResult(
                error_code=ErrorCode.none
                if resource.resource_name == str(node_id)
                else ErrorCode.invalid_request,
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=(),
            )
            for resource in body.resources
        )
        return DescribeConfigsResponse(throttle_time=timedelta(), results=results)

    return {60: describe_cluster, 32: describe_configs}


async def test_a_java_controller_behind_the_address_of_another_is_named(
    bench: PeerBench, caplog: pytest.LogCaptureFixture
) -> None:
    """A peer that never checks the intended node is detected by its responses."""
    caplog.set_level(logging.INFO)
    bench.peer.responses |= {1: not_leader, **identity_of(3)}
    await bench.start()
    for count in (1, 2):
        bench.send(FETCH)
        await bench.wait_events(count)
        await turn_until(lambda: bench.counters.misrouted_peer_connections == 1)
    assert len(bench.peer.seen(60)) == 1
    (reported,) = [record for record in caplog.records if record.message == "peer_misrouted"]
    assert reported.facts == {  # type: ignore[attr-defined]
        "peer": f"2 (127.0.0.1:{bench.port})",
        "meant": "node",
        "cluster_id": "c",
        "found_cluster_id": "c",
        "found_node_id": 3,
    }
    bench.peer.responses[1] = lambda _body: response_to_wire(m.FetchResponse(leader_id=2, leader_epoch=5))
    bench.send(FETCH)
    await bench.wait_events(3)
    assert [record for record in caplog.records if record.message == "peer_reached_again"]


@pytest.mark.parametrize(
    ("responses", "counted"),
    [(identity_of(2), 0), (identity_of(3, "other"), 1), ({}, 0)],
    ids=["a leader that has resigned", "a node of another cluster", "nobody that says who it is"],
)
async def test_who_answers_is_asked_before_a_node_is_called_misrouted(
    bench: PeerBench, monkeypatch: pytest.MonkeyPatch, responses: dict[int, Any], counted: int
) -> None:
    monkeypatch.setattr(peers, "TIMEOUT_S", 30.0 if responses else 0.05)
    bench.peer.responses |= {1: not_leader, **responses}
    await bench.start()
    bench.send(FETCH)
    await bench.wait_request(60)
    await turn_until(lambda: len(bench.peer.closed) == 1)
    assert bench.counters.misrouted_peer_connections == counted


async def test_a_probe_asks_for_the_range_of_kraft_version(bench: PeerBench) -> None:
    """AddRaftVoter checks the new voter."""
    bench.peer.responses |= identity_of(2)
    await bench.start()
    probe = bench.send(m.ApiVersionsProbe())
    assert await bench.wait_events(1) == [
        ResponseReceived(
            request_id=probe,
            response=m.ApiVersionsProbeResponse(kraft_versions=VersionRange(lowest=0, highest=1)),
        )
    ]


@pytest.mark.parametrize(
    ("responses", "is_refused"),
    [(identity_of(3), True), (identity_of(2, "other"), True), ({}, False)],
    ids=["another node", "a node of another cluster", "nobody that says who it is"],
)
async def test_a_probe_finds_out_whose_the_address_of_a_new_voter_is(
    bench: PeerBench, monkeypatch: pytest.MonkeyPatch, responses: dict[int, Any], is_refused: bool
) -> None:
    """No voter is added with the address of another Java controller, which accepts any identity."""
    monkeypatch.setattr(peers, "TIMEOUT_S", 30.0 if responses else 0.05)
    bench.peer.responses |= responses
    await bench.start()
    probe = bench.send(m.ApiVersionsProbe())
    (event,) = await bench.wait_events(1)
    if is_refused:
        assert event == RequestFailed(request_id=probe, reason=FailureReason.MISROUTED)
    else:
        assert isinstance(event, ResponseReceived)
    assert bench.counters.misrouted_peer_connections == is_refused
