"""What handlers answer about single resources to a sender who may do a part of it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from quorate_controller.control.api import ControlError, RequestContext
from quorate_controller.security.access import Audited, RestrictedAccess
from quorate_controller.security.authorizer import CLUSTER_NAME, Authorizer
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image.security import AccessControlEntry
from quorate_protocol.kafka.enums import (
    AclOperation,
    AclPermissionType,
    ConfigResourceType,
    PatternType,
    ResourceType,
    operations_of_bits,
)
from quorate_protocol.kafka.generated import alter_configs_request as legacy_configs
from quorate_protocol.kafka.generated import create_partitions_request as grow
from quorate_protocol.kafka.generated import create_topics_request as create
from quorate_protocol.kafka.generated import delete_topics_request as delete
from quorate_protocol.kafka.generated import describe_configs_request as describe
from quorate_protocol.kafka.generated import incremental_alter_configs_request as configs
from quorate_protocol.kafka.generated.create_delegation_token_request import CreateDelegationTokenRequest
from quorate_protocol.kafka.generated.describe_cluster_request import DescribeClusterRequest

ALICE = "User:alice"
TIMEOUT = timedelta(seconds=30)
TOPIC_FAILED = ErrorCode.topic_authorization_failed
CLUSTER_FAILED = ErrorCode.cluster_authorization_failed
GROUP_FAILED = ErrorCode.group_authorization_failed
NONE = ErrorCode.none


class Alice:
    """A user of a controller, who may do nothing yet; what the audit got is in `denied`."""

    def __init__(self, harness: Any) -> None:
        self.harness = harness
        self.authorizer = Authorizer(harness.image)
        self.denied: list[str] = []

    def may(self, operation: AclOperation, name: str, resource_type: ResourceType) -> None:
        """Add an ACL."""
        acl = AccessControlEntry(
            resource_type=resource_type,
            resource_name=name,
            pattern_type=PatternType.LITERAL,
            principal=ALICE,
            host="*",
            operation=operation,
            permission_type=AclPermissionType.ALLOW,
        )
        image = self.harness.image
        image.replay_all([acl.to_record(uuid4())], base_offset=image.end_offset)

    def may_topic(self, operation: AclOperation, *names: str) -> None:
        """Add ACLs of topics."""
        for name in names:
            self.may(operation, name, ResourceType.TOPIC)

    def may_cluster(self, operation: AclOperation) -> None:
        """Add an ACL of the cluster."""
        self.may(operation, CLUSTER_NAME, ResourceType.CLUSTER)

    def asks(self, request: Any) -> Any:
        """The response to a request of hers; its records are replayed."""
        access = RestrictedAccess(
            self.authorizer,
            principal=ALICE,
            host="10.0.0.1",
            api="Test",
            audit=self._audit,
            audits_allowed=False,
        )
        context = RequestContext(
            now_ms=self.harness.now_ms,
            next_offset=self.harness.image.end_offset,
            api_version=type(request).__version__,
            principal=ALICE,
            listener="CONTROLLER",
            forwarded=True,
            access=access,
        )
        return self.harness.replay_result(self.harness.control.decide(request, context))

    def _audit(self, audited: Audited) -> None:
        action = audited.action
        self.denied.append(f"{action.operation} {action.resource_type} {action.resource_name}")


@pytest.fixture
def alice(harness: Any) -> Alice:
    """A user who may do nothing, in a cluster with a broker."""
    harness.start_broker(0)
    return Alice(harness)


def creation(*names: str) -> create.CreateTopicsRequest:
    """A request for new topics."""
    topics = tuple(
        create.CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=(), configs=())
        for name in names
    )
    return create.CreateTopicsRequest(topics=topics, timeout=TIMEOUT)


def test_topics_are_created_by_name_or_by_the_cluster(alice: Alice) -> None:
    alice.may_topic(AclOperation.CREATE, "mine", "seen")
    alice.may_topic(AclOperation.DESCRIBE_CONFIGS, "seen", "other")
    results = {
        topic.name: topic
        for topic in alice.asks(creation("mine", "seen", "other", "__cluster_metadata")).topics
    }
    assert (results["mine"].error_code, results["mine"].topic_config_error_code) == (NONE, TOPIC_FAILED)
    assert (results["mine"].configs, results["mine"].num_partitions) == ((), -1)
    assert (results["seen"].error_code, results["seen"].topic_config_error_code) == (NONE, NONE)
    assert results["seen"].configs
    assert results["seen"].num_partitions == 1
    assert (results["other"].error_code, results["other"].error_message) == (
        TOPIC_FAILED,
        "Authorization failed.",
    )
    assert results["__cluster_metadata"].error_code is ErrorCode.invalid_request
    assert alice.denied == ["CREATE TOPIC other"]
    alice.may_cluster(AclOperation.CREATE)
    (result,) = alice.asks(creation("other")).topics
    assert result.error_code is NONE


def test_only_topics_that_may_be_altered_grow(alice: Alice) -> None:
    alice.harness.apply(creation("a", "b"))
    alice.may_topic(AclOperation.ALTER, "a")
    topics = tuple(
        grow.CreatePartitionsTopic(name=name, count=2, assignments=None) for name in ("a", "b", "c", "c")
    )
    response = alice.asks(grow.CreatePartitionsRequest(topics=topics, timeout=TIMEOUT, validate_only=False))
    assert {result.name: result.error_code for result in response.results} == {
        "a": NONE,
        "b": TOPIC_FAILED,
        "c": ErrorCode.invalid_request,
    }
    assert {result.error_message for result in response.results if result.name == "b"} == {None}


def test_deleting_tells_nothing_of_topics_that_one_may_not_describe(alice: Alice) -> None:
    """Absent and hidden topics look the same by name, and hidden names stay hidden by id."""
    names = ("deletable", "seen", "hidden", "seen-by-id", "hidden-by-id")
    alice.harness.apply(creation(*names))
    by_name = {name: alice.harness.image.topics.by_name[name].topic_id for name in names}
    alice.may_topic(AclOperation.DELETE, "deletable")
    alice.may_topic(AclOperation.DESCRIBE, "seen", "seen-by-id", "absent-and-seen")
    asked = [
        delete.DeleteTopicState(name=name, topic_id=None)
        for name in ("deletable", "seen", "hidden", "absent", "absent-and-seen")
    ] + [
        delete.DeleteTopicState(name=None, topic_id=by_name[name]) for name in ("seen-by-id", "hidden-by-id")
    ]
    request = delete.DeleteTopicsRequest(topics=tuple(asked), timeout=TIMEOUT)
    results = {(result.name, result.topic_id): result.error_code for result in alice.asks(request).responses}
    assert results == {
        ("deletable", by_name["deletable"]): NONE,
        ("seen", None): TOPIC_FAILED,
        ("hidden", None): TOPIC_FAILED,
        ("absent", None): TOPIC_FAILED,
        ("absent-and-seen", None): ErrorCode.unknown_topic_or_partition,
        ("seen-by-id", by_name["seen-by-id"]): TOPIC_FAILED,
        (None, by_name["hidden-by-id"]): TOPIC_FAILED,
    }
    assert set(alice.harness.image.topics.by_name) == set(names) - {"deletable"}
    alice.may_cluster(AclOperation.DELETE)
    rest = tuple(delete.DeleteTopicState(name=name, topic_id=None) for name in ("seen", "hidden"))
    response = alice.asks(delete.DeleteTopicsRequest(topics=rest, timeout=TIMEOUT))
    assert {result.error_code for result in response.responses} == {NONE}


RESOURCES = (
    (ConfigResourceType.TOPIC, "t", TOPIC_FAILED, "Topic authorization failed."),
    (ConfigResourceType.GROUP, "g", GROUP_FAILED, "Group authorization failed."),
    (ConfigResourceType.BROKER, "0", CLUSTER_FAILED, "Cluster authorization failed."),
    (ConfigResourceType.CLIENT_METRICS, "m", CLUSTER_FAILED, "Cluster authorization failed."),
    (ConfigResourceType.BROKER_LOGGER, "3000", CLUSTER_FAILED, "Cluster authorization failed."),
)
ACL_OF = {
    ConfigResourceType.TOPIC: (ResourceType.TOPIC, "t"),
    ConfigResourceType.GROUP: (ResourceType.GROUP, "g"),
}


@pytest.mark.parametrize(("kind", "name", "error_code", "message"), RESOURCES, ids=str)
def test_configs_need_an_acl_of_their_resource(
    alice: Alice, kind: ConfigResourceType, name: str, error_code: ErrorCode, message: str
) -> None:
    alice.harness.apply(creation("t"))

    def altered() -> tuple[ErrorCode, str | None]:
        resource = configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=())
        request = configs.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        (result,) = alice.asks(request).responses
        return result.error_code, result.error_message

    def described() -> tuple[ErrorCode, str | None]:
        known = describe.DescribeConfigsResource(
            resource_type=ConfigResourceType.TOPIC, resource_name="other", configuration_keys=None
        )
        resource = replace(known, resource_type=kind, resource_name=name if kind != 2 else "t")
        resource = replace(resource, resource_name="3000") if kind == ConfigResourceType.BROKER else resource
        request = describe.DescribeConfigsRequest(resources=(resource,))
        (result,) = alice.asks(request).results
        assert error_code is not result.error_code or result.configs == ()
        return result.error_code, result.error_message

    assert altered() == (error_code, message)
    assert described() == (error_code, message)
    acl = ACL_OF.get(kind, (ResourceType.CLUSTER, CLUSTER_NAME))
    alice.may(AclOperation.DESCRIBE_CONFIGS, acl[1], acl[0])
    assert described()[0] is NONE
    assert altered() == (error_code, message)
    is_logger = kind is ConfigResourceType.BROKER_LOGGER
    alice.may(AclOperation.CLUSTER_ACTION if is_logger else AclOperation.ALTER_CONFIGS, acl[1], acl[0])
    assert altered()[0] is NONE


def test_replacing_configs_needs_the_same_acl(alice: Alice) -> None:
    alice.harness.apply(creation("t"))
    resource = legacy_configs.AlterConfigsResource(
        resource_type=ConfigResourceType.TOPIC, resource_name="t", configs=()
    )
    request = legacy_configs.AlterConfigsRequest(resources=(resource,), validate_only=False)
    assert [response.error_code for response in alice.asks(request).responses] == [TOPIC_FAILED]
    alice.may_topic(AclOperation.ALTER_CONFIGS, "t")
    assert [response.error_code for response in alice.asks(request).responses] == [NONE]


def test_resources_that_one_may_not_see_come_last(alice: Alice) -> None:
    alice.harness.apply(creation("hidden", "seen"))
    alice.may_topic(AclOperation.DESCRIBE_CONFIGS, "seen")
    resources = tuple(
        describe.DescribeConfigsResource(
            resource_type=ConfigResourceType.TOPIC, resource_name=name, configuration_keys=None
        )
        for name in ("hidden", "seen")
    )
    results = alice.asks(describe.DescribeConfigsRequest(resources=resources)).results
    assert [(result.resource_name, result.error_code) for result in results] == [
        ("seen", NONE),
        ("hidden", TOPIC_FAILED),
    ]


def test_the_cluster_is_described_with_what_one_may_do(alice: Alice) -> None:
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=True, endpoint_type=2, include_fenced_brokers=False
    )
    with pytest.raises(ControlError) as refusal:
        alice.asks(request)
    assert refusal.value.error_code is CLUSTER_FAILED
    assert str(refusal.value) == "Request DescribeCluster needs ALTER permission."
    alice.may_cluster(AclOperation.ALTER)
    alice.may_cluster(AclOperation.CREATE)
    operations = operations_of_bits(alice.asks(request).cluster_authorized_operations)
    assert operations == {AclOperation.ALTER, AclOperation.CREATE, AclOperation.DESCRIBE}
    assert alice.denied == ["ALTER CLUSTER kafka-cluster"]


def test_a_token_for_somebody_else_needs_an_acl(harness: Any) -> None:
    alice = Alice(harness)
    request = CreateDelegationTokenRequest(
        owner_principal_type="User",
        owner_principal_name="bob",
        renewers=(),
        max_lifetime=timedelta(milliseconds=-1),
    )
    assert alice.asks(request).error_code is ErrorCode.delegation_token_authorization_failed
    own = replace(request, owner_principal_type=None, owner_principal_name=None)
    unavailable = alice.asks(own).error_code
    assert unavailable is not ErrorCode.delegation_token_authorization_failed
    alice.may(AclOperation.CREATE_TOKENS, "User:bob", ResourceType.USER)
    assert alice.asks(request).error_code is unavailable
