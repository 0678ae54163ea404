"""The ACLs of the cluster: DescribeAcls, CreateAcls, DeleteAcls (KIP-140, KIP-290, KIP-801, KIP-1276).

Source: org.apache.kafka.controller.AclControlManager and kafka.server.AclApis of Kafka 4.4.0. Authorization
of the requests themselves is in `server/authorization.py`.
"""

from collections.abc import Generator, Sequence
from datetime import timedelta
from heapq import merge
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final
from uuid import UUID

from quorate_protocol import features
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image.security import AccessControlEntry
from quorate_protocol.kafka.enums import AclOperation, AclPermissionType, PatternType, ResourceType
from quorate_protocol.kafka.generated.create_acls_request import AclCreation, CreateAclsRequest
from quorate_protocol.kafka.generated.create_acls_response import AclCreationResult, CreateAclsResponse
from quorate_protocol.kafka.generated.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from quorate_protocol.kafka.generated.delete_acls_response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from quorate_protocol.kafka.generated.describe_acls_request import DescribeAclsRequest
from quorate_protocol.kafka.generated.describe_acls_response import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from quorate_protocol.records.generated import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from quorate_protocol.uuids import uuid_from

from quorate_controller.control.api import (
    RECORDS_PER_BATCH_MAX,
    ControlError,
    ControlResult,
    RequestContext,
    invalid_request,
    may_exceed_batch,
)
from quorate_controller.control.steps import ITEM, LOOK, Parts, StepBudget, Steps, begun, text_work
from quorate_controller.security.authorizer import CLUSTER_NAME, WILDCARD
from quorate_controller.security.hosts import ANY_HOST, check_block, is_block

if TYPE_CHECKING:
    from random import Random

    from quorate_protocol.image import MetadataImage

    from quorate_controller.security.authorizer import AclIndex, Authorizer

_Filter = DescribeAclsRequest | DeleteAclsFilter

ACLS_PER_STEP: Final = 512
"""ACLs that are sorted in one step: less than a millisecond."""
ACLS_PER_LOOK: Final = 256
"""ACLs that a filter is compared with between two checks of the step's budget."""
MATCHES_MAX: Final = 10 * RECORDS_PER_BATCH_MAX
"""ACLs that the filters of a deletion may match, counted for each filter. Kafka has no such bound."""

_SUCCESS: Final = AclCreationResult(error_code=ErrorCode.none, error_message="")
_UNKNOWN_OR_ANY: Final = (0, 1)
"""UNKNOWN and ANY of each enum of ACLs; neither can be stored."""


class AclManager:
    """Decides on ACLs; refuses with SECURITY_DISABLED without a configured authorizer."""

    def __init__(self, image: "MetadataImage", authorizer: "Authorizer | None", rng: "Random") -> None:
        self._image = image
        self._authorizer = authorizer
        self._rng = rng

    def describe_acls(self, request: DescribeAclsRequest, _context: RequestContext) -> ControlResult:
        """DescribeAcls 1-3, on any controller.

        Raises:
            ControlError: SECURITY_DISABLED; INVALID_REQUEST for a filter with a number that no enum has.
        """
        if self._authorizer is None:
            raise ControlError(ErrorCode.security_disabled, "No Authorizer is configured on the broker")
        _check_filter(request)
        return ControlResult(steps=self._describing(request))

    def _describing(self, request: DescribeAclsRequest) -> Generator[None, None, DescribeAclsResponse]:
        sorted_runs = []
        acls = iter(list(self._image.acls.values()))
        while some := list(islice(acls, ACLS_PER_STEP)):
            sorted_runs.append(sorted({acl for acl in some if _matches(request, acl)}, key=_sorted_as))
            yield
        resources = []
        in_order = (acl for acl, _ in groupby(merge(*sorted_runs, key=_sorted_as)))
        written = 0
        for (resource_type, name, pattern_type), of_resource in groupby(in_order, key=_resource_of):
            described = []
            for acl in of_resource:
                described.append(_description(acl))
                written += 1
                if written % ACLS_PER_STEP == 0:
                    yield
            resources.append(
                DescribeAclsResource(
                    resource_type=resource_type,
                    resource_name=name,
                    pattern_type=pattern_type,
                    acls=tuple(described),
                )
            )
        return DescribeAclsResponse(
            throttle_time=timedelta(0),
            error_code=ErrorCode.none,
            error_message="",
            resources=tuple(resources),
        )

    def create_acls(self, request: CreateAclsRequest, _context: RequestContext) -> ControlResult:
        """CreateAcls 1-3: each ACL succeeds or fails alone; an existing ACL succeeds without a record.

        Raises:
            ControlError: SECURITY_DISABLED; POLICY_VIOLATION for more than 10,000 new ACLs, here or at a step.
        """
        if self._authorizer is None:
            raise _disabled()
        return begun(self._creating(request, self._authorizer.acls))

    def _creating(self, request: CreateAclsRequest, existing: "AclIndex") -> Steps:
        if may_exceed_batch(len(request.creations)):
            yield from self._creating_each(request, existing, Parts.checking())
        parts = Parts()
        results = yield from self._creating_each(request, existing, parts)
        return parts.last(CreateAclsResponse(throttle_time=timedelta(0), results=tuple(results)))

    def _creating_each(
        self, request: CreateAclsRequest, existing: "AclIndex", parts: Parts
    ) -> Generator[ControlResult | None, None, list[AclCreationResult]]:
        results = []
        wanted: set[AccessControlEntry] = set()
        for creation in request.creations:
            result, acl = self._checked(creation)
            results.append(result)
            records: list[AccessControlEntryRecord] = []
            if acl is not None and acl not in wanted:
                wanted.add(acl)
                if acl not in existing:
                    records.append(acl.to_record(self._new_id()))
            texts = text_work(creation.resource_name, creation.principal, creation.host)
            if parts.add(records, ITEM + texts):
                yield parts.pop()
        return results

    def _checked(self, creation: AclCreation) -> tuple[AclCreationResult, AccessControlEntry | None]:
        """Return the result of an ACL, and the ACL if it may be stored."""
        try:
            self._check_new(creation)
        except ControlError as error:
            return AclCreationResult(error_code=error.error_code, error_message=error.message), None
        return _SUCCESS, _entry_of(creation)

    def delete_acls(self, request: DeleteAclsRequest, _context: RequestContext) -> ControlResult:
        """DeleteAcls 1-3: each filter succeeds or fails alone, and reports the ACLs that it matches.

        Raises:
            ControlError: SECURITY_DISABLED; INVALID_REQUEST for more than 10,000 ACLs, here or at a step.
        """
        if self._authorizer is None:
            raise _disabled()
        return begun(self._deleting(request))

    def _deleting(self, request: DeleteAclsRequest) -> Steps:
        """Compare filters and ACLs, then delete the matches that still exist. ACLs created in between stay."""
        budget = StepBudget()
        acls = list(self._image.acls.items())
        if budget.spend(LOOK * len(acls)):
            yield None
        found: list[ControlError | list[tuple[UUID, AccessControlEntry]]] = []
        known: set[UUID] = set()
        matches = 0
        for wanted in request.filters:
            try:
                _check_filter(wanted)
            except ControlError as error:
                found.append(error)
                if budget.spend(ITEM):
                    yield None
                continue
            matching: list[tuple[UUID, AccessControlEntry]] = []
            for start in range(0, len(acls), ACLS_PER_LOOK):
                some = [acl for acl in acls[start : start + ACLS_PER_LOOK] if _matches(wanted, acl[1])]
                matching += some
                known.update(acl_id for acl_id, _ in some)
                matches += len(some)
                _check_deletion(len(known), matches)
                if budget.spend(LOOK * ACLS_PER_LOOK):
                    yield None
            found.append(matching)
            if budget.spend(ITEM):
                yield None
        parts = Parts()
        results = yield from self._deleting_each(found, parts)
        return parts.last(DeleteAclsResponse(throttle_time=timedelta(0), filter_results=tuple(results)))

    def _deleting_each(
        self, found: Sequence[ControlError | list[tuple[UUID, AccessControlEntry]]], parts: Parts
    ) -> Generator[ControlResult | None, None, list[DeleteAclsFilterResult]]:
        deleted: set[UUID] = set()
        results = []
        for matching in found:
            if isinstance(matching, ControlError):
                results.append(_filter_result(matching.error_code, matching.message))
                if parts.add(()):
                    yield parts.pop()
                continue
            matched = []
            for acl_id, acl in matching:
                records: list[RemoveAccessControlEntryRecord] = []
                if acl_id not in deleted and acl_id in self._image.acls:
                    deleted.add(acl_id)
                    records.append(RemoveAccessControlEntryRecord(id=acl_id))
                if acl_id in deleted:
                    matched.append(_matching_acl(acl))
                if parts.add(records):
                    yield parts.pop()
            results.append(_filter_result(matching=tuple(matched)))
        return results

    def _check_new(self, creation: AclCreation) -> None:
        """Check an ACL in the order in which Kafka does.

        Raises:
            ControlError: INVALID_REQUEST; UNSUPPORTED_VERSION for a block of addresses below 4.4-IV1.
        """
        resource_type = ResourceType(creation.resource_type)
        if resource_type is ResourceType.CLUSTER and creation.resource_name != CLUSTER_NAME:
            raise invalid_request(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
        if not creation.resource_name:
            raise invalid_request("Invalid empty resource name")
        if resource_type in _UNKNOWN_OR_ANY:
            raise invalid_request(f"Invalid resourceType {resource_type}")
        pattern_type = PatternType(creation.resource_pattern_type)
        if pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
            raise invalid_request(f"Invalid patternType {pattern_type}")
        operation = AclOperation(creation.operation)
        if operation in _UNKNOWN_OR_ANY:
            raise invalid_request(f"Invalid operation {operation}")
        permission_type = AclPermissionType(creation.permission_type)
        if permission_type in _UNKNOWN_OR_ANY:
            raise invalid_request(f"Invalid permissionType {permission_type}")
        if ":" not in creation.principal:
            raise invalid_request(
                f"Could not parse principal from `{creation.principal}` (no colon is present separating the "
                "principal type from the principal name)"
            )
        self._check_host(creation.host)

    def _check_host(self, host: str) -> None:
        if not host:
            raise invalid_request("Host pattern cannot be null or empty")
        if host == ANY_HOST or not is_block(host):
            return
        if self._image.metadata_version < features.ADDRESS_BLOCKS_SINCE:
            needed = features.metadata_version_name(features.ADDRESS_BLOCKS_SINCE)
            raise ControlError(
                ErrorCode.unsupported_version,
                f"CIDR-based ACL host patterns require metadata version {needed} or higher.",
            )
        try:
            check_block(host)
        except ValueError as error:
            raise invalid_request(f"Invalid CIDR notation '{host}': {error}") from None

    def _new_id(self) -> UUID:
        while True:
            acl_id = uuid_from(self._rng)
            if acl_id not in self._image.acls:
                return acl_id


def _disabled() -> ControlError:
    return ControlError(ErrorCode.security_disabled, "No Authorizer is configured.")


def _entry_of(creation: AclCreation) -> AccessControlEntry:
    return AccessControlEntry(
        resource_type=int(creation.resource_type),
        resource_name=creation.resource_name,
        pattern_type=int(creation.resource_pattern_type),
        principal=creation.principal,
        host=creation.host,
        operation=int(creation.operation),
        permission_type=int(creation.permission_type),
    )


def _check_filter(wanted: _Filter) -> None:
    pattern = ResourceType(wanted.resource_type_filter), PatternType(wanted.pattern_type_filter)
    if ResourceType.UNKNOWN in pattern or PatternType.UNKNOWN in pattern:
        raise invalid_request("Unknown patternFilter.")
    entry = AclOperation(wanted.operation), AclPermissionType(wanted.permission_type)
    if AclOperation.UNKNOWN in entry or AclPermissionType.UNKNOWN in entry:
        raise invalid_request("Unknown entryFilter.")


def _check_deletion(acls: int, matches: int) -> None:
    if acls > RECORDS_PER_BATCH_MAX:
        raise invalid_request(
            f"Cannot remove more than {RECORDS_PER_BATCH_MAX} acls in a single delete operation."
        )
    if matches > MATCHES_MAX:
        raise invalid_request(
            f"The filters match {matches} acls, at most {MATCHES_MAX} can be reported: use fewer filters."
        )


def _matches(wanted: _Filter, acl: AccessControlEntry) -> bool:
    """Whether a filter matches an ACL (AclBindingFilter.matches)."""
    return (
        wanted.resource_type_filter in (ResourceType.ANY, acl.resource_type)
        and wanted.principal_filter in (None, acl.principal)
        and wanted.host_filter in (None, acl.host)
        and wanted.operation in (AclOperation.ANY, acl.operation)
        and wanted.permission_type in (AclPermissionType.ANY, acl.permission_type)
        and _matches_name(wanted.pattern_type_filter, wanted.resource_name_filter, acl)
    )


def _matches_name(pattern_type: int, name: str | None, acl: AccessControlEntry) -> bool:
    """Whether an ACL has this pattern; with MATCH, whether it is about the resource with this name (KIP-290)."""
    if pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
        return False
    if name is None:
        return True
    if pattern_type != PatternType.MATCH:
        return name == acl.resource_name
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, WILDCARD)


def _resource_of(acl: AccessControlEntry) -> tuple[int, str, int]:
    return acl.resource_type, acl.resource_name, acl.pattern_type


def _sorted_as(acl: AccessControlEntry) -> tuple[int, str, int, int, str, str, int]:
    return (*_resource_of(acl), acl.operation, acl.principal, acl.host, acl.permission_type)


def _description(acl: AccessControlEntry) -> AclDescription:
    return AclDescription(
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


def _filter_result(
    error_code: ErrorCode = ErrorCode.none,
    message: str | None = None,
    matching: tuple[DeleteAclsMatchingAcl, ...] = (),
) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=error_code, error_message=message, matching_acls=matching)


def _matching_acl(acl: AccessControlEntry) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.none,
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )
