"""The generated classes against the schemas inside Kafka's jars."""

import importlib
import json
import re
import subprocess
import sys
import uuid
import zipfile
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from kit.kafka import jars_of
from kit.releases import RELEASES
from quorate_protocol.kafka.releases import NEWEST_RELEASE
from quorate_protocol.records import generated
from quorate_protocol.records.generated import RECORD_CLASSES

ROOT = Path(__file__).parents[4]


def load_schema(text: str) -> dict[str, Any]:
    """A schema file is JSON with comment lines."""
    schema: dict[str, Any] = json.loads(re.sub(r"(?m)^\s*//.*$", "", text))
    return schema


def schemas_in_jar(jars: Path) -> dict[int, dict[str, Any]]:
    """Record key -> schema, of Kafka's metadata records."""
    (jar,) = jars.glob("kafka-metadata-*.jar")
    with zipfile.ZipFile(jar) as archive:
        names = [name for name in archive.namelist() if re.fullmatch(r"common/metadata/\w+\.json", name)]
        schemas = [load_schema(archive.read(name).decode()) for name in names]
    return {schema["apiKey"]: schema for schema in schemas}


def contains(versions: str | None, version: int) -> bool:
    """Whether Kafka's notation of a version range contains a version."""
    if versions is None or versions == "none":
        return False
    low, _, high = versions.removesuffix("+").partition("-")
    return int(low) <= version <= (10_000 if versions.endswith("+") else int(high or low))


def python_type(schema: dict[str, Any], is_nullable: bool, module: ModuleType) -> Any:
    """The annotation that a field must have."""
    names = {"string": str, "bytes": bytes, "bool": bool, "float64": float, "uuid": uuid.UUID | None}
    element = schema["type"].removeprefix("[]")
    numbers = dict.fromkeys(("int8", "int16", "int32", "int64", "uint16"), int)
    inner = names.get(element) or numbers.get(element) or getattr(module, element)
    result: Any = tuple[inner, ...] if schema["type"].startswith("[]") else inner
    return result | None if is_nullable else result


def check_field(field: Field[Any], schema: dict[str, Any], version: int, module: ModuleType) -> None:
    """One dataclass field says what the schema says."""
    assert field.name == re.sub(r"(?<=[a-z])(?=[A-Z])", "_", schema["name"]).lower()
    assert field.kw_only
    is_nullable = contains(schema.get("nullableVersions"), version)
    assert field.type == python_type(schema, is_nullable, module)
    is_tagged = contains(schema.get("taggedVersions"), version)
    assert field.metadata.get("tag") == (schema["tag"] if is_tagged else None)
    is_struct = "fields" in schema
    assert field.metadata.get("kafka_type") == (None if is_struct else schema["type"].removeprefix("[]"))
    stated = schema.get("default")
    if stated is not None:
        expected = {"null": None, "true": True, "false": False}
        assert field.default == (expected[stated] if stated in expected else int(stated))
    elif is_tagged:
        assert field.default is not MISSING


def check_class(entity: type[Any], fields_schema: list[dict[str, Any]], version: int) -> None:
    """A class has the fields of its schema in this version, in the schema's order."""
    module = importlib.import_module(entity.__module__)
    present = [schema for schema in fields_schema if contains(schema["versions"], version)]
    entity_fields = fields(entity)
    assert len(entity_fields) == len(present)
    with pytest.raises(FrozenInstanceError):
        object.__new__(entity).any = None
    assert not hasattr(entity, "__dict__") or "__slots__" in vars(entity)
    for field, schema in zip(entity_fields, present, strict=True):
        check_field(field, schema, version, module)
        if "fields" in schema:
            check_class(getattr(module, schema["type"].removeprefix("[]")), schema["fields"], version)


def test_every_record_of_kafka_is_generated() -> None:
    expected = schemas_in_jar(jars_of(NEWEST_RELEASE))
    assert sorted(RECORD_CLASSES) == sorted(expected)
    for key, classes in RECORD_CLASSES.items():
        high = int(expected[key]["validVersions"].rpartition("-")[2])
        assert [entity.__version__ for entity in classes] == list(range(high + 1))
        assert classes[-1].__name__ == expected[key]["name"]
        assert {entity.__api_key__ for entity in classes} == {key}
        assert all(entity.__flexible__ for entity in classes)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("key", sorted(RECORD_CLASSES))
def test_generated_class_says_what_the_schema_says(key: int, release: str) -> None:
    schema = schemas_in_jar(jars_of(release)).get(key)
    if schema is None:
        assert release != NEWEST_RELEASE
        return
    for version in range(int(schema["validVersions"].rpartition("-")[2]) + 1):
        check_class(RECORD_CLASSES[key][version], schema["fields"], version)


def test_generated_files_are_up_to_date() -> None:
    jars = [text for release in RELEASES for text in ("--jars", str(jars_of(release)))]
    command = [sys.executable, str(ROOT / "tools" / "generate_records.py"), *jars, "--check"]
    assert subprocess.run(command, check=False).returncode == 0


def test_newest_classes_are_exported() -> None:
    names = {classes[-1].__name__ for classes in RECORD_CLASSES.values()}
    assert names <= set(generated.__all__)
