"""ACLs: what is created, deleted and described, and what Kafka says to what is wrong."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from kit.controller_parts import response_of
from quorate_controller.control.acls import MATCHES_MAX, AclManager
from quorate_controller.control.api import ControlError, RequestContext
from quorate_controller.control.steps import ITEM, LOOK, RECORD, STEP_WORK_MAX
from quorate_controller.security.authorizer import Authorizer
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image import MetadataImage
from quorate_protocol.image.security import AccessControlEntry
from quorate_protocol.kafka.enums import AclOperation, AclPermissionType, PatternType, ResourceType
from quorate_protocol.kafka.generated.create_acls_request import AclCreation, CreateAclsRequest
from quorate_protocol.kafka.generated.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from quorate_protocol.kafka.generated.describe_acls_request import DescribeAclsRequest
from quorate_protocol.records.generated import FeatureLevelRecord

CONTEXT = RequestContext(now_ms=0, next_offset=0, api_version=3)
ORDERS = AclCreation(
    resource_type=ResourceType.TOPIC,
    resource_name="orders",
    resource_pattern_type=PatternType.LITERAL,
    principal="User:alice",
    host="*",
    operation=AclOperation.READ,
    permission_type=AclPermissionType.ALLOW,
)
ANY = DescribeAclsRequest(
    resource_type_filter=ResourceType.ANY,
    resource_name_filter=None,
    pattern_type_filter=PatternType.ANY,
    principal_filter=None,
    host_filter=None,
    operation=AclOperation.ANY,
    permission_type=AclPermissionType.ANY,
)

NO_COLON = (
    "Could not parse principal from `alice` (no colon is present separating the principal type from the principal "
    "name)"
)
SUCCESS = (ErrorCode.none, "")


class Acls:
    """A manager over an image, which its records are replayed into."""

    def __init__(self, metadata_version: int = 33, *, has_authorizer: bool = True) -> None:
        self.image = MetadataImage()
        self.set_level(metadata_version)
        authorizer = Authorizer(self.image) if has_authorizer else None
        self.manager = AclManager(self.image, authorizer, Random(1))
        self.written = 0

    def set_level(self, metadata_version: int) -> None:
        """Replay a metadata version."""
        level = FeatureLevelRecord(name="metadata.version", feature_level=metadata_version)
        self.image.replay_all([level], base_offset=self.image.end_offset)

    def _apply(self, result: Any) -> Any:
        return response_of(result, self._write)

    def _write(self, records: Sequence[Any]) -> None:
        self.image.replay_all(records, base_offset=self.image.end_offset)
        self.written += len(records)

    def create(self, *creations: AclCreation) -> list[tuple[ErrorCode, str | None]]:
        """The result of each ACL."""
        response = self._apply(self.manager.create_acls(CreateAclsRequest(creations=creations), CONTEXT))
        return [(result.error_code, result.error_message) for result in response.results]

    def delete(self, *filters: DeleteAclsFilter) -> Any:
        """The results of filters."""
        return self._apply(
            self.manager.delete_acls(DeleteAclsRequest(filters=filters), CONTEXT)
        ).filter_results

    def described(self, **changes: Any) -> list[str]:
        """The ACLs that a filter finds, each as text, in the order of the response."""
        response = response_of(self.manager.describe_acls(replace(ANY, **changes), CONTEXT))
        return [
            f"{PatternType(resource.pattern_type)} {resource.resource_name} {acl.principal} "
            f"{AclOperation(acl.operation)}"
            for resource in response.resources
            for acl in resource.acls
        ]


def filter_of(**changes: Any) -> DeleteAclsFilter:
    """A filter that matches all, with changes."""
    fields = {name: getattr(ANY, name) for name in ANY.__dataclass_fields__ if not name.startswith("__")}
    return DeleteAclsFilter(**{**fields, **changes})


def test_acls_are_created_once() -> None:
    acls = Acls()
    assert acls.create(ORDERS, ORDERS, replace(ORDERS, operation=AclOperation.WRITE)) == [SUCCESS] * 3
    assert acls.written == 2
    assert acls.create(ORDERS) == [SUCCESS]
    assert acls.written == 2
    assert acls.described() == ["LITERAL orders User:alice READ", "LITERAL orders User:alice WRITE"]


@pytest.mark.parametrize(
    ("changes", "error_code", "message"),
    [
        ({"resource_type": 1}, ErrorCode.invalid_request, "Invalid resourceType ANY"),
        ({"resource_type": 99}, ErrorCode.invalid_request, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": 2}, ErrorCode.invalid_request, "Invalid patternType MATCH"),
        ({"resource_pattern_type": 0}, ErrorCode.invalid_request, "Invalid patternType UNKNOWN"),
        ({"operation": 1}, ErrorCode.invalid_request, "Invalid operation ANY"),
        ({"permission_type": 1}, ErrorCode.invalid_request, "Invalid permissionType ANY"),
        ({"resource_name": ""}, ErrorCode.invalid_request, "Invalid empty resource name"),
        (
            {"resource_type": ResourceType.CLUSTER},
            ErrorCode.invalid_request,
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        (
            {"principal": "alice"},
            ErrorCode.invalid_request,
            NO_COLON,
        ),
        ({"host": ""}, ErrorCode.invalid_request, "Host pattern cannot be null or empty"),
        (
            {"host": "10.0.0.0/33"},
            ErrorCode.invalid_request,
            "Invalid CIDR notation '10.0.0.0/33': Value [33] not in range [0,32]",
        ),
    ],
)
def test_wrong_acls_are_refused_alone(changes: dict[str, Any], error_code: ErrorCode, message: str) -> None:
    """Kafka's code and text, and the others of the request succeed."""
    acls = Acls()
    assert acls.create(replace(ORDERS, **changes), ORDERS) == [(error_code, message), SUCCESS]
    assert acls.written == 1


def test_blocks_of_addresses_need_a_level() -> None:
    message = "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."
    block = replace(ORDERS, host="10.0.0.0/8")
    assert Acls(31).create(block) == [(ErrorCode.unsupported_version, message)]
    assert Acls(32).create(block) == [SUCCESS]


def test_a_filter_finds_by_each_field_and_by_match() -> None:
    """Filters mean what they mean in Kafka (KIP-290)."""
    acls = Acls()
    prefix = replace(ORDERS, resource_name="or", resource_pattern_type=PatternType.PREFIXED)
    wildcard = replace(ORDERS, resource_name="*", principal="User:bob")
    group = replace(ORDERS, resource_type=ResourceType.GROUP, host="10.0.0.1")
    acls.create(ORDERS, prefix, wildcard, group)
    literal, of_prefix, of_all = (
        "LITERAL orders User:alice READ",
        "PREFIXED or User:alice READ",
        "LITERAL * User:bob READ",
    )
    topic = {"resource_type_filter": ResourceType.TOPIC}
    assert acls.described(**topic) == [of_all, of_prefix, literal]
    assert acls.described(principal_filter="User:bob") == [of_all]
    assert acls.described(host_filter="10.0.0.1") == [literal]
    assert acls.described(operation=AclOperation.WRITE) == []
    assert acls.described(permission_type=AclPermissionType.DENY) == []
    assert acls.described(pattern_type_filter=PatternType.PREFIXED) == [of_prefix]
    assert acls.described(**topic, resource_name_filter="orders") == [literal]
    matching = {**topic, "pattern_type_filter": PatternType.MATCH}
    assert acls.described(**matching, resource_name_filter="orders") == [of_all, of_prefix, literal]
    assert acls.described(**matching, resource_name_filter="o") == [of_all]
    assert acls.described(**matching) == [of_all, of_prefix, literal]


def test_filters_delete_what_they_match() -> None:
    acls = Acls()
    acls.create(ORDERS, replace(ORDERS, operation=AclOperation.WRITE), replace(ORDERS, resource_name="x"))
    by_name, by_operation, nothing, unknown, unknown_operation = acls.delete(
        filter_of(resource_name_filter="orders"),
        filter_of(operation=AclOperation.READ),
        filter_of(principal_filter="User:nobody"),
        filter_of(resource_type_filter=77),
        filter_of(operation=77),
    )
    assert {acl.operation for acl in by_name.matching_acls} == {AclOperation.READ, AclOperation.WRITE}
    assert {acl.resource_name for acl in by_operation.matching_acls} == {"orders", "x"}
    assert nothing.error_code is ErrorCode.none
    assert nothing.matching_acls == ()
    assert (unknown.error_code, unknown.error_message) == (
        ErrorCode.invalid_request,
        "Unknown patternFilter.",
    )
    assert unknown_operation.error_message == "Unknown entryFilter."
    assert acls.written == 3 + 3
    assert acls.described() == []


def test_one_decision_has_at_most_10000_acls() -> None:
    acls = Acls()
    many = [replace(ORDERS, resource_name=f"t{number}") for number in range(10_001)]
    with pytest.raises(ControlError) as refusal:
        acls.create(*many)
    assert refusal.value.error_code is ErrorCode.policy_violation
    assert acls.written == 0
    acls.create(*many[:-1])
    acls.create(many[-1])
    with pytest.raises(ControlError) as refusal:
        acls.delete(filter_of())
    assert refusal.value.error_code is ErrorCode.invalid_request
    assert refusal.value.message == "Cannot remove more than 10000 acls in a single delete operation."
    assert len(acls.image.acls) == 10_001


def test_without_an_authorizer_security_is_disabled() -> None:
    acls = Acls(has_authorizer=False)
    for ask, message in (
        (acls.described, "No Authorizer is configured on the broker"),
        (lambda: acls.create(ORDERS), "No Authorizer is configured."),
        (lambda: acls.delete(filter_of()), "No Authorizer is configured."),
    ):
        with pytest.raises(ControlError) as refusal:
            ask()
        assert (refusal.value.error_code, refusal.value.message) == (ErrorCode.security_disabled, message)


def test_unknown_numbers_in_a_filter_are_refused() -> None:
    """A filter of a newer client does not look like one that finds nothing."""
    with pytest.raises(ControlError, match="Unknown entryFilter"):
        Acls().described(operation=77)


def test_a_long_deletion_deletes_what_is_still_there() -> None:
    acls = Acls()
    matching = [replace(ORDERS, resource_name=f"mine-{number}") for number in range(5)]
    others = [replace(ORDERS, resource_name=f"x{number}", principal="User:bob") for number in range(8_000)]
    acls.create(*matching, *others)
    alice = filter_of(principal_filter="User:alice")
    result = acls.manager.delete_acls(
        DeleteAclsRequest(filters=(alice, filter_of(operation=0), alice)), CONTEXT
    )
    assert result.steps is not None
    assert result.records == ()
    acls.delete(filter_of(resource_name_filter="mine-1"), filter_of(resource_name_filter="x7"))
    acls.create(replace(ORDERS, resource_name="late"))
    first, wrong, again = acls._apply(result).filter_results
    assert [acl.resource_name for acl in first.matching_acls] == ["mine-0", "mine-2", "mine-3", "mine-4"]
    assert again == first
    assert wrong.error_code is ErrorCode.invalid_request
    assert acls.described(principal_filter="User:alice") == ["LITERAL late User:alice READ"]
    assert len(acls.described()) == len(others)


@pytest.mark.parametrize(("level", "of_block"), [(33, ErrorCode.none), (31, ErrorCode.unsupported_version)])
def test_each_step_of_a_long_creation_decides_on_what_there_is(level: int, of_block: ErrorCode) -> None:
    acls = Acls()
    in_first_step = STEP_WORK_MAX // (ITEM + RECORD)
    many = [replace(ORDERS, resource_name=f"x{number}") for number in range(3 * in_first_step)]
    block = replace(ORDERS, host="10.0.0.0/8")
    acls.create(*many[-10:])
    result = acls.manager.create_acls(CreateAclsRequest(creations=(*many, block, many[0])), CONTEXT)
    assert result.steps is not None
    assert (len(result.records), result.response) == (in_first_step + 1, None)
    acls._write(result.records)
    acls.create(many[in_first_step + 20])
    acls.delete(filter_of(resource_name_filter=many[-1].resource_name))
    acls.set_level(level)
    written = acls.written
    *others, of_blocks, again = acls._apply(replace(result, records=())).results
    assert of_blocks.error_code is of_block
    assert {other.error_code for other in (*others, again)} == {ErrorCode.none}
    has_block = of_block is ErrorCode.none
    assert acls.written - written == len(many) - (in_first_step + 1) - 1 - 9 + has_block
    names = [creation.resource_name for creation in many] + ["orders"] * has_block
    assert acls.described() == [f"LITERAL {name} User:alice READ" for name in sorted(names)]


def test_no_step_of_a_creation_checks_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of bindings delay no other request, whether they are new, repeated or wrong."""
    acls = Acls()
    kinds = (ORDERS, replace(ORDERS, principal="alice"))
    creations = tuple(
        replace(kinds[number % 3 == 2], resource_name=f"x{number % 700}") for number in range(5_000)
    )
    expected = [Acls().create(creation)[0] for creation in creations[:3]]
    checked: list[AclCreation] = []
    check_new = acls.manager._check_new
    monkeypatch.setattr(
        acls.manager, "_check_new", lambda creation: (checked.append(creation), check_new(creation))
    )
    results = acls.create(*creations)
    assert checked == list(creations)
    assert acls.written == 700
    assert results == [expected[2 if number % 3 == 2 else 0] for number in range(5_000)]
    checked.clear()
    steps = acls.manager.create_acls(CreateAclsRequest(creations=creations), CONTEXT).steps
    assert steps is not None
    counts = [len(checked)]
    for _ in steps:
        counts.append(len(checked) - sum(counts))
    assert max(counts) == STEP_WORK_MAX // ITEM


def test_a_repeated_acl_is_found_without_comparing_those_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of hosts of one principal on one resource are no trap."""
    acls = Acls()
    hosts = [replace(ORDERS, host=f"10.0.{number // 256}.{number % 256}") for number in range(2_000)]
    acls.create(*hosts)
    compared = 0
    equal = AccessControlEntry.__eq__

    def counting(acl: AccessControlEntry, other: object) -> bool:
        nonlocal compared
        compared += 1
        return equal(acl, other)

    monkeypatch.setattr(AccessControlEntry, "__eq__", counting)
    assert acls.create(*hosts) == [SUCCESS] * 2_000
    assert acls.written == 2_000
    assert compared < 3 * 2_000


def test_no_step_of_a_deletion_compares_many() -> None:
    """100 filters on thousands of ACLs delay no other request, and their response is bounded."""
    acls = Acls()
    acls.create(*(replace(ORDERS, resource_name=f"x{number}") for number in range(2_000)))
    filters = tuple(filter_of(resource_name_filter=f"no-{number}") for number in range(100))
    result = acls.manager.delete_acls(DeleteAclsRequest(filters=filters), CONTEXT)
    assert 1 + len(list(result.steps)) >= 100 * 2_000 * LOOK // STEP_WORK_MAX
    with pytest.raises(ControlError) as refusal:
        acls.delete(*(filter_of(),) * (MATCHES_MAX // 2_000 + 1))
    assert refusal.value.error_code is ErrorCode.invalid_request
    assert f"at most {MATCHES_MAX} can be reported" in refusal.value.message
