"""Which new content of a listener's stores is refused while it is in use, by Kafka's rules for dynamic changes."""

from __future__ import annotations

import ssl
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from quorate_protocol.security.tls import client_context, server_context

from quorate_controller.config.listener_security import ALLOW_DN_CHANGES, ALLOW_SAN_CHANGES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from quorate_protocol.security.stores import TlsConfig
    from quorate_protocol.security.tls import ClientAuth

    from quorate_controller.config.listener_security import ListenerTls
    from quorate_controller.security.certificates import Certificate

_TURNS_MAX: Final = 10
"""The most turns of a handshake in memory; TLS 1.2 takes three."""


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
