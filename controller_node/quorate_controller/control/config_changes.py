"""Setting configs: AlterConfigs, IncrementalAlterConfigs, and the configs of new topics (KIP-133, KIP-226,
KIP-339).
"""

from collections import Counter
from collections.abc import Callable, Container, Generator, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from quorate_protocol import features
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image.views import MIN_INSYNC_REPLICAS
from quorate_protocol.kafka.config_schema import (
    Definition,
    broker_definitions,
    topic_definitions,
)
from quorate_protocol.kafka.enums import ConfigOpType, ConfigResourceType, ConfigType
from quorate_protocol.kafka.generated import alter_configs_request as legacy_request
from quorate_protocol.kafka.generated import alter_configs_response as legacy_response
from quorate_protocol.kafka.generated.alter_configs_request import AlterConfigsRequest
from quorate_protocol.kafka.generated.create_topics_response import CreatableTopicConfigs
from quorate_protocol.kafka.generated.incremental_alter_configs_request import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from quorate_protocol.kafka.generated.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from quorate_protocol.plain_data import dataclass
from quorate_protocol.records.generated import ConfigRecord
from quorate_protocol.wire.codec import SharedArray
from quorate_protocol.wire.schema import STRING_SIZE_BYTES_MAX

from quorate_controller.control.api import (
    ControlError,
    ControlResult,
    QuorumPort,
    RequestContext,
    may_exceed_batch,
)
from quorate_controller.control.broker_loggers import LoggerManager, is_logger
from quorate_controller.control.config_validation import (
    validate_broker,
    validate_client_metrics,
    validate_group,
    validate_resource_name,
    validate_topic,
)
from quorate_controller.control.effective_configs import (
    NOTHING,
    EffectiveConfigs,
    OfBrokerConfigs,
)
from quorate_controller.control.policies import NO_POLICIES, Policies
from quorate_controller.control.resource_access import check_altering_configs, check_altering_levels
from quorate_controller.control.steps import ITEM, Parts, StepBudget, Steps, begun, text_work

if TYPE_CHECKING:
    from quorate_protocol.image import MetadataImage
    from quorate_protocol.records.framing import MetadataRecord

CORDONED_LOG_DIRS: Final = "cordoned.log.dirs"

_Result: TypeAlias = tuple[int, str, ControlError | None]
"""The type and name of a resource, and its error."""

KIND_NAMES: Final = {
    ConfigResourceType.TOPIC: "topic",
    ConfigResourceType.BROKER: "broker",
    ConfigResourceType.CLIENT_METRICS: "client metrics",
    ConfigResourceType.GROUP: "group",
}
WITH_LISTS: Final[Mapping[ConfigResourceType, Callable[[], Mapping[str, Definition]]]] = {
    ConfigResourceType.TOPIC: topic_definitions,
    ConfigResourceType.BROKER: broker_definitions,
}
"""Resources whose lists can be appended to: Kafka's controllers have config types for these only
(KafkaConfigSchema)."""


@dataclass(frozen=True, slots=True)
class Resource:
    """The resource of a config."""

    type: ConfigResourceType
    name: str


G = TypeVar("G", AlterConfigsResource, legacy_request.AlterConfigsResource)


class ConfigManager:
    """Decides on dynamic configs."""

    def __init__(
        self,
        image: "MetadataImage",
        effective: EffectiveConfigs,
        quorum: QuorumPort,
        loggers: LoggerManager,
        policies: Policies = NO_POLICIES,
    ) -> None:
        self._image = image
        self._loggers = loggers
        self._policies = policies
        self._effective = effective
        self._quorum = quorum
        self._plain_topic = OfBrokerConfigs(effective, self._describe_plain_topic)
        self._check_plain_topic = OfBrokerConfigs(
            effective, lambda: validate_topic(NOTHING, NOTHING, effective)
        )
        """Most new topics have no configs: the defaults are checked once."""

    # Requests

    def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, context: RequestContext
    ) -> ControlResult:
        """IncrementalAlterConfigs 0-1: each resource succeeds or fails alone; errors stand in the response.

        Levels of loggers are changed at once, whatever the result of the rest. All configs of a resource are written
        together.

        Raises:
            ControlError: POLICY_VIOLATION for more records than one batch may have.
        """
        return begun(self._operating(request, context))

    def _operating(self, request: IncrementalAlterConfigsRequest, context: RequestContext) -> Steps:
        budget = StepBudget()
        levels = []
        for given in request.resources:
            if is_logger(given.resource_type):
                error = self._alter_levels(given, context, validate_only=request.validate_only)
                levels.append((given, error))
                if budget.spend(ITEM * (1 + len(given.configs))):
                    yield None
        stored = [given for given in request.resources if not is_logger(given.resource_type)]

        def operate(resource: Resource, given: AlterConfigsResource) -> dict[str, str | None]:
            return {
                config.name: self._operate(resource, config.name, config.config_operation, config.value)
                for config in given.configs
            }

        if may_exceed_batch(sum(len(given.configs) for given in stored)):
            yield from self._altering(stored, operate, context, Parts.checking())
        parts = Parts(is_dry=request.validate_only)
        results = yield from self._altering(stored, operate, context, parts)
        responses = _responses(AlterConfigsResourceResponse, results) + tuple(
            _response(AlterConfigsResourceResponse, given.resource_type, given.resource_name, error)
            for given, error in levels
        )
        return parts.last(IncrementalAlterConfigsResponse(throttle_time=timedelta(0), responses=responses))

    def alter_configs(self, request: AlterConfigsRequest, context: RequestContext) -> ControlResult:
        """AlterConfigs 0-2: as above, but the given configs replace all existing ones."""
        return begun(self._replacing(request, context))

    def _replacing(self, request: AlterConfigsRequest, context: RequestContext) -> Steps:
        def replace(resource: Resource, given: legacy_request.AlterConfigsResource) -> dict[str, str | None]:
            values = {config.name: config.value for config in given.configs}
            if None in values.values():
                nulls = ", ".join(name for name, value in values.items() if value is None)
                raise ControlError(ErrorCode.invalid_request, f"Null value not supported for : {nulls}")
            dropped = self._effective.dynamic(resource.type, resource.name).keys() - values.keys()
            return {**values, **dict.fromkeys(sorted(dropped))}

        present = (
            len(self._effective.dynamic(given.resource_type, given.resource_name))
            for given in request.resources
        )
        if may_exceed_batch(sum(present) + sum(len(given.configs) for given in request.resources)):
            yield from self._altering(request.resources, replace, context, Parts.checking())
        parts = Parts(is_dry=request.validate_only)
        results = yield from self._altering(request.resources, replace, context, parts)
        responses = _responses(legacy_response.AlterConfigsResourceResponse, results)
        return parts.last(
            legacy_response.AlterConfigsResponse(throttle_time=timedelta(0), responses=responses)
        )

    # For other managers

    def validate_new_topic(self, name: str, configs: Mapping[str, str | None]) -> Sequence[ConfigRecord]:
        """Check the configs of a topic to be created. Returns its ConfigRecords, in the order of the request.

        Raises:
            ControlError: INVALID_CONFIG for an unknown name, a null value, or a value that its type refuses.
        """
        if not configs:
            self._check_plain_topic()
            return ()
        nulls = [key for key, value in configs.items() if value is None]
        if nulls:
            raise ControlError(
                ErrorCode.invalid_config, f"Null value not supported for topic configs: {','.join(nulls)}"
            )
        resource = Resource(ConfigResourceType.TOPIC, name)
        self._check_values(configs)
        self._validate(resource, {key: value for key, value in configs.items() if value is not None}, NOTHING)
        self._policies.check_configs(resource.type, name, configs)
        return _records(resource, configs)

    def describe_new_topic(self, configs: Mapping[str, str | None]) -> tuple[CreatableTopicConfigs, ...]:
        """All effective configs of a topic with these overrides, ordered by name."""
        overrides = {key: value for key, value in configs.items() if value is not None}
        plain = self._plain_topic()
        if not overrides:
            return plain
        described = {config.name: config for config in plain}
        described |= {key: self._describe(key, overrides) for key in overrides}
        return tuple(described[key] for key in sorted(described))

    def _describe_plain_topic(self) -> SharedArray[CreatableTopicConfigs]:
        """The effective configs of a topic without dynamic configs."""
        return SharedArray(
            self._describe(name, NOTHING)
            for name, definition in topic_definitions().items()
            if not definition.internal
        )

    def _describe(self, name: str, overrides: Mapping[str, str]) -> CreatableTopicConfigs:
        definition, value = topic_definitions()[name], self._effective.topic_config(name, overrides)
        return CreatableTopicConfigs(
            name=name,
            value=None if definition.sensitive else value.value,
            read_only=False,
            config_source=int(value.source),
            is_sensitive=definition.sensitive,
        )

    def min_insync_replicas(self, topic_name: str) -> int:
        """Effective `min.insync.replicas` of a topic."""
        return self._effective.min_insync_replicas(topic_name)

    def unclean_leader_election(self, topic_name: str) -> bool:
        """Effective `unclean.leader.election.enable` of a topic."""
        return self._effective.unclean_leader_election(topic_name)

    def eligible_leader_replicas_records(self) -> tuple[ConfigRecord, ...]:
        """The records when eligible.leader.replicas.version is switched on (KIP-966).

        From then on every controller must compute the same `min.insync.replicas`: it gets a cluster-wide value,
        and the values of single brokers are removed.
        """
        records: list[ConfigRecord] = []
        cluster = Resource(ConfigResourceType.BROKER, "")
        if MIN_INSYNC_REPLICAS not in self._effective.cluster_configs:
            value = str(self._effective.static_min_insync_replicas())
            records += _records(cluster, {MIN_INSYNC_REPLICAS: value})
        for (resource_type, name), configs in self._image.configs.items():
            if resource_type == ConfigResourceType.BROKER and name and MIN_INSYNC_REPLICAS in configs:
                records += _records(Resource(ConfigResourceType.BROKER, name), {MIN_INSYNC_REPLICAS: None})
        return tuple(records)

    # Parts

    def _alter_levels(
        self, given: AlterConfigsResource, context: RequestContext, *, validate_only: bool
    ) -> ControlError | None:
        try:
            check_altering_levels(context.access)
            self._loggers.alter(given, validate_only=validate_only)
        except ControlError as error:
            return error
        return None

    def _altering(
        self,
        given: Sequence[G],
        changes_of: Callable[[Resource, G], Mapping[str, str | None]],
        context: RequestContext,
        parts: Parts,
    ) -> Generator[ControlResult | None, None, list[_Result]]:
        """Return the error of each resource.

        A repeated resource has one result, unless its type is unknown, as in Kafka.
        """
        results: list[_Result] = []
        done: set[tuple[int, str]] = set()
        times = Counter((item.resource_type, item.resource_name) for item in given)
        for item in given:
            key: tuple[int, str] = (item.resource_type, item.resource_name)
            if key in done:
                continue
            records: Sequence[ConfigRecord] = ()
            try:
                kind = _known_type(item.resource_type)
                done.add(key)
                _check_unique(times[key], item)
                check_altering_configs(context.access, *key)
                resource = self._resource(kind, item.resource_name)
                changes = changes_of(resource, item)
                dropped = changes.keys() - {config.name for config in item.configs}
                records = self._change(resource, changes, context, dropped)
                results.append((*key, None))
            except ControlError as error:
                results.append((*key, error))
            texts = text_work(*(record.value for record in records))
            if parts.add(records, ITEM * (1 + len(item.configs)) + texts):
                yield parts.pop()
        return results

    def _resource(self, kind: ConfigResourceType, name: str) -> Resource:
        if kind is ConfigResourceType.BROKER_LOGGER:  # of AlterConfigs, which replaces all configs
            raise ControlError(ErrorCode.invalid_request, f"Unexpected resource type {kind.name}.")
        return Resource(kind, name)

    def _operate(self, resource: Resource, key: str, operation: int, value: str | None) -> str | None:
        """The new value of one config, or None."""
        if operation == ConfigOpType.DELETE:
            return None
        if value is None:
            raise ControlError(ErrorCode.invalid_request, f"Null value not supported for : {key}")
        if operation == ConfigOpType.SET:
            return value
        if operation not in tuple(ConfigOpType):
            raise ControlError(ErrorCode.invalid_request, f"Unknown operations type {operation}")
        definition = WITH_LISTS[resource.type]().get(key) if resource.type in WITH_LISTS else None
        if definition is None or definition.type is not ConfigType.LIST:
            raise ControlError(
                ErrorCode.invalid_config,
                f"Can't {ConfigOpType(operation).name} to key {key} because its type is not LIST.",
            )
        current = self._effective.dynamic(resource.type, resource.name).get(key, definition.default)
        items = [item for item in (current or "").split(",") if item]
        operands = value.split(",")
        if operation == ConfigOpType.APPEND:
            known = set(items)
            return ",".join([*items, *(item for item in dict.fromkeys(operands) if item not in known)])
        left = Counter(operands)  # each removes one item
        kept = []
        for item in items:
            if left[item]:
                left[item] -= 1
            else:
                kept.append(item)
        return ",".join(kept)

    def _change(
        self,
        resource: Resource,
        changes: Mapping[str, str | None],
        context: RequestContext,
        dropped: Container[str],
    ) -> Sequence[ConfigRecord]:
        """Check the changes of an existing resource. A broker gets a record for an unchanged value as well.

        `dropped` are keys that the request does not name.
        """
        existing = self._effective.dynamic(resource.type, resource.name)
        altered = {
            key: value
            for key, value in changes.items()
            if resource.type is ConfigResourceType.BROKER or existing.get(key) != value
        }
        self._check_values(altered)
        if resource.type is ConfigResourceType.BROKER:
            self._check_broker_rules(resource.name, altered, existing, context)
        resulting = {key: value for key, value in {**existing, **altered}.items() if value is not None}
        self._validate(resource, resulting, existing)
        self._check_exists(resource)
        self._policies.check_configs(
            resource.type,
            resource.name,
            {key: value for key, value in altered.items() if key not in dropped},
        )
        return _records(resource, altered)

    @staticmethod
    def _check_values(values: Mapping[str, str | None]) -> None:
        if any(value and len(value.encode()) > STRING_SIZE_BYTES_MAX for value in values.values()):
            raise ControlError(
                ErrorCode.invalid_config,
                "The configuration value cannot be added because it exceeds the maximum value size of "
                f"{STRING_SIZE_BYTES_MAX} bytes.",
            )

    def _validate(
        self, resource: Resource, resulting: Mapping[str, str], existing: Mapping[str, str]
    ) -> None:
        validate_resource_name(KIND_NAMES[resource.type], resource.name)
        match resource.type:
            case ConfigResourceType.TOPIC:
                validate_topic(resulting, existing, self._effective)
            case ConfigResourceType.GROUP:
                validate_group(resulting, self._effective)
            case ConfigResourceType.CLIENT_METRICS:
                validate_client_metrics(resulting)

    def _check_broker_rules(
        self,
        name: str,
        altered: Mapping[str, str | None],
        existing: Mapping[str, str],
        context: RequestContext,
    ) -> None:
        """Check the rules that apply only to configs of brokers."""
        if MIN_INSYNC_REPLICAS in altered and self._image.features.get(features.ELIGIBLE_LEADER_REPLICAS):
            if name:
                raise ControlError(
                    ErrorCode.invalid_config,
                    "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
                )
            if altered[MIN_INSYNC_REPLICAS] is None:
                raise ControlError(
                    ErrorCode.invalid_config,
                    "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
                )
        if (
            CORDONED_LOG_DIRS in altered
            and self._image.metadata_version < features.CORDONED_DIRECTORIES_SINCE
        ):
            needed = features.metadata_version_name(features.CORDONED_DIRECTORIES_SINCE)
            raise ControlError(
                ErrorCode.invalid_config,
                "The cordoned.log.dirs configuration value cannot be set because it requires "
                f"metadata.version >= {needed}",
            )
        if context.forwarded:
            return  # the broker has checked the configs against its own definitions, which may be newer than ours
        cordoned = set(_directories(altered.get(CORDONED_LOG_DIRS)))
        if not cordoned <= set(_directories(existing.get(CORDONED_LOG_DIRS))):
            raise ControlError(
                ErrorCode.invalid_config,
                "When updating cordoned.log.dirs via controllers,  the new value must be a subset of the "
                "current configuration value.",
            )
        values = {key: value for key, value in altered.items() if value is not None}
        validate_broker(values, per_broker=bool(name))

    def _check_exists(self, resource: Resource) -> None:
        if resource.type is ConfigResourceType.TOPIC and resource.name not in self._image.topics.by_name:
            raise ControlError(
                ErrorCode.unknown_topic_or_partition, f"The topic '{resource.name}' does not exist."
            )
        if resource.type is ConfigResourceType.BROKER and resource.name:
            node_id, cluster = int(resource.name), self._image.cluster
            if not any(
                node_id in known for known in (cluster.brokers, cluster.controllers, self._quorum.voter_ids)
            ):
                raise ControlError(ErrorCode.broker_id_not_registered, f"No node with id {node_id} found.")


def topics_with_new_min_insync_replicas(records: Iterable["MetadataRecord"]) -> list[str | None]:
    """Topics whose `min.insync.replicas` these records may change; None stands for all of them."""
    return [
        record.resource_name if record.resource_type == ConfigResourceType.TOPIC else None
        for record in records
        if isinstance(record, ConfigRecord) and record.name == MIN_INSYNC_REPLICAS
    ]


def _known_type(number: int) -> ConfigResourceType:
    kind = ConfigResourceType(number)
    if kind is ConfigResourceType.UNKNOWN:
        raise ControlError(ErrorCode.unsupported_version, f"Unknown resource type {number}.")
    return kind


def _check_unique(times: int, given: AlterConfigsResource | legacy_request.AlterConfigsResource) -> None:
    if times > 1:
        raise ControlError(ErrorCode.invalid_request, "Duplicate resource.")
    if len({config.name for config in given.configs}) != len(given.configs):
        raise ControlError(ErrorCode.invalid_request, "Error due to duplicate config keys")


def _responses(response_class: Any, results: Iterable[_Result]) -> tuple[Any, ...]:
    return tuple(_response(response_class, *result) for result in results)


def _response(response_class: Any, resource_type: int, name: str, error: ControlError | None) -> Any:
    return response_class(
        error_code=error.error_code if error else ErrorCode.none,
        error_message=error.message if error else None,
        resource_type=resource_type,
        resource_name=name,
    )


def _records(resource: Resource, changes: Mapping[str, str | None]) -> list[ConfigRecord]:
    return [
        ConfigRecord(resource_type=int(resource.type), resource_name=resource.name, name=name, value=value)
        for name, value in changes.items()
    ]


def _directories(value: str | None) -> list[str]:
    return [item.strip() for item in value.split(",")] if value and value.strip() else []
