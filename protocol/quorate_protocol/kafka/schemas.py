"""Kafka's message schemas: JSON whose fields name the versions that have them, and what one version of it says.

`tools/generate_records.py` writes the classes of the newest versions from them. Classes of older versions are made
here when a peer first uses one, from the schemas in `generated/schemas.json`, which has the messages with several
versions.
"""

import json
import keyword
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, field, replace
from datetime import timedelta
from functools import cache
from typing import Any, Final, Self

from quorate_protocol.error_codes import ErrorCode
from quorate_protocol.kafka.field_types import ZEROS
from quorate_protocol.plain_data import dataclass

Json = Mapping[str, Any]

EMPTY_STRUCT: Final = object()
"""The default of a tagged field: a struct whose fields have their defaults."""
_NAME: Final = '{"name":"'
"""The start of each schema in `generated/schemas.json`."""
_INSTANTS = ("TimestampMs", "LogAppendTimeMs", "TransactionStartTimeMs")


@dataclass(frozen=True, slots=True)
class Versions:
    """An inclusive range of versions; ``low > high`` is the empty range."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str | None) -> Self:
        """Read Kafka's notation: ``none``, ``3``, ``1-2`` or ``2+``."""
        if text is None or text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), 2**15 - 1)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageField:
    """A field of one version of a message."""

    name: str
    kafka_type: str
    """The type, or the name of a struct."""
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: object
    """`MISSING` if the field is required."""
    about: str

    @property
    def is_struct(self) -> bool:
        """Whether values, or elements of the array, are structs."""
        return self.kafka_type not in ZEROS


def snake_case(name: str) -> str:
    """``IsMigratingZkBroker`` -> ``is_migrating_zk_broker``."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return f"{snake}_" if keyword.iskeyword(snake) else snake


def fields_of(fields: Iterable[Json], schema: Json, version: int) -> list[MessageField]:
    """Return what one version of a message has of `fields`: those of the message or of a struct in it."""
    first_version = Versions.parse(schema["validVersions"]).low
    return [
        _field(each, schema["type"], version, first_version)
        for each in fields
        if version in Versions.parse(each["versions"])
    ]


def _field(stated: Json, message_type: str, version: int, first_version: int) -> MessageField:
    name, kafka_type = _name_and_type(stated, message_type)
    is_array = stated["type"].startswith("[]")
    is_tagged = version in Versions.parse(stated.get("taggedVersions"))
    default = _default(
        stated.get("default"),
        kafka_type,
        is_array=is_array,
        is_required=not is_tagged and Versions.parse(stated["versions"]).low <= first_version,
    )
    return MessageField(
        name=name,
        kafka_type=kafka_type,
        is_array=is_array,
        is_nullable=version in Versions.parse(stated.get("nullableVersions"))
        or (kafka_type == "uuid" and not is_array)
        or (kafka_type == "datetime_i64" and default is None),
        tag=stated["tag"] if is_tagged else None,
        default=default,
        about=stated.get("about", ""),
    )


def _name_and_type(stated: Json, message_type: str) -> tuple[str, str]:
    """Return the Python name and type. Messages have error codes and times, records keep numbers."""
    name, kafka_type = snake_case(stated["name"]), stated["type"].removeprefix("[]")
    if message_type != "metadata" and name in ("id", "type"):
        name += "_"
    if message_type in ("request", "response"):
        if stated["name"] in ("ErrorCode", "PartitionErrorCode"):
            return name, "error_code"
        if name.endswith("_ms"):
            kind = "datetime" if stated["name"].endswith(_INSTANTS) else "timedelta"
            return name.removesuffix("_ms"), f"{kind}_{kafka_type.replace('int', 'i')}"
    return name, kafka_type


def _default(stated: Any, kafka_type: str, *, is_array: bool, is_required: bool) -> object:
    if stated == "null" or (kafka_type == "datetime_i64" and stated is not None):
        return None
    if is_array:
        return MISSING if is_required else ()
    if stated is None:
        return MISSING if is_required else ZEROS.get(kafka_type, MISSING)
    if kafka_type == "bool":
        return str(stated).lower() == "true"
    if kafka_type == "string":
        return stated
    number = int(str(stated), 0)
    if kafka_type == "error_code":
        return ErrorCode(number)
    return timedelta(milliseconds=number) if kafka_type.startswith("timedelta") else number


def structs_of(schema: Json) -> dict[str, list[Json]]:
    """Return the fields of each struct inside a message, in any version, by its name."""
    found: dict[str, list[Json]] = {
        struct["name"]: struct["fields"] for struct in schema.get("commonStructs", ())
    }

    def collect(fields: Iterable[Json]) -> None:
        for each in fields:
            if "fields" in each:
                collect(each["fields"])
                found[each["type"].removeprefix("[]")] = each["fields"]

    for fields in (*list(found.values()), schema["fields"]):
        collect(fields)
    return found


def classes_of(schema: Json, version: int) -> Iterator[tuple[str, list[MessageField]]]:
    """Yield names and fields of the structs in one version of a message, each after those it has; then its own."""
    structs = structs_of(schema)
    has_defaults: dict[str, bool] = {}

    def visit(name: str, stated: list[Json]) -> Iterator[tuple[str, list[MessageField]]]:
        fields = fields_of(stated, schema, version)
        for index, each in enumerate(fields):
            if each.is_struct:
                if each.kafka_type not in has_defaults:
                    yield from visit(each.kafka_type, structs[each.kafka_type])
                if each.tag is not None and each.default is MISSING and has_defaults[each.kafka_type]:
                    fields[index] = replace(each, default=EMPTY_STRUCT)
        has_defaults[name] = all(each.default is not MISSING for each in fields)
        yield name, fields

    return visit(schema["name"], schema["fields"])


@cache
def older_classes(name: str, version: int) -> Mapping[str, type[Any]]:
    """Return the classes of an older version of a message: its own and those of its structs, by name."""
    schema: Json = json.loads(_schema_texts()[name])
    classes: dict[str, type[Any]] = {}
    for class_name, fields in classes_of(schema, version):
        classes[class_name] = _make(class_name, fields, classes, schema, version)
    return classes


def _make(
    name: str, fields: list[MessageField], structs: Mapping[str, type[Any]], schema: Json, version: int
) -> type[Any]:
    annotations: dict[str, Any] = {}
    namespace: dict[str, Any] = {
        "__annotations__": annotations,
        "__module__": f"quorate_protocol.kafka.generated.{snake_case(schema['name'])}",
        "__version__": version,
        "__flexible__": version in Versions.parse(schema["flexibleVersions"]),
    }
    if "apiKey" in schema:
        namespace["__api_key__"] = schema["apiKey"]
    for each in fields:
        annotation: Any = structs[each.kafka_type] if each.is_struct else object
        if each.is_array:
            annotation = tuple[annotation, ...]
        annotations[each.name] = annotation | None if each.is_nullable else annotation
        metadata: dict[str, object] = {} if each.is_struct else {"kafka_type": each.kafka_type}
        if each.tag is not None:
            metadata["tag"] = each.tag
        default = structs[each.kafka_type]() if each.default is EMPTY_STRUCT else each.default
        namespace[each.name] = field(metadata=metadata, default=default)
    made: type[Any] = dataclass(frozen=True, slots=True, kw_only=True)(type(name, (), namespace))
    return made


@cache
def _schema_texts() -> Mapping[str, str]:
    """Return the JSON of each schema by name. Each has a line of the file; a process uses few of them."""
    data = pkgutil.get_data(__name__, "generated/schemas.json")
    assert data is not None
    _, *lines, _ = data.decode().splitlines()
    return {line.removeprefix(_NAME).partition('"')[0]: line.removesuffix(",") for line in lines}
