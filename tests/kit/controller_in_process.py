"""A controller on loopback sockets that runs in the test's own event loop."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kit.controller_parts import write_controller_properties
from kit.waiting import until
from quorate_controller import commands
from quorate_controller.config import load_config
from quorate_controller.driver import Clock, Driver
from quorate_controller.node.assembly import open_node
from quorate_controller.server.counters import RequestCounters
from quorate_controller.server.peers import PeerConnections
from quorate_controller.server.server import ControllerServer
from quorate_controller.storage.os_filesystem import OsFileSystem
from quorate_protocol.features import SUPPORTED_FEATURES
from typer.testing import CliRunner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from quorate_controller.config import ControllerConfig


@asynccontextmanager
async def running(config: ControllerConfig) -> AsyncIterator[tuple[Driver, ControllerServer]]:
    """Run a controller as its process does, and assert at the end that no turn failed."""
    clock, counters, rng = Clock(), RequestCounters(), random.Random(config.node_id)
    node = open_node(config, file_system=OsFileSystem(), rng=rng, clock=clock.now_ms)
    failures: list[Exception] = []
    driver = Driver(
        node,
        clock=clock,
        node_id=config.node_id,
        cluster_id=node.storage.cluster_id,
        supported_features=dict(SUPPORTED_FEATURES),
        on_failure=failures.append,
        on_loaded=lambda: None,
    )
    peers = PeerConnections(
        client_id=str(config.node_id),
        cluster_id=node.storage.cluster_id,
        rng=rng,
        on_raft_event=driver.raft_event,
        counters=counters,
    )
    server = ControllerServer(config, driver, counters, scheduler=driver.scheduler)
    try:
        await server.start()
        driver.start(peers)
        yield driver, server
    finally:
        await server.close()
        await peers.close()
        driver.stop()
        assert failures == []


@asynccontextmanager
async def only_voter(directory: Path) -> AsyncIterator[tuple[Driver, int]]:
    """A controller that leads its quorum alone, and its port."""
    path = write_controller_properties(
        directory,
        {"listeners": "CONTROLLER://127.0.0.1:0", "controller.quorum.bootstrap.servers": "127.0.0.1:9093"},
    )
    formatted = CliRunner().invoke(commands.app, ["format", "-c", str(path), "-t", "abc", "--standalone"])
    assert formatted.exit_code == 0, formatted.stderr
    async with running(load_config(path)) as (driver, server):
        await until(lambda: driver.is_active, "the only voter to lead")
        yield driver, server.ports["CONTROLLER"]
