"""A controller's configuration: a stock controller.properties as frozen data.

`loading` reads and checks a file, `endpoints` the listeners and voters in it, `keys` the names and types.
"""

from quorate_controller.config.loading import (
    ConfigError,
    ControllerConfig,
    FormatTarget,
    QuorumTimeouts,
    load_config,
    load_format_target,
    parse_config,
    parse_format_target,
)

__all__ = [
    "ConfigError",
    "ControllerConfig",
    "FormatTarget",
    "QuorumTimeouts",
    "load_config",
    "load_format_target",
    "parse_config",
    "parse_format_target",
]
