"""The keys of a node's .properties, and their typed values.

Names, types, defaults and ranges of Kafka's keys come from Kafka's own ConfigDef
(`quorate_protocol/kafka/config_schema.json`); keys that begin with `quorate.` are ours.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Final

from quorate_protocol.kafka.config_names import (
    HTTP_LISTENER,
    OWN_KEYS,
    PROVIDER_PREFIX,
    is_known,
    may_have_secret,
    nearest,
)
from quorate_protocol.kafka.config_schema import ConfigValueError, broker_definitions
from quorate_protocol.kafka.releases import NEWEST_RELEASE
from quorate_protocol.plain_data import dataclass
from quorate_protocol.security.oauth import OAUTH_LOGIN_KEYS

from quorate_controller.config.endpoints import Problems, parse_host_port

ConfigValue = str | int | float | bool | tuple[str, ...] | None

AUTHORIZER: Final = "authorizer.class.name"
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
EARLY_START_LISTENERS: Final = "early.start.listeners"

CREATE_TOPIC_POLICY: Final = "create.topic.policy.class.name"
ALTER_CONFIG_POLICY: Final = "alter.config.policy.class.name"
_PYTHON_CLASS: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_REQUIRED: Final = ("process.roles", "node.id", "controller.listener.names")

_MEANINGFUL_PREFIXES: Final = ("controller.quorum.", "metadata.", "quorate.", PROVIDER_PREFIX)
_MEANINGFUL: Final = frozenset(
    """
    advertised.listeners allow.everyone.if.no.acl.found alter.config.policy.class.name authorizer.class.name
    auto.leader.rebalance.enable broker.heartbeat.interval.ms broker.id
    broker.session.timeout.ms config.providers connections.max.idle.ms controller.listener.names
    controller.quota.window.num controller.quota.window.size.seconds create.topic.policy.class.name
    default.replication.factor delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms
    delegation.token.max.lifetime.ms delegation.token.secret.key delete.topic.enable early.start.listeners
    internal.metadata.log.segment.bytes leader.imbalance.check.interval.seconds
    listener.security.protocol.map listeners log.dir log.dirs max.connection.creation.rate max.connections
    max.connections.per.ip max.connections.per.ip.overrides min.insync.replicas node.id
    num.partitions process.roles queued.max.request.bytes quota.window.num quota.window.size.seconds
    socket.request.max.bytes socket.send.buffer.bytes super.users
    unclean.leader.election.enable unclean.leader.election.interval.ms
    """.split()  # noqa: SIM905 - a table of names
)
"""Kafka's keys that change what a controller does, besides those with a prefix above.

Others, for instance log.retention.hours, are legal in a stock controller.properties and without effect.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The refusal of a key that would be dangerous to ignore."""

    is_harmless: Callable[[ConfigValue], bool]
    """Whether the key can be ignored with this value."""
    advice: str


def _is_unset(value: ConfigValue) -> bool:
    return value in (None, "", ())


def _is_python_class(value: ConfigValue) -> bool:
    return _is_unset(value) or (isinstance(value, str) and _PYTHON_CLASS.fullmatch(value.strip()) is not None)


_NO_POLICY: Final = "Java classes can't run here; name a Python class as module:Class, or remove it"
_DEFAULT_PRINCIPAL_BUILDER: Final = (
    "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
)
_REFUSED: Final[Mapping[str, Refusal]] = {
    AUTHORIZER: Refusal(
        is_harmless=lambda value: _is_unset(value) or value == STANDARD_AUTHORIZER,
        advice=f"Java classes can't run here; use {STANDARD_AUTHORIZER}, or remove it",
    ),
    CREATE_TOPIC_POLICY: Refusal(is_harmless=_is_python_class, advice=_NO_POLICY),
    ALTER_CONFIG_POLICY: Refusal(is_harmless=_is_python_class, advice=_NO_POLICY),
    "principal.builder.class": Refusal(
        is_harmless=lambda value: _is_unset(value) or value == _DEFAULT_PRINCIPAL_BUILDER,
        advice="Java classes can't run here; remove it",
    ),
}


def typed_values(properties: Mapping[str, str], problem: Problems) -> dict[str, ConfigValue]:
    """Every key that Kafka has, with its value or default. Invalid values are reported and get the default."""
    values: dict[str, ConfigValue] = {}
    for name, definition in broker_definitions().items():
        value = None if definition.default is None else definition.parse(definition.default)
        text = properties.get(name)
        if text is not None:
            try:
                value = definition.parse(text)
            except ConfigValueError as error:
                problem(f"{name}: not allowed" if definition.sensitive else f"{name}={text}: {error}")
        values[name] = tuple(value) if isinstance(value, list) else value
    for name in _REQUIRED:
        if not properties.get(name, "").strip():
            problem(f"{name} is missing and required")
    return values


def check_names(properties: Mapping[str, str], problem: Problems) -> None:
    """Report unknown keys, with the nearest known ones."""
    further = OWN_KEYS.keys() | OAUTH_LOGIN_KEYS
    for name in properties:
        if is_known(name, further):
            continue
        near = nearest(name, further)
        hint = f"; did you mean {' or '.join(near)}?" if near else "; remove it"
        shown = name if may_have_secret(name) else f"{name}={properties[name]}"
        problem(f"{shown}: there is no such key in Kafka {NEWEST_RELEASE}{hint}")


def check_refused(values: Mapping[str, ConfigValue], problem: Problems) -> None:
    """Report unsupported keys that must not be ignored."""
    for name, refusal in _REFUSED.items():
        value = values[name]
        if not refusal.is_harmless(value):
            text = ",".join(value) if isinstance(value, tuple) else value
            problem(f"{name}={text}: {refusal.advice}")


def notes_on_ignored(properties: Mapping[str, str], in_use: Collection[str]) -> tuple[str, ...]:
    """Return a note for each key that is set but has no effect. Values are left out: some are secrets.

    `in_use` are the keys that have an effect with the configured listeners.
    """
    return tuple(
        f"{name} is a broker config and has no effect on a controller"
        for name in sorted(properties)
        if name not in _MEANINGFUL and name not in in_use and not name.startswith(_MEANINGFUL_PREFIXES)
    )


def parse_http_listener(properties: Mapping[str, str], problem: Problems) -> tuple[str, int] | None:
    """The value of quorate.http.listener."""
    text = properties.get(HTTP_LISTENER, "").strip()
    if not text:
        return None
    address = parse_host_port(text)
    if address is None:
        problem(f"{HTTP_LISTENER}={text}: not of the form host:port")
    return address
