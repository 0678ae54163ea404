"""Polls what controllers report about themselves: on their pages, and by DescribeQuorum."""

import asyncio
import threading
import time
from dataclasses import dataclass
from typing import NamedTuple

import aiohttp
from kit.soak.checker import PAGE, QUORUM
from kit.soak.history import Recorder, What
from kit.soak.nodes import HTTP_PORT, SoakCluster
from quorate_admin.client import AdminClient
from quorate_admin.errors import AdminError
from quorate_admin.types.cluster import QuorumDescription

POLL_EVERY_S = 0.5
POLL_TIMEOUT_S = 1.5
FRESH_S = 2.0
"""The validity of a description by a leader."""
FETCHED_MS_MAX = 1_200
"""How long ago, by the leader's clock, a node that follows fetched."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The last description of the quorum by its leader, and its time."""

    quorum: QuorumDescription
    at_s: float


class _Asked(NamedTuple):
    """Which process was asked, and with which of its disks."""

    node: int
    process: int
    disk: int


class _Status(NamedTuple):
    """The status that a controller reported about itself."""

    state: str
    epoch: int
    leader: int
    high_watermark: int


class Observer:
    """Asks the controllers in a thread of its own, and records their responses."""

    def __init__(self, cluster: SoakCluster, recorder: Recorder) -> None:
        self._cluster = cluster
        self._recorder = recorder
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._observe()), name="observer", daemon=True
        )
        self._seen: Seen | None = None
        self.disks = dict.fromkeys(cluster.controllers, 0)
        """The number of disks that each controller has had; the code that replaces one counts."""

    def __enter__(self) -> "Observer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(30)

    # What is known now

    def quorum(self) -> QuorumDescription | None:
        """The quorum as a leader described it a moment ago; or None."""
        seen = self._seen
        return seen.quorum if seen is not None and time.monotonic() - seen.at_s < FRESH_S else None

    def leader(self) -> int | None:
        """The leader."""
        quorum = self.quorum()
        return None if quorum is None else quorum.leader_id

    def voters(self) -> frozenset[int]:
        """The ids of the voters; none while no leader answers."""
        quorum = self.quorum()
        return frozenset() if quorum is None else frozenset(voter.node_id for voter in quorum.voters)

    def caught_up(self) -> frozenset[int]:
        """The voters and observers that fetched a moment ago, and have what is committed.

        What a leader remembers of a process that ended does not count: the present one is older than that.
        """
        quorum = self.quorum()
        if quorum is None or quorum.high_watermark < 0:
            return frozenset()
        replicas = (*quorum.voters, *quorum.observers)
        now_ms = max(
            (replica.last_fetch_ms or 0 for replica in replicas if replica.node_id == quorum.leader_id),
            default=0,
        )
        return frozenset(
            replica.node_id
            for replica in replicas
            if replica.log_end_offset >= quorum.high_watermark
            and self._cluster.runs(replica.node_id)
            and self._cluster.age_s(replica.node_id) > FRESH_S + FETCHED_MS_MAX / 1000
            and (
                replica.node_id == quorum.leader_id or now_ms - (replica.last_fetch_ms or 0) < FETCHED_MS_MAX
            )
        )

    # Asking

    async def _observe(self) -> None:
        timeout_ms = int(POLL_TIMEOUT_S * 1000)
        clients = {
            controller: self._cluster.client_of(controller, timeout_ms)
            for controller in self._cluster.controllers
        }
        timeout = aiohttp.ClientTimeout(total=POLL_TIMEOUT_S)
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session:
                while not self._ended.is_set():
                    begun_s = time.monotonic()
                    await asyncio.gather(
                        *(
                            self._poll(session, clients[controller], controller)
                            for controller in self._cluster.controllers
                        )
                    )
                    await asyncio.sleep(max(0.05, begun_s + POLL_EVERY_S - time.monotonic()))
        finally:
            for client in clients.values():
                await client.close()

    async def _poll(self, session: aiohttp.ClientSession, client: AdminClient, node_id: int) -> None:
        if not self._cluster.runs(node_id):
            return
        if node_id in self._cluster.python_controllers:
            is_leader = await self._poll_page(session, node_id)
            if not is_leader:
                return
        asked = self._asked(node_id)
        try:
            quorum = await client.describe_metadata_quorum()
        except AdminError:
            return
        if quorum.leader_id != node_id or asked.process != self._cluster.pid(node_id):
            return
        if self._seen is None or quorum.leader_epoch >= self._seen.quorum.leader_epoch:
            self._seen = Seen(quorum, time.monotonic())
        status = _Status("leader", quorum.leader_epoch, quorum.leader_id, quorum.high_watermark)
        self._note_status(QUORUM, asked, status)

    async def _poll_page(self, session: aiohttp.ClientSession, node_id: int) -> bool:
        asked = self._asked(node_id)
        try:
            async with session.get(
                f"http://{self._cluster.network.host(node_id)}:{HTTP_PORT}/readyz"
            ) as response:
                page = await response.json()
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return False
        if asked.process != self._cluster.pid(node_id):
            return False  # asked of one process, and answered by the next
        status = _Status(page["state"], page["leaderEpoch"], page["leaderId"], page["highWatermark"])
        self._note_status(PAGE, asked, status)
        return bool(page["state"] == "leader")

    def _asked(self, node_id: int) -> _Asked:
        return _Asked(node_id, self._cluster.pid(node_id), self.disks[node_id])

    def _note_status(self, source: str, asked: _Asked, status: _Status) -> None:
        self._recorder.note(What.STATUS, source=source, **asked._asdict(), **status._asdict())
