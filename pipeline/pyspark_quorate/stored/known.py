"""Leaves out rows that a lake already has, because a file was read again after it had grown."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_quorate import rows
from pyspark_quorate.tables.summary import Stretch, Summary, codes


def without_known(batch: pa.RecordBatch, known: Summary) -> pa.RecordBatch:
    """Returns the rows of one cluster that are not in the summary, and all gaps."""
    (sources, names), (kinds, kind_names) = (codes(batch.column(name)) for name in ("source", "kind"))
    offsets, ordinals, epochs = (
        batch.column(name).fill_null(-1).to_numpy(zero_copy_only=False)
        for name in ("offset", "ordinal", "epoch")
    )
    is_known = np.zeros(len(batch), np.bool_)
    is_log = np.array([kind_name == rows.LOG for kind_name in kind_names], np.bool_)[kinds]
    is_snapshot = np.array([kind_name == rows.SNAPSHOT for kind_name in kind_names], np.bool_)[kinds]
    for (source, epoch), stretches in known.log.items():
        if source in names:
            at = np.flatnonzero(is_log & (sources == names.index(source)) & (epochs == epoch))
            is_known[at] = _is_within(offsets[at], stretches)
    for copy, stretches in known.copies.items():
        if copy.source in names:
            same = (offsets == copy.offset) & (epochs == copy.epoch) & (sources == names.index(copy.source))
            at = np.flatnonzero(is_snapshot & same)
            is_known[at] = _is_within(ordinals[at], stretches)
    return batch.filter(pa.array(~is_known)) if is_known.any() else batch


def _is_within(numbers: Any, stretches: Sequence[Stretch]) -> Any:
    """A mask of the numbers that are in one of the ordered stretches."""
    firsts, ends = (np.array([stretch[place] for stretch in stretches], np.int64) for place in (0, 1))
    at = np.searchsorted(firsts, numbers, "right") - 1
    return (at >= 0) & (numbers < ends[np.maximum(at, 0)])
