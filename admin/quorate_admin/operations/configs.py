"""Operations on configs: describe, alter, list the resources that have them."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

from quorate_protocol.errors import ErrorCode

from quorate_admin.errors import ServerError, UnsupportedByServerError
from quorate_admin.network.routing import To
from quorate_admin.operations.base import KeyedOperations, KeyResult, key_results
from quorate_admin.results import Results

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import timedelta

    from quorate_protocol.kafka.enums import ConfigResourceType

    from quorate_admin.types.configs import AlterConfigOp, ConfigEntry, ConfigResource


class ConfigOperations(KeyedOperations):
    """Requests for a BROKER with a name and for a BROKER_LOGGER go to that node, others to the controller.

    Without an active controller, any other controller describes configs.
    """

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[ConfigResource, tuple[ConfigEntry, ...]]:
        """The configs of resources, including those with default values (DescribeConfigs).

        A node that can't be reached is an error of its own resources only.
        """
        from quorate_protocol.kafka.generated.describe_configs_request import (
            DescribeConfigsRequest,
            DescribeConfigsResource,
        )

        def request_for(asked: Sequence[ConfigResource], _: timedelta) -> DescribeConfigsRequest:
            return DescribeConfigsRequest(
                resources=tuple(
                    DescribeConfigsResource(
                        resource_type=resource.type, resource_name=resource.name, configuration_keys=None
                    )
                    for resource in asked
                ),
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
            )

        return await self._ask_owners(
            resources,
            request_for,
            lambda response, _: key_results(
                response.results, _resource, lambda result: tuple(map(config_entry, result.configs))
            ),
            timeout_ms,
            described=True,
        )

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[AlterConfigOp]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[ConfigResource, None]:
        """Change single configs and keep the others (IncrementalAlterConfigs, KIP-339).

        With bootstrap controllers, BROKER goes to the active controller, and a BROKER_LOGGER to its
        controller, active or not (KIP-919).
        """
        from quorate_protocol.kafka.generated import incremental_alter_configs_request as messages

        def configs_of(resource: ConfigResource) -> Iterator[messages.AlterableConfig]:
            for change in changes[resource]:
                yield messages.AlterableConfig(
                    name=change.name, config_operation=change.operation, value=change.value
                )

        make = partial(messages.IncrementalAlterConfigsRequest, validate_only=validate_only)
        return await self._alter(changes, make, messages.AlterConfigsResource, configs_of, timeout_ms)

    async def alter_configs(
        self,
        configs: Mapping[ConfigResource, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> Results[ConfigResource, None]:
        """Replace all dynamic configs of resources (AlterConfigs).

        Concurrent changes are lost, so prefer `incremental_alter_configs`: Kafka 4 removed this operation from
        its own client. Requests go to the same nodes as those of `incremental_alter_configs`.
        """
        from quorate_protocol.kafka.generated import alter_configs_request as messages

        def configs_of(resource: ConfigResource) -> Iterator[messages.AlterableConfig]:
            for name, value in configs[resource].items():
                yield messages.AlterableConfig(name=name, value=value)

        make = partial(messages.AlterConfigsRequest, validate_only=validate_only)
        return await self._alter(configs, make, messages.AlterConfigsResource, configs_of, timeout_ms)

    async def _alter(
        self,
        resources: Iterable[ConfigResource],
        request_of: Callable[..., Any],
        resource_of: Callable[..., Any],
        configs_of: Callable[[ConfigResource], Iterator[Any]],
        timeout_ms: int | None,
    ) -> Results[ConfigResource, None]:
        """Send either request: `request_of` and `resource_of` are its classes."""

        def request_for(asked: Sequence[ConfigResource], _: timedelta) -> Any:
            return request_of(
                resources=tuple(
                    resource_of(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configs=tuple(configs_of(resource)),
                    )
                    for resource in asked
                )
            )

        return await self._ask_owners(
            resources, request_for, lambda response, _: key_results(response.responses, _resource), timeout_ms
        )

    async def list_config_resources(
        self, types: Collection[ConfigResourceType] = (), *, timeout_ms: int | None = None
    ) -> tuple[ConfigResource, ...]:
        """The resources of the given types, or of all types, that can have configs (ListConfigResources, KIP-1142).
        Brokers only.

        Servers with version 0 only list client metrics; topics and nodes are then taken from their metadata. They
        can't list groups: that is an UnsupportedByServerError if GROUP is given; without types, groups are omitted.
        """
        from quorate_protocol.kafka.enums import ConfigResourceType

        self._brokers_only("list_config_resources")
        left_ms = self._countdown(timeout_ms)
        asked = frozenset(types or ConfigResourceType) - {ConfigResourceType.UNKNOWN}
        try:
            found = await self._list_config_resources(asked, left_ms())
        except UnsupportedByServerError:
            if ConfigResourceType.GROUP in types:
                raise
            found = []
            if ConfigResourceType.CLIENT_METRICS in asked:
                found += await self._list_config_resources((), left_ms())
            if not asked <= {ConfigResourceType.CLIENT_METRICS, ConfigResourceType.GROUP}:
                found += await self._list_with_metadata(left_ms())
        return tuple(sorted(resource for resource in found if resource.type in asked))

    async def _list_config_resources(
        self, types: Iterable[ConfigResourceType], timeout_ms: int
    ) -> list[ConfigResource]:
        from quorate_protocol.kafka.generated.list_config_resources_request import ListConfigResourcesRequest

        request = ListConfigResourcesRequest(resource_types=tuple(sorted(types)))
        response = await self._ask(request, To.ANY, timeout_ms=timeout_ms)
        return [_resource(config_resource) for config_resource in response.config_resources]

    async def _list_with_metadata(self, timeout_ms: int) -> list[ConfigResource]:
        from quorate_protocol.kafka.enums import ConfigResourceType
        from quorate_protocol.kafka.generated.metadata_request import MetadataRequest

        from quorate_admin.types.configs import ConfigResource

        request = MetadataRequest(
            topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        response = await self._ask(request, To.ANY, timeout_ms=timeout_ms)
        topics = [ConfigResource(ConfigResourceType.TOPIC, topic.name) for topic in response.topics]
        return topics + [
            ConfigResource(type_, str(broker.node_id))
            for broker in response.brokers
            for type_ in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
        ]

    async def _ask_owners(
        self,
        resources: Iterable[ConfigResource],
        request_for: Callable[[Sequence[ConfigResource], timedelta], Any],
        results_of: Callable[[Any, Sequence[ConfigResource]], Iterable[KeyResult[ConfigResource, Any]]],
        timeout_ms: int | None,
        *,
        described: bool = False,
    ) -> Results[ConfigResource, Any]:
        """Send requests to the owner of each resource: its node, or the controller."""

        async def ask(to: To, asked: Sequence[ConfigResource]) -> Results[ConfigResource, Any]:
            return await self._ask_each(asked, request_for, results_of, to=to, timeout_ms=timeout_ms)

        is_read = described and self._to_controllers
        by_owner: dict[To, list[ConfigResource]] = defaultdict(list)
        errors = {}
        for resource in dict.fromkeys(resources):
            if not self._is_of_a_node(resource, described=described):
                by_owner[To.READER if is_read else To.CONTROLLER].append(resource)
            elif resource.name.isascii() and resource.name.isdigit():
                by_owner[To.node(int(resource.name))].append(resource)
            else:
                errors[resource] = ServerError(
                    ErrorCode.invalid_request, f"{resource.name!r} is not the id of a node"
                )
        results = await self._ask_nodes(by_owner, ask)
        return Results(results.values, {**results.errors, **errors})

    def _is_of_a_node(self, resource: ConfigResource, *, described: bool) -> bool:
        """Whether the request for this resource goes to one particular node.

        A broker validates its own dynamic configs; with bootstrap controllers the active controller does. Log levels
        exist on their node only.
        """
        from quorate_protocol.kafka.enums import ConfigResourceType

        if resource.type is ConfigResourceType.BROKER and resource.name:
            return described or not self._to_controllers
        return resource.type is ConfigResourceType.BROKER_LOGGER


def _resource(result: Any) -> ConfigResource:
    from quorate_protocol.kafka.enums import ConfigResourceType

    from quorate_admin.types.configs import ConfigResource

    return ConfigResource(ConfigResourceType(result.resource_type), result.resource_name)


def config_entry(config: Any) -> ConfigEntry:
    """A config of a DescribeConfigs or CreateTopics response; the latter has the first five fields only."""
    from quorate_protocol.kafka.enums import ConfigSource, ConfigType

    from quorate_admin.types.configs import ConfigEntry, ConfigSynonym

    return ConfigEntry(
        name=config.name,
        value=config.value,
        source=ConfigSource(config.config_source),
        is_sensitive=config.is_sensitive,
        is_read_only=config.read_only,
        synonyms=tuple(
            ConfigSynonym(name=synonym.name, value=synonym.value, source=ConfigSource(synonym.source))
            for synonym in getattr(config, "synonyms", ())
        ),
        type=ConfigType(getattr(config, "config_type", ConfigType.UNKNOWN)),
        documentation=getattr(config, "documentation", None),
    )
