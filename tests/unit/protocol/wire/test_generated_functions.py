"""Functions of the codec are generated at their first use."""

from collections.abc import Mapping
from threading import Barrier, Thread
from typing import Any

import pytest
from quorate_protocol.kafka.generated.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from quorate_protocol.records.generated import ClientQuotaRecord, EntityData, NoOpRecord
from quorate_protocol.wire.codec import decode, encode
from quorate_protocol.wire.codec.functions import CodecFunctions
from quorate_protocol.wire.codec.generated_readers import generated_reader
from quorate_protocol.wire.codec.native import CODEC, readers, writers
from quorate_protocol.wire.codec.read_values import Reader
from quorate_protocol.wire.schema import EntityClass

QUOTA = ClientQuotaRecord(
    entity=(EntityData(entity_type="user", entity_name="u"),), key="k", value=1.0, remove=False
)
ENCODED = encode(QUOTA)


def test_a_struct_that_is_absent_is_not_generated() -> None:
    functions = CodecFunctions(generated_reader)
    without = ClientQuotaRecord(entity=(), key="k", value=1.0, remove=False)
    encoded = encode(without)
    assert functions[ClientQuotaRecord](encoded, 0) == (without, len(encoded))
    assert set(functions) == {ClientQuotaRecord}
    assert functions[ClientQuotaRecord](ENCODED, 0) == (QUOTA, len(ENCODED))
    assert set(functions) == {ClientQuotaRecord, EntityData}


def test_messages_call_the_functions_of_their_structs_directly() -> None:
    functions = CodecFunctions(generated_reader)
    functions[ClientQuotaRecord](ENCODED, 0)
    values = functions[ClientQuotaRecord].__globals__  # type: ignore[attr-defined]
    assert values["read_EntityData"] is functions[EntityData]


def test_fields_of_the_same_struct_have_one_function() -> None:
    reader = CodecFunctions(generated_reader)[StreamsGroupHeartbeatRequest]
    named = [name for name in reader.__globals__ if name.startswith("read_TaskIds")]  # type: ignore[attr-defined]
    assert named == ["read_TaskIds"]


def test_two_threads_may_generate_a_class_at_once() -> None:
    both = Barrier(2, timeout=30)

    def generate_together(entity_type: EntityClass, functions: Mapping[EntityClass, Reader]) -> Reader:
        if entity_type is ClientQuotaRecord:
            both.wait()
        return generated_reader(entity_type, functions)

    functions = CodecFunctions(generate_together)
    results: list[Any] = []
    threads = [
        Thread(target=lambda: results.append(functions[ClientQuotaRecord](ENCODED, 0))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [(QUOTA, len(ENCODED))] * 2
    assert functions[ClientQuotaRecord](ENCODED, 0) == results[0]


@pytest.mark.skipif(CODEC != "python", reason="the native codec runs; QUORATE_NATIVE=off turns it off")
def test_messages_and_records_are_read_and_written_by_them() -> None:
    assert decode(NoOpRecord, encode(NoOpRecord())) == NoOpRecord()
    for function in (readers[NoOpRecord], writers[NoOpRecord]):
        assert function.__code__.co_filename.startswith("<quorate_protocol.records.generated")  # type: ignore[attr-defined]
