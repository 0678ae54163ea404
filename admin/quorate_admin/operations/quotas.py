"""Operations on client quotas (KIP-546)."""

from collections.abc import Iterable, Mapping

from quorate_admin.operations.base import Operations
from quorate_admin.results import Results
from quorate_admin.types.quotas import ClientQuotaAlteration, ClientQuotaEntity, ClientQuotaFilter

__all__ = ("QuotaOperations",)


class QuotaOperations(Operations):
    """Quotas are altered through brokers or controllers, and described by brokers."""

    async def describe_client_quotas(
        self, quota_filter: ClientQuotaFilter | None = None, *, timeout_ms: int | None = None
    ) -> Mapping[ClientQuotaEntity, Mapping[str, float]]:
        """The quotas of the entities that match, by quota name (DescribeClientQuotas); no filter: of all.

        Raises ServerError, UnsupportedEndpointError with bootstrap controllers, other AdminErrors.
        """
        raise NotImplementedError

    async def alter_client_quotas(
        self,
        alterations: Iterable[ClientQuotaAlteration],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[ClientQuotaEntity, None]:
        """Set and remove quotas (AlterClientQuotas). Raises AdminError without an answer."""
        raise NotImplementedError
