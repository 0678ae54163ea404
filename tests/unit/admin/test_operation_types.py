"""The vocabulary of the operations: what people write and read of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quorate_admin.types.configs import ConfigResource
from quorate_admin.types.credentials import KafkaPrincipal
from quorate_admin.types.quotas import ClientQuotaEntity
from quorate_protocol.kafka.enums import AclOperation, ConfigResourceType, ResourceType, ScramMechanism


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
    with pytest.raises(ValueError, match=r"'FLY' is none of ANY, TOPIC, .*, USER"):
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
