"""All APIs of controllers, each requested by strangers and by users with and without the right: no other client is
served.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from random import Random
from typing import Any, Final, NamedTuple
from uuid import uuid4

import pytest
from kit.authorization import (
    ALL,
    ANONYMOUS,
    DENY,
    SAMPLES,
    THE_CLUSTER,
    acl_of,
    authorizer_with,
    error_codes,
    response_or_arrival,
)
from kit.controller_parts import LoneQuorum, response_of
from quorate_controller.config.listener_sasl import ListenerSasl
from quorate_controller.control.api import ControlConfig, ControlError, RequestContext
from quorate_controller.control.controller import QuorumController
from quorate_controller.node.credentials import ImageCredentials
from quorate_controller.node.events import Caller
from quorate_controller.server.authorization import BY_HANDLER, ON_CLUSTER, OPEN
from quorate_controller.server.sasl import SaslGate
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image import MetadataImage
from quorate_protocol.kafka.apis import (
    CONTROLLER_READ_APIS,
    EXTENSION_APIS,
    SERVED_APIS,
    ApiKey,
    find_api,
)
from quorate_protocol.kafka.enums import AclOperation, ConfigResourceType, ResourceType
from quorate_protocol.kafka.generated import alter_configs_request as alter_configs
from quorate_protocol.kafka.generated import create_partitions_request as create_partitions
from quorate_protocol.kafka.generated import create_topics_request as create_topics
from quorate_protocol.kafka.generated import delete_topics_request as delete_topics
from quorate_protocol.kafka.generated import describe_configs_request as describe_configs
from quorate_protocol.kafka.generated import describe_topic_partitions_request as describe_topics
from quorate_protocol.kafka.generated import incremental_alter_configs_request as incremental_alter_configs
from quorate_protocol.kafka.generated.create_delegation_token_request import CreateDelegationTokenRequest
from quorate_protocol.kafka.generated.describe_cluster_request import DescribeClusterRequest
from quorate_protocol.kafka.generated.sasl_authenticate_request import SaslAuthenticateRequest
from quorate_protocol.kafka.generated.sasl_handshake_request import SaslHandshakeRequest
from quorate_protocol.records.generated import FeatureLevelRecord, TopicRecord

TIMEOUT: Final = timedelta(seconds=30)
ORDERS: Final = (ResourceType.TOPIC, "orders")
LOGINS: Final = {"no ACL": "bob", "denied": "carol", "allowed": "alice"}
"""The users of SASL, who have the password of their name."""
BEFORE_LOGIN: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE})
"""The APIs that serve strangers."""


class Rule(NamedTuple):
    """A request, the right that its sender needs, and the error without it."""

    version: int
    request: Any
    operation: AclOperation
    resource: tuple[ResourceType, str] = ORDERS
    refused: ErrorCode = ErrorCode.topic_authorization_failed


def on_cluster(key: int) -> Rule:
    """The rule of an API whose sender needs an operation on the cluster."""
    version, request = SAMPLES[key]
    return Rule(version, request, ON_CLUSTER[key], THE_CLUSTER, ErrorCode.cluster_authorization_failed)


def configs_of(module: Any) -> Any:
    """A request that alters nothing of the topic's configs."""
    kind, name = ConfigResourceType.TOPIC, "orders"
    return module.AlterConfigsResource(resource_type=kind, resource_name=name, configs=())


BY_RESOURCE: Final[Mapping[ApiKey, Rule]] = {
    ApiKey.CREATE_TOPICS: Rule(
        7,
        create_topics.CreateTopicsRequest(
            topics=(
                create_topics.CreatableTopic(
                    name="orders", num_partitions=1, replication_factor=1, assignments=(), configs=()
                ),
            ),
            timeout=TIMEOUT,
        ),
        AclOperation.CREATE,
    ),
    ApiKey.DELETE_TOPICS: Rule(
        6,
        delete_topics.DeleteTopicsRequest(
            topics=(delete_topics.DeleteTopicState(name="orders", topic_id=None),), timeout=TIMEOUT
        ),
        AclOperation.DELETE,
    ),
    ApiKey.DESCRIBE_CONFIGS: Rule(
        4,
        describe_configs.DescribeConfigsRequest(
            resources=(
                describe_configs.DescribeConfigsResource(
                    resource_type=ConfigResourceType.TOPIC, resource_name="orders", configuration_keys=None
                ),
            )
        ),
        AclOperation.DESCRIBE_CONFIGS,
    ),
    ApiKey.ALTER_CONFIGS: Rule(
        2,
        alter_configs.AlterConfigsRequest(resources=(configs_of(alter_configs),), validate_only=False),
        AclOperation.ALTER_CONFIGS,
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Rule(
        1,
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=(configs_of(incremental_alter_configs),), validate_only=False
        ),
        AclOperation.ALTER_CONFIGS,
    ),
    ApiKey.CREATE_PARTITIONS: Rule(
        3,
        create_partitions.CreatePartitionsRequest(
            topics=(create_partitions.CreatePartitionsTopic(name="orders", count=2, assignments=None),),
            timeout=TIMEOUT,
            validate_only=False,
        ),
        AclOperation.ALTER,
    ),
    ApiKey.CREATE_DELEGATION_TOKEN: Rule(
        3,
        CreateDelegationTokenRequest(
            owner_principal_type="User",
            owner_principal_name="dave",
            renewers=(),
            max_lifetime=timedelta(milliseconds=-1),
        ),
        AclOperation.CREATE_TOKENS,
        (ResourceType.USER, "User:dave"),
        ErrorCode.delegation_token_authorization_failed,
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Rule(
        0,
        describe_topics.DescribeTopicPartitionsRequest(
            topics=(describe_topics.TopicRequest(name="orders"),), cursor=None
        ),
        AclOperation.DESCRIBE,
    ),
    ApiKey.DESCRIBE_CLUSTER: Rule(
        2,
        DescribeClusterRequest(
            include_cluster_authorized_operations=False, endpoint_type=2, include_fenced_brokers=False
        ),
        AclOperation.ALTER,
        THE_CLUSTER,
        ErrorCode.cluster_authorization_failed,
    ),
}
"""The rules of the APIs whose handlers look at what a request names."""

WITHOUT_RULE: Final = OPEN | {ApiKey.DESCRIBE_DELEGATION_TOKEN}
"""Requests that no ACL is needed for. The description of tokens leaves out those that the sender may not see."""
SERVED: Final = (*SERVED_APIS, *EXTENSION_APIS, *CONTROLLER_READ_APIS)

NODE_ID, CLUSTER_ID = 3000, "4L6g3nShT-eMCtK--X86sw"


def active_controller() -> Callable[[Any, Caller], Any]:
    """What the active controller of a cluster with a topic answers."""
    image = MetadataImage()
    control = QuorumController(
        ControlConfig(node_id=NODE_ID, cluster_id=CLUSTER_ID), image, Random(1), LoneQuorum()
    )
    level = FeatureLevelRecord(name="metadata.version", feature_level=33)
    image.replay_all([level, TopicRecord(name="orders", topic_id=uuid4())], base_offset=0)
    image.commit(image.end_offset)
    control.activate(now_ms=0)

    def decide(request: Any, caller: Caller) -> Any:
        context = RequestContext(
            now_ms=0,
            next_offset=image.end_offset,
            api_version=caller.api_version,
            principal=str(caller.principal),
            listener=caller.listener,
            security_protocol=caller.security_protocol,
            access=caller.access,
        )
        try:
            return response_of(control.decide(request, context))
        except ControlError as error:
            return error

    return decide


async def listen(rig: Any, rule: Rule | None) -> None:
    """Start a listener with SASL, where alice has the right of a rule, and carol all rights but this one."""
    right = (AclOperation.ALTER, THE_CLUSTER) if rule is None else (rule.operation, rule.resource)
    operation, resource = right
    rig.node.authorizer = authorizer_with(
        acl_of(operation, principal="User:alice", resource=resource),
        acl_of(ALL, principal="User:carol", resource=resource),
        acl_of(operation, DENY, principal="User:carol", resource=resource),
        super_users=(ANONYMOUS,),  # no client here
    )
    config = ListenerSasl(
        mechanisms=("PLAIN",), passwords={name: name for name in LOGINS.values()}, failure_delay_ms=0
    )
    await rig.listen(first_frames_size_bytes_max=config.receive_size_bytes_max)
    rig.listener.context.handler = SaslGate(
        rig.listener.context.handler, config, ImageCredentials(MetadataImage(), None), rig.counters
    )


async def log_in(client: Any, user: str, password: str) -> ErrorCode:
    """Authenticate with PLAIN."""
    await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    message = SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode())
    code: ErrorCode = (await client.ask(message, 2)).error_code
    return code


def is_untouched(rig: Any) -> bool:
    """Whether nothing has reached the node."""
    return not rig.node.controls and not rig.node.rafts


def test_the_table_has_all_apis() -> None:
    assert set(SERVED) == {*ON_CLUSTER, *BY_RESOURCE, *WITHOUT_RULE}
    assert BY_RESOURCE.keys() == BY_HANDLER - WITHOUT_RULE


@pytest.mark.parametrize("case", ["anonymous", "wrong password", *LOGINS])
@pytest.mark.parametrize("key", SERVED, ids=lambda key: find_api(key).name)
async def test_what_direct_connections_may_do_depends_on_their_login(rig: Any, key: int, case: str) -> None:
    """No request without authentication, and none without the principal's own right; Envelope, too."""
    rule = None
    if key not in WITHOUT_RULE:
        rule = on_cluster(key) if key in ON_CLUSTER else BY_RESOURCE[ApiKey(key)]
    await listen(rig, rule)
    version, request = SAMPLES[key] if rule is None else (rule.version, rule.request)
    client = await rig.connect()
    if case in LOGINS:
        assert await log_in(client, LOGINS[case], LOGINS[case]) is ErrorCode.none
    elif case == "wrong password":
        assert await log_in(client, "alice", "wrong") is ErrorCode.sasl_authentication_failed
    if key in BY_HANDLER:
        rig.node.decide = active_controller()
    client.send(request, version)
    if case not in LOGINS:
        if case == "anonymous" and key in BEFORE_LOGIN:
            assert await client.receive() is not None
        else:
            assert await client.is_closed()
        assert is_untouched(rig)
        return
    response = await (client.receive() if key in BY_HANDLER else response_or_arrival(rig, client))
    codes = set() if response is None else error_codes(response)
    if rule is None:
        assert ErrorCode.cluster_authorization_failed not in codes
        return
    is_refused = case != "allowed"
    assert (rule.refused in codes) is is_refused
    assert is_untouched(rig) or key in BY_HANDLER or not is_refused
