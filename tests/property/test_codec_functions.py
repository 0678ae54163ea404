"""Properties of the codec's functions, for any class: those in Python agree with kio's, native ones with both."""

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kit import kio_oracle
from kit.fuzz.mutations import mutated
from quorate_protocol.errors import MalformedMessage, TooManyElements, error_code_of
from quorate_protocol.kafka.apis import APIS
from quorate_protocol.kafka.field_types import EPOCH, MILLISECOND
from quorate_protocol.records.generated import RECORD_CLASSES
from quorate_protocol.wire.codec import BoundedBytes, SharedArray, read_entity
from quorate_protocol.wire.codec.functions import CodecFunctions
from quorate_protocol.wire.codec.generated_readers import generated_reader
from quorate_protocol.wire.codec.generated_writers import generated_writer
from quorate_protocol.wire.codec.native import CODEC, CODEC_REASON, NativeCodecs
from quorate_protocol.wire.schema import (
    FIXED_FORMATS,
    STRING_SIZE_BYTES_MAX,
    EntityClass,
    FieldSchema,
    schema_of,
)

TEXTS = ("", "a", "é" * 63, "é" * 63 + "a", "é" * 64, "name" * 60)
COUNTS = (0, 1, 2, 3)
LONG_COUNTS = (126, 127, 128)
"""About the most elements, plus one, that a compact length of one byte can express."""
WRONG = (None, 2**70, -(2**70), "text", 1.5, b"bytes", "a" * (STRING_SIZE_BYTES_MAX + 1), 7, ())


class Counted(Mapping[EntityClass, Any]):
    """Functions by class, and how often one was asked for: each time is one that a native function gave up."""

    def __init__(self, functions: Mapping[EntityClass, Any]) -> None:
        self.functions, self.uses = functions, 0

    def __getitem__(self, entity_type: EntityClass) -> Any:
        self.uses += 1
        return self.functions[entity_type]

    def __iter__(self) -> Iterator[EntityClass]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)


PYTHON_READERS = CodecFunctions(generated_reader)
PYTHON_WRITERS = CodecFunctions(generated_writer)


def classes() -> Iterator[EntityClass]:
    """The classes of all messages and records, in all versions."""
    for api in APIS.values():
        for version in range(api.version_min, api.version_max + 1):
            yield from (api.request_class(version), api.response_class(version))
    for versions in RECORD_CLASSES.values():
        yield from versions


def number(kafka_type: str, rng: Random) -> Any:
    """A value of fixed width, often at a border."""
    number_format = FIXED_FORMATS[kafka_type]
    if kafka_type == "bool":
        return rng.random() < 0.5
    if kafka_type == "float64":
        return rng.choice((0.0, -1.5, 1e300))
    bits = struct.calcsize(">" + number_format) * 8
    low, high = (0, 2**bits - 1) if number_format.isupper() else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return rng.choice((low, high, 0, 1, rng.randint(low, high)))


def primitive(kafka_type: str, rng: Random) -> Any:
    """A value of a primitive type."""
    if kafka_type == "string":
        return rng.choice(TEXTS)
    if kafka_type in ("bytes", "records"):
        return rng.choice(TEXTS).encode()
    if kafka_type == "uuid":
        return rng.choice((None, UUID(int=rng.getrandbits(128))))
    if kafka_type == "error_code":
        return error_code_of(rng.randint(-1, 120))
    if kafka_type.startswith("timedelta"):
        return rng.randint(-(2**31), 2**31 - 1) * MILLISECOND
    if kafka_type.startswith("datetime"):
        return EPOCH + rng.randint(0, 2**41) * MILLISECOND
    return number(kafka_type, rng)


def value_of(field: FieldSchema, rng: Random, wrong: float) -> Any:
    """A value for a field, with the given chance one that can't be written."""
    if rng.random() < wrong:
        return rng.choice(WRONG)
    if field.tag is not None and rng.random() < 0.5:
        return field.default
    is_null_written = field.tag is None or field.default is None
    if field.is_nullable and is_null_written and rng.random() < 0.2:
        return None
    if not field.is_array:
        return element_of(field, rng, wrong)
    is_long = field.struct is None and rng.random() < 0.2
    count = rng.choice(LONG_COUNTS if is_long else COUNTS)
    is_shared = field.struct is not None and not field.is_nullable_struct and rng.random() < 0.2
    return (SharedArray if is_shared else tuple)(element_of(field, rng, wrong) for _ in range(count))


def element_of(field: FieldSchema, rng: Random, wrong: float) -> Any:
    """A value for a field that is no array, or for an element of an array."""
    if field.struct is not None:
        return entity_of(field.struct, rng, wrong)
    return rng.choice(WRONG) if rng.random() < wrong else primitive(field.kafka_type or "", rng)


def entity_of(entity_type: EntityClass, rng: Random, wrong: float = 0) -> Any:
    """An entity with a value in each field."""
    return entity_type(**{field.name: value_of(field, rng, wrong) for field in schema_of(entity_type)})


def result_of(function: Callable[..., Any], *arguments: Any) -> str:
    """What a function returns or raises, as text, in which True differs from 1 and NaN equals itself."""
    try:
        return repr(function(*arguments))
    except Exception as error:
        return f"{type(error)}: {error}"


def written(write: Callable[[bytearray, Any], None], entity: Any) -> bytes:
    """What a writer appends."""
    buffer = bytearray(b"before")
    write(buffer, entity)
    return bytes(buffer)


def elements_in(value: Any) -> int:
    """The number of elements of all arrays in an entity."""
    if isinstance(value, tuple):
        return len(value) + sum(map(elements_in, value))
    if not is_dataclass(value):
        return 0
    return sum(elements_in(getattr(value, field.name)) for field in fields(value))


def of_part(part: int) -> Iterator[tuple[EntityClass, Random]]:
    """Every eighth class, with a random source of its own."""
    for entity_type in list(classes())[part::8]:
        name = f"{entity_type.__module__}.{entity_type.__name__}{entity_type.__version__}"
        yield entity_type, Random(zlib.crc32(name.encode()))


@pytest.mark.parametrize("part", range(8))
def test_functions_in_python_agree_with_kios(part: int) -> None:
    for entity_type, rng in of_part(part):
        for _ in range(3):
            entity = entity_of(entity_type, rng)
            encoded = encode(entity)
            assert encoded == kio_oracle.encoded(entity), entity
            assert PYTHON_READERS[entity_type](encoded, 0) == (entity, len(encoded))
            assert kio_oracle.reads(encoded, entity)


@pytest.mark.parametrize("part", range(8))
def test_elements_of_all_arrays_are_counted(part: int) -> None:
    for entity_type, rng in of_part(part):
        entity = entity_of(entity_type, rng)
        encoded = encode(entity)
        count = elements_in(entity)
        assert PYTHON_READERS[entity_type](BoundedBytes(encoded, count), 0) == (entity, len(encoded))
        if count:
            with pytest.raises(TooManyElements):
                PYTHON_READERS[entity_type](BoundedBytes(encoded, count - 1), 0)


@pytest.mark.parametrize("part", range(8))
def test_damaged_messages_are_read_or_refused(part: int) -> None:
    refused = accepted = 0
    for entity_type, rng in of_part(part):
        corpus = [encode(entity_of(entity_type, rng)) for _ in range(3)]
        for data in mutated(corpus, rng.getrandbits(32), 40):
            try:
                read_entity(entity_type, data)
                accepted += 1
            except MalformedMessage:
                refused += 1
    assert min(accepted, refused) > 100  # or nothing was compared


def encode(entity: Any) -> bytes:
    """What the functions in Python append."""
    return written(PYTHON_WRITERS[type(entity)], entity)[len(b"before") :]


def compared(
    part: int, read: Mapping[EntityClass, Any], write: Mapping[EntityClass, Any]
) -> Iterator[tuple[bool, bool]]:
    """Compare the functions of every eighth class with those in Python: values, errors and their texts.

    In each version: entities with values at the borders, and some that can't be written; then what was written,
    and the same damaged, both also with a bound of elements. Yields after each comparison whether the input was
    accepted, and whether it has values of the declared types.
    """
    for entity_type, rng in of_part(part):
        corpus = []
        for wrong in (0, 0, 0, 0.02, 0.05, 0.1, 0.2):
            entity = entity_of(entity_type, rng, wrong)
            expected = result_of(written, PYTHON_WRITERS[entity_type], entity)
            assert result_of(written, write[entity_type], entity) == expected, (entity_type, entity)
            if wrong == 0:
                corpus.append(encode(entity))
            yield not expected.startswith("<class"), wrong == 0
        for data in (*corpus, *mutated(corpus, rng.getrandbits(32), 40)):
            expected = result_of(PYTHON_READERS[entity_type], data, 0)
            assert result_of(read[entity_type], data, 0) == expected, (entity_type, data)
            yield not expected.startswith("<class"), True
            elements_max = rng.randrange(8)
            expected = result_of(PYTHON_READERS[entity_type], BoundedBytes(data, elements_max), 0)
            assert result_of(read[entity_type], BoundedBytes(data, elements_max), 0) == expected
            yield not expected.startswith("<class"), True


@pytest.mark.skipif(CODEC != "native", reason=f"{CODEC_REASON}; `make native` builds it")
@pytest.mark.parametrize("part", range(8))
def test_native_functions_do_what_those_in_python_do(part: int) -> None:
    python_readers, python_writers = Counted(PYTHON_READERS), Counted(PYTHON_WRITERS)
    codecs = NativeCodecs(import_module("quorate_native"), python_readers, python_writers)
    refused = accepted = 0
    for is_accepted, is_typed in compared(part, codecs.readers, codecs.writers):
        has_given_up = python_readers.uses + python_writers.uses > 0
        assert has_given_up or is_accepted
        assert not (has_given_up and is_accepted and is_typed)
        refused += not is_accepted
        accepted += is_accepted
        python_readers.uses = python_writers.uses = 0
    assert min(accepted, refused) > 100  # or nothing was compared
