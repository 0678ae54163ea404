"""Hosts of listeners that stand for all interfaces of the machine."""

from typing import Final

ANY_IPV4: Final = "0.0.0.0"  # noqa: S104 - compared with
ALL_INTERFACES: Final = ("", ANY_IPV4)
"""Hosts that stand for all interfaces, of IPv4 and IPv6, as they do for stock Kafka."""
