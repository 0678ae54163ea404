"""Under which names the status page may be asked for. Pure.

A site in a user's browser can give its own name the address of this page (DNS rebinding). The browser then takes the
page for one of that site, which may read it. The request has the site's name in its Host header.
"""

from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit


class AllowedHosts:
    """IP addresses and localhost, which no site can have for a name, and the names that were configured."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(name.lower().rstrip(".") for name in names)

    def allow(self, host: str) -> bool:
        """Whether a Host header, with or without a port, names this page."""
        name = _name_of(host)
        if name is None:
            return False
        if name == "localhost" or name.endswith(".localhost") or name in self._names:
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


def check_host(name: str) -> str:
    """Returns a name that may be configured. Raises ValueError."""
    if _name_of(name) != name.lower() or ":" in name:
        raise ValueError(
            f"{name!r}: must be a host name without scheme and port, for instance quorate.example.com"
        )
    return name


def _name_of(host: str) -> str | None:
    try:
        parts = urlsplit(f"//{host}")
        name = parts.hostname
        _ = parts.port
    except ValueError:
        return None
    if name is None or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        return None
    return name.lower().rstrip(".") or None
