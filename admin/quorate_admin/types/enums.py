"""The base of Kafka's enumerations: a number on the wire, a name for people."""

from enum import IntEnum
from typing import Any, Self

__all__ = ("KafkaEnum",)


class KafkaEnum(IntEnum):
    """An enumeration whose member 0 is `UNKNOWN`: what a newer server says and this client can't name."""

    @classmethod
    def _missing_(cls, value: object) -> Any:
        return cls(0) if isinstance(value, int) else None

    @classmethod
    def parse(cls, text: str) -> Self:
        """The member of this name, in any case. Raises ValueError, which lists the names."""
        member = cls.__members__.get(text.strip().upper())
        if member is None:
            names = ", ".join(name for name in cls.__members__ if name != "UNKNOWN")
            raise ValueError(f"{text!r} is none of {names}")
        return member

    def __str__(self) -> str:
        return self.name

    def __format__(self, format_spec: str) -> str:
        return format(self.name, format_spec)
