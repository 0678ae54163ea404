"""A controller process: its listeners, its connections to peers, its signals, around one `Driver`."""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import signal
import sys
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any, Final

import uvloop
from quorate_protocol.features import SUPPORTED_FEATURES
from quorate_protocol.security.stores import SecurityConfigError
from quorate_protocol.security.tokens import TokenKeeper
from quorate_protocol.wire.codec.native import CODEC, CODEC_REASON

from quorate_controller.allocator import return_freed_memory
from quorate_controller.config.keys import ALTER_CONFIG_POLICY, CREATE_TOPIC_POLICY
from quorate_controller.control.policies import Policies
from quorate_controller.driver import Clock, Driver
from quorate_controller.node.assembly import open_node
from quorate_controller.server.connection_quotas import UnknownHostError, bounds_of
from quorate_controller.server.counters import RequestCounters
from quorate_controller.server.dispatch import SWITCH_INTERVAL_S
from quorate_controller.server.peers import PeerConnections
from quorate_controller.server.server import (
    ControllerServer,
    MissingLibraryError,
    load_libraries,
    read_stores,
)
from quorate_controller.storage.errors import StorageError
from quorate_controller.storage.os_filesystem import OsFileSystem
from quorate_controller.structured_logs import REPEAT_INTERVAL_S, ProcessLoggers, report_repeats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quorate_controller.config import ControllerConfig

log = logging.getLogger(__name__)

GC_THRESHOLDS: Final = (10_000, 2, 150)
"""Allocations between two runs of the garbage collector, and runs until it visits older objects too.

Nearly all that is allocated is a part of the image and stays. A run visits 10,000 or 30,000 objects, some 5 or 15 ms;
a full one is left to each five million.
"""

_POLICY_FIELDS: Final = {CREATE_TOPIC_POLICY: "create_topic", ALTER_CONFIG_POLICY: "alter_config"}


class StartError(Exception):
    """The process cannot start. The message is one line."""


def load_policies(properties: Mapping[str, str]) -> Policies:
    """Import the classes that the properties name, make one object of each and configure it.

    Raises:
        StartError: there is no such class, it has no `validate`, or it raises an exception.
    """
    named = {key: properties.get(key, "").strip() for key in _POLICY_FIELDS}
    return Policies(
        **{_POLICY_FIELDS[key]: _load_policy(key, name, properties) for key, name in named.items() if name}
    )


def _load_policy(key: str, name: str, properties: Mapping[str, str]) -> Any:
    module, _, class_name = name.partition(":")
    try:
        policy = getattr(importlib.import_module(module), class_name)()
        configure = getattr(policy, "configure", None)
        if configure is not None:
            configure(dict(properties))
    except Exception as error:  # the code of others may raise anything
        raise StartError(f"{key}={name}: cannot be loaded: {error!r}") from error
    if not callable(getattr(policy, "validate", None)):
        raise StartError(f"{key}={name}: the class has no method validate")
    return policy


def run(config: ControllerConfig) -> None:
    """Run a controller until SIGTERM or SIGINT.

    Raises:
        StartError: a listener cannot be bound, its key store or trust store can't be used, or a policy or a library
            can't be loaded.
        StorageError: the directories cannot be used, or the disk fails later.
    """
    return_freed_memory()
    uvloop.run(_Process(config).serve())


class _Process:
    """Opens and closes the parts of a controller in order."""

    def __init__(self, config: ControllerConfig) -> None:
        self._config = config
        self._ended = asyncio.Event()
        self._failure: Exception | None = None

    async def serve(self) -> None:
        """Serve from opening the disk until the process has left the quorum."""
        config = self._config
        for note in config.notes:
            log.info("config_without_effect", extra={"facts": {"note": note}})
        try:
            load_libraries(config)
            tls = read_stores(config)
        except (MissingLibraryError, SecurityConfigError) as error:
            raise StartError(str(error)) from None
        policies = load_policies(config.explicit)
        try:
            connections = await bounds_of(config)
        except UnknownHostError as error:
            raise StartError(str(error)) from None
        rng = SystemRandom()
        clock = Clock()
        node = open_node(
            config,
            file_system=OsFileSystem(),
            rng=rng,
            # SystemRandom is slow, and the placement of replicas need not be secret.
            placing_rng=Random(rng.getrandbits(64)),
            clock=clock.now_ms,
            unix_ms_of=clock.unix_ms_of,
            loggers=ProcessLoggers(),
            policies=policies,
        )
        driver = Driver(
            node,
            clock=clock,
            node_id=config.node_id,
            cluster_id=node.storage.cluster_id,
            supported_features=dict(SUPPORTED_FEATURES),
            on_failure=self._fail,
            # What was loaded from a snapshot stays: a full collection would only visit it.
            on_loaded=gc.freeze,
        )
        counters = RequestCounters()
        oauth = None if config.login is None else config.login.oauth
        tokens = None if oauth is None else TokenKeeper(oauth)
        peers = PeerConnections(
            client_id=f"controller-{config.node_id}",
            cluster_id=node.storage.cluster_id,
            rng=rng,
            on_raft_event=driver.raft_event,
            counters=counters,
            tls=tls.get(config.controller_listener_names[0]),
            login=config.login,
            tokens=tokens,
        )
        following = [asyncio.create_task(_report_repeats())]
        if tokens is not None:
            following.append(asyncio.create_task(tokens.follow()))
        server = ControllerServer(config, driver, counters, tls, connections, scheduler=driver.scheduler)
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
            sys.setswitchinterval(SWITCH_INTERVAL_S)
            log.info(
                "started",
                extra={
                    "facts": {
                        "node_id": config.node_id,
                        "cluster_id": node.storage.cluster_id,
                        "codec": f"{CODEC}: {CODEC_REASON}",
                    }
                },
            )
            await self._ended.wait()
            if self._failure is None:
                await driver.shut_down()
        finally:
            for task in following:
                task.cancel()
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
        # The message of a StorageError is complete; it ends the process as its last line.
        log.error("failed", exc_info=None if isinstance(error, StorageError) else error)
        self._failure = error
        self._ended.set()


async def _report_repeats() -> None:
    """Let summaries of dropped log lines be written in time, also while nothing else is logged. Until cancelled."""
    while True:
        await asyncio.sleep(REPEAT_INTERVAL_S)
        report_repeats()


def _settle_memory() -> None:
    """Exclude the objects of the start from garbage collection: they stay until the end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
