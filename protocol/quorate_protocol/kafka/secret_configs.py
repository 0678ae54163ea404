"""Which of Kafka's configs may be passwords.

As in Kafka's RecordRedactor, a config without a definition is secret too, because it may belong to a plug-in.
"""

import json
import pkgutil
from functools import cache
from typing import Final

from quorate_protocol.kafka.enums import ConfigResourceType

_SECTIONS: Final[dict[int, str]] = {
    ConfigResourceType.TOPIC: "topic",
    ConfigResourceType.BROKER: "broker",
    ConfigResourceType.CLIENT_METRICS: "client_metrics",
    ConfigResourceType.GROUP: "group",
}
"""ConfigResource.Type -> section of the file."""
_LISTENER_PREFIX: Final = "listener.name."


@cache
def _public_configs() -> dict[int, frozenset[str]]:
    data = pkgutil.get_data("quorate_protocol.kafka", "public_configs.json")
    assert data is not None, "part of the package"
    sections = json.loads(data)
    return {number: frozenset(sections[section]) for number, section in _SECTIONS.items()}


def is_secret_config(resource_type: int, name: str) -> bool:
    """Whether a config is a password by Kafka's definitions, or is not one of Kafka's configs."""
    public = _public_configs().get(resource_type)
    if public is None:
        return True
    if name in public:
        return False
    if not name.startswith(_LISTENER_PREFIX):
        return True
    # listener.name.<listener>.<config>, or listener.name.<listener>.<SASL mechanism>.<config>
    _, _, config = name.removeprefix(_LISTENER_PREFIX).partition(".")
    return config not in public and config.partition(".")[2] not in public
