"""Effective values of configs: dynamic configs override this node's file, which overrides Kafka's defaults."""

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from quorate_protocol.image.views import MIN_INSYNC_REPLICAS
from quorate_protocol.kafka.config_schema import (
    Definition,
    broker_definitions,
    client_metrics_definitions,
    group_definitions,
    topic_definitions,
)
from quorate_protocol.kafka.enums import ConfigResourceType, ConfigSource
from quorate_protocol.plain_data import dataclass

if TYPE_CHECKING:
    from quorate_protocol.image import MetadataImage

NOTHING: Final[Mapping[str, str]] = {}
_CHECKED: Final[Mapping[int, Callable[[], Mapping[str, Definition]]]] = {
    ConfigResourceType.TOPIC: topic_definitions,
    ConfigResourceType.CLIENT_METRICS: client_metrics_definitions,
    ConfigResourceType.GROUP: group_definitions,
}
"""Resources whose configs have to be known; brokers may have configs of plugins."""

_Value = TypeVar("_Value")

UNCLEAN_LEADER_ELECTION: Final = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True)
class SourcedValue:
    """A value, under the name and at the level where it is set."""

    name: str
    value: str | None
    source: ConfigSource


class EffectiveConfigs:
    """Resolves configs as this node sees them (Kafka's KafkaConfigSchema)."""

    def __init__(self, node_id: int, image: "MetadataImage", static_configs: Mapping[str, str]) -> None:
        self.node_id = node_id
        self.image = image
        self._node_resource = (int(ConfigResourceType.BROKER), str(node_id))
        self.static_configs = dict(static_configs)
        """This node's file; `node.id` and `broker.id` are the same in Kafka."""
        for name, synonym in (("node.id", "broker.id"), ("broker.id", "node.id")):
            if name in static_configs:
                self.static_configs.setdefault(synonym, static_configs[name])

    def dynamic(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The dynamic configs of one resource, without those that only another release has.

        Kafka 4.4 does not load those (SupportedConfigChecker): they would make each later change invalid.
        """
        configs = self.image.configs.get((resource_type, name), NOTHING)
        definitions = _CHECKED.get(resource_type)
        if definitions is None or configs.keys() <= (known := definitions().keys()):
            return configs
        return {key: value for key, value in configs.items() if key in known}

    @property
    def cluster_configs(self) -> Mapping[str, str]:
        """Dynamic defaults of all brokers."""
        return self.dynamic(ConfigResourceType.BROKER, "")

    @property
    def node_configs(self) -> Mapping[str, str]:
        """Dynamic configs of this node."""
        return self.image.configs.get(self._node_resource, NOTHING)

    def levels(self) -> Iterator[tuple[ConfigSource, Mapping[str, str]]]:
        """Broker configs from the strongest to the weakest level, defaults not included."""
        yield ConfigSource.DYNAMIC_BROKER_CONFIG, self.node_configs
        yield ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, self.cluster_configs
        yield ConfigSource.STATIC_BROKER_CONFIG, self.static_configs

    def topic_config(self, name: str, overrides: Mapping[str, str]) -> SourcedValue:
        """The value of `name` for a topic with these dynamic configs."""
        definition = topic_definitions()[name]
        if name in overrides:
            return SourcedValue(name, overrides[name], ConfigSource.DYNAMIC_TOPIC_CONFIG)
        for source, configs in self.levels():
            if configs:
                for synonym in definition.synonyms:
                    if synonym.name in configs:
                        return SourcedValue(name, synonym.convert(configs[synonym.name]), source)
        return SourcedValue(name, definition.default, ConfigSource.DEFAULT_CONFIG)

    def broker_config(self, name: str) -> str | None:
        """The value of a broker config on this node."""
        for _, configs in self.levels():
            if name in configs:
                return configs[name]
        return broker_definitions()[name].default

    def group_config(self, definition: Definition, overrides: Mapping[str, str]) -> str | None:
        """The value for a group with these dynamic configs."""
        if definition.name in overrides:
            return overrides[definition.name]
        if definition.synonyms:
            return self.broker_config(definition.synonyms[0].name)
        return definition.default

    def min_insync_replicas(self, topic_name: str) -> int:
        """Effective `min.insync.replicas` of a topic."""
        overrides = self.dynamic(ConfigResourceType.TOPIC, topic_name)
        return self._integer(MIN_INSYNC_REPLICAS, self.topic_config(MIN_INSYNC_REPLICAS, overrides).value)

    def static_min_insync_replicas(self) -> int:
        """What holds without any dynamic config."""
        return self._integer(MIN_INSYNC_REPLICAS, self.static_configs.get(MIN_INSYNC_REPLICAS))

    def unclean_leader_election(self, topic_name: str) -> bool:
        """Effective `unclean.leader.election.enable` of a topic."""
        overrides = self.dynamic(ConfigResourceType.TOPIC, topic_name)
        value = self.topic_config(UNCLEAN_LEADER_ELECTION, overrides).value
        return value is not None and value.strip().lower() == "true"

    @staticmethod
    def _integer(name: str, value: str | None) -> int:
        """A checked value as number. A value that another controller accepted in error counts as the default."""
        definition = topic_definitions()[name]
        assert definition.default is not None
        try:
            parsed = definition.parse(value)
        except ValueError:
            parsed = None
        return parsed if isinstance(parsed, int) else int(definition.default)


class OfBrokerConfigs(Generic[_Value]):
    """A value that depends on broker configs alone: computed on first use, and again after a change."""

    def __init__(self, effective: EffectiveConfigs, compute: Callable[[], _Value]) -> None:
        self._effective = effective
        self._compute = compute
        self._levels: tuple[Mapping[str, str], ...] = ()
        self._value: _Value

    def __call__(self) -> _Value:
        """The value now."""
        levels = (self._effective.node_configs, self._effective.cluster_configs)
        # The image replaces the mapping of a resource and never changes it.
        if not (self._levels and all(map(operator.is_, levels, self._levels))):
            self._value = self._compute()
            self._levels = levels
        return self._value
