"""Log levels of this node: BROKER_LOGGER resources of IncrementalAlterConfigs and DescribeConfigs (KIP-412,
KIP-919).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import ConfigOpType, ConfigResourceType
from quorate_protocol.kafka.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from quorate_controller.control.api import ControlError

ROOT_LOGGER: Final = "root"
LEVELS: Final = ("DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN")
"""Kafka's names (LogLevelConfig), in the order in which its messages have them."""
_JAVA_INT: Final = re.compile(r"[+-]?[0-9]+")
_INT_BITS: Final = 32


class Loggers(Protocol):
    """The loggers of the process."""

    def levels(self) -> Mapping[str, str]:
        """Kafka's name of the effective level of each logger, `root` included, by logger name."""

    def set_level(self, name: str, level: str | None) -> None:
        """Set the level of an existing logger; with None it inherits that of its parent."""


class NoLoggers:
    """No loggers, for nodes that share a process: none of them may change its loggers."""

    def levels(self) -> Mapping[str, str]:
        """Return no loggers."""
        return {}

    def set_level(self, name: str, level: str | None) -> None:
        """Do nothing, because there are no loggers."""


NO_LOGGERS: Final = NoLoggers()


class LoggerManager:
    """Checks changes of levels, and applies them at once: they concern this node alone."""

    def __init__(self, node_id: int, loggers: Loggers) -> None:
        self._node_id = node_id
        self._loggers = loggers

    def levels(self) -> Mapping[str, str]:
        """See `Loggers.levels`."""
        return self._loggers.levels()

    def alter(self, resource: AlterConfigsResource, *, validate_only: bool) -> None:
        """Make all changes of one resource, or none.

        Raises:
            ControlError: INVALID_REQUEST for another node or an operation that levels do not have; INVALID_CONFIG for
                an unknown logger or level.
        """
        self._check_is_this_node(resource.resource_name)
        known = self._loggers.levels()
        for config in resource.configs:
            _check(config, known)
        if validate_only:
            return
        for config in resource.configs:
            is_set = config.config_operation == ConfigOpType.SET
            self._loggers.set_level(config.name, config.value if is_set else None)

    def _check_is_this_node(self, name: str) -> None:
        number = int(name) if _JAVA_INT.fullmatch(name) and len(name) <= _INT_BITS else None
        if number is None or not -(2**31) <= number < 2**31:
            raise ControlError(ErrorCode.invalid_request, f"Node id must be an integer, but it is: {name}")
        if number != self._node_id:
            raise ControlError(
                ErrorCode.invalid_request,
                f"Unexpected node id. Expected {self._node_id}, but received {number}",
            )


def are_all_loggers(request: IncrementalAlterConfigsRequest) -> bool:
    """Whether the request is about levels only, which need no active controller."""
    return all(is_logger(resource.resource_type) for resource in request.resources)


def is_logger(resource_type: int) -> bool:
    """Whether a resource type is the loggers of a node."""
    return resource_type == ConfigResourceType.BROKER_LOGGER


def _check(config: AlterableConfig, known: Iterable[str]) -> None:
    operation = config.config_operation
    if operation not in (ConfigOpType.SET, ConfigOpType.DELETE):
        is_known = operation in (ConfigOpType.APPEND, ConfigOpType.SUBTRACT)
        named = (
            ConfigOpType(operation).name + " operation" if is_known else f"Unknown operation type {operation}"
        )
        raise ControlError(
            ErrorCode.invalid_request, f"{named} is not allowed for the BROKER_LOGGER resource"
        )
    if config.name not in known:
        raise ControlError(ErrorCode.invalid_config, f"Logger {config.name} does not exist!")
    if operation == ConfigOpType.DELETE:
        if config.name == ROOT_LOGGER:
            raise ControlError(
                ErrorCode.invalid_request, "Removing the log level of the root logger is not allowed"
            )
    elif config.value is None:
        # A lookup of null in Java's set of levels fails.
        raise ControlError(ErrorCode.unknown_server_error, ErrorCode.unknown_server_error.text)
    elif config.value not in LEVELS:
        raise ControlError(
            ErrorCode.invalid_config,
            f"Cannot set the log level of {config.name} to {config.value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(LEVELS)}",
        )
