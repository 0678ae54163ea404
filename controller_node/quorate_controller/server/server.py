"""The listeners of a controller: those of Kafka's protocol, and the HTTP pages when they are configured."""

from __future__ import annotations

import asyncio
import importlib
import logging
from functools import cache, partial
from secrets import token_bytes
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from quorate_controller.config.loading import reread_listener_tls
from quorate_controller.scheduler import Scheduler
from quorate_controller.security.sasl import SCRAM_MECHANISMS, Decoys, decoy_secret
from quorate_controller.server.connection_memory import ResponseMemory
from quorate_controller.server.connection_quotas import ConnectionLimits, ConnectionQuotas
from quorate_controller.server.counters import RequestCounters
from quorate_controller.server.dispatch import Dispatcher
from quorate_controller.server.listener import Listener, request_memory
from quorate_controller.server.listener_limits import ListenerLimits
from quorate_controller.server.sasl import SaslGate
from quorate_controller.server.tls import TlsOfListener

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quorate_controller.config import ControllerConfig
    from quorate_controller.config.listener_sasl import ListenerSasl
    from quorate_controller.node.port import NodePort
    from quorate_controller.server.http import HttpPages
    from quorate_controller.server.jwks import JwksValidator

log = logging.getLogger(__name__)

DECOY_SECRET_SIZE_BYTES: Final = 32

CLOSE_GRACE_S: Final = 2.0
"""How long requests in flight may take when the server closes."""


class MissingLibraryError(Exception):
    """A library that a listener needs is not installed. The message has the command that installs it."""


def load_libraries(config: ControllerConfig) -> None:
    """Load what the configured listeners need, which takes seconds on a busy machine, in which no request is served.

    The libraries of metrics pages and of OAUTHBEARER take megabytes of memory, so they are loaded only if configured.

    Raises:
        MissingLibraryError: one is not installed.
    """
    if config.http_listener is not None:
        importlib.import_module("quorate_controller.server.http")
        importlib.import_module("quorate_controller.server.metrics")
    if _has_oauth(config):
        try:
            importlib.import_module("quorate_controller.server.jwks")
        except ImportError as error:
            raise MissingLibraryError(
                f"OAUTHBEARER: {error.name} is missing: pip install 'quorate[oauthbearer]'"
            ) from None


def _has_oauth(config: ControllerConfig) -> bool:
    return any(
        security.sasl is not None and security.sasl.oauth is not None
        for security in config.listener_security.values()
    )


def read_stores(config: ControllerConfig) -> dict[str, TlsOfListener]:
    """Return the TLS of each listener that has it, by its name. Raises SecurityConfigError."""
    return {
        name: TlsOfListener(
            name,
            security.tls,
            reread=partial(reread_listener_tls, config, name),
            connects_controllers=name == config.controller_listener_names[0],
        )
        for name, security in config.listener_security.items()
        if security.tls is not None
    }


class ControllerServer:
    """Listens for one node, from `start` to `close`."""

    def __init__(
        self,
        config: ControllerConfig,
        node: NodePort,
        counters: RequestCounters | None = None,
        tls: Mapping[str, TlsOfListener] = MappingProxyType({}),
        connections: ConnectionLimits | None = None,
        *,
        scheduler: Scheduler | None = None,
    ) -> None:
        self._config = config
        self._node = node
        self._counters = counters or RequestCounters()
        self._scheduler = scheduler or Scheduler()
        self._dispatcher = dispatcher = Dispatcher(node, self._counters, scheduler=self._scheduler)
        limits = listener_limits(config)
        names = [address.name for address in config.listeners]
        self._quotas = ConnectionQuotas(connections or ConnectionLimits(), names, self._counters)
        self._responses = ResponseMemory(limits.response_memory_bytes_max, self._counters)
        self._memory = request_memory(request_memory_bytes_max(config), self._counters)
        self._validators: list[JwksValidator] = []
        self._following: list[asyncio.Task[None]] = []
        self._decoys = cache(partial(decoys_of_all, config, node.cluster_id))
        self._listeners = [
            self._listener(address.name, dispatcher, limits, tls.get(address.name))
            for address in config.listeners
        ]
        self._pages: HttpPages | None = None

    def _listener(
        self, name: str, dispatcher: Dispatcher, limits: ListenerLimits, tls: TlsOfListener | None
    ) -> Listener:
        sasl = self._config.listener_security[name].sasl
        return Listener(
            name=name,
            handler=dispatcher if sasl is None else self._gate(name, sasl, dispatcher),
            limits=limits,
            tls=tls,
            first_frames_size_bytes_max=None if sasl is None else sasl.receive_size_bytes_max,
            quotas=self._quotas,
            counters=self._counters,
            memory=self._memory,
            responses=self._responses,
            scheduler=self._scheduler,
        )

    def _gate(self, name: str, sasl: ListenerSasl, dispatcher: Dispatcher) -> SaslGate:
        validate_token = None
        if sasl.oauth is not None:
            from quorate_controller.server.jwks import JwksValidator  # noqa: PLC0415 - see load_libraries

            self._validators.append(JwksValidator(name, sasl.oauth))
            validate_token = self._validators[-1].validate
        return SaslGate(
            dispatcher,
            sasl,
            self._node.credentials,
            self._counters,
            validate_token=validate_token,
            decoys=None if SCRAM_MECHANISMS.keys().isdisjoint(sasl.mechanisms) else self._decoys(),
        )

    async def start(self) -> None:
        """Bind all listeners and serve. The keys of tokens are read in the background.

        Raises:
            OSError: an address cannot be bound. Nothing stays open.
        """
        try:
            self._following = [asyncio.create_task(validator.follow()) for validator in self._validators]
            for listener, address in zip(self._listeners, self._config.listeners, strict=True):
                await listener.start(address.host, address.port)
                facts = {"listener": address.name, "host": address.host or "*", "port": listener.port}
                log.info("listening", extra={"facts": facts})
            if self._config.http_listener is not None:
                await self._start_pages(*self._config.http_listener)
        except BaseException:
            await self.close(grace_s=0)
            raise

    async def _start_pages(self, host: str, port: int) -> None:
        from quorate_controller.server.http import HttpPages  # noqa: PLC0415
        from quorate_controller.server.metrics import MetricsPage, ServedCertificate, Usage  # noqa: PLC0415

        def usage() -> Usage:
            return Usage(
                sum(listener.connection_count for listener in self._listeners),
                {each.value: size_bytes for each, size_bytes in self._memory.used_bytes.items()},
                self._responses.used_bytes,
                {
                    listener.context.name: ServedCertificate(
                        tls.certificate.not_after.timestamp(), tls.refuses_files
                    )
                    for listener in self._listeners
                    if (tls := listener.context.tls) is not None
                },
            )

        metrics = MetricsPage(self._node, self._counters, usage=usage)
        self._pages = HttpPages(self._node, metrics, self._counters)
        await self._pages.start(host, port)
        log.info(
            "listening", extra={"facts": {"listener": "http", "host": host or "*", "port": self._pages.port}}
        )

    @property
    def ports(self) -> dict[str, int]:
        """The bound port by listener name."""
        return {listener.context.name: listener.port for listener in self._listeners}

    @property
    def http_port(self) -> int | None:
        """The bound port of the HTTP pages."""
        return None if self._pages is None else self._pages.port

    async def close(self, grace_s: float = CLOSE_GRACE_S) -> None:
        """Serve no more requests, wait at most `grace_s` seconds for those in flight, close everything."""
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)
        for listener in self._listeners:
            await listener.close(grace_s)
        self._dispatcher.close()
        if self._pages is not None:
            await self._pages.close()


def decoys_of_all(config: ControllerConfig, cluster_id: str) -> Decoys:
    """Return the decoys that all controllers have: by the secret of delegation tokens or by their own password.

    Without both, other controllers, and this one after a restart, have other decoys.
    """
    secret, login = config.values["delegation.token.secret.key"], config.login
    shared = str(secret) if secret else "" if login is None else login.password
    return Decoys(decoy_secret(shared, cluster_id) if shared else token_bytes(DECOY_SECRET_SIZE_BYTES))


def listener_limits(config: ControllerConfig) -> ListenerLimits:
    """The configured bounds; ours where Kafka's default is no bound."""
    return ListenerLimits(
        frame_size_bytes_max=_number(config, "socket.request.max.bytes"),
        socket_send_buffer_bytes=_number(config, "socket.send.buffer.bytes"),
        idle_timeout_ms=_number(config, "connections.max.idle.ms"),
    )


def request_memory_bytes_max(config: ControllerConfig) -> int:
    """The budget of the requests of clients; the largest request where Kafka's default is no bound."""
    key = "queued.max.request.bytes"
    return _number(config, key if key in config.explicit else "socket.request.max.bytes")


def _number(config: ControllerConfig, key: str) -> int:
    value = config.values[key]
    assert isinstance(value, int), f"{key} is typed"
    return value
