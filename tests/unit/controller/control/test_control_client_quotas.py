"""AlterClientQuotas: entities, values and records of quotas."""

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quorate_controller.control.client_quotas import host_names
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.generated.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from quorate_protocol.records.generated import ClientQuotaRecord
from quorate_protocol.records.generated import EntityData as RecordEntity

PRODUCE = "producer_byte_rate"
CONNECT = "connection_creation_rate"


def entry(*entity: tuple[str, str | None], **quotas: float | None) -> EntryData:
    """What one entity shall have; None removes."""
    return EntryData(
        entity=tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
        ops=tuple(
            OpData(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in quotas.items()
        ),
    )


def alter(*entries: EntryData, validate_only: bool = False) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(entries=entries, validate_only=validate_only)


def results(response: Any) -> list[tuple[ErrorCode, str | None]]:
    return [(entry.error_code, entry.error_message) for entry in response.entries]


ALICE = ("user", "alice")
DONE = (ErrorCode.none, None)


def test_quotas_are_set_changed_and_removed(harness: Any) -> None:
    entity = (ALICE, ("client-id", None))
    key = (("client-id", None), ALICE)
    assert results(harness.apply(alter(entry(*entity, producer_byte_rate=5, request_percentage=1.5)))) == [
        DONE
    ]
    assert harness.image.client_quotas[key] == {PRODUCE: 5, "request_percentage": 1.5}

    harness.apply(alter(entry(*entity, producer_byte_rate=5, request_percentage=2, consumer_byte_rate=None)))
    parts = tuple(RecordEntity(entity_type=kind, entity_name=name) for kind, name in entity)
    assert harness.records == [
        ClientQuotaRecord(entity=parts, key="request_percentage", value=2.0, remove=False)
    ]
    harness.apply(alter(entry(*entity, producer_byte_rate=None, request_percentage=None)))
    assert [(record.key, record.remove) for record in harness.records] == [
        (PRODUCE, True),
        ("request_percentage", True),
    ]
    assert key not in harness.image.client_quotas


def test_validation_writes_nothing(harness: Any) -> None:
    request = alter(entry(ALICE, producer_byte_rate=5), entry(("user", "bob"), x=1), validate_only=True)
    result = harness.decide(request)
    assert results(result.response) == [DONE, (ErrorCode.invalid_request, "Invalid configuration key x")]
    assert result.records == ()


@pytest.mark.parametrize(
    ("entity", "message"),
    [
        ((), "Invalid empty client quota entity"),
        ((("group", "g"),), "Unhandled client quota entity type: group"),
        ((("user", ""),), "Empty user not supported"),
        ((("client-id", ""),), "Empty client-id not supported"),
        (
            (("ip", "::1"), ALICE),
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        ((("ip", "no.such.host"),), "no.such.host is not a valid IP or resolvable host."),
    ],
)
def test_entities_that_cannot_have_quotas(
    harness: Any, entity: tuple[tuple[str, str | None], ...], message: str
) -> None:
    """Each refusal has Kafka's text, and the others are served."""
    request = alter(entry(*entity, connection_creation_rate=1), entry(ALICE, producer_byte_rate=1))
    response = harness.apply(request, unresolved_hosts=frozenset({"no.such.host"}))
    assert results(response) == [(ErrorCode.invalid_request, message), DONE]
    assert [record.key for record in harness.records] == [PRODUCE]


@pytest.mark.parametrize(
    ("entity", "key", "value", "message"),
    [
        (ALICE, CONNECT, 1.0, f"Invalid configuration key {CONNECT}"),
        (("ip", "10.0.0.1"), PRODUCE, 1.0, f"Invalid configuration key {PRODUCE}"),
        (ALICE, PRODUCE, math.inf, f"Quota {PRODUCE} must be a finite number"),
        (ALICE, PRODUCE, math.nan, f"Quota {PRODUCE} must be a finite number"),
        (ALICE, PRODUCE, 0.0, f"Quota {PRODUCE} must be greater than 0"),
        (ALICE, PRODUCE, -1.0, f"Quota {PRODUCE} must be greater than 0"),
        (ALICE, PRODUCE, 1.5, f"{PRODUCE} cannot be a fractional value."),
        (ALICE, PRODUCE, 1e19, f"Proposed value for {PRODUCE} is too large for a LONG."),
        (("ip", None), CONNECT, 2.0**31, f"Proposed value for {CONNECT} is too large for an INT."),
        (ALICE, PRODUCE, 2.0**63, None),
        (ALICE, PRODUCE, 1.0000001, None),
        (ALICE, "controller_mutation_rate", 0.1, None),
        (("ip", None), CONNECT, 2.0**31 - 1, None),
    ],
)
def test_values(
    harness: Any, entity: tuple[str, str | None], key: str, value: float, message: str | None
) -> None:
    ((error_code, reported),) = results(harness.apply(alter(entry(entity, **{key: value}))))
    assert reported == message
    assert (error_code is ErrorCode.invalid_request) == (message is not None)
    assert len(harness.records) == (message is None)


def test_an_entity_that_is_named_again(harness: Any) -> None:
    """As in Kafka, the first entry is done although the response is an error."""
    client = ("client-id", "c")
    doubled = entry(("user", "bob"), producer_byte_rate=1)
    response = harness.apply(
        alter(
            entry(ALICE, client, producer_byte_rate=1),
            entry(client, ALICE, producer_byte_rate=2),
            EntryData(entity=doubled.entity, ops=doubled.ops * 2),
        )
    )
    assert results(response) == [
        (
            ErrorCode.invalid_request,
            "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=c, user=alice})",
        ),
        (ErrorCode.invalid_request, "Ignoring duplicate entity ClientQuotaEntity(entries={user=bob})"),
    ]
    assert [record.value for record in harness.records] == [1.0]


def test_more_records_than_a_batch_may_have(harness: Any) -> None:
    entries = [entry(("user", f"u{number}"), producer_byte_rate=1) for number in range(10_001)]
    assert harness.refusal(alter(*entries)).error_code is ErrorCode.policy_violation
    assert {code for code, _ in results(harness.apply(alter(*entries[1:])))} == {ErrorCode.none}
    assert len(harness.image.client_quotas) == 10_000


def test_names_to_look_up() -> None:
    names = ("10.0.0.1", "::1", "fe80::1%eth0", "a.example", "[::1]", "", None)
    request = alter(entry(ALICE), *(entry(("ip", name)) for name in names))
    assert host_names(request) == {"a.example", "[::1]", "fe80::1%eth0"}


values = st.one_of(st.none(), st.floats(width=64), st.integers(-2, 2**64).map(float))
keys = st.sampled_from([PRODUCE, "consumer_byte_rate", "request_percentage", CONNECT, "unknown"])
parts = st.tuples(st.sampled_from(["user", "client-id", "ip", "other"]), st.sampled_from([None, "", "a"]))
entries = st.builds(
    lambda entity, ops: entry(*entity, **ops),
    st.lists(parts, max_size=2),
    st.dictionaries(keys, values, max_size=3),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(entries, max_size=4), max_size=4))
def test_whatever_is_asked_every_entity_has_one_answer(
    new_harness: Any, requests: list[list[EntryData]]
) -> None:
    """No request makes the controller fail or write what it refused."""
    harness = new_harness(max_idle_interval_ms=0)
    for asked in requests:
        response = harness.apply(alter(*asked))
        named = {tuple(sorted({p.entity_type: p.entity_name for p in e.entity}.items())) for e in asked}
        responses = [
            tuple(sorted((p.entity_type, p.entity_name) for p in e.entity)) for e in response.entries
        ]
        assert len(responses) == len(set(responses)) == len(named)
        assert all(
            (entry.error_code is ErrorCode.none) == (entry.error_message is None)
            for entry in response.entries
        )
        for quotas in harness.image.client_quotas.values():
            assert quotas
            assert all(value > 0 and math.isfinite(value) for value in quotas.values())
        assert harness.decide(alter(*asked)).records == ()
