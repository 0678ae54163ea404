"""Operations on configs against clusters that answer what the test says."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kit.fake_cluster import HANG_UP, FakeCluster, nested, response_to
from quorate_admin.client import AdminClient
from quorate_admin.errors import (
    AdminError,
    ServerError,
    UnsupportedByServerError,
    UnsupportedEndpointError,
)
from quorate_admin.types.configs import AlterConfigOp, ConfigEntry, ConfigResource, ConfigSynonym
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import ConfigOpType, ConfigResourceType, ConfigSource, ConfigType
from quorate_protocol.wire.server import Request

LIST_CONFIG_RESOURCES = 74

TOPIC = ConfigResource(ConfigResourceType.TOPIC, "t")
GROUP = ConfigResource(ConfigResourceType.GROUP, "g")
ALL_BROKERS = ConfigResource(ConfigResourceType.BROKER, "")
BROKER_2 = ConfigResource(ConfigResourceType.BROKER, "2")
LOGGER_2 = ConfigResource(ConfigResourceType.BROKER_LOGGER, "2")
LOGGER_3 = ConfigResource(ConfigResourceType.BROKER_LOGGER, "3")
EVERYTHING = (TOPIC, GROUP, ALL_BROKERS, BROKER_2, LOGGER_2, LOGGER_3)


def described(request: Request) -> Any:
    """Describe every resource with one config."""
    config = nested("DescribeConfigs", "DescribeConfigsResourceResult", name="k", value="v", config_source=5)
    return response_to(
        "DescribeConfigs",
        results=tuple(
            nested(
                "DescribeConfigs",
                "DescribeConfigsResult",
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=(config,),
            )
            for resource in request.body.resources
        ),
    )


def altered(api_name: str) -> Callable[[Request], Any]:
    """Alter every resource."""

    def handle(request: Request) -> Any:
        return response_to(
            api_name,
            responses=tuple(
                nested(
                    api_name,
                    "AlterConfigsResourceResponse",
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
                for resource in request.body.resources
            ),
        )

    return handle


def asked(cluster: FakeCluster, api_name: str) -> dict[int, list[ConfigResource]]:
    """Which resources each node was asked about, in one request."""
    resources = {}
    for node in cluster.nodes.values():
        bodies = [request.body for request in node.received(api_name)]
        assert len(bodies) <= 1
        if bodies:
            resources[node.node_id] = [
                ConfigResource(ConfigResourceType(resource.resource_type), resource.resource_name)
                for resource in bodies[0].resources
            ]
    return resources


@pytest.mark.parametrize("is_controllers", [False, True])
async def test_descriptions_come_from_the_node_they_are_about(is_controllers: bool) -> None:
    async with FakeCluster((1, 2, 3), is_controllers=is_controllers) as cluster:
        cluster.handle("DescribeConfigs", described)
        async with admin_of(cluster) as admin:
            results = await admin.describe_configs(EVERYTHING)
        reported = asked(cluster, "DescribeConfigs")
    assert set(results.values) == set(EVERYTHING)
    for resource in EVERYTHING:
        (entry,) = results[resource]
        assert (entry.name, entry.value, entry.is_default) == ("k", "v", True)
    if is_controllers:
        assert reported == {1: [TOPIC, GROUP, ALL_BROKERS], 2: [BROKER_2, LOGGER_2], 3: [LOGGER_3]}
    else:  # what belongs to no node may be asked of any, in a request of its own
        assert sorted(resource for resources in reported.values() for resource in resources) == sorted(
            EVERYTHING
        )


def admin_of(cluster: FakeCluster) -> AdminClient:
    """A client that asks the nodes of a cluster, as what they are."""
    if cluster.is_controllers:
        return AdminClient(bootstrap_controllers=cluster.bootstrap, retry_backoff_ms=1)
    return AdminClient(bootstrap_servers=cluster.bootstrap, retry_backoff_ms=1)


async def test_all_of_a_config_is_reported() -> None:
    synonym = nested("DescribeConfigs", "DescribeConfigsSynonym", name="log.k", value="w", source=4)
    full = nested(
        "DescribeConfigs",
        "DescribeConfigsResourceResult",
        name="k",
        value=None,
        read_only=True,
        config_source=1,
        is_sensitive=True,
        synonyms=(synonym,),
        config_type=9,
        documentation="What it does.",
    )
    newer = nested(
        "DescribeConfigs", "DescribeConfigsResourceResult", name="n", config_source=99, config_type=99
    )
    result = nested(
        "DescribeConfigs", "DescribeConfigsResult", resource_type=2, resource_name="t", configs=(full, newer)
    )
    async with FakeCluster() as cluster:
        cluster.handle("DescribeConfigs", lambda _: response_to("DescribeConfigs", results=(result,)))
        async with admin_of(cluster) as admin:
            first, second = (
                await admin.describe_configs([TOPIC], include_synonyms=True, include_documentation=True)
            )[TOPIC]
        (request,) = cluster.received("DescribeConfigs")
    assert (request.body.include_synonyms, request.body.include_documentation) == (True, True)
    assert request.body.resources[0].configuration_keys is None
    assert first == ConfigEntry(
        name="k",
        value=None,
        source=ConfigSource.DYNAMIC_TOPIC_CONFIG,
        is_sensitive=True,
        is_read_only=True,
        synonyms=(ConfigSynonym(name="log.k", value="w", source=ConfigSource.STATIC_BROKER_CONFIG),),
        type=ConfigType.PASSWORD,
        documentation="What it does.",
    )
    assert (second.source, second.type) == (ConfigSource.UNKNOWN, ConfigType.UNKNOWN)


async def test_a_node_that_does_not_answer_is_an_error_of_its_resources() -> None:
    async with FakeCluster((1, 2)) as cluster:
        cluster.nodes[1].handlers["DescribeConfigs"] = described
        cluster.nodes[2].handlers["DescribeConfigs"] = lambda _: HANG_UP
        async with AdminClient(bootstrap_servers=cluster.bootstrap, retries=0) as admin:
            broker_1 = ConfigResource(ConfigResourceType.BROKER, "1")
            results = await admin.describe_configs([broker_1, BROKER_2, LOGGER_2])
            assert set(results.values) == {broker_1}
            assert set(results.errors) == {BROKER_2, LOGGER_2}
            assert results.errors[BROKER_2].error_code is ErrorCode.request_timed_out
            with pytest.raises(AdminError):
                await admin.describe_configs([BROKER_2])


async def test_a_node_needs_an_id() -> None:
    wrong = ConfigResource(ConfigResourceType.BROKER, "x")
    async with FakeCluster(handlers={"DescribeConfigs": described}) as cluster, admin_of(cluster) as admin:
        results = await admin.describe_configs([wrong, TOPIC])
    assert set(results.values) == {TOPIC}
    with pytest.raises(ServerError, match="INVALID_REQUEST: 'x' is not the id of a node"):
        results[wrong]


@pytest.mark.parametrize("is_controllers", [False, True])
async def test_changes_are_asked_of_who_checks_them(is_controllers: bool) -> None:
    """KIP-919."""
    changes = {resource: [AlterConfigOp(name="k", value="v")] for resource in EVERYTHING}
    async with FakeCluster((1, 2, 3), is_controllers=is_controllers) as cluster:
        cluster.handle("IncrementalAlterConfigs", altered("IncrementalAlterConfigs"))
        cluster.handle("AlterConfigs", altered("AlterConfigs"))
        async with admin_of(cluster) as admin:
            results = await admin.incremental_alter_configs(changes)
            replaced = await admin.alter_configs({resource: {"k": "v"} for resource in EVERYTHING})
        for api_name in ("IncrementalAlterConfigs", "AlterConfigs"):
            reported = {
                node.node_id: {
                    (resource.resource_type, resource.resource_name)
                    for request in node.received(api_name)
                    for resource in request.body.resources
                }
                for node in cluster.nodes.values()
            }
            assert (8, "3") in reported[3]
            assert (8, "2") in reported[2]
            assert ((4, "2") in reported[1 if is_controllers else 2]) is True
            if is_controllers:
                assert reported == {1: {(2, "t"), (32, "g"), (4, ""), (4, "2")}, 2: {(8, "2")}, 3: {(8, "3")}}
    assert set(results.values) == set(replaced.values) == set(EVERYTHING)


async def test_all_kinds_of_changes_arrive() -> None:
    changes = [
        AlterConfigOp(name="a", value="1"),
        AlterConfigOp(name="b", operation=ConfigOpType.DELETE),
        AlterConfigOp(name="c", value="2", operation=ConfigOpType.APPEND),
        AlterConfigOp(name="d", value="3", operation=ConfigOpType.SUBTRACT),
    ]
    async with FakeCluster() as cluster:
        cluster.handle("IncrementalAlterConfigs", altered("IncrementalAlterConfigs"))
        async with admin_of(cluster) as admin:
            await admin.incremental_alter_configs({TOPIC: changes}, validate_only=True)
        (request,) = cluster.received("IncrementalAlterConfigs")
    (resource,) = request.body.resources
    assert request.body.validate_only
    assert [(config.name, config.config_operation, config.value) for config in resource.configs] == [
        ("a", 0, "1"),
        ("b", 1, None),
        ("c", 2, "2"),
        ("d", 3, "3"),
    ]


def listing(request: Request) -> Any:
    """Resources of all types, or in version 0 what it knows."""
    rows = {2: "t", 4: "1", 8: "1", 16: "metrics", 32: "g"}
    types = (16,) if request.version == 0 else request.body.resource_types or tuple(rows)
    return response_to(
        "ListConfigResources",
        config_resources=tuple(
            nested("ListConfigResources", "ConfigResource", resource_name=rows[type_], resource_type=type_)
            for type_ in types
        ),
    )


async def test_resources_with_configs_are_listed() -> None:
    """KIP-1142."""
    async with FakeCluster(handlers={"ListConfigResources": listing}) as cluster, admin_of(cluster) as admin:
        everything = await admin.list_config_resources()
        groups = await admin.list_config_resources([ConfigResourceType.GROUP])
    assert [resource.type for resource in everything] == [
        resource for resource in ConfigResourceType if resource
    ]
    assert groups == (GROUP,)


async def test_old_servers_list_resources_with_metadata() -> None:
    broker = nested("Metadata", "MetadataResponseBroker", node_id=7, host="h", port=1)
    topic = nested("Metadata", "MetadataResponseTopic", name="t")
    handlers = {
        "ListConfigResources": listing,
        "Metadata": lambda _: response_to("Metadata", topics=(topic,), brokers=(broker,)),
    }
    async with FakeCluster(handlers=handlers) as cluster:
        for node in cluster.nodes.values():
            node.apis[LIST_CONFIG_RESOURCES] = (0, 0)
        async with admin_of(cluster) as admin:
            everything = await admin.list_config_resources()
            topics = await admin.list_config_resources([ConfigResourceType.TOPIC])
            metrics = await admin.list_config_resources([ConfigResourceType.CLIENT_METRICS])
            with pytest.raises(UnsupportedByServerError):
                await admin.list_config_resources([ConfigResourceType.GROUP])
    client_metrics = ConfigResource(ConfigResourceType.CLIENT_METRICS, "metrics")
    assert everything == (
        TOPIC,
        ConfigResource(ConfigResourceType.BROKER, "7"),
        ConfigResource(ConfigResourceType.BROKER_LOGGER, "7"),
        client_metrics,
    )
    assert topics == (TOPIC,)
    assert metrics == (client_metrics,)


async def test_controllers_list_no_resources() -> None:
    async with AdminClient(bootstrap_controllers=["127.0.0.1:1"]) as admin:
        with pytest.raises(UnsupportedEndpointError):
            await admin.list_config_resources()


def test_values_are_not_shown() -> None:
    entry = ConfigEntry(
        name="k", value="secret", source=ConfigSource.UNKNOWN, is_sensitive=False, is_read_only=False
    )
    synonym = ConfigSynonym(name="k", value="secret", source=ConfigSource.UNKNOWN)
    change = AlterConfigOp(name="k", value="secret")
    for part in (entry, synonym, change):
        assert "name='k'" in repr(part)
        assert "secret" not in repr(part)


async def test_changes_follow_the_active_controller() -> None:
    refusals = {1: ErrorCode.not_leader_or_follower, 2: ErrorCode.none}

    def alter(node_id: int) -> Callable[[Request], Any]:
        def handle(request: Request) -> Any:
            cluster.controller_id = 2
            response = altered("IncrementalAlterConfigs")(request)
            codes = [refusals[node_id]] * len(response.responses)
            if node_id == 2 and len(codes) > 1:
                codes[-1] = ErrorCode.not_controller
            reported = (
                replace(result, error_code=code)
                for result, code in zip(response.responses, codes, strict=True)
            )
            return replace(response, responses=tuple(reported))

        return handle

    changes = {resource: [AlterConfigOp(name="k", value="v")] for resource in (TOPIC, GROUP)}
    async with FakeCluster((1, 2), is_controllers=True) as cluster:
        for node in cluster.nodes.values():
            node.handlers["IncrementalAlterConfigs"] = alter(node.node_id)
        async with admin_of(cluster) as admin:
            results = await admin.incremental_alter_configs(changes)
        second = [
            len(request.body.resources) for request in cluster.nodes[2].received("IncrementalAlterConfigs")
        ]
    assert set(results.values) == {TOPIC, GROUP}
    assert second == [2, 1]
