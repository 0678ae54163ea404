"""What does not leave the source: keys of SCRAM credentials, and values of configs that may be passwords.

As in Kafka's RecordRedactor, the value of a config that has no definition is secret too: a plug-in's config may be
anything. Delegation tokens need nothing: their record has the token's id, and the key made of it is not written.
"""

import json
import pkgutil
from dataclasses import replace
from functools import cache
from typing import Any, Final

from quorate_protocol.records.generated import ConfigRecord

REDACTED: Final = "[redacted]"
SECRET_FIELDS: Final = frozenset(
    ("UserScramCredentialRecord", name) for name in ("salt", "stored_key", "server_key")
)
"""(Record, field): never told."""

_SECTIONS: Final = {2: "topic", 4: "broker", 16: "client_metrics", 32: "group"}
"""Number of ConfigResource.Type -> section of the file."""
_LISTENER_PREFIX: Final = "listener.name."


def redact(entity: Any) -> Any:
    """The record without what only its value makes secret."""
    if (
        isinstance(entity, ConfigRecord)
        and entity.value is not None
        and is_secret_config(entity.resource_type, entity.name)
    ):
        return replace(entity, value=REDACTED)
    return entity


@cache
def _public_configs() -> dict[int, frozenset[str]]:
    data = pkgutil.get_data("pyspark_quorate.source", "public_configs.json")
    assert data is not None, "part of the package"
    sections = json.loads(data)
    return {number: frozenset(sections[section]) for number, section in _SECTIONS.items()}


def is_secret_config(resource_type: int, name: str) -> bool:
    """Whether a config's value is a password by Kafka's definitions, or none of Kafka's configs."""
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
