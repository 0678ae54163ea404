"""Replaces certificates of a running cluster; checks what nodes present then, and what clients notice."""

import asyncio
import logging
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kit.java.tls import Certificates, signed
from kit.ledger import Worker
from kit.waiting import HANG_S, UNTIL_EVERY_S
from quorate_admin.client import AdminClient
from quorate_admin.errors import AdminError, ServerError
from quorate_admin.security.config import SecurityConfig
from quorate_admin.types.configs import AlterConfigOp, ConfigResource
from quorate_admin.types.topics import NewTopic
from quorate_controller.security.certificates import Certificate
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import ConfigResourceType

REQUEST_TIMEOUT_S: Final = 60
HANDSHAKE_TIMEOUT_S: Final = 10
_ATTEMPTS: Final = logging.getLogger("quorate_admin.network.transport")
CHANGED: Final = ConfigResource(ConfigResourceType.CLIENT_METRICS, "changed")
"""A resource whose configs cost a broker nothing. For many configs of its own, a broker restarts threads before it
continues with the log."""


@dataclass(frozen=True, slots=True)
class NodeStores:
    """The PEM files of one node."""

    keystore: Path
    truststore: Path

    @classmethod
    def create(cls, directory: Path, certificates: Certificates) -> "NodeStores":
        directory.mkdir(parents=True)
        stores = cls(directory / "keystore.pem", directory / "ca.pem")
        stores.show(certificates, directory.name, "ca")
        stores.trust(certificates.authority)
        return stores

    def show(self, certificates: Certificates, name: str, authority: str) -> None:
        """Give the node another key with a certificate of an authority, `ca` or `other-ca`."""
        made = signed(certificates.authority.parent, name, authority=authority, common_name="server")
        _replace(self.keystore, made.read_text())

    def trust(self, *authorities: Path) -> None:
        """Have the node trust these authorities and no others."""
        _replace(self.truststore, "".join(authority.read_text() for authority in authorities))


def _replace(file: Path, text: str) -> None:
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def certificate_in(file: Path) -> Certificate:
    """The certificate of a PEM file that has a key, too."""
    text = file.read_text()
    return Certificate.of(ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERTIFICATE") :]))


def served_at(address: str) -> Certificate:
    """What a node shows to a new connection. Raises OSError if there is no handshake."""
    host, _, port = address.rpartition(":")
    pem = ssl.get_server_certificate((host, int(port)), timeout=HANDSHAKE_TIMEOUT_S)
    return Certificate.of(ssl.PEM_cert_to_DER_cert(pem))


def lets_in(address: str, authority: Path, shown: Path | None = None) -> bool:
    """Whether a client that trusts one authority and shows a certificate gets through the handshake."""

    async def connect() -> bool:
        context = ssl.create_default_context(cafile=authority)
        context.maximum_version = (
            ssl.TLSVersion.TLSv1_2
        )  # there the server looks at the client's before the end
        if shown is not None:
            context.load_cert_chain(shown)
        host, _, port = address.rpartition(":")
        try:
            _, writer = await asyncio.wait_for(
                asyncio.open_connection(host, int(port), ssl=context), HANDSHAKE_TIMEOUT_S
            )
        except (ssl.SSLError, ConnectionError):
            return False
        writer.transport.abort()
        return True

    return asyncio.run(connect())


@dataclass(slots=True)
class Tally:
    """Counts of requests by their result."""

    succeeded: int = 0
    retried: int = 0
    failed: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.succeeded} succeeded, {self.retried} retries, {len(self.failed)} failed for good"


@contextmanager
def retries_counted() -> Iterator[None]:
    """Have our client log attempts that were not the last, which `AdminRequests` count."""
    level, propagates = _ATTEMPTS.level, _ATTEMPTS.propagate
    _ATTEMPTS.setLevel(logging.DEBUG)
    _ATTEMPTS.propagate = False  # thousands, while a node is down
    try:
        yield
    finally:
        _ATTEMPTS.setLevel(level)
        _ATTEMPTS.propagate = propagates


class _Retries(logging.Handler):
    """Counts what our client logs of attempts in one thread that were not the last."""

    def __init__(self, tally: Tally) -> None:
        super().__init__(logging.DEBUG)
        self._tally = tally
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self._tally.retried += 1


class AdminRequests(Worker):
    """Asks with our client without pause. What a client asks again, because a node went away, is not lost."""

    every_s = 0.1

    def __init__(self, name: str, security: SecurityConfig, **bootstrap: list[str]) -> None:
        super().__init__(name)
        self.tally = Tally()
        self._bootstrap = bootstrap
        self._count = 0
        self.security = security
        """The next request logs in as this says."""

    async def _ask(self, admin: AdminClient, count: int) -> int:
        """Send a new request; how many requests succeeded. Raises AdminError."""
        raise NotImplementedError

    def _work(self) -> None:
        counting = _Retries(self.tally)
        _ATTEMPTS.addHandler(counting)
        try:
            asyncio.run(self._ask_on())
        finally:
            _ATTEMPTS.removeHandler(counting)

    async def _ask_on(self) -> None:
        security = self.security
        async with AdminClient(
            **self._bootstrap,
            security=security,
            request_timeout_ms=5_000,
            default_api_timeout_ms=REQUEST_TIMEOUT_S * 1000,
        ) as admin:
            while not self._ended.is_set() and security is self.security:
                await asyncio.sleep(self.every_s)
                self._count += 1
                try:
                    self.tally.succeeded += await self._ask(admin, self._count)
                except AdminError as error:
                    self.tally.failed.append(f"{self._count}: {error}")


class ControllerRequests(AdminRequests):
    """Describes the quorum and alters a config at the controllers."""

    def __init__(self, controllers: str, security: SecurityConfig) -> None:
        super().__init__("requests to controllers", security, bootstrap_controllers=controllers.split(","))

    async def _ask(self, admin: AdminClient, count: int) -> int:
        change = AlterConfigOp(name="interval.ms", value=str(1_000 + count))
        await admin.describe_metadata_quorum()
        (await admin.incremental_alter_configs({CHANGED: [change]})).raise_any()
        return 2


class BrokerRequests(AdminRequests):
    """Creates topics through brokers and asks for each of them."""

    every_s = 0.3  # a broker that restarts has to load each topic

    def __init__(self, brokers: str, security: SecurityConfig) -> None:
        super().__init__("requests to brokers", security, bootstrap_servers=brokers.split(","))
        self.acknowledged: list[str] = []
        self.unknown_s: list[float] = []
        """For how long topics were not known that were acknowledged, of those that were not known at once."""

    async def _ask(self, admin: AdminClient, count: int) -> int:
        name = f"asked-for-{count}"
        try:
            (await admin.create_topics([NewTopic(name=name, partitions=1, replication_factor=1)])).raise_any()
        except ServerError as error:
            if error.error_code is not ErrorCode.topic_already_exists:  # else a response had been lost
                raise
        self.acknowledged.append(name)
        await self._await_known(admin, name)
        return 2

    async def _await_known(self, admin: AdminClient, name: str) -> None:
        """Ask for a topic until it is known.

        A broker applies what it has fetched in a thread of its own, which also reads its stores, and a stock
        controller answers before the broker has fetched it.
        """
        acknowledged_at, is_late = time.monotonic(), False
        while errors := (await admin.describe_topics([name])).errors:
            (error,) = errors.values()
            waited_s = time.monotonic() - acknowledged_at
            if error.error_code is not ErrorCode.unknown_topic_or_partition or waited_s > HANG_S:
                raise error
            is_late = True
            await asyncio.sleep(UNTIL_EVERY_S)
        if is_late:
            self.unknown_s.append(time.monotonic() - acknowledged_at)
