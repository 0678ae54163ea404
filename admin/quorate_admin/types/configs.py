"""Configs of topics, nodes, loggers, groups and client metrics."""

from dataclasses import dataclass, field

from quorate_protocol.kafka.enums import ConfigOpType, ConfigResourceType, ConfigSource, ConfigType


@dataclass(frozen=True, slots=True, order=True)
class ConfigResource:
    """An object that has configs.

    `name` is a topic, group or subscription, or the decimal id of a node. A BROKER with an empty name is the
    default of all brokers.
    """

    type: ConfigResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name or 'default'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSynonym:
    """A config of another name or level that provides the value if none of higher precedence does."""

    name: str
    value: str | None = field(repr=False)
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """A config with its value (DescribeConfigs).

    `value` is None if the config is unset, and always if it `is_sensitive`, because servers do not return those.
    `synonyms`, in order of precedence, and `documentation` are set if they were requested.
    """

    name: str
    value: str | None = field(repr=False)
    source: ConfigSource
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[ConfigSynonym, ...] = ()
    type: ConfigType = ConfigType.UNKNOWN
    documentation: str | None = field(default=None, repr=False)

    @property
    def is_default(self) -> bool:
        """Whether the value is Kafka's default."""
        return self.source is ConfigSource.DEFAULT_CONFIG


@dataclass(frozen=True, slots=True)
class AlterConfigOp:
    """One change of one config (IncrementalAlterConfigs). DELETE has no value.

    `repr` hides the value, because the client does not know whether it is a password.
    """

    name: str
    value: str | None = field(default=None, repr=False)
    operation: ConfigOpType = ConfigOpType.SET
