"""DescribeConfigs and DescribeCluster: effective configs and registered controllers (KIP-133, KIP-919).

Both only read, on the active controller and on standbys alike.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import dropwhile
from typing import TYPE_CHECKING, Final

from quorate_protocol import features
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.config_schema import (
    Definition,
    broker_definitions,
    client_metrics_definitions,
    documentation,
    group_definitions,
    topic_definitions,
)
from quorate_protocol.kafka.enums import (
    AUTHORIZED_OPERATIONS_OMITTED,
    SUPPORTED_OPERATIONS,
    AclOperation,
    ConfigResourceType,
    ConfigSource,
    ConfigType,
    EndpointType,
    ResourceType,
    bits_of_operations,
)
from quorate_protocol.kafka.generated.describe_cluster_request import DescribeClusterRequest
from quorate_protocol.kafka.generated.describe_cluster_response import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from quorate_protocol.kafka.generated.describe_configs_request import DescribeConfigsRequest
from quorate_protocol.kafka.generated.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from quorate_protocol.plain_data import dataclass

from quorate_controller.control.api import ControlError, ControlResult, QuorumPort, RequestContext
from quorate_controller.control.broker_loggers import LoggerManager
from quorate_controller.control.config_validation import LISTENER_CONFIG, AppliedConfigs
from quorate_controller.control.effective_configs import (
    NOTHING,
    EffectiveConfigs,
    OfBrokerConfigs,
    SourcedValue,
)
from quorate_controller.control.resource_access import check_describing_configs, check_on_cluster
from quorate_controller.control.topic_names import why_invalid
from quorate_controller.security.access import Access, allows_on_cluster
from quorate_controller.security.authorizer import CLUSTER_NAME

if TYPE_CHECKING:
    from quorate_protocol.image import MetadataImage

NO_CONTROLLER: Final = -1
TOPICS_PER_STEP: Final = 32
"""Topics that are described in one step: less than a millisecond."""


class ClusterDescriber:
    """DescribeCluster of controllers: the registered controllers, not the brokers."""

    def __init__(self, cluster_id: str, image: "MetadataImage", quorum: QuorumPort) -> None:
        self._cluster_id = cluster_id
        self._image = image
        self._quorum = quorum

    def describe_cluster(self, request: DescribeClusterRequest, context: RequestContext) -> ControlResult:
        """DescribeCluster 0-2: the controllers with an endpoint on the listener of the request.

        Raises:
            ControlError: UNSUPPORTED_VERSION below metadata.version 15, or while it is unknown, for instance before
                the first leader; CLUSTER_AUTHORIZATION_FAILED.
        """
        if features.METADATA_VERSION not in self._image.features:
            raise ControlError(
                ErrorCode.unsupported_version,
                "There is no finalized MetadataVersion, so direct-to-controller communication is not supported.",
            )
        if self._image.metadata_version < features.CONTROLLER_REGISTRATION_SINCE:
            raise ControlError(
                ErrorCode.unsupported_version,
                "Direct-to-controller communication is not supported with the current MetadataVersion.",
            )
        check_on_cluster(context.access, AclOperation.ALTER, "DescribeCluster")
        error = _endpoint_type_error(request.endpoint_type, context.api_version)
        if error is not None:
            return ControlResult(response=_refused(error))
        endpoints = tuple(
            DescribeClusterBroker(
                broker_id=controller.controller_id, host=listener.host, port=listener.port, is_fenced=False
            )
            for controller in self._image.cluster.controllers.values()
            if (listener := controller.listeners.get(context.listener)) is not None
        )
        # A client can't use a leader without an address in the list.
        leader_id = self._quorum.leader_id
        is_listed = any(endpoint.broker_id == leader_id for endpoint in endpoints)
        operations = AUTHORIZED_OPERATIONS_OMITTED
        if request.include_cluster_authorized_operations:
            operations = _operations_on_cluster(context.access)
        response = DescribeClusterResponse(
            throttle_time=timedelta(0),
            error_code=ErrorCode.none,
            endpoint_type=EndpointType.CONTROLLER,
            cluster_id=self._cluster_id,
            controller_id=leader_id if is_listed else NO_CONTROLLER,
            brokers=endpoints,
            cluster_authorized_operations=operations,
        )
        return ControlResult(response=response)


def _operations_on_cluster(access: Access) -> int:
    """Return the bits of what the sender may do with the cluster; none if it may not describe it."""
    if not allows_on_cluster(access, AclOperation.DESCRIBE):
        return 0
    operations = access.allowed_operations(
        SUPPORTED_OPERATIONS[ResourceType.CLUSTER], ResourceType.CLUSTER, CLUSTER_NAME
    )
    return bits_of_operations(operations)


def _refused(error: ControlError) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        throttle_time=timedelta(0),
        error_code=error.error_code,
        error_message=error.message,
        cluster_id="",
        brokers=(),
    )


def _endpoint_type_error(endpoint_type: int, api_version: int) -> ControlError | None:
    """Only controllers can be requested here; version 0 has no endpoint types, nor errors for them."""
    kind = EndpointType(endpoint_type)
    if kind is EndpointType.CONTROLLER:
        return None
    if kind is EndpointType.BROKER:
        error_code = ErrorCode.mismatched_endpoint_type
        message = (
            "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type "
            f"{kind.name}"
        )
    else:
        error_code = ErrorCode.unsupported_endpoint_type
        message = f"Unsupported endpoint type {endpoint_type}"
    return ControlError(ErrorCode.invalid_request if api_version == 0 else error_code, message)


_LOGGER: Final = Definition(name="", type=ConfigType.UNKNOWN)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One config of a resource, before it is written in the form of the request."""

    name: str
    value: str | None
    definition: Definition | None
    synonyms: Sequence[SourcedValue]
    read_only: bool = False


class ConfigDescriber:
    """DescribeConfigs, with values as this node sees them (Kafka's ConfigHelper)."""

    def __init__(
        self, node_id: int, image: "MetadataImage", effective: EffectiveConfigs, loggers: LoggerManager
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._loggers = loggers
        self._effective = applied = AppliedConfigs(effective)
        self._plain_topic = OfBrokerConfigs(applied, self._plain_topic_entries)
        self._written: OfBrokerConfigs[dict[tuple[bool, bool], _Written]] = OfBrokerConfigs(applied, dict)
        """Configs of a topic without dynamic configs, by whether with synonyms and with documentation."""

    def describe_configs(self, request: DescribeConfigsRequest, context: RequestContext) -> ControlResult:
        """DescribeConfigs 1-4: each resource succeeds or fails alone; errors stand in the response.

        A resource that is named several times with the same keys is described once. Those that the sender may not see
        come last.
        """
        return ControlResult(steps=self._describing(request, context))

    def _describing(
        self, request: DescribeConfigsRequest, context: RequestContext
    ) -> Generator[None, None, DescribeConfigsResponse]:
        variant = request.include_synonyms, request.include_documentation
        written = _WrittenConfigs(request, self._plain_topic(), self._written().setdefault(variant, {}))
        results: list[DescribeConfigsResult] = []
        unauthorized: list[DescribeConfigsResult] = []
        asked: set[tuple[int, str, frozenset[str]]] = set()
        for number, resource in enumerate(request.resources, 1):
            resource_type, name = resource.resource_type, resource.resource_name
            keys = frozenset(resource.configuration_keys or ())
            if (resource_type, name, keys) not in asked:
                asked.add((resource_type, name, keys))
                try:
                    check_describing_configs(context.access, resource_type, name)
                except ControlError as error:
                    unauthorized.append(_failed(resource_type, name, error))
                else:
                    results.append(self._result(resource_type, name, keys, written))
            if number % TOPICS_PER_STEP == 0 or resource_type != ConfigResourceType.TOPIC:
                yield
        return DescribeConfigsResponse(throttle_time=timedelta(0), results=(*results, *unauthorized))

    def _result(
        self, resource_type: int, name: str, keys: frozenset[str], written: "_WrittenConfigs"
    ) -> DescribeConfigsResult:
        try:
            if written.of != (resource_type, name):  # else it was requested with other keys just before
                written.entries = self._entries(resource_type, name)
                written.of = resource_type, name
        except ControlError as error:
            return _failed(resource_type, name, error)
        return DescribeConfigsResult(
            error_code=ErrorCode.none,
            error_message="",
            resource_type=resource_type,
            resource_name=name,
            configs=written.configs(*written.entries, keys),
        )

    def _entries(self, resource_type: int, name: str) -> tuple[str, Mapping[str, _Entry]]:
        """The section of the schema, and the configs of the resource by name."""
        match resource_type:
            case ConfigResourceType.TOPIC:
                return "topic", self._topic_entries(name)
            case ConfigResourceType.BROKER:
                return "broker", _by_name(self._broker_entries(name))
            case ConfigResourceType.BROKER_LOGGER:
                if not name:
                    raise ControlError(ErrorCode.invalid_request, "Broker id must not be empty")
                self._check_is_this_node(name, " but")
                levels = self._loggers.levels().items()
                return "broker", _by_name(_Entry(*level, _LOGGER, ()) for level in levels)
            case ConfigResourceType.CLIENT_METRICS:
                return "client_metrics", _by_name(self._client_metrics_entries(name))
            case ConfigResourceType.GROUP:
                return "group", _by_name(self._group_entries(name))
            case _:
                raise ControlError(ErrorCode.invalid_request, ErrorCode.invalid_request.text)

    def _topic_entries(self, name: str) -> Mapping[str, _Entry]:
        if reason := why_invalid(name):
            raise ControlError(ErrorCode.invalid_topic_exception, reason)
        if name not in self._image.topics.by_name:
            raise ControlError(ErrorCode.unknown_topic_or_partition)
        overrides = self._effective.dynamic(ConfigResourceType.TOPIC, name)
        entries = self._plain_topic()
        if not overrides:
            return entries
        entries = {**entries, **{key: self._topic_entry(key, overrides) for key in overrides}}
        return {key: entries[key] for key in topic_definitions() if key in entries}

    def _plain_topic_entries(self) -> Mapping[str, _Entry]:
        """The configs of a topic without dynamic configs."""
        return {
            key: self._topic_entry(key, NOTHING)
            for key, definition in topic_definitions().items()
            if not definition.internal
        }

    def _topic_entry(self, key: str, overrides: Mapping[str, str]) -> _Entry:
        definition = topic_definitions()[key]
        value = _normalized(definition, self._effective.topic_config(key, overrides).value)
        names = [synonym.name for synonym in definition.synonyms]
        synonyms = self._broker_values(names[0], names) if names else []
        if key in overrides:
            synonyms = [SourcedValue(key, value, ConfigSource.DYNAMIC_TOPIC_CONFIG), *synonyms]
        return _Entry(key, value, definition, synonyms)

    def _broker_entries(self, name: str) -> list[_Entry]:
        if not name:
            return [
                self._broker_entry(key, value, only=ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
                for key, value in sorted(self._effective.cluster_configs.items())
            ]
        self._check_is_this_node(name, " or empty string, but")
        values = {
            key: definition.default
            for key, definition in broker_definitions().items()
            if not definition.internal
        }
        for _, configs in reversed(tuple(self._effective.levels())):
            values.update(configs)
        return [self._broker_entry(key, value) for key, value in sorted(values.items())]

    def _broker_entry(self, key: str, value: str | None, only: ConfigSource | None = None) -> _Entry:
        definitions = broker_definitions()
        match = LISTENER_CONFIG.fullmatch(key)
        definition = definitions.get(key) or (definitions.get(match[1]) if match else None)
        own = definitions.get(key)
        names = [synonym.name for synonym in own.synonyms] if own else []
        if match and definition:
            names = [key, definition.name]
        synonyms = [
            synonym
            for synonym in self._broker_values(key, names or [key])
            if only is None or synonym.source is only
        ]
        return _Entry(
            key,
            _normalized(definition, value) if definition else value,
            definition,
            synonyms,
            read_only=own is None or own.update_mode == "read-only",
        )

    def _group_entries(self, name: str) -> list[_Entry]:
        if not name:
            raise ControlError(ErrorCode.invalid_request, "Group name must not be empty")
        overrides = self._effective.dynamic(ConfigResourceType.GROUP, name)
        entries = []
        for key, definition in group_definitions().items():
            if definition.internal and key not in overrides:
                continue
            value = _normalized(definition, self._effective.group_config(definition, overrides))
            if definition.synonyms:
                broker_name = definition.synonyms[0].name
                synonyms = self._broker_values(broker_name, [broker_name])
            else:
                synonyms = [SourcedValue(key, definition.default, ConfigSource.DEFAULT_CONFIG)]
            if key in overrides:
                synonyms = [SourcedValue(key, value, ConfigSource.DYNAMIC_GROUP_CONFIG), *synonyms]
            entries.append(_Entry(key, value, definition, synonyms))
        return entries

    def _client_metrics_entries(self, name: str) -> list[_Entry]:
        if not name:
            raise ControlError(
                ErrorCode.invalid_request, "Client metrics subscription name must not be empty"
            )
        overrides = self._effective.dynamic(ConfigResourceType.CLIENT_METRICS, name)
        return [
            _Entry(
                key,
                value := _normalized(definition, overrides.get(key, definition.default)),
                definition,
                [SourcedValue(key, value, ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG)]
                if key in overrides
                else [],
            )
            for key, definition in client_metrics_definitions().items()
        ]

    def _broker_values(self, name: str, names: Sequence[str]) -> list[SourcedValue]:
        """The settings of `name` and of its fallbacks, strongest first, beginning with itself."""
        values = [
            SourcedValue(key, configs[key], source)
            for source, configs in self._effective.levels()
            for key in names
            if key in configs
        ]
        definitions = broker_definitions()
        values += [
            SourcedValue(key, definition.default, ConfigSource.DEFAULT_CONFIG)
            for key in names
            if (definition := definitions.get(key)) is not None and definition.default is not None
        ]
        # Kafka leaves out the synonyms before the config's own name.
        return list(dropwhile(lambda value: value.name != name, values))

    def _check_is_this_node(self, name: str, separator: str) -> None:
        try:
            is_this_node = int(name) == self._node_id
        except ValueError:
            raise ControlError(
                ErrorCode.invalid_request, f"Broker id must be an integer, but it is: {name}"
            ) from None
        if not is_this_node:
            raise ControlError(
                ErrorCode.invalid_request,
                f"Unexpected broker id, expected {self._node_id}{separator} received {name}",
            )


_Written = dict[str, tuple[_Entry, DescribeConfigsResourceResult]]
"""Configs by name, each with its result in the response."""


class _WrittenConfigs:
    """Configs in the form of one request. Those that many resources have in common are written once."""

    def __init__(
        self, request: DescribeConfigsRequest, shared: Mapping[str, _Entry], written: _Written
    ) -> None:
        """`shared`: the configs that requests have in common; `written`: those written by earlier requests."""
        self.of: tuple[int, str] | None = None
        """The resource that was looked up last, and its section and configs."""
        self.entries: tuple[str, Mapping[str, _Entry]] = ("", {})
        self._include_synonyms = request.include_synonyms
        self._include_documentation = request.include_documentation
        self._texts: dict[str, Mapping[str, str]] = {}
        self._shared = shared
        self._shared_written = written
        self._own_written: _Written = {}
        self._all: tuple[Mapping[str, _Entry], tuple[DescribeConfigsResourceResult, ...]] = ({}, ())

    def configs(
        self, section: str, entries: Mapping[str, _Entry], keys: frozenset[str]
    ) -> tuple[DescribeConfigsResourceResult, ...]:
        """The requested ones of `entries`; without `keys` all."""
        if self._include_documentation and section not in self._texts:
            self._texts[section] = documentation(section)
        if keys:
            return tuple(self._written(section, entries[key]) for key in sorted(keys & entries.keys()))
        if self._all[0] is not entries:
            self._all = entries, tuple(self._written(section, entry) for entry in entries.values())
        return self._all[1]

    def _written(self, section: str, entry: _Entry) -> DescribeConfigsResourceResult:
        results = self._shared_written if self._shared.get(entry.name) is entry else self._own_written
        known = results.get(entry.name)
        if known is None or known[0] is not entry:
            texts = self._texts.get(section)
            known = results[entry.name] = (
                entry,
                _result(entry, texts, include_synonyms=self._include_synonyms),
            )
        return known[1]


def _by_name(entries: Iterable[_Entry]) -> Mapping[str, _Entry]:
    return {entry.name: entry for entry in entries}


def _failed(resource_type: int, name: str, error: ControlError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.error_code,
        error_message="" if error.error_code is ErrorCode.unknown_topic_or_partition else error.message,
        resource_type=resource_type,
        resource_name=name,
        configs=(),
    )


def _normalized(definition: Definition, value: str | None) -> str | None:
    """A value as Kafka prints it; unchanged if it does not fit its definition."""
    try:
        return definition.normalize(value)
    except ValueError:
        return value


def _result(
    entry: _Entry, texts: Mapping[str, str] | None, *, include_synonyms: bool
) -> DescribeConfigsResourceResult:
    # An unknown config may be a secret.
    is_sensitive = entry.definition is None or entry.definition.sensitive
    source = ConfigSource.DEFAULT_CONFIG
    if entry.definition is _LOGGER:
        source = ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
    elif entry.synonyms:
        source = entry.synonyms[0].source
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=None if is_sensitive else entry.value,
        read_only=entry.read_only,
        config_source=int(source),
        is_sensitive=is_sensitive,
        synonyms=tuple(
            DescribeConfigsSynonym(
                name=synonym.name, value=None if is_sensitive else synonym.value, source=int(synonym.source)
            )
            for synonym in (entry.synonyms if include_synonyms else ())
        ),
        config_type=int(entry.definition.type if entry.definition else ConfigType.UNKNOWN),
        documentation=texts.get(entry.definition.name if entry.definition else "") if texts else None,
    )
