"""Functions of the codec are generated for classes that are used often, and for no others."""

from collections.abc import Callable
from threading import Barrier, Thread
from typing import Any

import pytest
from quorate_protocol.records.generated import ClientQuotaRecord, EntityData, NoOpRecord
from quorate_protocol.wire import reading, writing
from quorate_protocol.wire.codec.closure_readers import closure_reader
from quorate_protocol.wire.codec.closure_writers import closure_writer
from quorate_protocol.wire.codec.generated_readers import generated_reader
from quorate_protocol.wire.codec.generated_writers import generated_writer
from quorate_protocol.wire.codec.native import CODEC, readers, writers
from quorate_protocol.wire.codec.read_values import Reader
from quorate_protocol.wire.codec.switching import CLOSURE_USES, CodecFunctions, FunctionOf
from quorate_protocol.wire.schema import EntityClass

QUOTA = ClientQuotaRecord(
    entity=(EntityData(entity_type="user", entity_name="u"),), key="k", value=1.0, remove=False
)
ENCODED = writing.encode(QUOTA)


def is_generated(function: Callable[..., Any]) -> bool:
    """Whether a function was compiled from generated source."""
    return function.__code__.co_filename.startswith("<quorate_protocol.records.generated")


def test_a_reader_is_generated_after_its_first_uses() -> None:
    """A process that reads few messages generates nothing, one that reads many gets the fast function, and
    results stay the same.
    """
    readers = CodecFunctions(closure_reader, generated_reader)
    for _ in range(CLOSURE_USES):
        assert readers[ClientQuotaRecord](ENCODED, 0) == (QUOTA, len(ENCODED))
        assert not is_generated(readers[ClientQuotaRecord])
    assert readers[ClientQuotaRecord](ENCODED, 0) == (QUOTA, len(ENCODED))
    assert is_generated(readers[ClientQuotaRecord])
    assert readers[ClientQuotaRecord](ENCODED, 0) == (QUOTA, len(ENCODED))


def test_a_writer_is_generated_after_its_first_uses() -> None:
    """Goal and method: as above."""
    writers = CodecFunctions(closure_writer, generated_writer)
    for use in range(CLOSURE_USES + 2):
        buffer = bytearray()
        writers[ClientQuotaRecord](buffer, QUOTA)
        assert buffer == ENCODED
        assert is_generated(writers[ClientQuotaRecord]) == (use >= CLOSURE_USES)


def test_structs_are_generated_with_their_message() -> None:
    readers = CodecFunctions(closure_reader, generated_reader)
    assert not is_generated(readers[EntityData])
    readers.generated(ClientQuotaRecord)
    assert is_generated(readers[EntityData])


def test_a_struct_of_a_long_array_is_generated_meanwhile() -> None:
    readers = CodecFunctions(closure_reader, generated_reader)
    long = ClientQuotaRecord(entity=QUOTA.entity * (CLOSURE_USES + 1), key="k", value=1.0, remove=False)
    encoded = writing.encode(long)
    assert readers[ClientQuotaRecord](encoded, 0) == (long, len(encoded))
    assert is_generated(readers[EntityData])
    assert not is_generated(readers[ClientQuotaRecord])


def test_closures_that_are_kept_lead_to_the_generated_function() -> None:
    readers = CodecFunctions(closure_reader, generated_reader)
    kept = readers[ClientQuotaRecord]
    for _ in range(CLOSURE_USES + 2):
        assert kept(ENCODED, 0) == (QUOTA, len(ENCODED))
    assert is_generated(readers[ClientQuotaRecord])


def test_closures_made_too_late_replace_nothing() -> None:
    """The fast function stays, whichever thread comes last."""
    generated: list[Reader] = []

    def close_late(entity_type: EntityClass, others: CodecFunctions[Reader]) -> Reader:
        generated.append(readers.generated(entity_type))
        return closure_reader(entity_type, others)

    readers = CodecFunctions(close_late, generated_reader)
    assert readers[NoOpRecord] is generated[0]
    assert readers[NoOpRecord] is generated[0]


def test_two_threads_may_generate_a_class_at_once() -> None:
    both = Barrier(2, timeout=30)

    def generate_together(entity_type: EntityClass, reader_of: FunctionOf[Reader]) -> Reader:
        if entity_type is ClientQuotaRecord:
            both.wait()
        return generated_reader(entity_type, reader_of)

    readers = CodecFunctions(closure_reader, generate_together)
    for _ in range(CLOSURE_USES):
        readers[ClientQuotaRecord](ENCODED, 0)
    results: list[Any] = []
    threads = [
        Thread(target=lambda: results.append(readers[ClientQuotaRecord](ENCODED, 0))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [(QUOTA, len(ENCODED))] * 2
    assert is_generated(readers[ClientQuotaRecord])


@pytest.mark.skipif(CODEC != "python", reason="the native codec runs; QUORATE_NATIVE=off turns it off")
def test_the_codec_counts_its_own_uses() -> None:
    """Messages and records come by the functions above."""
    encoded = writing.encode(NoOpRecord())
    for _ in range(CLOSURE_USES + 1):
        assert reading.decode(NoOpRecord, writing.encode(NoOpRecord())) == NoOpRecord()
    assert encoded == writing.encode(NoOpRecord())
    assert is_generated(readers[NoOpRecord])
    assert is_generated(writers[NoOpRecord])
