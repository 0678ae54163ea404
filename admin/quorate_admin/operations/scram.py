"""Operations on SCRAM credentials (KIP-554). Passwords never leave the client: their salted hashes do."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from quorate_protocol.errors import ErrorCode

from quorate_admin.errors import ServerError
from quorate_admin.operations.base import To
from quorate_admin.operations.keyed import KeyedOperations, Outcome, error_of
from quorate_admin.results import Results

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import timedelta

    from quorate_admin.types.scram import (
        UserScramCredentialDeletion,
        UserScramCredentialsDescription,
        UserScramCredentialUpsertion,
    )

    Alteration = UserScramCredentialUpsertion | UserScramCredentialDeletion

__all__ = ("SALT_SIZE_BYTES", "ScramOperations")

SALT_SIZE_BYTES: Final = 32


class ScramOperations(KeyedOperations):
    """Credentials of users, through brokers: controllers do not tell them, and Kafka's client asks them nothing."""

    async def describe_user_scram_credentials(
        self, users: Iterable[str] = (), *, timeout_ms: int | None = None
    ) -> Results[str, UserScramCredentialsDescription]:
        """The mechanisms and iterations of users' credentials (DescribeUserScramCredentials); none: of all.

        A user without credentials is an error RESOURCE_NOT_FOUND.

        :raises AdminError: also UnsupportedEndpointError with bootstrap controllers.
        """
        from kio.schema.describe_user_scram_credentials.v0.request import (
            DescribeUserScramCredentialsRequest,
            UserName,
        )
        from quorate_protocol.kafka.enums import ScramMechanism

        from quorate_admin.types.scram import ScramCredentialInfo, UserScramCredentialsDescription

        self._brokers_only("describe_user_scram_credentials")
        names = tuple(UserName(name=user) for user in dict.fromkeys(users))
        request = DescribeUserScramCredentialsRequest(users=names or None)
        response = await self._ask(request, To.ANY, timeout_ms=timeout_ms)
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
        """Set and delete credentials (AlterUserScramCredentials); results by user.

        A user of whom one alteration can't be made has none of them made.

        :raises AdminError: there was no answer at all; UnsupportedEndpointError with bootstrap controllers.
        """
        from kio.schema.alter_user_scram_credentials.v0.request import (
            AlterUserScramCredentialsRequest,
            ScramCredentialDeletion,
        )

        from quorate_admin.types.scram import UserScramCredentialDeletion, UserScramCredentialUpsertion

        self._brokers_only("alter_user_scram_credentials")
        by_user: dict[str, list[Alteration]] = {}
        refused: dict[str, ServerError] = {}
        for alteration in alterations:
            by_user.setdefault(alteration.user, []).append(alteration)
            if error := _refusal(alteration):
                refused[alteration.user] = error
        # Hashed once, also if the request has to be sent again: it takes thousands of rounds.
        upsertions = {
            user: [_upsertion(one) for one in group if isinstance(one, UserScramCredentialUpsertion)]
            for user, group in by_user.items()
            if user not in refused
        }

        def request_for(users: Sequence[str], _: timedelta) -> AlterUserScramCredentialsRequest:
            return AlterUserScramCredentialsRequest(
                deletions=tuple(
                    ScramCredentialDeletion(name=user, mechanism=one.mechanism)
                    for user in users
                    for one in by_user[user]
                    if isinstance(one, UserScramCredentialDeletion)
                ),
                upsertions=tuple(upsertion for user in users for upsertion in upsertions[user]),
            )

        def outcomes_of(response: Any, _: Sequence[str]) -> Iterator[Outcome[str, None]]:
            for result in response.results:
                yield Outcome(result.user, None, result.error_code, result.error_message)

        results = await self._ask_each(upsertions, request_for, outcomes_of, timeout_ms=timeout_ms)
        return Results(results.values, {**results.errors, **refused})


def _refusal(alteration: Alteration) -> ServerError | None:
    """Why an alteration can't be sent."""
    from quorate_protocol.kafka.enums import ScramMechanism

    from quorate_admin.types.scram import UserScramCredentialUpsertion

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

    from kio.schema.alter_user_scram_credentials.v0.request import ScramCredentialUpsertion

    password = alteration.password
    salt = os.urandom(SALT_SIZE_BYTES) if alteration.salt is None else alteration.salt
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
