"""The rows that a lake stores already: a file that is read again after it had grown is not stored twice."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_quorate import rows
from pyspark_quorate.errors import LakeError
from pyspark_quorate.stored.files import with_times_as_numbers
from pyspark_quorate.tables.generations import Segment, directory_of, generations
from pyspark_quorate.tables.summary import Stretch, Summary, codes


class KnownRows:
    """The stored rows of one cluster."""

    def __init__(self, summary: Summary) -> None:
        self._summary = summary
        self._newest = {
            directory: of_directory[-1].segments
            for directory, of_directory in generations(summary.reads).items()
        }

    def divide(self, batch: pa.RecordBatch, source: str) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Divide rows of one source into new ones with all gaps, and known ones that were gone and are back.

        Known rows that were there all the time are in neither.

        Raises:
            LakeError: if a known record has another time now: the log is another one.
        """
        is_known = known_mask(batch, self._summary)
        if not is_known.any():
            return batch, batch.slice(0, 0)
        known = batch.filter(pa.array(is_known))
        self._check_times(known, source)
        return batch.filter(pa.array(~is_known)), known.filter(pa.array(~self._is_current(known, source)))

    def _is_current(self, known: pa.RecordBatch, source: str) -> Any:
        """A mask of the rows that the newest log of their directory has, and of those of snapshots."""
        segments = self._newest.get(directory_of(source), [])
        offsets, epochs = (known.column(name).to_numpy() for name in ("offset", "epoch"))
        is_current = ~_is_log(known)
        for epoch in np.unique(epochs).tolist():
            at = np.flatnonzero(epochs == epoch)
            is_current[at] |= within(offsets[at], [each for each in segments if each.epoch == epoch])
        return is_current

    def _check_times(self, known: pa.RecordBatch, source: str) -> None:
        times = with_times_as_numbers(known).column("time")
        offsets, epochs = (known.column(name).to_numpy() for name in ("offset", "epoch"))
        is_log = _is_log(known)
        for (stored_source, epoch), stretches in self._summary.log.items():
            for stretch in stretches if stored_source == source else ():
                for at in np.flatnonzero(is_log & (offsets == stretch.first) & (epochs == epoch)).tolist():
                    check_time(source, stretch.first, epoch, stretch.time_us, times[at].as_py())


def _is_log(batch: pa.RecordBatch) -> Any:
    kinds, names = codes(batch.column("kind"))
    return np.array([name == rows.LOG for name in names], np.bool_)[kinds]


def check_time(source: str, offset: int, epoch: int, stored_us: int | None, found_us: int | None) -> None:
    """Check that a record has the time of the stored one at its offset and epoch, if known. Raises LakeError."""
    if None not in (stored_us, found_us) and stored_us != found_us:
        times = f"of {time_text(found_us)}, the stored one of {time_text(stored_us)}"
        raise another_history(source, f"its record at offset {offset} and epoch {epoch} is {times}")


def another_history(source: str, reason: str) -> LakeError:
    """The error for a log that is not the one whose rows are stored."""
    return LakeError(
        f"{source} has another history than the lake has of this cluster: {reason}. The cluster was formatted again "
        "with the same cluster id: keep its new history in another lake"
    )


def time_text(time_us: int | None) -> str:
    """A time in UTC as text."""
    if time_us is None:
        return "an unknown time"
    return datetime.fromtimestamp(time_us / 1_000_000, UTC).isoformat(timespec="milliseconds")


def without_known(batch: pa.RecordBatch, known: Summary) -> pa.RecordBatch:
    """Return the rows of one cluster that are not in the summary, and all gaps."""
    is_known = known_mask(batch, known)
    return batch.filter(pa.array(~is_known)) if is_known.any() else batch


def known_mask(batch: pa.RecordBatch, known: Summary) -> Any:
    """A mask of the rows of one cluster that are in the summary."""
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
            is_known[at] = within(offsets[at], stretches)
    for copy, stretches in known.copies.items():
        if copy.source in names:
            same = (offsets == copy.offset) & (epochs == copy.epoch) & (sources == names.index(copy.source))
            at = np.flatnonzero(is_snapshot & same)
            is_known[at] = within(ordinals[at], stretches)
    return is_known


def within(numbers: Any, stretches: Sequence[Stretch | Segment]) -> Any:
    """A mask of the numbers that are in one of the ordered stretches."""
    if not stretches:
        return np.zeros(len(numbers), np.bool_)
    firsts, ends = (np.array([stretch[place] for stretch in stretches], np.int64) for place in (0, 1))
    at = np.searchsorted(firsts, numbers, "right") - 1
    return (at >= 0) & (numbers < ends[np.maximum(at, 0)])
