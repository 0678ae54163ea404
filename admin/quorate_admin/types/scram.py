"""SCRAM credentials of users (KIP-554)."""

from dataclasses import dataclass, field
from typing import Final

from quorate_protocol.kafka.enums import ScramMechanism

__all__ = (
    "ITERATIONS_DEFAULT",
    "ScramCredentialInfo",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "UserScramCredentialsDescription",
)

ITERATIONS_DEFAULT: Final = 4096
"""The fewest that Kafka accepts (RFC 7677)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredentialInfo:
    """A credential, as far as servers tell it."""

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UserScramCredentialsDescription:
    """The credentials of a user."""

    user: str
    credentials: tuple[ScramCredentialInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserScramCredentialUpsertion:
    """A credential to set. The password stays here: its salted hash is sent. No salt means a random one."""

    user: str
    mechanism: ScramMechanism
    password: str | bytes = field(repr=False)
    iterations: int = ITERATIONS_DEFAULT
    salt: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserScramCredentialDeletion:
    """A credential to delete."""

    user: str
    mechanism: ScramMechanism
