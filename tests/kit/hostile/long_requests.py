"""The longest requests that a client may send, and what they are about."""

from datetime import timedelta
from typing import Any, Final

from kit.hostile.victim import Session
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.apis import ApiKey
from quorate_protocol.kafka.enums import (
    AclOperation,
    AclPermissionType,
    ConfigResourceType,
    PatternType,
    ResourceType,
)
from quorate_protocol.kafka.generated.create_acls_request import AclCreation, CreateAclsRequest
from quorate_protocol.kafka.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from quorate_protocol.kafka.generated.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from quorate_protocol.kafka.generated.describe_acls_request import DescribeAclsRequest
from quorate_protocol.kafka.generated.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from quorate_protocol.kafka.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from quorate_protocol.wire.codec import encode, write_unsigned_varint
from quorate_protocol.wire.frames import encode_frame
from quorate_protocol.wire.headers import encode_request_header
from quorate_protocol.wire.schema import ARRAY_ELEMENTS_MAX

TOPICS: Final = 10_000
ACLS: Final = 100_000
FILTERS: Final = 100
RESOURCES: Final = 300_000
_TOPICS_AT_ONCE: Final = 1_000
_ACLS_AT_ONCE: Final = 5_000
_RESOURCE: Final = "of-many-acls"


def fill(session: Session) -> None:
    """Create topics, and ACLs of one resource. A broker has to be registered."""
    for first in range(0, TOPICS, _TOPICS_AT_ONCE):
        topics = tuple(
            CreatableTopic(
                name=f"t{number}", num_partitions=1, replication_factor=1, assignments=(), configs=()
            )
            for number in range(first, first + _TOPICS_AT_ONCE)
        )
        created = session.ask(
            CreateTopicsRequest(topics=topics, timeout=timedelta(seconds=20), validate_only=False)
        )
        assert created.topics[0].error_code is ErrorCode.none, created.topics[0]
    for first in range(0, ACLS, _ACLS_AT_ONCE):
        creations = tuple(map(_acl, range(first, first + _ACLS_AT_ONCE)))
        made = session.ask(CreateAclsRequest(creations=creations))
        assert made.results[0].error_code is ErrorCode.none, made.results[0]


def _acl(number: int) -> AclCreation:
    return AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=_RESOURCE,
        resource_pattern_type=PatternType.LITERAL,
        principal=f"User:u{number}",
        host="*",
        operation=AclOperation.READ,
        permission_type=AclPermissionType.ALLOW,
    )


def all_configs() -> DescribeConfigsRequest:
    """All configs of all topics, with synonyms."""
    return DescribeConfigsRequest(
        resources=tuple(_topic(f"t{number}", None) for number in range(TOPICS)), include_synonyms=True
    )


def many_resources() -> DescribeConfigsRequest:
    """A config of topics that are not there, in few bytes each."""
    return DescribeConfigsRequest(resources=tuple(_topic("", ()) for _ in range(RESOURCES)))


def many_alterations() -> bytes:
    """The frame of an IncrementalAlterConfigs request of 53 MiB, with as many resources as an array may have."""
    config = AlterableConfig(name="c", config_operation=0, value="1")
    resource = AlterConfigsResource(
        resource_type=ConfigResourceType.TOPIC, resource_name="t" * 46, configs=(config,)
    )
    single = encode(IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False))
    array = bytearray()
    write_unsigned_varint(array, ARRAY_ELEMENTS_MAX + 1)
    header = encode_request_header(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, 1, "hostile", 2)
    return encode_frame(header + array + single[1:-2] * ARRAY_ELEMENTS_MAX + single[-2:])


def _topic(name: str, keys: tuple[str, ...] | None) -> DescribeConfigsResource:
    return DescribeConfigsResource(
        resource_type=ConfigResourceType.TOPIC, resource_name=name, configuration_keys=keys
    )


def all_acls() -> DescribeAclsRequest:
    """All ACLs."""
    return DescribeAclsRequest(**_anything(None))


def idle_deletion() -> DeleteAclsRequest:
    """Filters that match no ACL, and differ from most only in the end."""
    filters = tuple(DeleteAclsFilter(**_anything(f"{_RESOURCE}-{number}")) for number in range(FILTERS))
    return DeleteAclsRequest(filters=filters)


def _anything(name: str | None) -> dict[str, Any]:
    return {
        "resource_type_filter": ResourceType.TOPIC,
        "resource_name_filter": name,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": AclOperation.ANY,
        "permission_type": AclPermissionType.ANY,
    }
