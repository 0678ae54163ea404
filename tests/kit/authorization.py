"""Authorizers over a few ACLs, a request of each API, and the error codes in responses."""

import asyncio
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from quorate_controller.security.authorizer import CLUSTER_NAME, Authorizer
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image import MetadataImage
from quorate_protocol.image.security import AccessControlEntry
from quorate_protocol.kafka.apis import APIS, ApiKey, ExtensionKey
from quorate_protocol.kafka.enums import AclOperation, AclPermissionType, PatternType, ResourceType
from quorate_protocol.kafka.extensions.controller_heartbeat_request import ControllerHeartbeatRequest
from quorate_protocol.kafka.generated.describe_client_quotas_request import DescribeClientQuotasRequest
from quorate_protocol.kafka.generated.describe_delegation_token_request import DescribeDelegationTokenRequest
from quorate_protocol.kafka.generated.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from quorate_protocol.kafka.generated.unregister_controller_request import UnregisterControllerRequest
from quorate_protocol.wire.codec import decode
from quorate_protocol.wire.convert import convert
from quorate_protocol.wire.schema import schema_of

GOLDEN: Final = Path(__file__).parents[1] / "unit/controller/server/golden/error_responses.txt"
ANONYMOUS: Final = "User:ANONYMOUS"
ALL: Final = AclOperation.ALL
DENY: Final = AclPermissionType.DENY
THE_CLUSTER: Final = (ResourceType.CLUSTER, CLUSTER_NAME)


def samples() -> dict[int, tuple[int, Any]]:
    """A request of each API in the newest captured version, by key."""
    found: dict[int, tuple[int, Any]] = {
        ApiKey.UNREGISTER_CONTROLLER: (0, UnregisterControllerRequest(controller_id=1)),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, DescribeTopicPartitionsRequest(topics=(), cursor=None)),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: (3, DescribeDelegationTokenRequest(owners=None)),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: (1, DescribeClientQuotasRequest(components=(), strict=False)),
        ExtensionKey.CONTROLLER_HEARTBEAT: (
            0,
            ControllerHeartbeatRequest(controller_id=2, last_snapshot_offset=-1, snapshot_state=0),
        ),
    }
    for line in GOLDEN.read_text().splitlines():
        key, version, body = line.split()[:3]
        api = APIS[int(key)]
        request = decode(api.request_class(int(version)), b"" if body == "-" else bytes.fromhex(body))
        found[int(key)] = int(version), convert(request, api.canonical_request)
    return found


SAMPLES: Final = samples()


def acl_of(
    operation: AclOperation,
    permission: AclPermissionType = AclPermissionType.ALLOW,
    principal: str = ANONYMOUS,
    resource: tuple[ResourceType, str] = THE_CLUSTER,
) -> AccessControlEntry:
    """An ACL of a resource, by default of the cluster."""
    resource_type, resource_name = resource
    return AccessControlEntry(
        resource_type=resource_type,
        resource_name=resource_name,
        pattern_type=PatternType.LITERAL,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=permission,
    )


def authorizer_with(*acls: AccessControlEntry, super_users: tuple[str, ...] = (), **more: Any) -> Authorizer:
    """An authorizer over an image with these ACLs."""
    image = MetadataImage()
    image.replay_all([acl.to_record(uuid4()) for acl in acls], base_offset=0)
    return Authorizer(image, super_users=super_users, **more)


def error_codes(entity: Any) -> set[ErrorCode]:
    """All error codes in a response."""
    codes: set[ErrorCode] = set()
    for field in schema_of(type(entity)):
        value = getattr(entity, field.name)
        if isinstance(value, ErrorCode):
            codes.add(value)
        elif field.struct is not None and value is not None:
            for item in value if field.is_array else (value,):
                codes |= error_codes(item)
    return codes


async def response_or_arrival(rig: Any, client: Any) -> Any:
    """The response, or None once the node has the request. The listener answers requests that raft can't read."""
    response = asyncio.ensure_future(client.receive())
    arrival = asyncio.ensure_future(rig.node.requests(1))
    done, others = await asyncio.wait((response, arrival), return_when=asyncio.FIRST_COMPLETED)
    for other in others:
        other.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    return response.result() if response in done else None
