"""Kafka's limits of connections: max.connections and its relatives, with and without the prefix of a listener."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from quorate_protocol.plain_data import dataclass

from quorate_controller.config.endpoints import Problems
from quorate_controller.config.keys import ConfigValue
from quorate_controller.config.listener_security import prefix_of

MAX_CONNECTIONS: Final = "max.connections"
PER_IP: Final = "max.connections.per.ip"
OVERRIDES: Final = "max.connections.per.ip.overrides"
CREATION_RATE: Final = "max.connection.creation.rate"
LISTENER_KEYS: Final = (MAX_CONNECTIONS, CREATION_RATE)
"""The keys that may have the prefix of a listener."""
CONNECTIONS_MAX: Final = 10_000
"""The limit if max.connections is not set. Kafka has no limit then."""

_NUMBER_MAX: Final = 2**31 - 1
_HOST: Final = re.compile(r"[0-9a-zA-Z\-%._:]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionConfig:
    """The limits as they are configured; hosts of overrides may be names."""

    total_max: int
    of_listener: Mapping[str, int]
    per_host_max: int
    of_host: Mapping[str, int]
    rate_max: int
    rate_of_listener: Mapping[str, int]


def connection_keys(listeners: Sequence[str]) -> frozenset[str]:
    """The keys with the prefixes of these listeners."""
    return frozenset(prefix_of(name) + key for name in listeners for key in LISTENER_KEYS)


def parse_connection_limits(
    properties: Mapping[str, str],
    values: Mapping[str, ConfigValue],
    listeners: Sequence[str],
    problem: Problems,
) -> ConnectionConfig:
    """Return the limits; invalid values are reported and left out."""
    of_host = _overrides(str(values[OVERRIDES] or ""), problem)
    per_host_max = _typed(values, PER_IP)
    if per_host_max == 0 and not of_host:
        problem(f"{PER_IP}=0: only together with {OVERRIDES}, or no client could connect")
    return ConnectionConfig(
        total_max=_typed(values, MAX_CONNECTIONS) if MAX_CONNECTIONS in properties else CONNECTIONS_MAX,
        of_listener=_of_listeners(MAX_CONNECTIONS, properties, listeners, problem),
        per_host_max=per_host_max,
        of_host=of_host,
        rate_max=_typed(values, CREATION_RATE),
        rate_of_listener=_of_listeners(CREATION_RATE, properties, listeners, problem),
    )


def _of_listeners(
    key: str, properties: Mapping[str, str], listeners: Sequence[str], problem: Problems
) -> Mapping[str, int]:
    found = {}
    for name in listeners:
        full = prefix_of(name) + key
        if full in properties:
            number = _number(properties[full])
            if number is None:
                problem(f"{full}={properties[full]}: must be a number from 0 to {_NUMBER_MAX}")
            else:
                found[name] = number
    return found


def _overrides(text: str, problem: Problems) -> Mapping[str, int]:
    """Parse `host:number,host:number`; what follows the last colon is the number, so that IPv6 needs no brackets."""
    found = {}
    for part in (part.strip() for part in text.split(",")):
        if not part:
            continue
        host, colon, digits = part.rpartition(":")
        number = _number(digits)
        if not colon or number is None or _HOST.fullmatch(host.strip()) is None:
            problem(f"{OVERRIDES}={text}: {part} is not of the form host:number")
        else:
            found[host.strip()] = number
    return found


def _number(text: str) -> int | None:
    digits = text.strip()
    if not digits.isascii() or not digits.isdecimal() or len(digits) > 10 or int(digits) > _NUMBER_MAX:
        return None
    return int(digits)


def _typed(values: Mapping[str, ConfigValue], key: str) -> int:
    value = values[key]
    assert isinstance(value, int), f"{key} is typed"
    return value
