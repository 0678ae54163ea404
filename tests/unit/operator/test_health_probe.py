"""The health probe: who leads, who is caught up, who is in service, with nodes that hang or are mistaken."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from quorate_admin.errors import UnreachableError
from quorate_admin.types.cluster import ClusterDescription, NodeDescription
from quorate_admin.types.features import FeatureDescription
from quorate_admin.types.quorum import QuorumDescription, ReplicaDescription
from quorate_operator.runtime import health
from quorate_operator.runtime.health import HealthProbe

CONTROLLERS = {3000: "host:3000", 3001: "host:3001", 3002: "host:3002"}
BROKERS = {0: "host:9092", 1: "host:9093"}
NOW_MS = 1_000_000


def replica(node_id: int, end: int, fetched_ms: int | None, caught_up_ms: int | None) -> ReplicaDescription:
    """A voter as the leader describes it."""
    return ReplicaDescription(
        node_id=node_id,
        directory_id=None,
        log_end_offset=end,
        last_fetch_ms=fetched_ms,
        last_caught_up_ms=caught_up_ms,
    )


def quorum(leader_id: int, epoch: int, *voters: ReplicaDescription, high_watermark: int = 10) -> Any:
    """What a controller that believes to lead answers."""
    return QuorumDescription(
        leader_id=leader_id, leader_epoch=epoch, high_watermark=high_watermark, voters=voters, observers=()
    )


def brokers(*fenced: bool) -> ClusterDescription:
    """Brokers 0, 1, ... in service or fenced."""
    nodes = tuple(
        NodeDescription(node_id=node_id, host="host", port=9092 + node_id, rack=None, fenced=one)
        for node_id, one in enumerate(fenced)
    )
    return ClusterDescription(cluster_id="c", controller_id=-1, nodes=nodes)


class Servers:
    """Answers by address; an address without an answer hangs."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self._answers = answers

    def client(
        self, *, bootstrap_controllers: Sequence[str], bootstrap_servers: Sequence[str], **settings: object
    ) -> "Client":
        """In place of the AdminClient."""
        assert settings == {"follow_advertised": False, "retries": 0, "reconnect_backoff_ms": 0}
        (address,) = (*bootstrap_controllers, *bootstrap_servers)
        return Client(self._answers.get(address))


class Client:
    """A client of one server."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def describe_metadata_quorum(self) -> Any:
        """The server's answer."""
        if self._answer is None:
            await asyncio.Event().wait()
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    describe_cluster = describe_metadata_quorum

    async def describe_features(self) -> FeatureDescription:
        """A dynamic quorum."""
        return FeatureDescription(finalized={"kraft.version": 1}, finalized_epoch=1, supported={})

    async def close(self) -> None:
        """Nothing to close."""


NOT_LEADER = UnreachableError({"host": "NOT_LEADER_OR_FOLLOWER"})


async def probe(monkeypatch: pytest.MonkeyPatch, answers: Mapping[str, Any]) -> health.Health:
    """Probe all nodes, which answer like this."""
    monkeypatch.setattr(health, "AdminClient", Servers(answers).client)
    monkeypatch.setattr(health, "PROBE_TIMEOUT_MS", 20)
    prober = HealthProbe(CONTROLLERS, BROKERS)
    try:
        return await prober.probe(list(CONTROLLERS), list(BROKERS))
    finally:
        await prober.close()


async def test_a_controller_that_hangs_does_not_hide_the_quorum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a suspended node is that node's fault alone. Method: the first does not answer, the second leads."""
    leader = quorum(3001, 4, replica(3001, 10, None, NOW_MS))
    found = await probe(monkeypatch, {"host:3001": leader, "host:3002": NOT_LEADER})
    assert found.quorum is not None
    assert (found.quorum.leader_id, found.quorum.leader_epoch, found.quorum.kraft_version) == (3001, 4, 1)


async def test_of_two_that_believe_to_lead_the_later_epoch_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: one that slept while it led is not believed. Method: two leaders of different epochs."""
    answers = {"host:3000": quorum(3000, 4), "host:3001": quorum(3001, 5), "host:3002": NOT_LEADER}
    found = await probe(monkeypatch, answers)
    assert found.quorum is not None
    assert found.quorum.leader_id == 3001


async def test_without_a_commit_in_its_epoch_there_is_no_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: elected is not yet in service. Method: a leader that does not know its high watermark."""
    answers = {
        "host:3000": quorum(3000, 1, high_watermark=-1),
        "host:3001": NOT_LEADER,
        "host:3002": NOT_LEADER,
    }
    assert (await probe(monkeypatch, answers)).quorum is None


async def test_caught_up_are_those_that_fetch_and_have_what_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: ready means caught up. Method: voters that have all, had all a moment ago, lag, never fetched."""
    voters = (
        replica(3000, 12, None, NOW_MS),
        replica(3001, 10, NOW_MS - 1, NOW_MS - 1),
        replica(3002, 9, NOW_MS - 2, NOW_MS - 5_000),
        replica(3003, 2, NOW_MS - 3, NOW_MS - 60_000),
        replica(3004, -1, None, None),
    )
    answers = {"host:3000": quorum(3000, 1, *voters), "host:3001": NOT_LEADER, "host:3002": NOT_LEADER}
    found = await probe(monkeypatch, answers)
    assert set(found.seen_ms) == {3000, 3001, 3002}
    assert (found.seen_ms[3001], found.seen_ms[3002]) == (NOW_MS - 1, NOW_MS - 2)


async def test_a_broker_speaks_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a dead broker is not in service although others think so. Method: broker 1 hangs, 0 names both."""
    found = await probe(monkeypatch, {"host:9092": brokers(False, False)})
    assert found.unfenced == {0}
    fenced = await probe(monkeypatch, {"host:9092": brokers(False, True), "host:9093": brokers(False, True)})
    assert fenced.unfenced == {0}
