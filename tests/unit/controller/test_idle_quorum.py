"""Three controllers on loopback sockets in one event loop: connections that nothing uses close, the leader stays."""

import asyncio
import logging
import socket
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import pytest
from kit.controller_in_process import running
from kit.waiting import until
from quorate_controller import commands
from quorate_controller.config import ControllerConfig, load_config
from typer.testing import CliRunner

IDLE_MS = 1_000
"""Longer than a Fetch waits at the leader (500 ms), so that only side connections are idle."""
PERIODS = 3
PATIENCE_MS = 60_000
"""No answer is so late that it alone deposes a leader: what the test starts shares one process."""
NODE_IDS = (3000, 3001, 3002)


def free_ports(count: int) -> list[int]:
    """Different ports without a listener."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for bound in sockets:
            bound.bind(("127.0.0.1", 0))
        return [bound.getsockname()[1] for bound in sockets]


@pytest.fixture
def configs(tmp_path: Path) -> list[ControllerConfig]:
    """Three formatted controllers, the voters of one quorum."""
    ports = dict(zip(NODE_IDS, free_ports(len(NODE_IDS)), strict=True))
    servers = ",".join(f"127.0.0.1:{port}" for port in ports.values())
    voters = ",".join(
        f"{node_id}@127.0.0.1:{port}:CCCCCCCCCCCCCCCCCC{node_id}" for node_id, port in ports.items()
    )
    files = []
    for node_id, port in ports.items():
        files.append(tmp_path / f"{node_id}.properties")
        files[-1].write_text(
            f"process.roles=controller\nnode.id={node_id}\ncontroller.listener.names=CONTROLLER\n"
            f"listeners=CONTROLLER://127.0.0.1:{port}\ncontroller.quorum.bootstrap.servers={servers}\n"
            f"connections.max.idle.ms={IDLE_MS}\nlog.dirs={tmp_path}/{node_id}\n"
            f"controller.quorum.fetch.timeout.ms={PATIENCE_MS}\n"
            f"controller.quorum.request.timeout.ms={PATIENCE_MS}\n"
        )
        formatted = CliRunner().invoke(
            commands.app, ["format", "-c", str(files[-1]), "-t", "abc", "-I", voters]
        )
        assert formatted.exit_code == 0, formatted.stderr
    return [load_config(file) for file in files]


async def test_idle_connections_that_close_depose_nobody(
    configs: list[ControllerConfig], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "quorate_controller")
    async with AsyncExitStack() as stack:
        drivers = [(await stack.enter_async_context(running(config)))[0] for config in configs]

        def agreed() -> tuple[int, int] | None:
            """The leader and its epoch, once all have registered with it."""
            statuses = [driver.status() for driver in drivers]
            seen = {(status.leader_id, status.leader_epoch) for status in statuses}
            return seen.pop() if len(seen) == 1 and all(status.is_registered for status in statuses) else None

        def closed_by(leader_id: int) -> int:
            """How many connections to the leader its followers have lost."""
            lost = [record for record in caplog.records if record.message == "peer_connection_lost"]
            return sum(record.facts["peer"].startswith(f"{leader_id} ") for record in lost)  # type: ignore[attr-defined]

        before = await until(agreed, "a leader with which all are registered")
        await until(lambda: closed_by(before[0]) >= len(drivers) - 1, "idle connections to close")
        end_s = asyncio.get_running_loop().time() + PERIODS * IDLE_MS / 1000
        while asyncio.get_running_loop().time() < end_s:
            assert agreed() == before
            await asyncio.sleep(0.01)
