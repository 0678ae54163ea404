"""Asks a local cluster, over Kafka's own protocol, who leads it and which of its nodes are in service."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from quorate_admin.client import AdminClient
from quorate_admin.errors import AdminError
from quorate_admin.types.quorum import QuorumDescription

from quorate_operator.planning.cluster import ObservedQuorum

PROBE_TIMEOUT_MS = 1_500
CAUGHT_UP_AGE_MS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What the nodes say.

    `seen_ms` has the voters that are caught up, with the time at which the leader last heard of them; the
    leader itself is heard of now. `unfenced` has the brokers that answer and know themselves unfenced.
    """

    quorum: ObservedQuorum | None = None
    seen_ms: Mapping[int, int] = field(default_factory=dict)
    unfenced: frozenset[int] = frozenset()


class HealthProbe:
    """Keeps its connections from one question to the next; addresses are `host:port` by node id."""

    def __init__(self, controllers: Mapping[int, str], brokers: Mapping[int, str]) -> None:
        self._controllers = controllers
        self._brokers = brokers
        self._clients: dict[str, AdminClient] = {}

    async def probe(self, controllers: Sequence[int], brokers: Sequence[int]) -> Health:
        """Ask the nodes that run. A node that does not answer in time is not in service; no errors."""
        quorum, unfenced = await asyncio.gather(self._probe_quorum(controllers), self._probe_brokers(brokers))
        if quorum is None:
            return Health(unfenced=unfenced)
        described, kraft_version = quorum
        return Health(
            quorum=ObservedQuorum(
                leader_id=described.leader_id,
                leader_epoch=described.leader_epoch,
                high_watermark=described.high_watermark,
                kraft_version=kraft_version,
            ),
            seen_ms=_caught_up(described, int(time.time() * 1000)),
            unfenced=unfenced,
        )

    async def close(self) -> None:
        """Close every connection."""
        await asyncio.gather(*(client.close() for client in self._clients.values()))
        self._clients.clear()

    async def _probe_quorum(self, controllers: Sequence[int]) -> tuple[QuorumDescription, int] | None:
        # Each is asked by itself, so that one that hangs can't keep the others from answering.
        answers = await asyncio.gather(*(self._quorum_as_led_by(controller) for controller in controllers))
        led = [answer for answer in answers if answer is not None]
        # One that was suspended while it led may still think that it does.
        return max(led, key=lambda answer: answer[0].leader_epoch, default=None)

    async def _quorum_as_led_by(self, controller_id: int) -> tuple[QuorumDescription, int] | None:
        """The quorum and its kraft.version, if this controller leads it and has committed in its epoch."""
        client = self._client(self._controllers[controller_id], is_controller=True)
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_MS / 1000):
                described = await client.describe_metadata_quorum()
                features = await client.describe_features()
        except (AdminError, TimeoutError):
            return None
        if described.high_watermark < 0:
            return None
        return described, features.finalized.get("kraft.version", 0)

    async def _probe_brokers(self, brokers: Sequence[int]) -> frozenset[int]:
        # Each is asked for itself: the others hold a broker that died for unfenced until its session ends.
        answers = await asyncio.gather(*(self._is_unfenced(broker) for broker in brokers))
        return frozenset(broker for broker, answer in zip(brokers, answers, strict=True) if answer)

    async def _is_unfenced(self, broker_id: int) -> bool:
        client = self._client(self._brokers[broker_id], is_controller=False)
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_MS / 1000):
                cluster = await client.describe_cluster()
        except (AdminError, TimeoutError):
            return False
        return any(node.node_id == broker_id and not node.fenced for node in cluster.nodes)

    def _client(self, address: str, *, is_controller: bool) -> AdminClient:
        if address not in self._clients:
            # This node and no other, and its first word: the next probe asks again.
            self._clients[address] = AdminClient(
                bootstrap_controllers=[address] if is_controller else (),
                bootstrap_servers=() if is_controller else [address],
                follow_advertised=False,
                retries=0,
                reconnect_backoff_ms=0,
            )
        return self._clients[address]


def _caught_up(described: QuorumDescription, now_ms: int) -> dict[int, int]:
    """The voters that have what is committed, or had what the leader had a moment ago."""
    leader = next((voter for voter in described.voters if voter.node_id == described.leader_id), None)
    leader_ms = leader.last_caught_up_ms if leader else None
    seen_ms: dict[int, int] = {}
    for voter in described.voters:
        if voter.node_id == described.leader_id:
            seen_ms[voter.node_id] = now_ms
        elif voter.last_fetch_ms is not None and (
            voter.log_end_offset >= described.high_watermark or _is_recent(voter.last_caught_up_ms, leader_ms)
        ):
            seen_ms[voter.node_id] = voter.last_fetch_ms
    return seen_ms


def _is_recent(caught_up_ms: int | None, leader_ms: int | None) -> bool:
    return (
        caught_up_ms is not None
        and leader_ms is not None
        and leader_ms - caught_up_ms <= CAUGHT_UP_AGE_MS_MAX
    )
