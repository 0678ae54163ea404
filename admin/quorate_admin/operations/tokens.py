"""Operations on delegation tokens (KIP-48, KIP-373)."""

from collections.abc import Iterable

from quorate_admin.operations.base import Operations
from quorate_admin.types.tokens import DelegationToken, KafkaPrincipal

__all__ = ("TokenOperations",)


class TokenOperations(Operations):
    """Tokens are made for whoever has authenticated with SASL or a certificate, through brokers."""

    async def create_delegation_token(
        self,
        *,
        renewers: Iterable[KafkaPrincipal] = (),
        owner: KafkaPrincipal | None = None,
        max_lifetime_ms: int = -1,
        timeout_ms: int | None = None,
    ) -> DelegationToken:
        """A new token of the client's principal, or of `owner` (CreateDelegationToken).

        `max_lifetime_ms` -1 leaves it to the cluster. Raises ServerError, other AdminErrors.
        """
        raise NotImplementedError

    async def renew_delegation_token(
        self, hmac: bytes, *, renew_period_ms: int = -1, timeout_ms: int | None = None
    ) -> int:
        """Renew a token (RenewDelegationToken); when it will expire, in Unix milliseconds."""
        raise NotImplementedError

    async def expire_delegation_token(
        self, hmac: bytes, *, expiry_period_ms: int = -1, timeout_ms: int | None = None
    ) -> int:
        """Let a token expire after some time, -1 for at once (ExpireDelegationToken); when, in Unix milliseconds."""
        raise NotImplementedError

    async def describe_delegation_tokens(
        self, owners: Iterable[KafkaPrincipal] | None = None, *, timeout_ms: int | None = None
    ) -> tuple[DelegationToken, ...]:
        """The tokens of owners, or all that the client may see (DescribeDelegationToken)."""
        raise NotImplementedError
