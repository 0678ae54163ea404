"""TLS of one listener: its contexts, which follow the files of its stores, and the principal of a connection.

A changed file is read within `RELOAD_INTERVAL_S`. Connections that are open keep what they were made with; new ones
get the new key. If the new content can't be used, the former one stays in use, and this is logged.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from quorate_protocol.security.stores import SecurityConfigError
from quorate_protocol.security.tls import client_context, server_context

from quorate_controller.node.events import ANONYMOUS, Principal
from quorate_controller.security.distinguished_names import subject_of
from quorate_controller.security.principal_rules import principal_name

if TYPE_CHECKING:
    import ssl

    from quorate_controller.config.listener_security import ListenerTls

log = logging.getLogger(__name__)

RELOAD_INTERVAL_S: Final = 5.0


class UnmappedNameError(Exception):
    """No rule of ssl.principal.mapping.rules matches the name in a certificate."""


class TlsOfListener:
    """The contexts of a listener: one for its clients, one for connections to other controllers."""

    def __init__(self, listener: str, config: ListenerTls) -> None:
        """Read the stores. Raises SecurityConfigError if that is not possible."""
        self._listener = listener
        self._config = config
        self._versions = self._file_versions()
        self.server = server_context(config.tls, config.client_auth)
        self.client = client_context(config.tls)

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
        versions = await asyncio.to_thread(self._file_versions)
        if versions == self._versions:
            return
        self._versions = versions
        tls, client_auth = self._config.tls, self._config.client_auth
        try:
            server = await asyncio.to_thread(server_context, tls, client_auth)
            self.client = await asyncio.to_thread(client_context, tls)
        except SecurityConfigError as error:
            facts = {"listener": self._listener, "reason": str(error)}
            log.warning("tls_reload_failed", extra={"facts": facts})
            return
        self.server = server
        log.info("tls_reloaded", extra={"facts": {"listener": self._listener}})

    def _file_versions(self) -> tuple[tuple[int, int, int] | None, ...]:
        """What changes with a file: inode, size, time of change. None for one that can't be seen."""
        stores = (self._config.tls.keystore, self._config.tls.truststore)
        return tuple(
            _version(Path(store.location)) for store in stores if store is not None and store.location
        )


def _version(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
