"""Certificates that are exchanged below a running cluster, what its nodes show then, and clients that notice."""

import asyncio
import logging
import ssl
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kit.java.tls import Certificates, signed
from kit.ledger import Worker
from quorate_admin.client import AdminClient
from quorate_admin.errors import AdminError
from quorate_admin.security.config import SecurityConfig
from quorate_admin.types.configs import AlterConfigOp, ConfigResource
from quorate_controller.security.certificates import Certificate
from quorate_protocol.kafka.enums import ConfigResourceType

REQUEST_TIMEOUT_S: Final = 60
EVERY_S: Final = 0.1
"""The pace of the requests."""
HANDSHAKE_TIMEOUT_S: Final = 10
ALL_BROKERS: Final = ConfigResource(ConfigResourceType.BROKER, "")


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
        _replace(self.truststore, "".join(one.read_text() for one in authorities))


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
    """What became of requests."""

    answered: int = 0
    retried: int = 0
    failed: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.answered} answered, {self.retried} retries, {len(self.failed)} failed for good"


class _Retries(logging.Handler):
    """Counts what our client logs of attempts in one thread that were not the last."""

    def __init__(self, tally: Tally) -> None:
        super().__init__(logging.DEBUG)
        self._tally = tally
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self._tally.retried += 1


class ControllerRequests(Worker):
    """Describes the quorum and alters a config of all brokers at the controllers with our client."""

    def __init__(self, controllers: str, security: SecurityConfig) -> None:
        super().__init__("requests to controllers")
        self.tally = Tally()
        self._controllers = controllers.split(",")
        self.security = security
        """The next request logs in as this says."""

    def _work(self) -> None:
        transport = logging.getLogger("quorate_admin")
        counting = _Retries(self.tally)
        level = transport.level
        transport.addHandler(counting)
        transport.setLevel(logging.DEBUG)
        try:
            asyncio.run(self._ask_on())
        finally:
            transport.removeHandler(counting)
            transport.setLevel(level)

    async def _ask_on(self) -> None:
        security = self.security
        async with AdminClient(
            bootstrap_controllers=self._controllers,
            security=security,
            request_timeout_ms=5_000,
            default_api_timeout_ms=REQUEST_TIMEOUT_S * 1000,
        ) as admin:
            count = 0
            while not self._ended.is_set() and security is self.security:
                await asyncio.sleep(EVERY_S)
                count += 1
                change = AlterConfigOp(name="log.cleaner.backoff.ms", value=str(15_000 + count))
                try:
                    await admin.describe_metadata_quorum()
                    errors = (await admin.incremental_alter_configs({ALL_BROKERS: [change]})).errors
                except AdminError as error:
                    self.tally.failed.append(str(error))
                else:
                    self.tally.failed.extend(str(one) for one in errors.values())
                    self.tally.answered += 2
