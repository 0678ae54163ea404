"""Encodes JSON as VARIANT (Parquet, "Variant Binary Encoding"), with the bytes that Spark's `parse_json` makes.

It handles what records have: objects, arrays, strings, whole numbers, booleans and nulls, in values of usual size.
Other values are left to :class:`pyspark.sql.variant_utils.VariantUtils`, which takes three times as long.
"""

import json
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.variant_utils import VariantUtils

_SMALL: Final = 0xFF
_OFFSET_MAX: Final = 0xFFFF
_SHORT_STRING_BYTES_MAX: Final = 0x3F
_NULL, _TRUE, _FALSE, _LONG_STRING = (kind << 2 for kind in (0, 1, 2, 16))
_NUMBERS: Final = tuple(
    (1 << (8 * width - 1), width, bytes([kind << 2])) for kind, width in ((3, 1), (4, 2), (5, 4), (6, 8))
)
"""The bound of a whole number, its width in bytes, and its header, smallest first."""


class _UnusualError(Exception):
    """A value that is left to Spark's encoder."""


def variants(texts: pa.Array, kind: pa.StructType) -> pa.StructArray:
    """Encode JSON as VARIANT, a struct of this type. Equal texts are encoded once."""
    encoded = texts.dictionary_encode()
    pairs = [encode(text) for text in encoded.dictionary.to_pylist()]
    values, metadata = (pa.array([pair[place] for pair in pairs], pa.binary()) for place in (0, 1))
    parts = {"value": values.take(encoded.indices), "metadata": metadata.take(encoded.indices)}
    return pa.StructArray.from_arrays([parts[field.name] for field in kind], fields=list(kind))


def encode(text: str) -> tuple[bytes, bytes]:
    """Return the value and the metadata of a JSON text."""
    ids: dict[str, int] = {}
    try:
        value = _value(json.loads(text, parse_float=_refuse), ids)
    except _UnusualError:
        return VariantUtils.parse_json(text)
    return value, _metadata(tuple(ids))


def _refuse(number: str) -> Any:
    raise _UnusualError(number)


def _value(found: Any, ids: dict[str, int]) -> bytes:
    """Encode a value. `ids` has the names of fields, in the order of their first use."""
    kind = type(found)
    if kind is int:
        return _number(found)
    if kind is str:
        return _string(found)
    if kind is list:
        return _array(found, ids)
    if kind is dict:
        return _object(found, ids)
    return bytes([_NULL if found is None else _TRUE if found else _FALSE])


@lru_cache(maxsize=4096)
def _number(number: int) -> bytes:
    for bound, width, header in _NUMBERS:
        if -bound <= number < bound:
            return header + number.to_bytes(width, "little", signed=True)
    raise _UnusualError(number)


@lru_cache(maxsize=4096)
def _string(text: str) -> bytes:
    content = text.encode()
    if len(content) <= _SHORT_STRING_BYTES_MAX:
        return bytes([len(content) << 2 | 1]) + content
    return bytes([_LONG_STRING]) + len(content).to_bytes(4, "little") + content


def _array(found: list[Any], ids: dict[str, int]) -> bytes:
    if all(type(value) is int for value in found):
        return _numbers(tuple(found))  # ids of nodes, mostly the same ones
    return _elements([_value(value, ids) for value in found])


@lru_cache(maxsize=4096)
def _numbers(found: tuple[int, ...]) -> bytes:
    return _elements([_number(value) for value in found])


def _elements(parts: list[bytes]) -> bytes:
    width, offsets = _offsets(parts)
    return bytes([(width - 1) << 2 | 3, len(parts), *_packed(offsets, width)]) + b"".join(parts)


def _object(found: dict[str, Any], ids: dict[str, int]) -> bytes:
    numbers, parts = [], []
    for name, value in found.items():
        numbers.append(ids.setdefault(name, len(ids)))
        parts.append(_value(value, ids))
    width, offsets = _offsets(parts)
    order = _by_name(tuple(found))
    if max(numbers, default=0) > _SMALL:
        raise _UnusualError(len(ids))
    places = _packed([*(offsets[at] for at in order), offsets[-1]], width)
    return bytes([(width - 1) << 2 | 2, len(parts), *(numbers[at] for at in order), *places]) + b"".join(
        parts
    )


def _offsets(parts: list[bytes]) -> tuple[int, list[int]]:
    """Return the width of an offset, the offset of each part, and the end."""
    offsets, end = [0], 0
    for part in parts:
        end += len(part)
        offsets.append(end)
    if len(parts) > _SMALL or end > _OFFSET_MAX:
        raise _UnusualError(end)
    return (1 if end <= _SMALL else 2), offsets


def _packed(offsets: list[int], width: int) -> list[int]:
    """Return the bytes of offsets of a width of 1 or 2."""
    return offsets if width == 1 else [byte for offset in offsets for byte in offset.to_bytes(2, "little")]


@lru_cache(maxsize=4096)
def _by_name(names: tuple[str, ...]) -> tuple[int, ...]:
    """Return the indices of names in the order of the names."""
    return tuple(sorted(range(len(names)), key=names.__getitem__))


@lru_cache(maxsize=4096)
def _metadata(names: tuple[str, ...]) -> bytes:
    contents = [name.encode() for name in names]
    width, offsets = _offsets(contents)
    count = len(names).to_bytes(width, "little")
    return bytes([1 | (width - 1) << 6]) + count + bytes(_packed(offsets, width)) + b"".join(contents)
