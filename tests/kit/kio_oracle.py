"""kio as an oracle: its classes are generated from Kafka's schemas, and written and read, by other code than ours."""

import io
from functools import cache
from importlib import import_module
from typing import Any

from kio.serial import entity_reader, entity_writer
from quorate_protocol.kafka.schemas import snake_case
from quorate_protocol.wire.schema import EntityClass, schema_of

RENAMED = {
    "acceptable_recovery_lag_legacy": "acceptable_recovery_lag",
    "generation_id_or_member_epoch": "generation_id",
}
"""Names of fields in Kafka 4.4 -> in the release that kio has."""


@cache
def kios_class(name: str, version: int, kind: str) -> Any:
    """The class of a message; None where kio has no such version."""
    folder = snake_case(name.removesuffix(kind.capitalize()) if kind in ("request", "response") else name)
    try:
        return getattr(import_module(f"kio.schema.{folder}.v{version}.{kind}"), name)
    except ModuleNotFoundError:
        return None


def _class_for(entity_type: EntityClass) -> EntityClass:
    kind = "request" if entity_type.__name__.endswith("Request") else "response"
    return kios_class(entity_type.__name__, entity_type.__version__, kind) or entity_type


def _copied(value: Any, target: EntityClass | None) -> Any:
    """An entity, or an array of such, as instances of kio's class."""
    if target is None or value is None:
        return value
    if isinstance(value, tuple):
        return tuple(_copied(element, target) for element in value)
    if type(value) is target:
        return value
    return target(
        **{
            other.name: _copied(getattr(value, field.name), other.struct)
            for field, other in zip(schema_of(type(value)), schema_of(target), strict=True)
        }
    )


def encoded(entity: Any) -> bytes:
    """What kio writes."""
    copied = _copied(entity, _class_for(type(entity)))
    buffer = io.BytesIO()
    entity_writer(type(copied))(buffer, copied)
    return buffer.getvalue()


def reads(data: bytes, entity: Any) -> bool:
    """Whether kio reads this entity from all of the bytes."""
    copied = _copied(entity, _class_for(type(entity)))
    return bool(entity_reader(type(copied))(data, 0) == (copied, len(data)))
