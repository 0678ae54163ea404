"""Arrow arrays made of buffers.

`pa.array` and `pa.scalar` import pandas, if that is installed: 130 ms and 35 MiB more for each of Spark's processes.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


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
