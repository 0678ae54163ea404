"""Redacts secrets: keys of SCRAM credentials, and values of configs that may be passwords.

As in Kafka's RecordRedactor, a config without a definition is secret too, because it may belong to a plug-in.
Delegation tokens need no redaction: their record has the token's id, but not the key derived from it.
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
"""(Record, field) pairs that are always redacted."""

_SECTIONS: Final = {2: "topic", 4: "broker", 16: "client_metrics", 32: "group"}
"""ConfigResource.Type -> section of the file."""
_LISTENER_PREFIX: Final = "listener.name."


def redact(entity: Any) -> Any:
    """The record with a secret config value redacted."""
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
