"""The address by which connections, requests and failed logins are counted."""

import ipaddress
from typing import Final

NETWORK_BITS: Final = 64
"""A host with one address of IPv6 usually has all addresses of its network."""


def counted_address(host: str) -> str:
    """Return what a host is counted by: its address, of IPv6 its /64. Zones do not count.

    An address of IPv4 that is mapped into IPv6 is one of IPv4. Text that is no address counts as it is.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, NETWORK_BITS), strict=False))
    return str(address)
