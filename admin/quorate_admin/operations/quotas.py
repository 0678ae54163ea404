"""Operations on client quotas (KIP-546)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quorate_admin.network.routing import To
from quorate_admin.operations.base import KeyedOperations, key_results

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import timedelta

    from quorate_admin.results import Results
    from quorate_admin.types.quotas import ClientQuotaAlteration, ClientQuotaEntity, ClientQuotaFilter


class QuotaOperations(KeyedOperations):
    """Brokers and controllers alter quotas. Brokers and controllers of Quorate describe them."""

    async def describe_client_quotas(
        self, quota_filter: ClientQuotaFilter | None = None, *, timeout_ms: int | None = None
    ) -> Mapping[ClientQuotaEntity, Mapping[str, float]]:
        """The quotas, by quota name, of the entities that match the filter, or of all (DescribeClientQuotas).
        Brokers, or controllers of Quorate.
        """
        from quorate_protocol.kafka.generated.describe_client_quotas_request import (
            ComponentData,
            DescribeClientQuotasRequest,
        )

        from quorate_admin.types.quotas import ClientQuotaFilter

        quota_filter = quota_filter or ClientQuotaFilter()
        request = DescribeClientQuotasRequest(
            components=tuple(
                ComponentData(
                    entity_type=component.entity_type, match_type=component.match, match=component.name
                )
                for component in quota_filter.components
            ),
            strict=quota_filter.is_strict,
        )
        response = await self._ask(request, To.READER, timeout_ms=timeout_ms)
        return {
            _entity(entry.entity): {value.key: value.value for value in entry.values}
            for entry in response.entries or ()
        }

    async def alter_client_quotas(
        self,
        alterations: Iterable[ClientQuotaAlteration],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[ClientQuotaEntity, None]:
        """Set and remove quotas (AlterClientQuotas). Alterations of the same entity are combined."""
        from quorate_protocol.kafka.generated.alter_client_quotas_request import (
            AlterClientQuotasRequest,
            EntityData,
            EntryData,
            OpData,
        )

        values: dict[ClientQuotaEntity, dict[str, float | None]] = {}
        for alteration in alterations:
            values.setdefault(alteration.entity, {}).update(alteration.values)

        def request_for(asked: Sequence[ClientQuotaEntity], _: timedelta) -> AlterClientQuotasRequest:
            return AlterClientQuotasRequest(
                entries=tuple(
                    EntryData(
                        entity=tuple(
                            EntityData(entity_type=kind, entity_name=name) for kind, name in entity.entries
                        ),
                        ops=tuple(
                            OpData(key=key, value=0.0 if value is None else value, remove=value is None)
                            for key, value in values[entity].items()
                        ),
                    )
                    for entity in asked
                ),
                validate_only=validate_only,
            )

        return await self._ask_each(
            values,
            request_for,
            lambda response, _: key_results(response.entries, lambda entry: _entity(entry.entity)),
            timeout_ms=timeout_ms,
        )


def _entity(parts: Any) -> ClientQuotaEntity:
    from quorate_admin.types.quotas import ClientQuotaEntity

    return ClientQuotaEntity.of({part.entity_type: part.entity_name for part in parts})
