"""Operations on SCRAM credentials (KIP-554) and delegation tokens (KIP-48, KIP-373)."""

from __future__ import annotations

from datetime import datetime, timedelta
from secrets import randbits
from typing import TYPE_CHECKING, Any

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.field_types import EPOCH, MILLISECOND
from quorate_protocol.security.scram import SALT_BITS, salt_of

from quorate_admin.errors import ServerError
from quorate_admin.network.routing import To
from quorate_admin.operations.base import KeyedOperations, error_of, key_results
from quorate_admin.results import Results

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from quorate_admin.types.credentials import (
        DelegationToken,
        KafkaPrincipal,
        UserScramCredentialDeletion,
        UserScramCredentialsDescription,
        UserScramCredentialUpsertion,
    )

    Alteration = UserScramCredentialUpsertion | UserScramCredentialDeletion


class CredentialOperations(KeyedOperations):
    """SCRAM credentials and delegation tokens.

    With bootstrap controllers, tokens are created, renewed and expired, and controllers of Quorate describe users and
    tokens. Credentials are altered through brokers.

    Passwords are not sent, only their salted hashes. A delegation token belongs to a principal that authenticated
    with SASL or a certificate.
    """

    # SCRAM

    async def describe_user_scram_credentials(
        self, users: Iterable[str] = (), *, timeout_ms: int | None = None
    ) -> Results[str, UserScramCredentialsDescription]:
        """The mechanisms and iterations of the given or all users (DescribeUserScramCredentials). Brokers, or
        controllers of Quorate.

        A given user without credentials has the error RESOURCE_NOT_FOUND.
        """
        from quorate_protocol.kafka.enums import ScramMechanism
        from quorate_protocol.kafka.generated.describe_user_scram_credentials_request import (
            DescribeUserScramCredentialsRequest,
            UserName,
        )

        from quorate_admin.types.credentials import ScramCredentialInfo, UserScramCredentialsDescription

        names = tuple(UserName(name=user) for user in dict.fromkeys(users))
        request = DescribeUserScramCredentialsRequest(users=names or None)
        response = await self._ask(request, To.READER, timeout_ms=timeout_ms)
        values, errors = {}, {}
        for result in response.results:
            error = error_of(result.error_code, result.error_message)
            if error is not None:
                errors[result.user] = error
                continue
            values[result.user] = UserScramCredentialsDescription(
                user=result.user,
                credentials=tuple(
                    ScramCredentialInfo(mechanism=ScramMechanism(info.mechanism), iterations=info.iterations)
                    for info in result.credential_infos
                ),
            )
        return Results(values, errors)

    async def alter_user_scram_credentials(
        self, alterations: Iterable[Alteration], *, timeout_ms: int | None = None
    ) -> Results[str, None]:
        """Set and delete credentials (AlterUserScramCredentials); results by user. Brokers only.

        If one alteration of a user is refused, none of that user's alterations is made.
        """
        from quorate_protocol.kafka.generated.alter_user_scram_credentials_request import (
            AlterUserScramCredentialsRequest,
            ScramCredentialDeletion,
        )

        from quorate_admin.types.credentials import UserScramCredentialDeletion, UserScramCredentialUpsertion

        self._brokers_only("alter_user_scram_credentials")
        by_user: dict[str, list[Alteration]] = {}
        refused: dict[str, ServerError] = {}
        for alteration in alterations:
            by_user.setdefault(alteration.user, []).append(alteration)
            if error := _refusal(alteration):
                refused[alteration.user] = error
        # Hashed once, even if the request is retried: it takes thousands of iterations.
        upsertions = {
            user: [_upsertion(change) for change in group if isinstance(change, UserScramCredentialUpsertion)]
            for user, group in by_user.items()
            if user not in refused
        }

        def request_for(users: Sequence[str], _: timedelta) -> AlterUserScramCredentialsRequest:
            return AlterUserScramCredentialsRequest(
                deletions=tuple(
                    ScramCredentialDeletion(name=user, mechanism=change.mechanism)
                    for user in users
                    for change in by_user[user]
                    if isinstance(change, UserScramCredentialDeletion)
                ),
                upsertions=tuple(upsertion for user in users for upsertion in upsertions[user]),
            )

        results = await self._ask_each(
            upsertions,
            request_for,
            lambda response, _: key_results(response.results, lambda result: result.user),
            timeout_ms=timeout_ms,
        )
        return Results(results.values, {**results.errors, **refused})

    # Delegation tokens

    @property
    def _writer(self) -> To:
        """The active controller, or any broker, which forwards to it."""
        return To.CONTROLLER if self._to_controllers else To.ANY

    async def create_delegation_token(
        self,
        *,
        renewers: Iterable[KafkaPrincipal] = (),
        owner: KafkaPrincipal | None = None,
        max_lifetime_ms: int = -1,
        timeout_ms: int | None = None,
    ) -> DelegationToken:
        """Create a token for the client's principal, or for `owner` (CreateDelegationToken).

        With `max_lifetime_ms` -1 the cluster's default applies.
        """
        from quorate_protocol.kafka.generated.create_delegation_token_request import (
            CreatableRenewers,
            CreateDelegationTokenRequest,
        )

        from quorate_admin.types.credentials import DelegationToken

        renewers = tuple(renewers)
        request = CreateDelegationTokenRequest(
            owner_principal_type=None if owner is None else owner.principal_type,
            owner_principal_name=None if owner is None else owner.name,
            renewers=tuple(
                CreatableRenewers(principal_type=renewer.principal_type, principal_name=renewer.name)
                for renewer in renewers
            ),
            max_lifetime=timedelta(milliseconds=max_lifetime_ms),
        )
        response = await self._ask(request, self._writer, timeout_ms=timeout_ms)
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
        """Renew a token (RenewDelegationToken). Returns its expiry time in Unix milliseconds.

        With `renew_period_ms` -1 the cluster's default applies.
        """
        from quorate_protocol.kafka.generated.renew_delegation_token_request import (
            RenewDelegationTokenRequest,
        )

        request = RenewDelegationTokenRequest(hmac=hmac, renew_period=timedelta(milliseconds=renew_period_ms))
        response = await self._ask(request, self._writer, timeout_ms=timeout_ms)
        return _unix_ms(response.expiry_timestamp)

    async def expire_delegation_token(
        self, hmac: bytes, *, expiry_period_ms: int = -1, timeout_ms: int | None = None
    ) -> int:
        """Set when a token expires (ExpireDelegationToken). Returns the time in Unix milliseconds.

        With `expiry_period_ms` -1 the token is deleted immediately.
        """
        from quorate_protocol.kafka.generated.expire_delegation_token_request import (
            ExpireDelegationTokenRequest,
        )

        request = ExpireDelegationTokenRequest(
            hmac=hmac, expiry_time_period=timedelta(milliseconds=expiry_period_ms)
        )
        response = await self._ask(request, self._writer, timeout_ms=timeout_ms)
        return _unix_ms(response.expiry_timestamp)

    async def describe_delegation_tokens(
        self, owners: Iterable[KafkaPrincipal] | None = None, *, timeout_ms: int | None = None
    ) -> tuple[DelegationToken, ...]:
        """The tokens of the given owners, or all that the client is allowed to see (DescribeDelegationToken).
        Brokers, or controllers of Quorate.
        """
        from quorate_protocol.kafka.generated.describe_delegation_token_request import (
            DescribeDelegationTokenOwner,
            DescribeDelegationTokenRequest,
        )

        from quorate_admin.types.credentials import DelegationToken

        asked = None
        if owners is not None:
            asked = tuple(
                DescribeDelegationTokenOwner(principal_type=owner.principal_type, principal_name=owner.name)
                for owner in owners
            )
        response = await self._ask(
            DescribeDelegationTokenRequest(owners=asked), To.READER, timeout_ms=timeout_ms
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


def _refusal(alteration: Alteration) -> ServerError | None:
    """The error of an alteration that can't be sent; None if it can."""
    from quorate_protocol.kafka.enums import ScramMechanism

    from quorate_admin.types.credentials import UserScramCredentialUpsertion

    if not alteration.user:
        return ServerError(ErrorCode.unacceptable_credential, "the user's name is empty")
    if alteration.mechanism is ScramMechanism.UNKNOWN:
        return ServerError(
            ErrorCode.unsupported_sasl_mechanism, "the mechanism is neither SCRAM-SHA-256 nor SCRAM-SHA-512"
        )
    if isinstance(alteration, UserScramCredentialUpsertion):
        if not alteration.password:
            return ServerError(ErrorCode.unacceptable_credential, "the password is empty")
        if alteration.iterations < 1:
            return ServerError(
                ErrorCode.unacceptable_credential, f"iterations are {alteration.iterations}: not positive"
            )
    return None


def _upsertion(alteration: UserScramCredentialUpsertion) -> Any:
    import hashlib

    from quorate_protocol.kafka.generated.alter_user_scram_credentials_request import ScramCredentialUpsertion

    password = alteration.password
    salt = salt_of(randbits(SALT_BITS)) if alteration.salt is None else alteration.salt
    # The function Hi of RFC 5802, which is PBKDF2 with HMAC.
    salted_password = hashlib.pbkdf2_hmac(
        alteration.mechanism.hash_name,
        password.encode() if isinstance(password, str) else password,
        salt,
        alteration.iterations,
    )
    return ScramCredentialUpsertion(
        name=alteration.user,
        mechanism=alteration.mechanism,
        iterations=alteration.iterations,
        salt=salt,
        salted_password=salted_password,
    )


def _principal(token: Any) -> KafkaPrincipal:
    from quorate_admin.types.credentials import KafkaPrincipal

    return KafkaPrincipal(token.principal_type, token.principal_name)


def _requester(token: Any) -> KafkaPrincipal:
    from quorate_admin.types.credentials import KafkaPrincipal

    requester = KafkaPrincipal(token.token_requester_principal_type, token.token_requester_principal_name)
    return requester if requester.principal_type else _principal(token)


def _unix_ms(time: datetime) -> int:
    return (time - EPOCH) // MILLISECOND
