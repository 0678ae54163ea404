"""Delegation tokens (KIP-48) and the principals that they belong to."""

import base64
from dataclasses import dataclass, field
from typing import Self

__all__ = ("DelegationToken", "KafkaPrincipal")


@dataclass(frozen=True, slots=True, order=True)
class KafkaPrincipal:
    """Who asks; written `User:alice`."""

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
    """A token: with its id as user name and its `hmac`, base64, as password one authenticates as `owner`.

    Times in Unix milliseconds. `requester` is who created it, the owner itself on servers that do not tell
    (below version 3 of the APIs).
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
