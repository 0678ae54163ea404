"""Credentials of users: SCRAM (KIP-554), and delegation tokens (KIP-48) with the principals that they belong to."""

import base64
from dataclasses import dataclass, field
from typing import Self

from quorate_protocol.kafka.enums import SCRAM_ITERATIONS_MIN, ScramMechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredentialInfo:
    """What servers return about a credential."""

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UserScramCredentialsDescription:
    """The credentials of a user."""

    user: str
    credentials: tuple[ScramCredentialInfo, ...]


@dataclass(frozen=True, slots=True)
class UserScramCredentialUpsertion:
    """A credential to set. The client sends only the salted hash of the password. Without a salt, it is random."""

    user: str
    mechanism: ScramMechanism
    password: str | bytes = field(repr=False)
    iterations: int = SCRAM_ITERATIONS_MIN
    salt: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class UserScramCredentialDeletion:
    """A credential to delete."""

    user: str
    mechanism: ScramMechanism


@dataclass(frozen=True, slots=True, order=True)
class KafkaPrincipal:
    """A principal; written `User:alice`."""

    principal_type: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """`Type:name`; the name may have colons. Raises ValueError."""
        principal_type, colon, name = text.partition(":")
        if not colon or not principal_type or not name:
            raise ValueError(f"{text!r} is not Type:name, for instance User:alice")
        return cls(principal_type, name)

    def __str__(self) -> str:
        return f"{self.principal_type}:{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """A delegation token: its id as user name and its `hmac` in base64 as password authenticate as `owner`.

    Times are in Unix milliseconds. `requester` is the principal that created the token; the owner below version 3 of
    the APIs, which do not return it.
    """

    token_id: str
    owner: KafkaPrincipal
    requester: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int
    hmac: bytes = field(repr=False)

    @property
    def hmac_base64(self) -> str:
        """The HMAC as text, which is the password."""
        return base64.b64encode(self.hmac).decode()
