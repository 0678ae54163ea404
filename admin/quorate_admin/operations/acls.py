"""Operations on ACLs (KIP-140)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quorate_protocol.errors import ErrorCode

from quorate_admin.errors import ServerError
from quorate_admin.operations.base import KeyedOperations, KeyResult, error_of
from quorate_admin.results import Results

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import timedelta

    from quorate_admin.types.acls import (
        AclBinding,
        AclBindingFilter,
        AclDeletion,
    )

    Deletions = tuple[AclDeletion, ...]


_INDEFINITE = ("UNKNOWN", "ANY", "MATCH")


class AclOperations(KeyedOperations):
    """Operations on ACLs. Clusters without an authorizer answer SECURITY_DISABLED."""

    async def describe_acls(
        self, acl_filter: AclBindingFilter | None = None, *, timeout_ms: int | None = None
    ) -> tuple[AclBinding, ...]:
        """The bindings that match the filter, or all (DescribeAcls).

        Raises:
            AdminError: no node answered; ServerError INVALID_REQUEST for a filter with UNKNOWN in it.
        """
        from quorate_protocol.kafka.generated.describe_acls_request import DescribeAclsRequest

        from quorate_admin.types.acls import ANY_ACL

        acl_filter = acl_filter or ANY_ACL
        if unknown := _fields_with(acl_filter, ("UNKNOWN",)):
            raise ServerError(ErrorCode.invalid_request, f"the filter's {unknown[0]} is UNKNOWN")
        response = await self._ask(DescribeAclsRequest(**_filter_fields(acl_filter)), timeout_ms=timeout_ms)
        return tuple(_binding(resource, acl) for resource in response.resources for acl in resource.acls)

    async def create_acls(
        self, bindings: Iterable[AclBinding], *, timeout_ms: int | None = None
    ) -> Results[AclBinding, None]:
        """Create bindings (CreateAcls). Existing bindings stay."""
        from quorate_protocol.kafka.generated.create_acls_request import AclCreation, CreateAclsRequest

        from quorate_admin.types.acls import AclBindingFilter

        refused = {}
        definite = []
        for binding in dict.fromkeys(bindings):
            if indefinite := _fields_with(AclBindingFilter.of(binding), _INDEFINITE):
                refused[binding] = ServerError(
                    ErrorCode.invalid_request, f"the {indefinite[0]} of an ACL must be definite: {binding}"
                )
            else:
                definite.append(binding)

        def request_for(asked: Sequence[AclBinding], _: timedelta) -> CreateAclsRequest:
            return CreateAclsRequest(
                creations=tuple(
                    AclCreation(
                        resource_type=binding.pattern.resource_type,
                        resource_name=binding.pattern.name,
                        resource_pattern_type=binding.pattern.pattern_type,
                        principal=binding.entry.principal,
                        host=binding.entry.host,
                        operation=binding.entry.operation,
                        permission_type=binding.entry.permission_type,
                    )
                    for binding in asked
                )
            )

        def results_of(response: Any, asked: Sequence[AclBinding]) -> Iterator[KeyResult[AclBinding, None]]:
            for binding, result in zip(asked, response.results, strict=False):
                yield KeyResult(binding, None, result.error_code, result.error_message)

        results = await self._ask_each(definite, request_for, results_of, timeout_ms=timeout_ms)
        return Results(results.values, {**results.errors, **refused})

    async def delete_acls(
        self, filters: Iterable[AclBindingFilter], *, timeout_ms: int | None = None
    ) -> Results[AclBindingFilter, Deletions]:
        """Delete all bindings that match one of the filters (DeleteAcls). Returns the matches of each filter."""
        from quorate_protocol.kafka.generated.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest

        from quorate_admin.types.acls import AclDeletion

        def request_for(asked: Sequence[AclBindingFilter], _: timedelta) -> DeleteAclsRequest:
            return DeleteAclsRequest(
                filters=tuple(DeleteAclsFilter(**_filter_fields(acl_filter)) for acl_filter in asked)
            )

        def results_of(
            response: Any, asked: Sequence[AclBindingFilter]
        ) -> Iterator[KeyResult[AclBindingFilter, Deletions]]:
            for acl_filter, result in zip(asked, response.filter_results, strict=False):
                deletions = tuple(
                    AclDeletion(binding=_binding(acl, acl), error=error_of(acl.error_code, acl.error_message))
                    for acl in result.matching_acls
                )
                yield KeyResult(acl_filter, deletions, result.error_code, result.error_message)

        return await self._ask_each(filters, request_for, results_of, timeout_ms=timeout_ms)


def _fields_with(acl_filter: AclBindingFilter, names: Sequence[str]) -> list[str]:
    """The fields of a filter whose value has one of these names."""
    values = {
        "resource type": acl_filter.pattern.resource_type.name,
        "pattern type": acl_filter.pattern.pattern_type.name,
        "operation": acl_filter.entry.operation.name,
        "permission type": acl_filter.entry.permission_type.name,
    }
    return [field for field, name in values.items() if name in names]


def _filter_fields(acl_filter: AclBindingFilter) -> Mapping[str, Any]:
    return {
        "resource_type_filter": acl_filter.pattern.resource_type,
        "resource_name_filter": acl_filter.pattern.name,
        "pattern_type_filter": acl_filter.pattern.pattern_type,
        "principal_filter": acl_filter.entry.principal,
        "host_filter": acl_filter.entry.host,
        "operation": acl_filter.entry.operation,
        "permission_type": acl_filter.entry.permission_type,
    }


def _binding(resource: Any, acl: Any) -> AclBinding:
    from quorate_protocol.kafka.enums import AclOperation, AclPermissionType, PatternType, ResourceType

    from quorate_admin.types.acls import AccessControlEntry, AclBinding, ResourcePattern

    return AclBinding(
        pattern=ResourcePattern(
            resource_type=ResourceType(resource.resource_type),
            name=resource.resource_name,
            pattern_type=PatternType(resource.pattern_type),
        ),
        entry=AccessControlEntry(
            principal=acl.principal,
            host=acl.host,
            operation=AclOperation(acl.operation),
            permission_type=AclPermissionType(acl.permission_type),
        ),
    )
