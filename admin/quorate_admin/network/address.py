"""Where servers listen."""

from dataclasses import dataclass
from typing import Self

PORT_MAX = 65535


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """Where a server listens."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """`host:port`, or `[address]:port` for IPv6. Raises ValueError."""
        host, colon, port = text.strip().rpartition(":")
        if not colon or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) <= PORT_MAX:
            raise ValueError(f"{text!r} is not host:port")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
