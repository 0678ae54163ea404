"""How a client reaches its cluster: Kafka's client properties, read and checked."""

from collections.abc import Iterable
from dataclasses import dataclass

from quorate_admin.errors import ConfigError
from quorate_admin.network.address import Address

RETRIES_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig:
    """A client's configuration; each field is named after Kafka's property, units last.

    Exactly one of `bootstrap_servers` and `bootstrap_controllers` has addresses (KIP-919).
    """

    bootstrap_servers: tuple[Address, ...] = ()
    bootstrap_controllers: tuple[Address, ...] = ()
    client_id: str = "quorate-admin"
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    retries: int = RETRIES_MAX

    def __post_init__(self) -> None:
        if bool(self.bootstrap_servers) == bool(self.bootstrap_controllers):
            raise ConfigError(
                "give either bootstrap.servers or bootstrap.controllers, "
                + ("not both" if self.bootstrap_servers else "a list of host:port")
            )

    @property
    def is_to_controllers(self) -> bool:
        """Whether controllers are asked, not brokers."""
        return bool(self.bootstrap_controllers)

    @property
    def bootstrap(self) -> tuple[Address, ...]:
        """The addresses that were given, of whichever kind."""
        return self.bootstrap_servers or self.bootstrap_controllers


def addresses_of(key: str, texts: Iterable[str | Address]) -> tuple[Address, ...]:
    """Addresses from `host:port` texts. Raises ConfigError that names the key."""
    try:
        return tuple(text if isinstance(text, Address) else Address.parse(text) for text in texts)
    except ValueError as error:
        raise ConfigError(f"{key}: {error}; allowed is a list of host:port, as in broker-1:9092") from None
