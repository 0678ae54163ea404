"""JSON of records: the fast way and the plain way agree, and both agree with the decoder."""

import base64
import json
import math
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.entities import entities_of
from pyspark_quorate import rows
from pyspark_quorate.source.batch_scanner import BatchScanner
from pyspark_quorate.source.columns import program_of
from pyspark_quorate.source.framing import padded
from pyspark_quorate.source.payload import Decoded, decode_metadata, field_name
from pyspark_quorate.source.record_decoder import Origin, RowReader
from pyspark_quorate.source.selection import Selection
from quorate_protocol.kafka.secret_configs import is_secret_config
from quorate_protocol.records.batch import build_batch
from quorate_protocol.records.framing import decode_record
from quorate_protocol.records.generated import RECORD_CLASSES, ConfigRecord, UserScramCredentialRecord
from quorate_protocol.uuids import uuid_to_text
from quorate_protocol.wire.codec import encode
from quorate_protocol.wire.schema import schema_of

EXAMPLES = settings(max_examples=15, deadline=None)
RECORD_VERSIONS = [
    (key, version) for key, classes in RECORD_CLASSES.items() for version in range(len(classes))
]
WITH_PROGRAM = [pair for pair in RECORD_VERSIONS if program_of(*pair) is not None]
SECRETS = {(UserScramCredentialRecord, "salt"), (UserScramCredentialRecord, "stored_key")}
SECRETS |= {(UserScramCredentialRecord, "server_key")}


def plain(value: Any) -> Any:
    """What JSON should have for a value, made without the code under test."""
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, uuid.UUID):
        return uuid_to_text(value)
    return plain_entity(value) if hasattr(value, "__dataclass_fields__") else value


def plain_entity(entity: Any) -> dict[str, Any]:
    """An entity as JSON should have it."""
    content = {}
    for field in schema_of(type(entity)):
        value = getattr(entity, field.name)
        if field.kafka_type == "uuid":
            zero = "A" * 22
            value = (
                value and [zero if each is None else uuid_to_text(each) for each in value]
                if field.is_array
                else uuid_to_text(value)
            )
            value = [] if value == () else value
        content[field_name(field.name)] = plain(value)
        if (type(entity), field.name) in SECRETS:
            content[field_name(field.name)] = "[redacted]"
    is_set = isinstance(entity, ConfigRecord) and entity.value is not None
    if is_set and is_secret_config(entity.resource_type, entity.name):
        content["value"] = "[redacted]"
    return content


@pytest.mark.parametrize(("key", "version"), RECORD_VERSIONS)
@EXAMPLES
@given(data=st.data())
def test_json_says_what_the_record_says(key: int, version: int, data: st.DataObject) -> None:
    record = data.draw(entities_of(RECORD_CLASSES[key][version]))
    value = bytes((1, key, version)) + encode(record)
    decoded = decode_metadata(value)
    assert isinstance(decoded, Decoded)
    assert (decoded.name, decoded.version) == (RECORD_CLASSES[key][-1].__name__, version)
    assert json.loads(decoded.payload) == plain_entity(decode_record(value))


@pytest.mark.parametrize(("key", "version"), WITH_PROGRAM)
@EXAMPLES
@given(data=st.data())
def test_alike_records_have_the_same_json_together(key: int, version: int, data: st.DataObject) -> None:
    records = data.draw(st.lists(entities_of(RECORD_CLASSES[key][version]), min_size=1, max_size=8))
    values = []
    for record in records:
        value = bytes((1, key, version)) + encode(record)
        harm = data.draw(st.sampled_from(("none", "none", "cut", "longer", "tag", "flip")))
        if harm == "cut":
            value = value[: data.draw(st.integers(3, len(value)))]
        elif harm == "longer":
            value += data.draw(st.binary(min_size=1, max_size=4))
        elif harm == "tag" and value.endswith(b"\0"):
            value = value[:-1] + b"\x01\x63\x01x"
        elif harm == "flip" and len(value) > 3:
            flipped = bytearray(value)
            flipped[data.draw(st.integers(3, len(value) - 1))] ^= 1 << data.draw(st.integers(0, 7))
            value = bytes(flipped)
        values.append(value)
    content = b"".join(values)
    ends = np.cumsum([len(value) for value in values])
    starts = ends - [len(value) for value in values] + 3
    program = program_of(key, version)
    assert program is not None
    payloads, is_usual = program.run(padded(content), len(content), starts, ends)
    payloads.validate(full=True)
    for value, payload, usual in zip(values, payloads.to_pylist(), is_usual.tolist(), strict=True):
        expected = decode_metadata(value)
        if usual:
            assert isinstance(expected, Decoded), (value, payload)
            assert payload == expected.payload


def test_plain_text_takes_the_fast_way() -> None:
    for key, version in WITH_PROGRAM:
        entity_type = RECORD_CLASSES[key][version]
        values = []
        for number in range(3):
            defaults = {
                field.name: f"name-{number}"
                for field in schema_of(entity_type)
                if field.kafka_type == "string" and not field.is_array
            }
            defaults |= {
                field.name: number
                for field in schema_of(entity_type)
                if (field.kafka_type or "").startswith("int") and not field.is_array
            }
            rest = {
                field.name: () if field.is_array else False if field.kafka_type == "bool" else None
                for field in schema_of(entity_type)
                if field.name not in defaults
            }
            values.append(bytes((1, key, version)) + encode(entity_type(**defaults, **rest)))
        content = b"".join(values)
        ends = np.cumsum([len(value) for value in values])
        starts = ends - [len(value) for value in values] + 3
        program = program_of(key, version)
        assert program is not None
        _, is_usual = program.run(padded(content), len(content), starts, ends)
        assert is_usual.all() or entity_type is ConfigRecord, entity_type


@EXAMPLES
@given(data=st.data())
def test_a_window_of_mixed_records_keeps_their_order(data: st.DataObject) -> None:
    """Rows come in the order of the log whatever way they were decoded."""
    kinds = data.draw(st.lists(st.sampled_from(RECORD_VERSIONS), min_size=1, max_size=4, unique=True))
    pool = []
    for key, version in kinds:
        record = data.draw(entities_of(RECORD_CLASSES[key][version]))
        pool.append(bytes((1, key, version)) + encode(record))
    chance = data.draw(st.randoms(use_true_random=False))
    values = [chance.choice(pool) for _ in range(120)]
    reader = RowReader(
        Origin(cluster_id="c", source="f"),
        Selection(names=frozenset(rows_names())),
        BatchScanner(first_offset=7),
    )
    batches, _ = reader.read(build_batch(values, 7, 3, 1234), is_end=True)
    table = pa.Table.from_batches(batches)
    expected = [decode_metadata(value) for value in values]
    assert table.column("payload").to_pylist() == [
        each.payload for each in expected if isinstance(each, Decoded)
    ]
    assert table.column("type").to_pylist() == [each.name for each in expected if isinstance(each, Decoded)]
    assert table.column("offset").to_pylist() == list(range(7, 127))
    assert set(table.column("kind").to_pylist()) == {rows.LOG}


def rows_names() -> set[str]:
    """All records, NoOpRecord too."""
    return {classes[-1].__name__ for classes in RECORD_CLASSES.values()}


def test_secrets_of_configs() -> None:
    topic, broker = 2, 4
    reported = [
        (topic, "retention.ms"),
        (broker, "log.retention.ms"),
        (broker, "leader.replication.throttled.rate"),
    ]
    reported += [
        (broker, "listener.name.external.ssl.keystore.location"),
        (16, "interval.ms"),
        (32, "consumer.session.timeout.ms"),
    ]
    assert [each for each in reported if is_secret_config(*each)] == []
    secret = [(broker, "ssl.key.password"), (broker, "listener.name.external.ssl.keystore.password")]
    secret += [(broker, "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config"), (broker, "my.plugin.token")]
    secret += [(topic, "unknown"), (8, "kafka.server"), (99, "x")]
    assert [each for each in secret if not is_secret_config(*each)] == []
