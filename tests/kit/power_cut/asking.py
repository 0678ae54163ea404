"""Asks tools, play and operator about a quorum at the same time, and returns what each of them says."""

import asyncio
import io
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from kit.cluster import Cluster
from kit.power_cut.truth import Said
from quorate.play.display import show_status
from quorate_operator.gateway.kafka import KafkaGateway
from quorate_operator.handlers.statuses import controller_status
from quorate_operator.planning.cluster import Formation, KafkaFacts, NodeState
from quorate_operator.planning.planner import plan
from quorate_operator.runtime.local.layout import QUORATE
from quorate_operator.runtime.local.status import idle_observation, played_view, status_of
from rich.console import Console

CONFIGS = ("configs", "--describe", "--entity-type", "brokers", "--entity-default")
TOOLS: tuple[tuple[str, ...], ...] = (
    ("doctor",),
    ("metadata-quorum", "describe", "--status"),
    ("features", "describe"),
    CONFIGS,
    ("topics", "--list"),
)
COLUMNS = (*(tool[0] for tool in TOOLS), "play status", "condition")
TIMEOUT_S = 100
WIDTH = 200


def ask_all(cluster: Cluster, controllers: Sequence[int]) -> tuple[tuple[Said, ...], float]:
    """What every tool says through these controllers, and what play and operator say; all at the same time.

    Also returns how many seconds a tool takes beside them that sends no request.
    """
    bootstrap = ",".join(cluster.address(controller) for controller in controllers)
    with ThreadPoolExecutor(len(TOOLS) + 2) as pool:
        viewing = pool.submit(_views, cluster)
        starting = pool.submit(_startup_s)
        said = list(pool.map(lambda tool: ask(tool, bootstrap), TOOLS))
        return (*said, *viewing.result()), starting.result()


def ask(tool: Sequence[str], bootstrap: str) -> Said:
    """What one tool says."""
    started_s = time.monotonic()
    try:
        ran = subprocess.run(
            [*QUORATE, tool[0], "--bootstrap-controller", bootstrap, *tool[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Said(tool[0], 1, "", time.monotonic() - started_s)
    text = ran.stdout + ran.stderr
    is_unsupported = ran.returncode == 2 and "No such option" in text
    return Said(tool[0], ran.returncode, text, time.monotonic() - started_s, is_unsupported)


def _startup_s() -> float:
    started_s = time.monotonic()
    subprocess.run([*QUORATE, "features", "--help"], capture_output=True, timeout=TIMEOUT_S, check=True)
    return time.monotonic() - started_s


def _views(cluster: Cluster) -> tuple[Said, Said]:
    """What `quorate play status` shows and which conditions the operator sets, from one observation of the quorum.

    The states of the nodes are those of the processes, as a supervisor or a kubelet reports them.
    """
    started_s = time.monotonic()
    layout = cluster.layout
    facts = asyncio.run(_facts(cluster))
    observed = idle_observation(layout)
    observed = replace(
        observed,
        nodes={
            node_id: replace(node, state=_state(cluster, node_id, facts))
            for node_id, node in observed.nodes.items()
        },
        quorum=facts.quorum if facts is not None else None,
        kafka=facts,
        formation=Formation(cluster_id=layout.identity.cluster_id, initial_voters={}, is_formed=True),
    )
    view = played_view(layout, observed, plan(layout.desired, observed, int(time.time() * 1000)))
    shown = Console(file=io.StringIO(), width=WIDTH)
    show_status(shown, status_of(layout, view, {}, ready=view.is_ready, addresses=observed.publications))
    conditions = {
        condition["type"]: condition for condition in controller_status(view, generation=1)["conditions"]
    }
    quorum = conditions["QuorumHealthy"]
    seconds = time.monotonic() - started_s
    assert isinstance(shown.file, io.StringIO)
    return (
        Said("play status", 0, shown.file.getvalue(), seconds),
        Said(
            "condition",
            0,
            f"{quorum['type']}={quorum['status']} ({quorum['reason']}): {quorum['message']}",
            seconds,
        ),
    )


async def _facts(cluster: Cluster) -> KafkaFacts | None:
    gateway = KafkaGateway()
    try:
        contacts = {
            controller: cluster.layout.own_address(controller, "CONTROLLER")
            for controller in cluster.controllers
        }
        return await gateway.observe(contacts, {}, frozenset(), {})
    finally:
        await gateway.close()


def _state(cluster: Cluster, node_id: int, facts: KafkaFacts | None) -> NodeState:
    if not cluster.runs(node_id):
        return NodeState.STOPPED
    voter = facts.quorum.voters.get(node_id) if facts is not None else None
    return NodeState.READY if voter is not None and voter.caught_up else NodeState.STARTING
