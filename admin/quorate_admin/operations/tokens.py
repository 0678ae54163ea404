"""Operations on delegation tokens (KIP-48, KIP-373)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from quorate_admin.operations.base import Operations, To

if TYPE_CHECKING:
    from collections.abc import Iterable

    from quorate_admin.types.tokens import DelegationToken, KafkaPrincipal

__all__ = ("TokenOperations",)

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class TokenOperations(Operations):
    """Tokens are made for whoever has authenticated with SASL or a certificate.

    Brokers alone are asked: controllers do not know who may have a token described.
    """

    async def create_delegation_token(
        self,
        *,
        renewers: Iterable[KafkaPrincipal] = (),
        owner: KafkaPrincipal | None = None,
        max_lifetime_ms: int = -1,
        timeout_ms: int | None = None,
    ) -> DelegationToken:
        """A new token of the client's principal, or of `owner` (CreateDelegationToken).

        `max_lifetime_ms` -1 leaves it to the cluster.

        :raises AdminError: also UnsupportedEndpointError with bootstrap controllers.
        """
        from kio.schema.create_delegation_token.v3.request import (
            CreatableRenewers,
            CreateDelegationTokenRequest,
        )

        from quorate_admin.types.tokens import DelegationToken

        self._brokers_only("create_delegation_token")
        renewers = tuple(renewers)
        request = CreateDelegationTokenRequest(
            owner_principal_type=None if owner is None else owner.principal_type,
            owner_principal_name=None if owner is None else owner.name,
            renewers=tuple(
                CreatableRenewers(principal_type=one.principal_type, principal_name=one.name)
                for one in renewers
            ),
            max_lifetime=timedelta(milliseconds=max_lifetime_ms),
        )
        response = await self._ask(request, To.ANY, timeout_ms=timeout_ms)
        return DelegationToken(
            token_id=response.token_id,
            owner=_principal(response),
            requester=_requester(response),
            renewers=renewers,
            issue_timestamp_ms=_unix_ms(response.issue_timestamp),
            expiry_timestamp_ms=_unix_ms(response.expiry_timestamp),
            max_timestamp_ms=_unix_ms(response.max_timestamp),
            hmac=response.hmac,
        )

    async def renew_delegation_token(
        self, hmac: bytes, *, renew_period_ms: int = -1, timeout_ms: int | None = None
    ) -> int:
        """Renew a token (RenewDelegationToken); when it will expire, in Unix milliseconds.

        `renew_period_ms` -1 leaves it to the cluster.

        :raises AdminError: also UnsupportedEndpointError with bootstrap controllers.
        """
        from kio.schema.renew_delegation_token.v2.request import RenewDelegationTokenRequest

        self._brokers_only("renew_delegation_token")
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period=timedelta(milliseconds=renew_period_ms))
        response = await self._ask(request, To.ANY, timeout_ms=timeout_ms)
        return _unix_ms(response.expiry_timestamp)

    async def expire_delegation_token(
        self, hmac: bytes, *, expiry_period_ms: int = -1, timeout_ms: int | None = None
    ) -> int:
        """Let a token expire after a time (ExpireDelegationToken); when that is, in Unix milliseconds.

        `expiry_period_ms` -1 deletes it at once.

        :raises AdminError: also UnsupportedEndpointError with bootstrap controllers.
        """
        from kio.schema.expire_delegation_token.v2.request import ExpireDelegationTokenRequest

        self._brokers_only("expire_delegation_token")
        request = ExpireDelegationTokenRequest(
            hmac=hmac, expiry_time_period=timedelta(milliseconds=expiry_period_ms)
        )
        response = await self._ask(request, To.ANY, timeout_ms=timeout_ms)
        return _unix_ms(response.expiry_timestamp)

    async def describe_delegation_tokens(
        self, owners: Iterable[KafkaPrincipal] | None = None, *, timeout_ms: int | None = None
    ) -> tuple[DelegationToken, ...]:
        """The tokens of owners, or all that the client may see (DescribeDelegationToken).

        :raises AdminError: also UnsupportedEndpointError with bootstrap controllers.
        """
        from kio.schema.describe_delegation_token.v3.request import (
            DescribeDelegationTokenOwner,
            DescribeDelegationTokenRequest,
        )

        from quorate_admin.types.tokens import DelegationToken

        self._brokers_only("describe_delegation_tokens")
        asked = None
        if owners is not None:
            asked = tuple(
                DescribeDelegationTokenOwner(principal_type=one.principal_type, principal_name=one.name)
                for one in owners
            )
        response = await self._ask(
            DescribeDelegationTokenRequest(owners=asked), To.ANY, timeout_ms=timeout_ms
        )
        return tuple(
            DelegationToken(
                token_id=token.token_id,
                owner=_principal(token),
                requester=_requester(token),
                renewers=tuple(map(_principal, token.renewers)),
                issue_timestamp_ms=token.issue_timestamp,
                expiry_timestamp_ms=token.expiry_timestamp,
                max_timestamp_ms=token.max_timestamp,
                hmac=token.hmac,
            )
            for token in response.tokens
        )


def _principal(token: Any) -> KafkaPrincipal:
    from quorate_admin.types.tokens import KafkaPrincipal

    return KafkaPrincipal(token.principal_type, token.principal_name)


def _requester(token: Any) -> KafkaPrincipal:
    from quorate_admin.types.tokens import KafkaPrincipal

    requester = KafkaPrincipal(token.token_requester_principal_type, token.token_requester_principal_name)
    return requester if requester.principal_type else _principal(token)


def _unix_ms(time: datetime) -> int:
    return (time - _EPOCH) // _MILLISECOND
