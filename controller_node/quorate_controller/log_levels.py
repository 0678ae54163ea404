"""The levels of this process's loggers under Kafka's names."""

import logging
from collections.abc import Mapping
from typing import Final

log = logging.getLogger(__name__)

_LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG // 2,
}
"""Most severe first. Nothing is logged below DEBUG: with TRACE a logger writes the same."""
_ROOT: Final = "root"


class ProcessLoggers:
    """Python's loggers, and the packages that they are in. Implements `broker_loggers.Loggers`."""

    def levels(self) -> Mapping[str, str]:
        """The effective level of each logger and package, by name."""
        names = (_ROOT, *logging.root.manager.loggerDict)
        return {name: _kafka_name(_effective_level(name)) for name in sorted(names)}

    def set_level(self, name: str, level: str | None) -> None:
        """Sets a level; with None the logger takes that of its parent."""
        logging.getLogger(name).setLevel(logging.NOTSET if level is None else _LEVELS[level])
        log.warning("log_level_changed", extra={"facts": {"changed_logger": name, "to": level or "unset"}})


def _effective_level(name: str) -> int:
    """The level of a logger, or of the nearest one above it; does not create one for a package."""
    while name != _ROOT:
        known = logging.root.manager.loggerDict.get(name)
        if isinstance(known, logging.Logger) and known.level != logging.NOTSET:
            return known.level
        name = name.rpartition(".")[0] or _ROOT
    return logging.root.level


def _kafka_name(level: int) -> str:
    """The name of the most severe level that is not above this one."""
    return next((name for name, number in _LEVELS.items() if number <= level), "TRACE")
