"""A controller on a simulated disk that serves frames as its listener passes them on: the whole way of a request."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from kit.captured import decode_response
from kit.simulator.disk import SimulatedDisk
from kit.waiting import turn_until
from quorate_controller.config import parse_config, parse_format_target
from quorate_controller.directories.format import FormatOptions, QuorumChoice, format_directories
from quorate_controller.driver import Clock, Driver, HostNames
from quorate_controller.node.assembly import open_node
from quorate_controller.node.events import Principal
from quorate_controller.scheduler import Account
from quorate_controller.server.connection import Exchange, RequestHandler
from quorate_controller.server.connection_peer import Peer
from quorate_controller.server.counters import RequestCounters
from quorate_controller.server.dispatch import Dispatcher
from quorate_controller.server.misrouting import ConnectionFindings
from quorate_protocol.features import SUPPORTED_FEATURES
from quorate_protocol.kafka.apis import CONTROLLER_READ_APIS, EXTENSION_APIS, SERVED_APIS
from quorate_protocol.wire.frames import FrameDecoder
from quorate_protocol.wire.server import parse_request

if TYPE_CHECKING:
    from quorate_controller.server.connection import Connection

DIRECTORY: Final = Path("/simulated/metadata")
REQUESTS_MAX: Final = 2_000
"""The number of requests to one controller: the state that they leave must not slow down the next thousands."""
_TURNS_MAX: Final = 5
PROPERTIES: Final = {
    "process.roles": "controller",
    "node.id": "3000",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://localhost:9093",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "log.dirs": str(DIRECTORY),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "a secret",
}


class LoggedErrors(logging.Handler):
    """Keeps errors in the log: an exception that was caught and logged is a defect, too."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


class _Connection:
    """A connection that no client reads."""

    peer = Peer(host="127.0.0.1", port=1, listener="CONTROLLER")
    findings = ConnectionFindings()

    def __init__(self) -> None:
        self.account = Account()
        self.session: RequestHandler | None = None

    def response_ready(self, size_bytes: int) -> None:
        """The response stays in the exchange."""

    def refuse(self, reason: str) -> None:
        """The connection would close."""

    def drain(self) -> None:
        """The connection would close."""

    def authenticated(self, principal: Principal) -> None:
        """Clients do not authenticate here."""

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> None:
        """Nothing is answered later."""

    def hold(self) -> None:
        """The connection would take no other request for a while."""

    def release(self) -> None:
        """The connection would take further requests."""


class _NoHosts(HostNames):
    """Nothing that a fuzzer invents is looked up outside."""

    async def unresolved(self, names: Iterable[str]) -> frozenset[str]:
        """All of them."""
        return frozenset(names)


class _NoPeers:
    """In place of the connections to other controllers: a single voter has none."""

    def send(self, send: object) -> None:
        """There are no other voters to send to."""

    def ask(self, _own: object) -> "asyncio.Future[Any]":
        """The request stays unanswered."""
        return asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        """Nothing is open."""


class _SteppedClock(Clock):
    """Time advances only by the duration of requests."""

    def __init__(self) -> None:
        self.time_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.time_ms

    def unix_ms_of(self, now_ms: int) -> int:
        return now_ms


class ServedController:
    """The only voter of a quorum, active. `serve` raises what a request should not have caused."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._errors = LoggedErrors()
        self._failures: list[Exception] = []
        self._driver: Driver | None = None

    def serve(self, frame: bytes) -> Exchange:
        """Serve one frame. Returns it with its response, if there is one after a few turns.

        Raises:
            AssertionError: the controller logged an error, ended, or sent a response that does not decode.
        """
        logger = logging.getLogger("quorate_controller")
        level = logger.level
        logger.setLevel(logging.ERROR)
        logger.addHandler(self._errors)
        try:
            exchange = self._loop.run_until_complete(self._serve(frame))
        finally:
            logger.removeHandler(self._errors)
            logger.setLevel(level)
        if self._failures:
            raise AssertionError("the controller ended") from self._failures.pop()
        if self._errors.records:
            record = self._errors.records.pop()
            self._errors.records.clear()
            raise AssertionError(f"the controller logged {record.getMessage()}") from (
                record.exc_info[1] if record.exc_info else None
            )
        return exchange

    def close(self) -> None:
        """Release the disk and the loop."""
        if self._driver is not None:
            self._driver.stop()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self, frame: bytes) -> Exchange:
        if self._driver is None or self._served >= REQUESTS_MAX:
            await self._start()
        self._served += 1
        self._clock.time_ms += 1
        exchange = Exchange(cast("Connection", _Connection()), frame)
        self._dispatcher.handle(exchange)
        turns = 0
        # A Fetch may wait for records, and a change of the voters for a voter that is not there.
        while not exchange.is_over and turns < _TURNS_MAX:
            await asyncio.sleep(0)
            turns += 1
        exchange.abandon()
        if exchange.response is not None:
            _check_response(frame, bytes(exchange.response))
        return exchange

    async def _start(self) -> None:
        if self._driver is not None:
            self._driver.stop()
        self._served = 0
        self._clock = _SteppedClock()
        disk = format_disk(self._clock.now_ms())
        node = open_node(parse_config(PROPERTIES), file_system=disk, rng=Random(1), clock=self._clock.now_ms)
        driver = Driver(
            node,
            clock=self._clock,
            node_id=3000,
            cluster_id="fuzzed",
            supported_features=dict(SUPPORTED_FEATURES),
            on_failure=self._failures.append,
            on_loaded=lambda: None,
            host_names=_NoHosts(),
        )
        driver.start(_NoPeers())
        self._driver = driver
        self._dispatcher = Dispatcher(driver, RequestCounters(), scheduler=driver.scheduler)
        await turn_until(self._is_active_later)

    def _is_active_later(self) -> bool:
        self._clock.time_ms += 100
        return self._driver is not None and self._driver.is_active


def format_disk(now_ms: int) -> SimulatedDisk:
    """A disk on which the only voter of a quorum can start."""
    disk = SimulatedDisk()
    format_directories(
        disk,
        parse_format_target(PROPERTIES),
        FormatOptions(cluster_id="fuzzed", quorum=QuorumChoice.STANDALONE),
        now_ms=now_ms,
        generate_directory_id=lambda: UUID(int=(4 << 76) + 1),
    )
    return disk


def _check_response(frame: bytes, response: bytes) -> None:
    (payload,) = FrameDecoder().feed(response)
    request = parse_request(frame, {**SERVED_APIS, **EXTENSION_APIS, **CONTROLLER_READ_APIS})
    version = 0 if request.unsupported_version is not None else request.version
    correlation_id, _ = decode_response(request.api, version, payload)
    assert correlation_id == request.correlation_id
