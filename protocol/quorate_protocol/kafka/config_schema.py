"""Kafka's config definitions: names, types, defaults, checks, synonyms.

The data (`config_schema.json`, `config_documentation.json`) is written by
`tools/generate_config_schema.py` from Kafka's own ConfigDefs. Each section is read on first use.

There is one table for all supported releases, that of the newest.
"""

import json
import pkgutil
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from quorate_protocol.kafka.enums import ConfigType
from quorate_protocol.plain_data import dataclass

ConfigValue = bool | int | float | str | list[str] | None


class ConfigValueError(ValueError):
    """A value that its definition refuses; the text is Kafka's."""


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker config that is the fallback of another config."""

    name: str
    factor: int = 1
    """The factor from its unit to that of the other config (hours or minutes to milliseconds)."""

    def convert(self, value: str) -> str:
        """Convert a value of the synonym. Text that is no number counts as 0, as in Kafka."""
        if self.factor == 1:
            return value
        try:
            return str(int(value) * self.factor)
        except ValueError:
            return "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The check of a value beyond its type; `kind` selects the function of these parameters."""

    kind: str
    min: int | float | None = None
    max: int | float | None = None
    values: tuple[str, ...] = ()
    empty: bool = True
    null: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One config."""

    name: str
    type: ConfigType
    default: str | None = None
    internal: bool = False
    """Not shown by DescribeConfigs unless it is set."""
    sensitive: bool = False
    check: Check | None = None
    synonyms: tuple[Synonym, ...] = ()
    update_mode: str = ""
    """Of broker configs: `read-only`, `per-broker` or `cluster-wide`."""
    since: str = ""
    """The release that introduced it; empty if the oldest supported release has it."""

    def parse(self, text: str | None) -> ConfigValue:
        """The typed value of `text`.

        Raises:
            ConfigValueError: it is not of the type, or fails the check.
        """
        value = parse_type(self.name, text, self.type)
        if self.check is not None:
            if self.check.kind == "list" and isinstance(value, list):
                value = list(dict.fromkeys(value))  # Kafka drops duplicates with a warning
            _CHECKS[self.check.kind](self.name, value, self.check)
        return value

    def normalize(self, text: str | None) -> str | None:
        """`text` as Kafka shows it: trimmed, lists without spaces, numbers without leading zeros."""
        value = self.parse(text)
        if self.type is ConfigType.DOUBLE and text is not None:
            return text.strip()
        return None if value is None else _java_text(value)


def parse_type(name: str, text: str | None, config_type: ConfigType) -> ConfigValue:
    """Parse without checks beyond the type (Kafka's ConfigDef.parseType). Classes are returned by name.

    Raises:
        ConfigValueError: not of the type.
    """
    if text is None:
        return None
    trimmed = text.strip()
    match config_type:
        case ConfigType.BOOLEAN:
            if trimmed.lower() not in ("true", "false"):
                raise _invalid(name, text, "Expected value to be either true or false")
            return trimmed.lower() == "true"
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
            bits = _INTEGER_BITS[config_type]
            if _INTEGER.fullmatch(trimmed) and -(2 ** (bits - 1)) <= int(trimmed) < 2 ** (bits - 1):
                return int(trimmed)
            raise _invalid(name, text, f"Not a number of type {config_type.name}")
        case ConfigType.DOUBLE:
            try:
                return float(trimmed)
            except ValueError:
                raise _invalid(name, text, "Not a number of type DOUBLE") from None
        case ConfigType.LIST:
            # Not a regular expression, which takes quadratic time for many spaces without a comma.
            return [item.strip(SPACES) for item in trimmed.split(",")] if trimmed else []
        case _:
            return trimmed


SPACES: Final = " \t\n\x0b\f\r"
r"""What `\s` means to Java's ConfigDef, which splits lists at `\s*,\s*`."""
_INTEGER_BITS: Final = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")


def _java_text(value: ConfigValue) -> str:
    """As Kafka prints a parsed value in messages and responses."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, list) else str(value)


def _invalid(name: str, value: ConfigValue, reason: str) -> ConfigValueError:
    shown = f"[{', '.join(value)}]" if isinstance(value, list) else _java_text(value)
    return ConfigValueError(f"Invalid value {shown} for configuration {name}: {reason}")


def _check_range(name: str, value: ConfigValue, check: Check) -> None:
    if not isinstance(value, int | float):
        raise _invalid(name, value, "Value must be non-null")
    if check.min is not None and value < check.min:
        raise _invalid(name, value, f"Value must be at least {check.min}")
    if check.max is not None and value > check.max:
        raise _invalid(name, value, f"Value must be no more than {check.max}")


def _check_one_of(name: str, value: ConfigValue, check: Check) -> None:
    if value not in check.values:
        raise _invalid(name, value, f"String must be one of: {', '.join(check.values)}")


def _check_one_of_ignoring_case(name: str, value: ConfigValue, check: Check) -> None:
    if not isinstance(value, str) or value.upper() not in check.values:
        allowed = ", ".join(check.values)
        raise _invalid(name, value, f"String must be one of (case insensitive): {allowed}")


def _check_list(name: str, value: ConfigValue, check: Check) -> None:
    if value is None and check.null:
        return
    if not isinstance(value, list):
        raise ConfigValueError(f"Configuration '{name}' values must not be null.")
    if not check.empty and not value:
        allowed = f"[{', '.join(check.values)}]" if check.values else "any non-empty value"
        raise ConfigValueError(f"Configuration '{name}' must not be empty. Valid values include: {allowed}")
    for item in value:
        if not item:
            raise ConfigValueError(f"Configuration '{name}' values must not be empty.")
        if check.values:
            _check_one_of(name, item, check)


def _check_non_empty(name: str, value: ConfigValue, _check: Check) -> None:
    if value == "":
        raise _invalid(name, value, "String must be non-empty")


def _check_non_null(name: str, value: ConfigValue, _check: Check) -> None:
    if value is None:
        raise _invalid(name, value, "entry must be non null")


def _check_gzip_level(name: str, value: ConfigValue, _check: Check) -> None:
    if not isinstance(value, int) or not (value == -1 or 1 <= value <= 9):
        raise _invalid(name, value, "Value must be between 1 and 9 or equal to -1")


def _check_throttled_replicas(name: str, value: ConfigValue, _check: Check) -> None:
    assert isinstance(value, list)
    if value != ["*"] and not all(re.fullmatch(r"[0-9]+:[0-9]+", item.strip()) for item in value):
        raise _invalid(
            name,
            value,
            f"{name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        )


def _check_share_offset_reset(name: str, value: ConfigValue, _check: Check) -> None:
    strategy = str(value).lower()
    duration = strategy.removeprefix("by_duration:")
    if strategy in ("earliest", "latest"):
        return
    # ISO 8601 as java.time.Duration reads it, without negative parts.
    if duration == strategy or not re.fullmatch(
        r"p(?=.)([0-9]+d)?(t(?=[0-9])([0-9]+h)?([0-9]+m)?([0-9]+([.][0-9]{0,9})?s)?)?", duration
    ):
        raise _invalid(
            name,
            value,
            f"Invalid value `{value}` for configuration {name}. The value must be either 'earliest', "
            "'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
        )


_CHECKS: Final[Mapping[str, Callable[[str, ConfigValue, Check], None]]] = {
    "range": _check_range,
    "one_of": _check_one_of,
    "one_of_ignoring_case": _check_one_of_ignoring_case,
    "list": _check_list,
    "non_empty": _check_non_empty,
    "non_null": _check_non_null,
    "gzip_level": _check_gzip_level,
    "throttled_replicas": _check_throttled_replicas,
    "share_offset_reset": _check_share_offset_reset,
}


@cache
def topic_definitions() -> Mapping[str, Definition]:
    """Configs of topics by name."""
    return _read_definitions("topic")


@cache
def broker_definitions() -> Mapping[str, Definition]:
    """Configs of brokers and controllers by name."""
    return _read_definitions("broker")


@cache
def group_definitions() -> Mapping[str, Definition]:
    """Configs of groups by name."""
    return _read_definitions("group")


@cache
def client_metrics_definitions() -> Mapping[str, Definition]:
    """Configs of client metrics subscriptions by name."""
    return _read_definitions("client_metrics")


@cache
def security_configs() -> frozenset[str]:
    """Broker configs that can be altered per listener only (`listener.name.<name>.ssl.…`)."""
    return frozenset(_read_json("config_schema.json")["security_configs"])


@cache
def documentation(section: str) -> Mapping[str, str]:
    """Kafka's description of each config of a section. Read at its first use: to parse it takes 1 ms."""
    texts: dict[str, str] = _read_json("config_documentation.json")[section]
    return texts


def _read_definitions(section: str) -> dict[str, Definition]:
    return {name: _definition(name, data) for name, data in _read_json("config_schema.json")[section].items()}


def _definition(name: str, data: Mapping[str, Any]) -> Definition:
    check = data.get("check")
    return Definition(
        name=name,
        type=ConfigType[data["type"].upper()],
        default=data.get("default"),
        internal=data.get("internal", False),
        sensitive=data.get("sensitive", False),
        check=Check(**check | {"values": tuple(check.get("values", ()))}) if check else None,
        synonyms=tuple(Synonym(**synonym) for synonym in data.get("synonyms", ())),
        update_mode=data.get("update_mode", ""),
        since=data.get("since", ""),
    )


def _read_json(name: str) -> dict[str, Any]:
    """The content of a data file of the package."""
    data = pkgutil.get_data(__name__, name)
    assert data is not None
    content: dict[str, Any] = json.loads(data)
    return content
