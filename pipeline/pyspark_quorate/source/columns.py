"""Decodes many records of one type and version to JSON, field by field for all at once (numpy and Arrow).

A program is compiled from the record's schema. It handles usual records; others (with text that JSON must escape,
unknown tagged fields, or bytes that do not fit) are left to :mod:`pyspark_quorate.source.payload`, which produces the
same text for usual records.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from quorate_protocol.kafka.secret_configs import is_secret_config
from quorate_protocol.records.generated import RECORD_CLASSES, ConfigRecord
from quorate_protocol.wire.codec.native import extension
from quorate_protocol.wire.convert import convert
from quorate_protocol.wire.schema import FieldSchema, schema_of, zero_entity

from pyspark_quorate.source.framing import read_unsigned_varints
from pyspark_quorate.source.payload import field_name, field_text
from pyspark_quorate.source.runs import Integers, gather

Text: TypeAlias = "str | pa.StringArray"
"""A text common to all records, or one per record."""
Mask = NDArray[np.bool_]

_DTYPES: Final = {
    "int8": ">i1",
    "int16": ">i2",
    "int32": ">i4",
    "int64": ">i8",
    "uint8": ">u1",
    "uint16": ">u2",
    "uint32": ">u4",
}
_UUID_BYTES: Final = 16
_UUID_CHARACTERS: Final = 22
_ALPHABET: Final = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8
)
_PAIRS: Final = np.stack([np.repeat(_ALPHABET, 64), np.tile(_ALPHABET, 64)], axis=1).view(np.uint16).ravel()
"""The two base64 characters of each 12 bits, as one number."""
_QUOTE, _BACKSLASH, _SPACE, _DELETE = 0x22, 0x5C, 0x20, 0x7F


class Cursor:
    """The read position of each record. `is_usual` becomes false for records that are left to payload."""

    def __init__(self, window: NDArray[np.uint8], limit: int, at: Integers, end: Integers) -> None:
        """`window` is padded: reads after `limit` are safe, but no record is there."""
        self.window = window
        self.limit = limit
        self.at = at
        self.end = end
        self.is_usual: Mask = np.ones(len(at), np.bool_)

    def read(self, width: int) -> NDArray[np.uint8]:
        """The next `width` bytes of each record, as rows of an array."""
        found = gather(self.window, self.at, width)
        self.skip(width)
        return found

    def read_varint(self) -> Integers:
        """An unsigned varint of each record."""
        value, self.at = read_unsigned_varints(self.window, self.at)
        self.skip(0)
        return value

    def read_length(self, width: int, *, is_nullable: bool) -> tuple[Integers, Mask | None]:
        """A compact length of each record, and a mask of nulls if any; lengths that do not fit are unusual, and 0."""
        length = self.read_varint() - 1
        is_null = length == -1
        is_bad = (length < 0) & ~is_null if is_nullable else length < 0
        is_bad |= length > (self.end - self.at) // width
        self.is_usual &= ~is_bad
        return np.where(is_bad | is_null, 0, length), is_null if is_nullable and is_null.any() else None

    def skip(self, width: int | Integers) -> None:
        """Advance, within each record and within the window."""
        self.at = self.at + width
        self.is_usual &= self.at <= self.end
        self.at = np.minimum(self.at, self.limit)


def _gather_runs(
    window: NDArray[np.uint8], at: Integers, length: Integers
) -> tuple[NDArray[np.uint8], Integers]:
    """Concatenated bytes of different lengths, and their start offsets, plus the end."""
    offsets = _offsets(length)
    places = np.arange(offsets[-1]) + np.repeat(at - offsets[:-1], length)
    return window[places], offsets


def _offsets(length: Integers) -> Integers:
    offsets = np.zeros(len(length) + 1, np.int64)
    np.cumsum(length, out=offsets[1:])
    return offsets


# Fields

Reader = Callable[[Cursor], list[Text]]
"""Reads a field of all records, as parts of its text."""


def _number_reader(kafka_type: str) -> Reader:
    dtype = np.dtype(_DTYPES[kafka_type])

    def read(cursor: Cursor) -> list[Text]:
        return [_numbers(cursor.read(dtype.itemsize), dtype)]

    return read


def _numbers(raw: NDArray[np.uint8], dtype: np.dtype[np.generic]) -> pa.StringArray:
    native = raw.view(dtype).ravel().astype(dtype.newbyteorder("="))
    return pc.cast(pa.array(native), pa.string())


def _read_boolean(cursor: Cursor) -> list[Text]:
    return [_BOOLEANS.take(pa.array((cursor.read(1).ravel() != 0).astype(np.int8)))]


def _read_uuid(cursor: Cursor) -> list[Text]:
    return ['"', _uuids(cursor.read(_UUID_BYTES)), '"']


def _uuids(raw: NDArray[np.uint8]) -> pa.StringArray:
    """URL-safe base64 without padding: 12 bits become two characters, as do the last byte and four zero bits."""
    code = np.empty((len(raw), _UUID_CHARACTERS // 2), np.uint16)
    first, second, third = (raw[:, place:15:3].astype(np.uint16) for place in range(3))
    code[:, 0:10:2] = first << 4 | second >> 4
    code[:, 1:10:2] = (second & 0x0F) << 8 | third
    code[:, 10] = raw[:, 15].astype(np.uint16) << 4
    return strings(_PAIRS[code].view(np.uint8).ravel(), np.arange(len(raw) + 1) * _UUID_CHARACTERS)


def _string_reader(*, is_nullable: bool) -> Reader:
    def read(cursor: Cursor) -> list[Text]:
        length, is_null = cursor.read_length(1, is_nullable=is_nullable)
        data, offsets = _gather_runs(cursor.window, cursor.at, length)
        cursor.skip(length)
        is_special = (data < _SPACE) | (data >= _DELETE) | (data == _QUOTE) | (data == _BACKSLASH)
        if is_special.any():
            owners = np.searchsorted(offsets, np.flatnonzero(is_special), "right") - 1
            cursor.is_usual[owners] = False
            data = np.where(is_special, np.uint8(_SPACE), data)
        parts: list[Text] = ['"', strings(np.ascontiguousarray(data), offsets), '"']
        return parts if is_null is None else [_with_nulls(parts, is_null)]

    return read


def _array_reader(field: FieldSchema) -> Reader:
    is_uuid = field.kafka_type == "uuid"
    dtype = np.dtype(_DTYPES.get(field.kafka_type or "", ">u1"))
    width = _UUID_BYTES if is_uuid else dtype.itemsize
    opening, comma, closing = ('["', '","', '"]') if is_uuid else ("[", ",", "]")

    def read(cursor: Cursor) -> list[Text]:
        length, is_null = cursor.read_length(width, is_nullable=field.is_nullable)
        offsets = _offsets(length)
        starts = np.repeat(cursor.at, length) + width * (
            np.arange(offsets[-1]) - np.repeat(offsets[:-1], length)
        )
        raw = gather(cursor.window, starts, width)
        cursor.skip(length * width)
        elements = _uuids(raw) if is_uuid else _numbers(raw, dtype)
        joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), elements), comma)
        parts: list[Text] = [opening, joined, closing]
        if is_uuid and (length == 0).any():
            parts = [pc.if_else(pa.array(length == 0), "[]", _join(parts))]
        return parts if is_null is None else [_with_nulls(parts, is_null)]

    return read


def _with_nulls(parts: list[Text], is_null: Mask) -> pa.StringArray:
    return pc.if_else(pa.array(is_null), "null", _join(parts))


def _reader(field: FieldSchema) -> Reader | None:
    """Return the reader of a field's type; None for rare types: structs, bytes, floats."""
    if field.is_array:
        return _array_reader(field) if field.kafka_type == "uuid" or field.kafka_type in _DTYPES else None
    if field.kafka_type in _DTYPES:
        return _number_reader(field.kafka_type)
    if field.kafka_type == "string":
        return _string_reader(is_nullable=field.is_nullable)
    return {"bool": _read_boolean, "uuid": _read_uuid}.get(field.kafka_type or "")


# Records


def _join(parts: Sequence[Text]) -> pa.StringArray:
    """Concatenate texts; at least one of them differs per record."""
    return pc.binary_join_element_wise(*_merge(parts), "")


def _merge(parts: Sequence[Text]) -> list[Text]:
    """Merge adjacent common texts."""
    merged: list[Text] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    return merged


def _read_tagged(cursor: Cursor, remaining: Integers, tag: int, read: Reader, absent: str) -> list[Text]:
    """A tagged field of the records that have it next; `absent` is the text for the others."""
    has = np.flatnonzero((remaining > 0) & (cursor.window[cursor.at] == tag))
    if not len(has):
        return [absent]
    inner = Cursor(cursor.window, cursor.limit, cursor.at[has] + 1, cursor.end[has])
    size = inner.read_varint()
    inner.is_usual &= size <= inner.end - inner.at
    inner.end = np.minimum(inner.at + size, inner.end)
    parts = read(inner)
    cursor.is_usual[has] &= inner.is_usual & (inner.at == inner.end)
    cursor.at[has] = inner.at
    remaining[has] -= 1
    if len(has) == len(remaining):
        return parts
    place = np.zeros(len(remaining), np.int64)
    place[has] = np.arange(1, len(has) + 1)
    return [pa.concat_arrays([pa.array([absent], pa.string()), _join(parts)]).take(pa.array(place))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Reads the records of one type and version."""

    untagged: tuple[tuple[str, Reader], ...]
    tagged: tuple[tuple[str, int, Reader, str], ...]
    """Name, tag, reader, and text for records without it; ordered by tag."""
    layout: tuple[tuple[str, str], ...]
    """Fields in the order of the JSON, each with its text if this version lacks it."""
    is_config: bool
    native: Any
    """The same program in the extension, if that is installed."""

    def run(
        self, window: NDArray[np.uint8], limit: int, start: Integers, end: Integers
    ) -> tuple[pa.StringArray, Mask]:
        """The JSON of the records at `start` to `end` of the window, and a mask of those for which it is valid."""
        cursor = Cursor(window, limit, start, end)
        found: dict[str, list[Text]] = {name: read(cursor) for name, read in self.untagged}
        remaining = cursor.read_varint()
        for name, tag, read, absent in self.tagged:
            found[name] = _read_tagged(cursor, remaining, tag, read, absent)
        is_usual: Mask = cursor.is_usual & (cursor.at == end) & (remaining == 0)
        if self.is_config:
            is_usual &= ~_secrets(found["resource_type"], found["name"])
        parts: list[Text] = ["{"]
        for number, (name, absent) in enumerate(self.layout):
            parts.append(f'{"," if number else ""}"{field_name(name)}":')
            parts += found.get(name, [absent])
        merged = _merge([*parts, "}"])
        if len(merged) == 1 and isinstance(merged[0], str):
            return pa.repeat(pa.scalar(merged[0]), len(start)), is_usual
        return _join(merged), is_usual


def _secrets(resource_types: list[Text], names: list[Text]) -> Mask:
    """A mask of the configs with a secret value; each name is checked once."""
    keys = _join([*resource_types, "/", *names]).dictionary_encode()
    is_secret = []
    for key in keys.dictionary.to_pylist():
        resource_type, _, name = key.partition("/")
        is_secret.append(is_secret_config(int(resource_type), name.strip('"')))
    secrets: Mask = np.array(is_secret, np.bool_)[keys.indices.to_numpy()]
    return secrets


@cache
def program_of(key: int, version: int) -> Program | None:
    """The program of a record key and version, if it can be compiled."""
    classes = RECORD_CLASSES.get(key, ())
    if version >= len(classes):
        return None
    entity_type, newest = classes[version], classes[-1]
    fields = schema_of(entity_type)
    readers = {field.name: _reader(field) for field in fields}
    if not entity_type.__flexible__ or None in readers.values():
        return None
    absent = convert(zero_entity(entity_type), newest)
    untagged = [field for field in fields if field.tag is None]
    tagged = sorted((field for field in fields if field.tag is not None), key=_tag)
    layout = [(field.name, field_text(absent, field.name)) for field in schema_of(newest)]
    usable = {name: reader for name, reader in readers.items() if reader is not None}
    is_config = newest is ConfigRecord
    return Program(
        untagged=tuple((field.name, usable[field.name]) for field in untagged),
        tagged=tuple(
            (field.name, _tag(field), usable[field.name], dict(layout)[field.name]) for field in tagged
        ),
        layout=tuple(layout),
        is_config=is_config,
        native=extension and _native_program(untagged, tagged, layout, is_config=is_config),
    )


def _tag(field: FieldSchema) -> int:
    assert field.tag is not None
    return field.tag


def _native_program(
    untagged: Sequence[FieldSchema],
    tagged: Sequence[FieldSchema],
    layout: Sequence[tuple[str, str]],
    *,
    is_config: bool,
) -> Any:
    """The program as the extension has it: fields of a version, and texts between them."""
    places = {field.name: place for place, field in enumerate((*untagged, *tagged))}
    parts: list[tuple[str, int, str]] = []
    before = "{"
    for number, (name, absent) in enumerate(layout):
        before += f'{"," if number else ""}"{field_name(name)}":'
        if name in places:
            parts.append((before, places[name], absent))
            before = ""
        else:
            before += absent
    return extension.Program(
        [_described(field) for field in untagged],
        [(_tag(field), _described(field)) for field in tagged],
        parts,
        before + "}",
        (places["resource_type"], places["name"], is_secret_config) if is_config else None,
    )


def _described(field: FieldSchema) -> tuple[str | None, bool, bool]:
    return field.kafka_type, field.is_array, field.is_nullable


# Arrow arrays made of buffers: `pa.array` and `pa.scalar` import pandas, if that is installed, which costs 130 ms and
# 35 MiB for each of Spark's processes.


def arrow_of(numbers: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Numbers of the size that the type has, without a copy."""
    assert numbers.itemsize * 8 == kind.bit_width
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])


def strings(data: Any, offsets: NDArray[Any]) -> pa.StringArray:
    """Texts that follow each other in `data`, in UTF-8."""
    buffers = (pa.py_buffer(np.ascontiguousarray(offsets, np.int32)), pa.py_buffer(data))
    return pa.StringArray.from_buffers(len(offsets) - 1, *buffers)


def strings_of(texts: Sequence[str]) -> pa.StringArray:
    """Some texts."""
    encoded = [text.encode() for text in texts]
    return strings(b"".join(encoded), np.array([0, *accumulate(map(len, encoded))]))


def repeated(text: str, count: int) -> pa.StringArray:
    """The same text in each row."""
    encoded = text.encode()
    return strings(encoded * count, np.arange(count + 1) * len(encoded))


_BOOLEANS: Final = strings_of(["false", "true"])
