"""Configs of topics, nodes, loggers, groups and client metrics."""

from dataclasses import dataclass, field

from quorate_protocol.kafka.enums import ConfigOpType, ConfigResourceType, ConfigSource, ConfigType

__all__ = (
    "AlterConfigOp",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSynonym",
)


@dataclass(frozen=True, slots=True, order=True)
class ConfigResource:
    """Whose configs.

    `name` is a topic, group or subscription, or the id of a node in decimal. The empty name of a BROKER
    stands for the default of all brokers.
    """

    type: ConfigResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name or 'default'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSynonym:
    """A config of another name or level that gives the value where nothing above it does."""

    name: str
    value: str | None = field(repr=False)
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """A config with its value (DescribeConfigs).

    `value` is None where the config is unset, and always where it `is_sensitive`: servers do not tell those.
    `synonyms`, in order of precedence, and `documentation` are there if they were asked for.
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
        """Whether nobody set it: the value is Kafka's default."""
        return self.source is ConfigSource.DEFAULT_CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigOp:
    """One change of one config (IncrementalAlterConfigs). DELETE has no value.

    The value is not shown by `repr`: the client does not know whether it is a password.
    """

    name: str
    value: str | None = field(default=None, repr=False)
    operation: ConfigOpType = ConfigOpType.SET
