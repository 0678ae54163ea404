"""TLS of one listener: its contexts, which follow the files of its stores, and the principal of a connection.

A changed file is read within `RELOAD_INTERVAL_S`. Connections that are open keep what they were made with; new ones
get the new key. Content that can't be used, or that clients or other controllers would refuse, is not adopted: the
former content stays in use, the refusal is logged once, and the files are read again later. What is refused follows
Kafka's rules for dynamic changes of stores.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from quorate_protocol.plain_data import dataclass
from quorate_protocol.security.stores import SecurityConfigError
from quorate_protocol.security.tls import client_context, leaf_certificate, server_context, with_content

from quorate_controller.config.listener_security import ALLOW_DN_CHANGES, ALLOW_SAN_CHANGES
from quorate_controller.node.events import ANONYMOUS, Principal
from quorate_controller.security.certificates import Certificate, subject_of
from quorate_controller.security.principal_rules import principal_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from quorate_protocol.security.stores import TlsConfig
    from quorate_protocol.security.tls import ClientAuth

    from quorate_controller.config.listener_security import ListenerTls

log = logging.getLogger(__name__)

RELOAD_INTERVAL_S: Final = 5.0

_TURNS_MAX: Final = 10
"""The most turns of a handshake in memory; TLS 1.2 takes three."""


class UnmappedNameError(Exception):
    """No rule of ssl.principal.mapping.rules matches the name in a certificate."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """The settings, with the PEM text that config providers have, and what changes with each of the files."""

    config: ListenerTls
    files: tuple[tuple[int, int, int] | None, ...]

    @classmethod
    def now(cls, config: ListenerTls) -> _Seen:
        stores = (config.tls.keystore, config.tls.truststore)
        files = [Path(store.location) for store in stores if store is not None and store.location]
        return cls(config, tuple(_version(file) for file in files))


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The content of the stores, and the contexts made of it."""

    tls: TlsConfig
    certificate: Certificate
    server: ssl.SSLContext
    client: ssl.SSLContext


class TlsOfListener:
    """The contexts of a listener: one for its clients, one for connections to other controllers."""

    def __init__(
        self,
        listener: str,
        config: ListenerTls,
        *,
        reread: Callable[[], ListenerTls] | None = None,
        connects_controllers: bool = False,
    ) -> None:
        """Read the stores. Raises SecurityConfigError if that is not possible.

        `reread` returns the settings with what the files of config providers have now. With `connects_controllers`,
        others that have the same stores, or the former ones, connect here and are connected to.
        """
        self._listener = listener
        self._config = config
        self._reread = reread or (lambda: config)
        self._connects_controllers = connects_controllers
        self._seen = _Seen.now(config)
        self._loaded = _load(config)
        self._fault: str | None = None

    @property
    def server(self) -> ssl.SSLContext:
        """The context for clients that connect."""
        return self._loaded.server

    @property
    def client(self) -> ssl.SSLContext:
        """The context for connections to other controllers."""
        return self._loaded.client

    @property
    def certificate(self) -> Certificate:
        """The certificate that new connections get."""
        return self._loaded.certificate

    @property
    def refuses_files(self) -> bool:
        """Whether the files have new content that was refused."""
        return self._fault is not None

    def principal_of(self, connection: ssl.SSLObject) -> Principal:
        """Return the principal of a client: by its certificate, User:ANONYMOUS without one.

        Raises:
            UnmappedNameError: no rule applies.
        """
        certificate = connection.getpeercert(binary_form=True)
        if certificate is None:
            return ANONYMOUS
        subject = subject_of(certificate)
        name = principal_name(self._config.mapping_rules, subject)
        if name is None:
            raise UnmappedNameError(f"no rule of ssl.principal.mapping.rules applies to {subject}")
        return Principal(name=name)

    async def follow_files(self) -> None:
        """Reload the stores whenever a file has changed, until cancelled."""
        while True:
            await asyncio.sleep(RELOAD_INTERVAL_S)
            await self.reload_if_changed()

    async def reload_if_changed(self) -> None:
        """Read the stores if a file has changed since they were read."""
        try:
            changed = await asyncio.to_thread(self._changed)
        except SecurityConfigError as error:
            self._refuse(str(error))
            return
        if changed is None:
            self._fault = None
            return
        self._seen, self._loaded = changed
        self._fault = None
        certificate = self._loaded.certificate
        facts = {
            "listener": self._listener,
            "serial_number": certificate.serial_number,
            "issuer": certificate.issuer,
            "not_after": certificate.not_after.isoformat(),
        }
        log.info("tls_reloaded", extra={"facts": facts})

    def _changed(self) -> tuple[_Seen, _Loaded] | None:
        """Return the content to use from now on; None if nothing has changed. Raises SecurityConfigError."""
        # The state of the files is noted before they are read, so a change in between is seen the next time.
        seen = _Seen.now(self._reread())
        if seen == self._seen:
            return None
        loaded, former = _load(seen.config), self._loaded
        now = datetime.now(UTC)
        fault = refusal_of(loaded.certificate, former.certificate, self._config, now)
        if fault is None and self._connects_controllers and loaded.tls.truststore is not None:
            others = [loaded.tls] if former.certificate.not_after <= now else [loaded.tls, former.tls]
            fault = trust_fault(loaded.tls, others, self._config.client_auth)
        if fault is not None:
            raise SecurityConfigError(fault)
        return seen, loaded

    def _refuse(self, reason: str) -> None:
        if reason != self._fault:
            log.warning("tls_reload_failed", extra={"facts": {"listener": self._listener, "reason": reason}})
        self._fault = reason


def _load(config: ListenerTls) -> _Loaded:
    tls = with_content(config.tls)
    server, client = server_context(tls, config.client_auth), client_context(tls)
    assert tls.keystore is not None, "a listener has a key"
    try:
        certificate = Certificate.of(leaf_certificate(tls.keystore))
    except (ValueError, IndexError) as error:
        raise SecurityConfigError(f"ssl.keystore: the certificate can't be read: {error}") from None
    return _Loaded(tls, certificate, server, client)


def _version(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def refusal_of(new: Certificate, former: Certificate, config: ListenerTls, now: datetime) -> str | None:
    """Return why a certificate can't take the place of the former one; None if it can."""
    if new == former:
        return None
    if new.not_after <= now:
        return f"the new certificate expired at {new.not_after.isoformat()}"
    if new.not_before > now:
        return f"the new certificate is not valid before {new.not_before.isoformat()}"
    if new.subject != former.subject and not config.allows_other_subject:
        return (
            f"the new certificate is for {new.subject}, the former for {former.subject}: restart, or set "
            f"{ALLOW_DN_CHANGES}=true"
        )
    if not new.alternative_names >= former.alternative_names and not config.allows_fewer_names:
        return (
            "the new certificate lacks subject alternative names of the former: restart, or set "
            f"{ALLOW_SAN_CHANGES}=true"
        )
    return None


def trust_fault(new: TlsConfig, others: Iterable[TlsConfig], client_auth: ClientAuth) -> str | None:
    """Return why controllers with the new stores and others could not connect to each other; None if they could.

    Others have the same stores or, as long as they have not read them again, the former ones.
    """
    for other in others:
        for served, connecting in ((new, other), (other, new)):
            fault = _handshake_fault(served, connecting, client_auth)
            if fault is not None:
                whom = "each other" if other is new else "controllers that still have the former ones"
                return (
                    f"controllers with the new stores and {whom} would not trust each other ({fault}): let all "
                    "controllers trust both authorities first"
                )
    return None


def _handshake_fault(served: TlsConfig, connecting: TlsConfig, client_auth: ClientAuth) -> str | None:
    """A handshake in memory. Names are not checked: those of the hosts are not known here."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context(replace(connecting, is_checking_host=False)).wrap_bio(to_client, to_server)
    server = server_context(served, client_auth).wrap_bio(to_server, to_client, server_side=True)
    left = [client, server]
    for _ in range(_TURNS_MAX):
        for side in list(left):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                return getattr(error, "verify_message", None) or error.reason or str(error)
            left.remove(side)
        if not left:
            return None
    return "the handshake does not end"
