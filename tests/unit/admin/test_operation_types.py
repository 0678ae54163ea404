"""The vocabulary of the operations: what people write and read of it."""

import inspect
import pydoc
import subprocess
import sys
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest
import quorate_admin
from hypothesis import given
from hypothesis import strategies as st
from quorate_admin import NewTopic, types
from quorate_admin.types.configs import ConfigResource
from quorate_admin.types.credentials import KafkaPrincipal
from quorate_admin.types.quotas import ClientQuotaEntity
from quorate_protocol.kafka.enums import AclOperation, ConfigResourceType, ResourceType, ScramMechanism

EXAMPLE = Path(__file__).parents[3] / "examples" / "admin" / "topics.py"


def test_enumerations_are_written_as_kafka_writes_them() -> None:
    """Names, not numbers, in every way of formatting."""
    operation = AclOperation.parse(" cluster_Action")
    assert operation is AclOperation.CLUSTER_ACTION
    assert (str(operation), f"{operation}", f"{operation:>15}") == (
        "CLUSTER_ACTION",
        "CLUSTER_ACTION",
        " CLUSTER_ACTION",
    )
    assert operation == 9
    with pytest.raises(ValueError, match=r"'FLY' is not one of ANY, TOPIC, .*, USER"):
        ResourceType.parse("FLY")


def test_what_a_newer_server_says_is_unknown() -> None:
    assert AclOperation(99) is AclOperation.UNKNOWN
    assert ConfigResourceType(-7) is ConfigResourceType.UNKNOWN
    with pytest.raises(ValueError, match="not a valid AclOperation"):
        AclOperation("READ")  # type: ignore[arg-type]


def test_mechanisms_have_the_names_of_sasl_and_hashlib() -> None:
    assert [(mechanism.mechanism_name, mechanism.hash_name) for mechanism in ScramMechanism if mechanism] == [
        ("SCRAM-SHA-256", "sha256"),
        ("SCRAM-SHA-512", "sha512"),
    ]


@given(st.text(alphabet="ab", min_size=1), st.text(alphabet="ab:=,", min_size=1))
def test_principals_are_written_and_read(principal_type: str, name: str) -> None:
    principal = KafkaPrincipal(principal_type, name)
    assert KafkaPrincipal.parse(str(principal)) == principal


@pytest.mark.parametrize("text", ["", "alice", ":alice", "User:"])
def test_what_is_no_principal_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not Type:name, for instance User:alice"):
        KafkaPrincipal.parse(text)


@given(st.dictionaries(st.sampled_from(["user", "client-id", "ip"]), st.none() | st.text()))
def test_an_entity_does_not_depend_on_order(names: dict[str, str | None]) -> None:
    entity = ClientQuotaEntity.of(names)
    assert entity == ClientQuotaEntity.of(dict(reversed(names.items())))
    assert entity.names == names


def test_resources_are_reported_by_type_and_name() -> None:
    assert str(ConfigResource(ConfigResourceType.TOPIC, "t")) == "topic t"
    assert str(ConfigResource(ConfigResourceType.BROKER, "")) == "broker default"


MODULES = [f"quorate_admin.types.{module.name}" for module in iter_modules(types.__path__)]
CLASSES = [
    member
    for module in map(import_module, MODULES)
    for _, member in inspect.getmembers(module, inspect.isclass)
    if member.__module__ == module.__name__
]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_signatures_list_the_fields(cls: Any) -> None:
    assert is_dataclass(cls)
    parameters = inspect.signature(cls).parameters.values()
    assert {parameter.name for parameter in parameters} == {field.name for field in fields(cls) if field.init}
    assert {parameter.kind for parameter in parameters} <= {
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    }
    assert f"{parameters_of_help(cls)}" == f"{cls.__name__}{inspect.signature(cls)}"


def parameters_of_help(cls: type) -> str:
    """The first line of a class in `help()` that is not its heading."""
    return pydoc.plain(pydoc.render_doc(cls)).splitlines()[3].removeprefix(" |  ").strip()


PUBLIC_CLASSES = [
    member
    for member in (getattr(quorate_admin, name) for name in quorate_admin.__all__)
    if inspect.isclass(member) and not issubclass(member, Exception)
]


@pytest.mark.parametrize("cls", PUBLIC_CLASSES, ids=lambda cls: cls.__name__)
def test_no_public_class_hides_its_parameters(cls: type) -> None:
    kinds = {parameter.kind for parameter in inspect.signature(cls).parameters.values()}
    assert inspect.Parameter.VAR_POSITIONAL not in kinds


def test_a_topic_is_written_as_in_other_clients() -> None:
    topic = NewTopic("orders", 12, 3)
    assert topic == NewTopic(name="orders", partitions=12, replication_factor=3)


def test_a_script_with_the_client_is_strictly_typed(tmp_path: Path) -> None:
    """As checked by its author, with neither our configuration nor our plugin."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path}", EXAMPLE]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (checked.returncode, checked.stdout) == (0, "Success: no issues found in 1 source file\n")
