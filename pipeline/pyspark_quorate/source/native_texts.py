"""The texts of records by the extension `quorate_native`, in the order of the records."""

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
from quorate_protocol.records.generated import RECORD_CLASSES
from quorate_protocol.wire.codec.native import extension

from pyspark_quorate.source.arrow import arrow_of, strings, strings_of
from pyspark_quorate.source.columns import program_of
from pyspark_quorate.source.framing import Records
from pyspark_quorate.source.payload import METADATA_NAMES, NO_OP, Decoded
from pyspark_quorate.source.runs import Integers

_NO_OP_KEY: Final = next(key for key, name in METADATA_NAMES.items() if name == NO_OP)
_NAMES: Final = [METADATA_NAMES.get(key, "") for key in range(max(METADATA_NAMES) + 1)]


@cache
def texts_of(wanted: frozenset[str], looked_into: frozenset[str]) -> Any:
    """The native maker of texts. Records of names that are only looked into are tried, but give no texts."""
    keys = []
    for key, name in METADATA_NAMES.items():
        programs = [program_of(key, version) for version in range(len(RECORD_CLASSES[key]))]
        natives = [program and program.native for program in programs]
        keys.append((key, name in wanted, natives if name in looked_into else None))
    return extension.Texts(keys, None if NO_OP in wanted else _NO_OP_KEY)


def make_texts(
    texts: Any, data: bytes, records: Records, single: Callable[[int], Decoded | None]
) -> tuple[Integers, pa.Array, pa.Array, pa.StringArray]:
    """Index, type, version and payload of the records that become rows.

    `single` decodes a record, by its index, that is not usual.
    """
    singles: list[Decoded] = []

    def text_of(index: int) -> str | None:
        decoded = single(index)
        if decoded is None:
            return None
        singles.append(decoded)
        return decoded.payload

    columns = (records.value_start, records.value_size, records.is_control)
    text, ends, indices, numbers = texts.make(data, *(column.tobytes() for column in columns), text_of)
    index, code = np.frombuffer(indices, np.int64), np.frombuffer(numbers, np.int64)
    names, kind, version = _NAMES, code >> 8, (code & 0xFF).astype(np.int16)
    if singles:
        places = np.flatnonzero(code < 0)
        kind[places] = np.arange(len(names), len(names) + len(singles))
        version[places] = [decoded.version for decoded in singles]
        names = [*names, *(decoded.name for decoded in singles)]
    types = strings_of(names).take(arrow_of(kind, pa.int64()))
    return index, types, arrow_of(version, pa.int16()), strings(text, np.frombuffer(ends, np.int32))
