"""When the native codec runs, and what it leaves to the one in Python."""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from threading import Barrier, Event, Thread
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from quorate_protocol.errors import StringTooLong
from quorate_protocol.records.generated import ClientQuotaRecord, EntityData, PartitionRecord
from quorate_protocol.wire.codec import SharedArray, decode, encode
from quorate_protocol.wire.codec.functions import CodecFunctions
from quorate_protocol.wire.codec.generated_readers import generated_reader
from quorate_protocol.wire.codec.generated_writers import generated_writer
from quorate_protocol.wire.codec.native import (
    CODEC,
    CODEC_REASON,
    SWITCH,
    NativeCodecs,
    load,
    readers,
    writers,
)
from quorate_protocol.wire.schema import STRING_SIZE_BYTES_MAX, EntityClass, zero_entity

needs_extension = pytest.mark.skipif(CODEC != "native", reason=f"{CODEC_REASON}; `make native` builds it")

QUOTA = ClientQuotaRecord(
    entity=(EntityData(entity_type="user", entity_name="u"),), key="k", value=1.0, remove=False
)
PARTITION = replace(zero_entity(PartitionRecord), topic_id=UUID(int=5), replicas=(1, 2))


class Text(str):
    """A text with its own idea of bytes."""

    def encode(self, *_: Any) -> bytes:
        """Always the same."""
        return b"own"


class Untimely:
    """A value that is interrupted while it is compared."""

    def __ne__(self, other: object) -> bool:
        raise KeyboardInterrupt


def codecs(
    python_readers: Mapping[EntityClass, Callable[..., Any]] | None = None,
    python_writers: Mapping[EntityClass, Callable[..., Any]] | None = None,
) -> NativeCodecs:
    """Codecs of their own, with the functions in Python unless others are given."""
    return NativeCodecs(
        import_module("quorate_native"),
        CodecFunctions(generated_reader) if python_readers is None else python_readers,
        CodecFunctions(generated_writer) if python_writers is None else python_writers,
    )


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "quorate_native", SimpleNamespace(INTERFACE=2, VERSION="1.2.3"))
    assert load({SWITCH: "off"}) == (None, "QUORATE_NATIVE is off")
    extension, reason = load({})
    assert extension is not None
    assert reason == "quorate_native 1.2.3 is installed"


def test_nothing_is_lost_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "quorate_native", None)
    extension, reason = load({})
    assert extension is None
    assert "quorate_native" in reason


def test_one_of_another_release_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "quorate_native", SimpleNamespace(INTERFACE=0, VERSION="0.0.9"))
    assert load({}) == (None, "quorate_native 0.0.9 has interface 0, 2 is needed")


@needs_extension
def test_messages_and_records_come_by_it() -> None:
    assert decode(ClientQuotaRecord, encode(QUOTA)) == QUOTA
    functions: tuple[Any, Any] = readers[ClientQuotaRecord], writers[ClientQuotaRecord]
    assert {type(function.__self__).__name__ for function in functions} == {"Codec"}


@needs_extension
def test_it_gives_up_before_anything_is_written() -> None:
    found = []

    def write(buffer: bytearray, entity: object) -> None:
        found.append(bytes(buffer))
        generated_writer(type(entity), {})(buffer, entity)

    buffer = bytearray(b"before")
    too_long = replace(QUOTA, entity=(), key="k" * (STRING_SIZE_BYTES_MAX + 1))
    with pytest.raises(StringTooLong, match="key has 32768 bytes"):
        codecs(python_writers={ClientQuotaRecord: write}).writers[ClientQuotaRecord](buffer, too_long)
    assert found == [b"before"]


@needs_extension
@pytest.mark.parametrize("offset", [-1, 2**64, 10**6])
def test_unusual_offsets_are_read_in_python(offset: int) -> None:
    asked = []

    def read(data: bytes, offset: int) -> tuple[None, int]:
        asked.append(data)
        return None, offset

    native = codecs(python_readers={ClientQuotaRecord: read}).readers[ClientQuotaRecord]
    assert native(encode(QUOTA), offset) == (None, offset)
    assert asked == [encode(QUOTA)]


@needs_extension
def test_other_types_are_read_and_written_in_python() -> None:
    """Subclasses keep what they override, and views work as ever."""
    native = codecs()
    buffer = bytearray()
    native.writers[ClientQuotaRecord](buffer, replace(QUOTA, key=Text("k")))
    read, end = native.readers[ClientQuotaRecord](bytearray(buffer), 0)  # type: ignore[arg-type]
    assert (read, end) == (replace(QUOTA, key="own"), len(buffer))
    buffer.clear()
    native.writers[PartitionRecord](buffer, replace(PARTITION, replicas=[1, 2]))
    assert bytes(buffer) == encode(PARTITION)


@needs_extension
def test_a_shared_array_is_encoded_once() -> None:
    shared = SharedArray(QUOTA.entity)
    assert encode(replace(QUOTA, entity=shared)) == encode(QUOTA)
    assert shared.encoded == b"\x02\x05user\x02u\x00"
    shared.encoded = b"\x01"
    assert encode(replace(QUOTA, entity=shared)) == encode(replace(QUOTA, entity=()))


@needs_extension
def test_an_interrupt_is_passed_on() -> None:
    """Ctrl-C ends a tool at any moment."""
    with pytest.raises(KeyboardInterrupt):
        encode(replace(PARTITION, eligible_leader_replicas=Untimely()))


@needs_extension
def test_uuids_are_the_same_objects() -> None:
    first, second = (decode(PartitionRecord, encode(PARTITION)) for _ in range(2))
    assert first.topic_id is second.topic_id
    assert first.topic_id == PARTITION.topic_id


@needs_extension
def test_uuids_are_told_apart() -> None:
    for number in range(1, 20_000):
        record = replace(PARTITION, topic_id=UUID(int=number << 40))
        assert encode(record)[4:20] == (number << 40).to_bytes(16, "big")
        assert decode(PartitionRecord, encode(record)).topic_id == record.topic_id


@needs_extension
def test_classes_that_make_their_own_instances_are_refused() -> None:
    class Own:
        __slots__ = ("a",)

        def __new__(cls) -> "Own":
            return super().__new__(cls)

    extension = import_module("quorate_native")
    with pytest.raises(TypeError, match="has a __new__ of its own"):
        extension.Codec(Own, True, [], None, codecs().converters, {}, {})


@needs_extension
def test_other_threads_run_while_a_long_message_is_read() -> None:
    long = encode(replace(QUOTA, entity=QUOTA.entity * 1_000_000))
    read, begun, done, turns = readers[ClientQuotaRecord], Event(), Event(), 0

    def use() -> None:
        begun.set()
        read(long, 0)
        done.set()

    thread = Thread(target=use)
    thread.start()
    begun.wait(10)
    while not done.is_set():
        time.sleep(0)  # gives the interpreter up, and waits for it again
        turns += 1
    thread.join()
    assert turns > 6  # two or three if the reader never gives the interpreter up


@needs_extension
def test_threads_may_use_a_class_for_the_first_time_at_once() -> None:
    native, begin, results = codecs(), Barrier(2), []
    encoded = encode(QUOTA)

    def use() -> None:
        begin.wait(10)
        results.append(native.readers[ClientQuotaRecord](encoded, 0))

    threads = [Thread(target=use) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [(QUOTA, len(encoded))] * 2
