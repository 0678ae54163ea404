"""A controller process: its listeners, its connections to peers, its signals, around one `Driver`."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from random import SystemRandom
from typing import TYPE_CHECKING, Final

import uvloop
from quorate_protocol.features import SUPPORTED_FEATURES

from quorate_controller.driver import Clock, Driver
from quorate_controller.node.assembly import open_node
from quorate_controller.server.counters import RequestCounters
from quorate_controller.server.peers import PeerConnections
from quorate_controller.server.server import ControllerServer
from quorate_controller.storage.os_filesystem import OsFileSystem

if TYPE_CHECKING:
    from quorate_controller.config import ControllerConfig

log = logging.getLogger(__name__)

GC_THRESHOLD: Final = 50_000
"""Allocations between two looks of the garbage collector: the image's many small values are no garbage."""


class StartError(Exception):
    """The process can't begin to serve; one line for people."""


def run(config: ControllerConfig) -> None:
    """Runs a controller until SIGTERM or SIGINT.

    Raises StorageError and StartError when it can't start, and StorageError when its disk fails later.
    """
    uvloop.run(_Process(config).serve())


class _Process:
    """Everything that has to be opened and closed, in order."""

    def __init__(self, config: ControllerConfig) -> None:
        self._config = config
        self._ended = asyncio.Event()
        self._failure: Exception | None = None

    async def serve(self) -> None:
        """From opening the disk to leaving the quorum."""
        config = self._config
        for note in config.notes:
            log.info("config_without_effect", extra={"facts": {"note": note}})
        rng = SystemRandom()
        clock = Clock()
        node = open_node(config, file_system=OsFileSystem(), rng=rng, now_ms=clock.now_ms())
        driver = Driver(
            node,
            clock=clock,
            node_id=config.node_id,
            cluster_id=node.storage.cluster_id,
            supported_features=dict(SUPPORTED_FEATURES),
            on_failure=self._fail,
        )
        counters = RequestCounters()
        peers = PeerConnections(
            client_id=f"controller-{config.node_id}",
            cluster_id=node.storage.cluster_id,
            rng=rng,
            on_raft_event=driver.raft_event,
            counters=counters,
        )
        server = ControllerServer(config, driver, counters)
        try:
            try:
                await server.start()
            except OSError as error:
                raise StartError(
                    f"cannot listen: {error}. Choose another port, or stop the process that uses it"
                ) from error
            self._watch_signals()
            driver.start(peers)
            _settle_memory()
            log.info(
                "started",
                extra={"facts": {"node_id": config.node_id, "cluster_id": node.storage.cluster_id}},
            )
            await self._ended.wait()
            if self._failure is None:
                await driver.shut_down()
        finally:
            await server.close()
            await peers.close()
            driver.stop()
        if self._failure is not None:
            raise self._failure
        log.info("stopped", extra={"facts": {"node_id": config.node_id}})

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)

    def _stop(self, number: int) -> None:
        log.info("stopping", extra={"facts": {"signal": signal.Signals(number).name}})
        self._ended.set()

    def _fail(self, error: Exception) -> None:
        log.error("failed", exc_info=error)
        self._failure = error
        self._ended.set()


def _settle_memory() -> None:
    """What start-up has made stays for good: the collector need not look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
