"""What may be set on a topic, group, broker or client metrics subscription
(ControllerConfigurationValidator).
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from kio.schema.errors import ErrorCode

from quorate_controller.control.api import ControlError
from quorate_controller.control.config_schema import (
    ConfigValue,
    Definition,
    broker_definitions,
    client_metrics_definitions,
    group_definitions,
    security_configs,
    topic_definitions,
)
from quorate_controller.control.effective_configs import EffectiveConfigs
from quorate_controller.control.regular_expressions import is_regular_expression
from quorate_controller.control.topic_names import why_invalid

Configs = Mapping[str, str]

UNLIMITED: Final = -1
SAME_AS_RETENTION: Final = -2
"""Values of local.retention.ms and local.retention.bytes."""

PUSH_INTERVAL_MIN_MS: Final = 100
PUSH_INTERVAL_MAX_MS: Final = 3_600_000
MATCH_PARAMETERS: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
_TRIMMED: Final = "".join(map(chr, range(ord(" ") + 1)))
"""What Java's String.trim removes."""
LISTENER_CONFIG: Final = re.compile(r"listener\.name\.[^.]*\.(.*)")
CLUSTER_LEVEL_LISTENER_CONFIGS: Final = frozenset(
    {"max.connections", "max.connection.creation.rate", "num.network.threads"}
)


def validate_resource_name(kind: str, name: str) -> None:
    """`kind` is `topic`, `broker`, `group` or `client metrics`.

    Raises:
        ControlError: INVALID_REQUEST, or INVALID_TOPIC_EXCEPTION for a name that no topic may have.
    """
    if kind == "broker":
        if name and not re.fullmatch(r"[+-]?[0-9]{1,10}", name):
            raise _invalid_request("Unable to parse broker name as a base 10 number.")
        if name and int(name) < 0:
            raise _invalid_request("Invalid negative broker ID.")
    elif not name and kind == "client metrics":
        raise _invalid_request("Subscription name can't be empty")
    elif not name:
        raise _invalid_request(f"Default {kind} resources are not allowed.")
    elif kind == "topic" and (reason := why_invalid(name)):
        raise ControlError(ErrorCode.invalid_topic_exception, reason)


def validate_topic(configs: Configs, existing: Configs, effective: EffectiveConfigs) -> None:
    """All configs that a topic would have, given those that it has.

    Raises:
        ControlError: INVALID_CONFIG for an unknown name, a value that its definition refuses, and values that
            contradict each other.
    """
    definitions = topic_definitions()
    _check_names("topic config", configs, definitions)
    for name, value in configs.items():
        _parse(definitions[name], value)

    def value_of(name: str) -> ConfigValue:
        return _parse(definitions[name], effective.topic_config(name, configs).value)

    if configs.keys() & {"min.compaction.lag.ms", "max.compaction.lag.ms"}:
        low, high = value_of("min.compaction.lag.ms"), value_of("max.compaction.lag.ms")
        assert isinstance(low, int)
        assert isinstance(high, int)
        if low > high:
            raise _invalid_config(
                f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms "
                f"({high})"
            )
    if value_of("remote.storage.enable"):
        _validate_remote_storage(value_of, effective)
    elif existing.get("remote.storage.enable", "").lower() == "true" and not value_of(
        "remote.log.delete.on.disable"
    ):
        raise _invalid_config(
            "It is invalid to disable remote storage without deleting remote data. If you want to keep "
            "the remote data and turn to read only, please set "
            "`remote.storage.enable=true,remote.log.copy.disable=true`. If you want to disable remote "
            "storage and delete all remote data, please set "
            "`remote.storage.enable=false,remote.log.delete.on.disable=true`."
        )


def _validate_remote_storage(value_of: Callable[[str], ConfigValue], effective: EffectiveConfigs) -> None:
    """Tiered storage (KIP-405, KIP-950)."""
    if (effective.broker_config("remote.log.storage.system.enable") or "").lower() != "true":
        raise _invalid_config(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with "
            "remote log storage."
        )
    if value_of("cleanup.policy") not in ([], ["delete"]):
        raise _invalid_config(
            "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being "
            "an empty list."
        )
    for unit in ("bytes", "ms"):
        total, local = value_of(f"retention.{unit}"), value_of(f"local.retention.{unit}")
        assert isinstance(total, int)
        assert isinstance(local, int)
        prefix = f"Invalid value {local} for configuration local.retention.{unit}: Value must not be"
        if local == SAME_AS_RETENTION:
            continue
        if total != UNLIMITED and local == UNLIMITED:
            raise _invalid_config(f"{prefix} -1 as retention.{unit} value is set as {total}.")
        if total != UNLIMITED and local > total:
            raise _invalid_config(f"{prefix} more than retention.{unit} property value: {total}")
        if local != total and value_of("remote.log.copy.disable"):
            raise _invalid_config(
                f"When `remote.log.copy.disable` is set to true, the `local.retention.{unit}` and "
                f"`retention.{unit}` must be set to the identical value because there will be no more logs "
                "copied to the remote storage."
            )


def validate_group(configs: Configs, effective: EffectiveConfigs) -> None:
    """All configs that a group would have; the brokers' bounds are those of this node (KIP-848, KIP-932,
    KIP-1071).

    Raises:
        ControlError: INVALID_CONFIG.
    """
    definitions = group_definitions()
    _check_names("group config", configs, definitions)
    for name, text in configs.items():
        value = _parse(definitions[name], text)
        protocol, _, rest = name.partition(".")
        low, high = _bound(effective, protocol, "min", rest), _bound(effective, protocol, "max", rest)
        if low is not None and isinstance(value, int) and value < low[1]:
            raise _invalid_config(f"{name} must be greater than or equal to {low[0]}")
        if high is not None and isinstance(value, int) and value > high[1]:
            raise _invalid_config(f"{name} must be less than or equal to {high[0]}")
    for protocol in ("consumer", "share", "streams"):
        session, heartbeat = (
            _parse(definitions[name], effective.group_config(definitions[name], configs))
            for name in (f"{protocol}.session.timeout.ms", f"{protocol}.heartbeat.interval.ms")
        )
        assert isinstance(session, int)
        assert isinstance(heartbeat, int)
        if session <= heartbeat:
            raise _invalid_config(
                f"{protocol}.session.timeout.ms must be greater than {protocol}.heartbeat.interval.ms"
            )


def _bound(effective: EffectiveConfigs, protocol: str, end: str, rest: str) -> tuple[str, int] | None:
    """The broker config that bounds a group config, and its value; None when there is none."""
    name = f"group.{protocol}.{end}.{rest.removeprefix('num.')}"
    definition = broker_definitions().get(name)
    if definition is None:
        return None
    value = _parse(definition, effective.broker_config(name))
    return (name, value) if isinstance(value, int) else None


def validate_client_metrics(configs: Configs) -> None:
    """All configs that a subscription would have (KIP-714).

    See `is_regular_expression` for which expressions are taken.

    Raises:
        ControlError: INVALID_CONFIG; INVALID_REQUEST for an unknown name or an interval out of bounds.
    """
    definitions = client_metrics_definitions()
    for name in configs:
        if name not in definitions:
            raise _invalid_request(f"Unknown client metrics configuration: {name}")
    values = {name: _parse(definitions[name], text) for name, text in configs.items()}
    interval_ms = values.get("interval.ms")
    if isinstance(interval_ms, int) and not PUSH_INTERVAL_MIN_MS <= interval_ms <= PUSH_INTERVAL_MAX_MS:
        raise _invalid_request(
            f"Invalid value {interval_ms} for interval.ms, interval must be between "
            f"{PUSH_INTERVAL_MIN_MS} and {PUSH_INTERVAL_MAX_MS} (1 hour)"
        )
    patterns = values.get("match")
    for pattern in patterns if isinstance(patterns, list) else ():
        parameter, _, expression = pattern.partition("=")
        is_known = parameter.strip(_TRIMMED) in MATCH_PARAMETERS and "=" not in expression
        if not is_known or not expression or not is_regular_expression(expression.strip(_TRIMMED)):
            raise _invalid_config(f"Illegal client matching pattern: {pattern}")


def validate_broker(changed: Configs, *, per_broker: bool) -> None:
    """Broker configs to be set, on one broker or as the default of all (DynamicBrokerConfig.validateConfigs).

    Names that Kafka does not know are taken: they may be those of a plugin.

    Raises:
        ControlError: INVALID_REQUEST.
    """
    definitions = broker_definitions()
    fixed = sorted(
        name for name in changed if name in definitions and definitions[name].update_mode == "read-only"
    )
    if fixed:
        raise _invalid_request(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    unprefixed = sorted(changed.keys() & security_configs())
    if unprefixed:
        raise _invalid_request(
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"[{', '.join(unprefixed)}]"
        )
    for name, value in changed.items():
        match = LISTENER_CONFIG.fullmatch(name)
        definition = definitions.get(match[1] if match else name)
        if definition is not None:
            try:
                definition.parse(value)
            except ValueError as error:
                raise _invalid_request(str(error)) from None
    only_per_broker = sorted(name for name in changed if _is_per_broker(name, definitions))
    if only_per_broker and not per_broker:
        raise _invalid_request(
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"[{', '.join(only_per_broker)}]"
        )


def _is_per_broker(name: str, definitions: Mapping[str, Definition]) -> bool:
    match = LISTENER_CONFIG.fullmatch(name)
    if match:
        return match[1] not in CLUSTER_LEVEL_LISTENER_CONFIGS
    return name in definitions and definitions[name].update_mode == "per-broker"


def _check_names(what: str, configs: Configs, definitions: Mapping[str, Definition]) -> None:
    for name in configs:
        if name not in definitions:
            raise _invalid_config(f"Unknown {what} name: {name}")


def _parse(definition: Definition, text: str | None) -> ConfigValue:
    try:
        return definition.parse(text)
    except ValueError as error:
        raise _invalid_config(str(error)) from None


def _invalid_config(message: str) -> ControlError:
    return ControlError(ErrorCode.invalid_config, message)


def _invalid_request(message: str) -> ControlError:
    return ControlError(ErrorCode.invalid_request, message)
