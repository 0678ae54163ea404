"""Validation of the configs of topics, groups, brokers and client metrics subscriptions
(ControllerConfigurationValidator).
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.config_schema import (
    SPACES,
    ConfigValue,
    Definition,
    broker_definitions,
    client_metrics_definitions,
    group_definitions,
    security_configs,
    topic_definitions,
)

from quorate_controller.control.api import ControlError, invalid_request
from quorate_controller.control.effective_configs import EffectiveConfigs
from quorate_controller.control.regular_expressions import is_regular_expression
from quorate_controller.control.topic_names import why_invalid

Configs = Mapping[str, str]

UNLIMITED: Final = -1
SAME_AS_RETENTION: Final = -2
"""Values of local.retention.ms and local.retention.bytes."""

DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
RACK_AWARE_TAGS: Final = "streams.rack.aware.assignment.tags"
STREAMS_ASSIGNOR: Final = "streams.assignor.name"
STREAMS_ASSIGNORS: Final = "group.streams.assignors"
STREAMS_ASSIGNORS_BUILT_IN: Final = frozenset({"sticky"})

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
"""The characters that Java's String.trim removes."""
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
            raise invalid_request("Unable to parse broker name as a base 10 number.")
        if name and int(name) < 0:
            raise invalid_request("Invalid negative broker ID.")
    elif not name and kind == "client metrics":
        raise invalid_request("Subscription name can't be empty")
    elif not name:
        raise invalid_request(f"Default {kind} resources are not allowed.")
    elif kind == "topic" and (reason := why_invalid(name)):
        raise ControlError(ErrorCode.invalid_topic_exception, reason)


def validate_topic(configs: Configs, existing: Configs, effective: EffectiveConfigs) -> None:
    """Validate all configs that a topic would have, given its present configs.

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
        total, local = _retention(value_of, unit)
        if total == UNLIMITED or local == SAME_AS_RETENTION:
            continue
        prefix = f"Invalid value {local} for configuration local.retention.{unit}: Value must not be"
        if local == UNLIMITED:
            raise _invalid_config(f"{prefix} -1 as retention.{unit} value is set as {total}.")
        if local > total:
            raise _invalid_config(f"{prefix} more than retention.{unit} property value: {total}")
    for unit in ("bytes", "ms"):
        total, local = _retention(value_of, unit)
        lag = value_of(f"remote.copy.lag.{unit}")
        assert isinstance(lag, int)
        kept = total if local == SAME_AS_RETENTION else local
        if 0 <= kept < lag:
            raise _invalid_config(
                f"Invalid value {lag} for configuration remote.copy.lag.{unit}: Value must not exceed "
                f"local.retention.{unit} (effective value: {kept})"
            )
    for unit in ("bytes", "ms") if value_of("remote.log.copy.disable") else ():
        total, local = _retention(value_of, unit)
        if local not in (SAME_AS_RETENTION, total):
            raise _invalid_config(
                f"When `remote.log.copy.disable` is set to true, the `local.retention.{unit}` and "
                f"`retention.{unit}` must be set to the identical value because there will be no more logs "
                "copied to the remote storage."
            )


def _retention(value_of: Callable[[str], ConfigValue], unit: str) -> tuple[int, int]:
    """Check the bounds of local and total retention."""
    total, local = value_of(f"retention.{unit}"), value_of(f"local.retention.{unit}")
    assert isinstance(total, int)
    assert isinstance(local, int)
    return total, local


def validate_group(configs: Configs, effective: EffectiveConfigs) -> None:
    """Validate all configs that a group would have; the brokers' bounds are those of this node (KIP-848, KIP-932,
    KIP-1071, KIP-1191).

    Raises:
        ControlError: INVALID_CONFIG.
    """
    definitions = group_definitions()
    _check_names("group config", configs, definitions)
    tags = [tag.strip(SPACES) for tag in configs.get(RACK_AWARE_TAGS, "").split(",")]
    if len(tags) != len(set(tags)):
        raise _invalid_config(f"{RACK_AWARE_TAGS} must not contain duplicate tag keys.")
    values = {name: _parse(definitions[name], text) for name, text in configs.items()}
    for name in definitions:  # so that the reported config does not depend on the order of the request
        if isinstance(value := values.get(name), int):
            _check_bounds(name, value, effective)
    if STREAMS_ASSIGNOR in values:
        _check_assignor(values[STREAMS_ASSIGNOR], effective)
    for protocol in ("consumer", "share", "streams"):
        names = (f"{protocol}.session.timeout.ms", f"{protocol}.heartbeat.interval.ms")
        if values.keys() & names:
            session, heartbeat = (
                _parse(definitions[name], effective.group_config(definitions[name], configs))
                for name in names
            )
            assert isinstance(session, int)
            assert isinstance(heartbeat, int)
            if session <= heartbeat:
                raise _invalid_config(f"{names[0]} must be greater than {names[1]}")
    if str(values.get(DEAD_LETTER_TOPIC, "")).startswith("__"):
        raise _invalid_config(f"{DEAD_LETTER_TOPIC}: DLQ topic name must not start with '__'")


def _check_bounds(name: str, value: int, effective: EffectiveConfigs) -> None:
    """The broker configs that bound a group config have names like it."""
    protocol, _, rest = name.partition(".")
    low, high = (
        _broker_integer(effective, f"group.{protocol}.{end}.{rest.removeprefix('num.')}")
        for end in ("min", "max")
    )
    if (low is None or value >= low) and (high is None or value <= high):
        return
    if low is None:
        raise _invalid_config(f"{name} must be less than or equal to {high}")
    if high is None:
        raise _invalid_config(f"{name} must be greater than or equal to {low}")
    raise _invalid_config(f"{name} must be in the range {low} to {high} inclusive.")


def _broker_integer(effective: EffectiveConfigs, name: str) -> int | None:
    """The value of a broker config on this node, or None."""
    definition = broker_definitions().get(name)
    value = definition and _parse(definition, effective.broker_config(name))
    return value if isinstance(value, int) else None


def _check_assignor(name: ConfigValue, effective: EffectiveConfigs) -> None:
    """The brokers' assignors are those of this node's file. The name of a Java class among them is unknown."""
    registered = _parse(broker_definitions()[STREAMS_ASSIGNORS], effective.broker_config(STREAMS_ASSIGNORS))
    assert isinstance(registered, list)
    if name not in registered and STREAMS_ASSIGNORS_BUILT_IN.issuperset(registered):
        raise _invalid_config(
            f"{STREAMS_ASSIGNOR} '{name}' is not a registered task assignor. "
            f"Registered assignors are: [{', '.join(registered)}]."
        )


def validate_client_metrics(configs: Configs) -> None:
    """Validate all configs that a subscription would have (KIP-714).

    `is_regular_expression` decides which expressions are accepted.

    Raises:
        ControlError: INVALID_CONFIG; INVALID_REQUEST for an unknown name or an interval out of bounds.
    """
    definitions = client_metrics_definitions()
    for name in configs:
        if name not in definitions:
            raise invalid_request(f"Unknown client metrics configuration: {name}")
    values = {name: _parse(definitions[name], text) for name, text in configs.items()}
    interval_ms = values.get("interval.ms")
    if isinstance(interval_ms, int) and not PUSH_INTERVAL_MIN_MS <= interval_ms <= PUSH_INTERVAL_MAX_MS:
        raise invalid_request(
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
    """Validate broker configs, of one broker or the default of all (DynamicBrokerConfig.validateConfigs).

    Unknown names are accepted: they may be those of a plugin.

    Raises:
        ControlError: INVALID_REQUEST.
    """
    definitions = broker_definitions()
    fixed = sorted(
        name for name in changed if name in definitions and definitions[name].update_mode == "read-only"
    )
    if fixed:
        raise invalid_request(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    unprefixed = sorted(changed.keys() & security_configs())
    if unprefixed:
        raise invalid_request(
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
                raise invalid_request(str(error)) from None
    only_per_broker = sorted(name for name in changed if _is_per_broker(name, definitions))
    if only_per_broker and not per_broker:
        raise invalid_request(
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


class AppliedConfigs(EffectiveConfigs):
    """Configs for descriptions: without dynamic values of brokers that a node does not apply.

    Controllers do not check configs that brokers forward, so the log may have such values. Kafka's nodes ignore them
    (DynamicBrokerConfig.fromPersistentProps); decisions of controllers (KafkaConfigSchema) use them.
    """

    def __init__(self, effective: EffectiveConfigs) -> None:
        super().__init__(effective.node_id, effective.image, effective.static_configs)
        self._filtered: dict[bool, tuple[Configs, Configs]] = {}
        """The configs in the image and the applied ones, of this node (True) and of all."""

    @property
    def cluster_configs(self) -> Configs:
        """The applied ones of the dynamic defaults of all brokers."""
        return self._applied(super().cluster_configs, per_broker=False)

    @property
    def node_configs(self) -> Configs:
        """The applied ones of the dynamic configs of this node."""
        return self._applied(super().node_configs, per_broker=True)

    def _applied(self, configs: Configs, *, per_broker: bool) -> Configs:
        known = self._filtered.get(per_broker)
        # The image replaces the mapping of a resource and never changes it.
        if known is None or known[0] is not configs:
            applied = {
                name: value
                for name, value in configs.items()
                if _is_applied(name, value, per_broker=per_broker)
            }
            known = self._filtered[per_broker] = (configs, applied)
        return known[1]


def _is_applied(name: str, value: str, *, per_broker: bool) -> bool:
    try:
        validate_broker({name: value}, per_broker=per_broker)
    except ControlError:
        return False
    return True
