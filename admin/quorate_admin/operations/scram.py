"""Operations on SCRAM credentials (KIP-554). Passwords never leave the client: their salted hashes do."""

from collections.abc import Iterable

from quorate_admin.operations.base import Operations
from quorate_admin.results import Results
from quorate_admin.types.scram import (
    UserScramCredentialDeletion,
    UserScramCredentialsDescription,
    UserScramCredentialUpsertion,
)

__all__ = ("ScramOperations",)


class ScramOperations(Operations):
    """Credentials of users, through brokers."""

    async def describe_user_scram_credentials(
        self, users: Iterable[str] = (), *, timeout_ms: int | None = None
    ) -> Results[str, UserScramCredentialsDescription]:
        """The mechanisms and iterations of users' credentials (DescribeUserScramCredentials); none: of all.

        A user without credentials is an error RESOURCE_NOT_FOUND.
        """
        raise NotImplementedError

    async def alter_user_scram_credentials(
        self,
        alterations: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion],
        *,
        timeout_ms: int | None = None,
    ) -> Results[str, None]:
        """Set and delete credentials (AlterUserScramCredentials); results by user.

        A user of whom one alteration can't be made has none of them made.
        """
        raise NotImplementedError
