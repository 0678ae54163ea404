"""Configs of topics, nodes, loggers, groups and client metrics."""

from dataclasses import dataclass, field
from enum import IntEnum

from quorate_admin.types.enums import KafkaEnum

__all__ = (
    "AlterConfigOp",
    "ConfigEntry",
    "ConfigOpType",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
)


class ConfigResourceType(KafkaEnum):
    """What has configs of its own."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(KafkaEnum):
    """Where the value of a config comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigType(KafkaEnum):
    """What kind of value a config has."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigOpType(IntEnum):
    """What an incremental alteration does with a config (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


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
