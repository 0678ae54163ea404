"""The configuration of a client: Kafka's client properties, parsed and validated."""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from enum import Enum
from typing import Any, Self

from quorate_protocol.plain_data import dataclass

from quorate_admin.errors import ConfigError
from quorate_admin.security.config import KEYS as SECURITY_KEYS
from quorate_admin.security.config import SecurityConfig

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS = 30_000
DEFAULT_API_TIMEOUT_MS = 60_000
INT_MAX = 2**31 - 1
PORT_MAX = 65_535

BOOTSTRAP_SERVERS = "bootstrap.servers"
BOOTSTRAP_CONTROLLERS = "bootstrap.controllers"

_WITHOUT_EFFECT = frozenset(
    {
        "client.dns.lookup",
        "config.providers",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "send.buffer.bytes",
        "security.providers",
        "socket.connection.setup.timeout.max.ms",
    }
)
"""Properties of Kafka's admin client that have no effect here, besides those with `ssl.` and `sasl.`."""


_ADDRESS = re.compile(r"(?:\[(?P<ipv6>[^\[\]]*:[^\[\]]*)\]|(?P<host>[^\[\]]+)):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """The address of a listener."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `host:port`, or `[address]:port` for IPv6. Raises ValueError."""
        found = _ADDRESS.fullmatch(text.strip())
        if found is None or not 0 < int(found["port"]) <= PORT_MAX:
            raise ValueError(f"{text!r} is not host:port")
        host = found["host"] or found["ipv6"]
        try:
            host.encode("idna")  # as the resolver does it: empty and long labels are refused
        except UnicodeError:
            raise ValueError(f"{text!r} is not host:port") from None
        return cls(host, int(found["port"]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class MetadataRecoveryStrategy(Enum):
    """What a client does when it can use none of the known nodes (KIP-899)."""

    NONE = "NONE"
    REBOOTSTRAP = "REBOOTSTRAP"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig:
    """A client's configuration; each field is named after Kafka's property, units last.

    Exactly one of `bootstrap_servers` and `bootstrap_controllers` has addresses (KIP-919). `follow_advertised`
    has no property: False makes the client connect to bootstrap addresses only, not to addresses that nodes
    advertise. That is for probes of a single node, and for connections through tunnels.
    """

    bootstrap_servers: tuple[Address, ...] = ()
    bootstrap_controllers: tuple[Address, ...] = ()
    client_id: str = "quorate-admin"
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    default_api_timeout_ms: int = DEFAULT_API_TIMEOUT_MS
    retries: int = INT_MAX
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    socket_connection_setup_timeout_ms: int = 10_000
    metadata_max_age_ms: int = 300_000
    metadata_recovery_strategy: MetadataRecoveryStrategy = MetadataRecoveryStrategy.REBOOTSTRAP
    metadata_recovery_rebootstrap_trigger_ms: int = 300_000
    metadata_cluster_check_enable: bool = True
    security: SecurityConfig = field(default_factory=SecurityConfig)
    follow_advertised: bool = True

    def __post_init__(self) -> None:
        if self.bootstrap_servers and self.bootstrap_controllers:
            raise ConfigError(
                f"{BOOTSTRAP_SERVERS} and {BOOTSTRAP_CONTROLLERS} are both set: give one of them"
            )
        if not self.bootstrap:
            raise ConfigError(
                f"give either {BOOTSTRAP_SERVERS} or {BOOTSTRAP_CONTROLLERS}: a list of host:port"
            )

    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, str],
        *,
        bootstrap_servers: str | Iterable[str | Address] | None = None,
        bootstrap_controllers: str | Iterable[str | Address] | None = None,
    ) -> Self:
        """Create a configuration from Kafka's client properties, for instance those of a `--command-config` file.

        `bootstrap_servers` or `bootstrap_controllers`, from an option, overrides both properties (KIP-919).
        Unknown properties are ignored with a warning.

        Raises:
            ConfigError: a value is invalid; the message has the key, the value and what is allowed.
        """
        if bootstrap_servers is None and bootstrap_controllers is None:
            bootstrap_servers = properties.get(BOOTSTRAP_SERVERS)
            bootstrap_controllers = properties.get(BOOTSTRAP_CONTROLLERS)
        fields: dict[str, Any] = {
            key.replace(".", "_"): parse(key, properties[key])
            for key, parse in _PARSERS.items()
            if key in properties
        }
        _check_timeouts(fields)
        _log_ignored(properties)
        return cls(
            bootstrap_servers=addresses_of(BOOTSTRAP_SERVERS, bootstrap_servers),
            bootstrap_controllers=addresses_of(BOOTSTRAP_CONTROLLERS, bootstrap_controllers),
            security=SecurityConfig.from_properties(properties),
            **fields,
        )

    @property
    def is_to_controllers(self) -> bool:
        """Whether the client connects to controllers, not brokers."""
        return bool(self.bootstrap_controllers)

    @property
    def bootstrap(self) -> tuple[Address, ...]:
        """The bootstrap addresses of either kind."""
        return self.bootstrap_servers or self.bootstrap_controllers


def addresses_of(key: str, given: str | Iterable[str | Address] | None) -> tuple[Address, ...]:
    """Parse addresses from a list, or from a comma-separated string. Raises ConfigError, which names the key."""
    if given is None:
        return ()
    parts = [part for part in given.split(",") if part.strip()] if isinstance(given, str) else given
    try:
        return tuple(part if isinstance(part, Address) else Address.parse(part) for part in parts)
    except ValueError as error:
        raise ConfigError(f"{key}: {error}; allowed is a list such as host-1:9092,host-2:9092") from None


def _number(highest: int) -> Callable[[str, str], int]:
    """A parser of whole numbers from 0 on."""

    def parse(key: str, value: str) -> int:
        text = value.strip()
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
        if not 0 <= number <= highest:
            raise ConfigError(f"{key}={value}: allowed is a whole number from 0 to {highest}")
        return number

    return parse


def _boolean(key: str, value: str) -> bool:
    text = value.strip().lower()
    if text not in {"true", "false"}:
        raise ConfigError(f"{key}={value}: allowed are true and false")
    return text == "true"


def _strategy(key: str, value: str) -> MetadataRecoveryStrategy:
    try:
        return MetadataRecoveryStrategy(value.strip().upper())
    except ValueError:
        raise ConfigError(f"{key}={value}: allowed are rebootstrap and none") from None


_INT, _LONG = _number(INT_MAX), _number(2**63 - 1)
_PARSERS: Mapping[str, Callable[[str, str], object]] = {
    "client.id": lambda _, value: value,
    "metadata.cluster.check.enable": _boolean,
    "metadata.recovery.strategy": _strategy,
    **dict.fromkeys(("request.timeout.ms", "default.api.timeout.ms", "retries"), _INT),
    **dict.fromkeys(("retry.backoff.ms", "retry.backoff.max.ms"), _LONG),
    **dict.fromkeys(("reconnect.backoff.ms", "reconnect.backoff.max.ms"), _LONG),
    **dict.fromkeys(("socket.connection.setup.timeout.ms", "metadata.max.age.ms"), _LONG),
    "metadata.recovery.rebootstrap.trigger.ms": _LONG,
}
"""The parsers of properties, without those of security; each field has the name of its property."""


def _check_timeouts(fields: dict[str, Any]) -> None:
    """Check that the API timeout is not below the request timeout, as Kafka does; a default is raised instead."""
    request_ms = fields.get("request_timeout_ms", REQUEST_TIMEOUT_MS)
    whole_ms = fields.get("default_api_timeout_ms")
    if whole_ms is not None and whole_ms < request_ms:
        raise ConfigError(
            f"default.api.timeout.ms={whole_ms}: allowed is request.timeout.ms ({request_ms}) or more"
        )
    if whole_ms is None and request_ms > DEFAULT_API_TIMEOUT_MS:
        fields["default_api_timeout_ms"] = request_ms


def _log_ignored(properties: Mapping[str, str]) -> None:
    read = {BOOTSTRAP_SERVERS, BOOTSTRAP_CONTROLLERS, *_PARSERS, *SECURITY_KEYS}
    is_of_node = "process.roles" in properties  # administrators pass a node's own file too
    for key in sorted(properties.keys() - read):
        if is_of_node or key in _WITHOUT_EFFECT or key.startswith(("ssl.", "sasl.")):
            logger.debug("%s has no effect here", key)
        else:
            logger.warning("%s is not a property of an admin client: ignored", key)
