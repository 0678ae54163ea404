"""Records that are made again of the fields that a lake has of them."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.entities import entities_of
from pyspark_quorate.past.entities import FieldsError, entity_of
from pyspark_quorate.source.payload import Decoded, decode_metadata
from quorate_protocol.records.framing import decode_record
from quorate_protocol.records.generated import (
    RECORD_CLASSES,
    ConfigRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from quorate_protocol.wire.codec import encode

RECORD_VERSIONS = [
    (key, version) for key, classes in RECORD_CLASSES.items() for version in range(len(classes))
]
SECRET = (ConfigRecord, UserScramCredentialRecord)


@pytest.mark.parametrize(("key", "version"), RECORD_VERSIONS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_record_comes_back_as_it_was(key: int, version: int, data: st.DataObject) -> None:
    """Nothing but secrets is lost between a log and a replay."""
    record = data.draw(entities_of(RECORD_CLASSES[key][version]))
    value = bytes((1, key, version)) + encode(record)
    row = decode_metadata(value)
    assert isinstance(row, Decoded)
    again = entity_of(row.name, json.loads(row.payload))
    assert type(again) is RECORD_CLASSES[key][-1]
    if not isinstance(again, SECRET):
        assert again == decode_record(value)


def test_secrets_are_replaced_by_a_word() -> None:
    fields = {"name": "alice", "mechanism": 1, "iterations": 4096}
    hidden = dict.fromkeys(("salt", "storedKey", "serverKey"), "[redacted]")
    credential = entity_of("UserScramCredentialRecord", fields | hidden)
    assert isinstance(credential, UserScramCredentialRecord)
    assert (credential.name, credential.salt) == ("alice", b"[redacted]")


def test_control_records_are_none() -> None:
    assert entity_of("LeaderChangeMessage", {"leaderId": 1}) is None


@pytest.mark.parametrize(
    "fields",
    [{"name": "orders", "topicId": "short"}, {"name": "orders"}, {"name": "orders", "topicId": 7}],
)
def test_fields_of_another_record_are_refused_with_its_name(fields: dict[str, object]) -> None:
    with pytest.raises(FieldsError, match=TopicRecord.__name__):
        entity_of(TopicRecord.__name__, fields)
