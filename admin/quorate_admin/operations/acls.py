"""Operations on ACLs (KIP-140)."""

from collections.abc import Iterable

from quorate_admin.operations.base import Operations
from quorate_admin.results import Results
from quorate_admin.types.acls import ANY_ACL, AclBinding, AclBindingFilter, AclDeletion

__all__ = ("AclOperations",)


class AclOperations(Operations):
    """ACLs are kept by the controllers; with an authorizer switched off they answer SECURITY_DISABLED."""

    async def describe_acls(
        self, acl_filter: AclBindingFilter = ANY_ACL, *, timeout_ms: int | None = None
    ) -> tuple[AclBinding, ...]:
        """The bindings that match (DescribeAcls). Raises ServerError, other AdminErrors."""
        raise NotImplementedError

    async def create_acls(
        self, bindings: Iterable[AclBinding], *, timeout_ms: int | None = None
    ) -> Results[AclBinding, None]:
        """Create bindings (CreateAcls); what there is already stays. Raises AdminError without an answer."""
        raise NotImplementedError

    async def delete_acls(
        self, filters: Iterable[AclBindingFilter], *, timeout_ms: int | None = None
    ) -> Results[AclBindingFilter, tuple[AclDeletion, ...]]:
        """Delete all bindings that match one of the filters (DeleteAcls); what each filter matched."""
        raise NotImplementedError
