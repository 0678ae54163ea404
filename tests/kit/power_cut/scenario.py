"""Cuts the power of three controllers, brings them back one by one, and asks each time about the quorum."""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kit.cluster import START_TIMEOUT_S, Cluster, manifests
from kit.power_cut.asking import CONFIGS, TOOLS, ask, ask_all
from kit.power_cut.truth import CONFIG, VALUE, Said, Truth, problems
from kit.waiting import eventually
from quorate_admin.client import AdminClient
from quorate_admin.types.configs import AlterConfigOp, ConfigResource
from quorate_protocol.kafka.enums import ConfigResourceType

LEADER_FIRST, LEADER_LAST = "leader first", "leader last"
ORDERS = (LEADER_FIRST, LEADER_LAST)
LIMIT_S = 10
STARTUP_S = 0.5
"""How long a tool takes to start. What it takes longer, on a slow or busy machine, is added to the limit twice:
modules are imported at the start, and when they are needed."""


@dataclass(frozen=True, slots=True)
class Row:
    """What was said while some of the controllers were back, and what of it is false."""

    quorum: str
    implementation: str
    order: str
    back: int
    truth: Truth
    said: tuple[Said, ...]
    problems: tuple[str, ...]


@contextmanager
def powered(directory: Path, jars: Path, *, quorum: str, implementation: str) -> Iterator[Cluster]:
    """Three controllers without brokers, which have a leader and a dynamic config."""
    java = (3000, 3001, 3002) if implementation == "java" else ()
    cluster = Cluster.create(directory, jars, manifests(java=java, brokers=0, quorum=quorum))
    try:
        cluster.start(*cluster.controllers)
        cluster.await_quorum()
        asyncio.run(_configure(cluster))
        yield cluster
    finally:
        cluster.close()


async def _configure(cluster: Cluster) -> None:
    async with AdminClient(bootstrap_controllers=cluster.bootstrap_controllers.split(",")) as admin:
        brokers = ConfigResource(ConfigResourceType.BROKER, "")
        results = await admin.incremental_alter_configs({brokers: [AlterConfigOp(name=CONFIG, value=VALUE)]})
        results.raise_any()


def cut(cluster: Cluster, *, quorum: str, implementation: str, order: str) -> Iterator[Row]:
    """Kill all controllers, then start one after the other, and ask each time.

    With the leader first, tools get all addresses, with the leader last that of the first controller alone.
    """
    leader_id = cluster.await_leader()
    epoch = max(_leaders(cluster, *cluster.controllers))[0]
    cluster.kill(*cluster.controllers)
    others = [controller for controller in cluster.controllers if controller != leader_id]
    sequence = [leader_id, *others] if order == LEADER_FIRST else [*others, leader_id]
    for back, node_id in enumerate(sequence, 1):
        running = sequence[:back]
        cluster.start(node_id)
        eventually(partial(_listens, cluster, node_id), START_TIMEOUT_S, f"{node_id} to listen")
        if back == len(sequence):
            eventually(
                lambda: _elected(cluster, sequence, epoch, all_of=True), START_TIMEOUT_S, "a leader of all"
            )
        asked = list(cluster.controllers) if order == LEADER_FIRST else sequence[:1]
        before = _elected(cluster, running, epoch)
        said, startup_s = ask_all(cluster, asked)
        after = _elected(cluster, running, epoch)
        truth = Truth(
            voters={controller: cluster.address(controller) for controller in cluster.controllers},
            running=frozenset(running),
            leader_id=before if before == after else None,
            is_java=implementation == "java",
        )
        limit_s = LIMIT_S + 2 * max(0, startup_s - STARTUP_S)
        found = [
            f"{report.tool}: {problem}" for report in said for problem in problems(report, truth, limit_s)
        ]
        if truth.can_lead and any(report.denies_leader for report in said):
            found += _once_elected(cluster, running, epoch, asked)
        if truth.is_java and any(report.is_before_load for report in said):
            _await_configs(cluster, asked)
        yield Row(quorum, implementation, order, back, truth, said, tuple(found))


def _once_elected(cluster: Cluster, running: list[int], epoch: int, asked: list[int]) -> list[str]:
    """Problems after the election that was under way: the quorum is described."""
    leader_id = eventually(lambda: _elected(cluster, running, epoch), START_TIMEOUT_S, "a leader")
    said = ask(TOOLS[1], ",".join(cluster.address(node_id) for node_id in asked))
    return [] if said.leader_id == leader_id else [f"{said.tool}, later: {said.text}"]


def _await_configs(cluster: Cluster, asked: list[int]) -> None:
    """Wait for the controllers to have loaded the config that was committed before the cut."""
    bootstrap = ",".join(cluster.address(node_id) for node_id in asked)
    eventually(lambda: f"{CONFIG}={VALUE}" in ask(CONFIGS, bootstrap).text, START_TIMEOUT_S, "the config")


def _listens(cluster: Cluster, node_id: int) -> bool:
    assert cluster.runs(node_id), cluster.describe(f"{node_id} ended")
    host, _, port = cluster.address(node_id).rpartition(":")
    with socket.create_connection((host, int(port)), timeout=1):
        return True


def _elected(cluster: Cluster, running: list[int], after_epoch: int, *, all_of: bool = False) -> int | None:
    """The leader of a later epoch that a majority of the voters, or all that run, have on disk."""
    leaders = [
        leader for leader in _leaders(cluster, *running) if leader[0] > after_epoch and leader[1] in running
    ]
    needed = len(running) if all_of else len(cluster.controllers) // 2 + 1
    newest = max(leaders, default=None)
    return newest[1] if newest is not None and leaders.count(newest) >= needed else None


def _leaders(cluster: Cluster, *node_ids: int) -> list[tuple[int, int]]:
    """Epoch and leader in the quorum-state of each node, as far as it has them."""
    found = []
    for node_id in node_ids:
        try:
            state = json.loads((cluster.metadata(node_id) / "quorum-state").read_text())
        except (OSError, json.JSONDecodeError):
            continue  # it is being replaced
        if state.get("leaderId", -1) >= 0:
            found.append((int(state["leaderEpoch"]), int(state["leaderId"])))
    return found
