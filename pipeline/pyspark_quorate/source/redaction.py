"""Redacts secrets: keys of SCRAM credentials, and values of configs that may be passwords.

Delegation tokens need no redaction: their record has the token's id, but not the key derived from it.
"""

from dataclasses import replace
from typing import Any, Final

from quorate_protocol.kafka.secret_configs import is_secret_config
from quorate_protocol.records.generated import ConfigRecord

REDACTED: Final = "[redacted]"
SECRET_FIELDS: Final = frozenset(
    ("UserScramCredentialRecord", name) for name in ("salt", "stored_key", "server_key")
)
"""(Record, field) pairs that are always redacted."""


def redact(entity: Any) -> Any:
    """The record with a secret config value redacted."""
    if (
        isinstance(entity, ConfigRecord)
        and entity.value is not None
        and is_secret_config(entity.resource_type, entity.name)
    ):
        return replace(entity, value=REDACTED)
    return entity
