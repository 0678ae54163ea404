"""The properties in `spec.config`, checked by Kafka's own definitions before a node starts with them.

Stock Kafka ignores a name that it does not know, so that a misspelled one has no effect; Quorate's controllers do not
start with it, and no node starts with a value that its definition refuses.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field, StringConstraints
from quorate_protocol.kafka.config_names import (
    HTTP_LISTENER,
    OWN_KEYS,
    definition_of,
    is_known,
    listener_of,
    may_have_secret,
    nearest,
)
from quorate_protocol.kafka.config_schema import ConfigValueError, Definition
from quorate_protocol.kafka.releases import version_key
from quorate_protocol.security.oauth import OAUTH_LOGIN_KEYS

from quorate_operator.models.base import shown_value

CUSTOM_KEYS_MAX = 100
CustomConfigKeys = Annotated[
    tuple[
        Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(\.\*)?$", max_length=253)],
        ...,
    ],
    Field(strict=False, max_length=CUSTOM_KEYS_MAX, json_schema_extra={"x-kubernetes-list-type": "set"}),
]
CONTROLLER_KEYS: Final = OWN_KEYS.keys() | OAUTH_LOGIN_KEYS
"""What Quorate's controllers know besides Kafka's definitions."""
BROKER_KEYS: Final[frozenset[str]] = frozenset()

_OWNED: Final[Mapping[str, str]] = {
    "broker.id": "node ids follow from nodeIds",
    HTTP_LISTENER: "the address follows from the pod, whose probes use it",
    "sasl.mechanism.controller.protocol": "follows from sasl.mechanisms of the KafkaController's listener",
    "sasl.mechanism.inter.broker.protocol": "follows from sasl.mechanisms of the first listener",
    "security.inter.broker.protocol": "follows from protocol of the first listener",
}
"""Why a property can't be set, besides those that follow from a field of the same meaning."""
_REFERENCE: Final = "${"
"""A value with it is read by a config provider when the node starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKind:
    """What may be set for nodes of a pool."""

    version: str
    """The release of the nodes."""
    known: Collection[str]
    """Names besides Kafka's."""
    custom: Sequence[str]
    """Names that Kafka does not define, of plug-ins, or what they begin with, followed by `*`."""

    def is_custom(self, name: str) -> bool:
        """Whether the manifest says that a plug-in reads the property."""
        return any(name.startswith(key[:-1]) if key.endswith("*") else name == key for key in self.custom)


def check_properties(config: Mapping[str, str], kind: NodeKind) -> None:
    """Raise ValueError if nodes would not start with these properties, or would ignore one."""
    if faults := list(_faults(config, kind)):
        raise ValueError("config: " + "; ".join(faults))


def check_listeners_of(config: Mapping[str, str], listeners: Collection[str]) -> None:
    """Raise ValueError if a property is for a listener that no node of the pool has or connects to."""
    names = sorted(name.lower() for name in listeners)
    for key in config:
        listener = listener_of(key)
        if listener is not None and listener not in names:
            raise ValueError(
                f"config: {key}: {listener!r}: there is no such listener; there are {', '.join(names)}, in lower case"
            )


def _faults(config: Mapping[str, str], kind: NodeKind) -> Iterator[str]:
    for name, value in config.items():
        if name in _OWNED:
            yield f"{name}: can't be set: {_OWNED[name]}"
        elif (definition := definition_of(name)) is not None:
            # Before custom names: `num.*` of a plug-in does not change what Kafka does with num.io.threads.
            yield from _faults_of_value(name, value, definition, kind)
        elif not kind.is_custom(name) and not is_known(name, kind.known):
            yield _unknown(name, value, kind)


def _unknown(name: str, value: str, kind: NodeKind) -> str:
    near = nearest(name, kind.known)
    hint = (
        f"did you mean {near[0]}?"
        if near
        else "remove it, or list it in customConfigKeys if a plug-in reads it"
    )
    shown = name if may_have_secret(name) else f"{name}: {shown_value(value)}"
    return f"{shown}: there is no such property in Kafka {kind.version}; {hint}"


def _faults_of_value(name: str, value: str, definition: Definition, kind: NodeKind) -> Iterator[str]:
    if version_key(definition.since) > version_key(kind.version):
        yield f"{name}: Kafka has it from {definition.since} on; version is {kind.version}"
    elif _REFERENCE not in value:
        try:
            definition.parse(value)
        except ConfigValueError as error:
            reason = str(error).rpartition(f" for configuration {definition.name}: ")[2]
            yield (
                f"{name}: not allowed" if definition.sensitive else f"{name}: {shown_value(value)}: {reason}"
            )
