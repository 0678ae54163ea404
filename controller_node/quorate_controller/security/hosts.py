"""Hosts of ACLs: the text of an address as Java prints it, and blocks of addresses (KIP-1276).

The syntax of a block, and the messages about a malformed one, are those of the classes with which Kafka reads it
(SubnetUtils and SubnetUtils6 of Apache Commons Net).
"""

import ipaddress
import re
from functools import lru_cache
from typing import Final

ANY_HOST: Final = "*"

_IPV4_BLOCK: Final = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})/(\d{1,2})", re.ASCII)
_PREFIX_LENGTH: Final = re.compile(r"[+-]?\d+", re.ASCII)
_BITS_IPV4: Final = 32
_BITS_IPV6: Final = 128

_Block = tuple[int, int, int]
"""Bits of an address, number of the lowest and of the highest address."""


def is_block(host: str) -> bool:
    """Whether the host of an ACL is meant as a block of addresses."""
    return "/" in host


@lru_cache(maxsize=1024)
def java_address(address: str) -> str:
    """Return an address as Java's InetAddress prints it: IPv6 without `::`, and IPv4 in IPv6 as IPv4.

    Other texts stay as they are.
    """
    plain, separator, scope = address.partition("%")
    try:
        parsed = ipaddress.ip_address(plain)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    number = int(parsed)
    groups = [f"{number >> shift & 0xFFFF:x}" for shift in range(_BITS_IPV6 - 16, -1, -16)]
    return ":".join(groups) + separator + scope


def check_block(block: str) -> None:
    """Check that a host with a slash is a block of addresses.

    Raises:
        ValueError: it is not a block. The message is Kafka's.
    """
    _parsed(block)


def is_in_block(block: str, address: str) -> bool:
    """Whether an address, as `java_address` prints it, is in a block. False if the text is not a block."""
    parsed = _block(block)
    number = _number(address)
    return (
        parsed is not None
        and number is not None
        and parsed[0] == number[0]
        and (parsed[1] <= number[1] <= parsed[2])
    )


@lru_cache(maxsize=16_384)
def _block(text: str) -> _Block | None:
    try:
        return _parsed(text)
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def _number(address: str) -> tuple[int, int] | None:
    """Bits and number of an address. Kafka leaves 0.0.0.0 out of each block."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    if isinstance(parsed, ipaddress.IPv4Address):
        return (_BITS_IPV4, int(parsed)) if int(parsed) else None
    return _BITS_IPV6, int(parsed)


def _parsed(block: str) -> _Block:
    if ":" in block:
        bits, number, length = _ipv6_block(block)
    else:
        bits, number, length = _ipv4_block(block)
    size = 1 << (bits - length)
    lowest = number // size * size
    return bits, lowest, lowest + size - 1


def _ipv4_block(block: str) -> tuple[int, int, int]:
    match = _IPV4_BLOCK.fullmatch(block)
    if match is None:
        raise ValueError(f"Could not parse [{block}]")
    *parts, length = map(int, match.groups())
    number = 0
    for part in parts:
        number = number << 8 | _in_range(part, 255)
    return _BITS_IPV4, number, _in_range(length, _BITS_IPV4)


def _in_range(number: int, highest: int) -> int:
    if number > highest:
        raise ValueError(f"Value [{number}] not in range [0,{highest}]")
    return number


def _ipv6_block(block: str) -> tuple[int, int, int]:
    address, _, length_text = block.partition("/")
    if not _PREFIX_LENGTH.fullmatch(length_text) or abs(int(length_text[:12])) >= 2**31:
        raise ValueError(f"Could not parse [{block}] - invalid prefix length")
    length = int(length_text)
    if not 0 <= length <= _BITS_IPV6:
        raise ValueError(f"Could not parse [{block}] - prefix length must be between 0 and {_BITS_IPV6}")
    plain = address[1:-1] if address.startswith("[") and address.endswith("]") else address
    try:
        parsed = ipaddress.IPv6Address(plain.partition("%")[0])
    except ValueError:
        raise ValueError(f"Could not parse [{address}]") from None
    if parsed.ipv4_mapped is not None:
        raise ValueError(f"Could not parse [{address}] - not an IPv6 address")
    return _BITS_IPV6, int(parsed), length
