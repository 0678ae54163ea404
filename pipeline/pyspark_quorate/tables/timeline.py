"""The timeline: a cluster's single history, merged from the directories of several nodes.

A line is a record that took effect. If leaders disagreed, it is the record that the quorum kept (:mod:`.evidence`).
The timeline leaves out copies, records of metadata transactions that were aborted or are still open, NoOpRecords, and
the records that begin and end transactions. It also leaves out checkpoints that the log covers. A checkpoint that
bridges a gap stays; its lines are the complete state at its offset.

The rows of a cluster come in batches, in the order of `ORDER`, with all record types.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from quorate_protocol.records.control import CONTROL_NAMES

from pyspark_quorate import rows
from pyspark_quorate.tables.contract import GAP_ORDINAL, Line
from pyspark_quorate.tables.evidence import Evidence
from pyspark_quorate.tables.summary import ABORT, BEGIN, END, SNAPSHOT_FOOTER, SNAPSHOT_HEADER, codes

ORDER: Final = ("cluster_id", "kind != 'gap'", "offset", "kind desc", "epoch", "source", "ordinal")
"""The order of the rows: gaps first, then by offset; a snapshot before the record at its offset; copies together."""
_SILENT: Final = frozenset({"NoOpRecord", BEGIN, END, ABORT})
NO_TIME: Final = -(2**63)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The parts of a batch that :meth:`Timeline.choose` returns."""

    records: pa.RecordBatch
    """Every record once, whether it took effect or not."""
    offsets: Any
    """Ascending offsets of the records of the log that took effect, and of bridging snapshots minus 0.5."""
    times: Any
    """The times of `offsets` in microseconds since 1970; `NO_TIME` where unknown."""
    lines: list[Line]
    """The lines of the chosen types, gaps, and the first line of each epoch."""


class Timeline:
    """Chooses the lines of the timeline from the sorted rows of one cluster."""

    def __init__(self, evidence: Evidence, types: Iterable[str] | None = None) -> None:
        """`types`: the record types whose lines are chosen; None: all."""
        self._evidence = evidence
        self._types = None if types is None else frozenset(types) | {SNAPSHOT_HEADER, SNAPSHOT_FOOTER}
        self._until = {
            epoch: 2**63 - 1 if until is None else until for epoch, until in evidence.epochs.items()
        }
        self._void_first = np.array([first for first, _ in evidence.void], np.int64)
        self._void_last = np.array([last for _, last in evidence.void], np.int64)
        self._run = -1
        self._epoch: int | None = None
        self._last_log: tuple[int, int] | None = None
        self._last_snapshot: tuple[int, int, str, int] | None = None

    def choose(self, batch: pa.RecordBatch) -> Chosen:
        """Choose from the next rows, none of them a gap, with the columns of :data:`pyspark_quorate.rows.SCHEMA`."""
        kinds, kind_names = codes(batch.column("kind"))
        types, type_names = codes(batch.column("type"))
        offsets, epochs = (batch.column(name).to_numpy() for name in ("offset", "epoch"))
        times = batch.column("time").fill_null(NO_TIME).to_numpy()
        is_log = np.array([kind_name == rows.LOG for kind_name in kind_names], np.bool_)[kinds]
        stored, counts = np.zeros(len(batch), np.bool_), np.zeros(len(batch), np.bool_)
        log, others = np.flatnonzero(is_log), np.flatnonzero(~is_log)
        if len(log):
            stored[log] = self._first_copies(offsets[log], epochs[log])
            counts[log] = stored[log] & (offsets[log] < self._ends(epochs[log]))
        if len(others):
            stored[others], counts[others] = self._snapshots(batch, others, offsets, epochs)
        known = counts & is_log
        known[others] |= counts[others] & (batch.column("ordinal").to_numpy()[others] == 0)

        def is_type(names: Iterable[str]) -> Any:
            return np.array([type_name in names for type_name in type_names], np.bool_)[types]

        shown = counts & ~(is_log & is_type(_SILENT))
        if len(self._void_first):
            shown &= ~(is_log & ~is_type(CONTROL_NAMES) & self._is_void(offsets))
        if self._types is not None:
            shown &= is_type(self._types) | self._is_first_of_epoch(shown & is_log, epochs)
        at = np.flatnonzero(known)
        return Chosen(
            records=batch.filter(pa.array(stored)),
            offsets=np.where(is_log[at], offsets[at], offsets[at] - 0.5),
            times=times[at],
            lines=list(self._lines(batch, np.flatnonzero(shown), is_log)),
        )

    def _first_copies(self, offsets: Any, epochs: Any) -> Any:
        """A mask of the rows of the log that are the first with their offset and epoch."""
        first = np.ones(len(offsets), np.bool_)
        first[1:] = (np.diff(offsets) != 0) | (np.diff(epochs) != 0)
        first[0] = self._last_log != (offsets[0], epochs[0])
        self._last_log = (offsets[-1], epochs[-1])
        return first

    def _ends(self, epochs: Any) -> Any:
        """For each of the epochs, the offset from which its records do not count."""
        distinct, inverse = np.unique(epochs, return_inverse=True)
        return np.array([self._until.get(int(epoch), 0) for epoch in distinct], np.int64)[inverse]

    def _snapshots(self, batch: pa.RecordBatch, at: Any, offsets: Any, epochs: Any) -> tuple[Any, Any]:
        """Two masks of the rows of snapshots: those that are stored, and those that bridge a gap."""
        sources, names = codes(batch.column("source").take(pa.array(at)))
        ordinals = batch.column("ordinal").to_numpy()[at]
        offsets, epochs = offsets[at], epochs[at]
        begins = np.ones(len(at), np.bool_)
        begins[1:] = (np.diff(offsets) != 0) | (np.diff(epochs) != 0) | (np.diff(sources) != 0)
        starts = np.flatnonzero(begins)
        ids = [(int(offsets[start]), int(epochs[start]), names[sources[start]]) for start in starts.tolist()]
        bridges = self._evidence.bridges
        is_stored = [self._evidence.copies.get(id_[:2]) == id_[2] for id_ in ids]
        is_bridge = [id_[0] in bridges and bridges[id_[0]].copy == id_ for id_ in ids]
        once = np.ones(len(at), np.bool_)
        once[1:] = begins[1:] | (np.diff(ordinals) != 0)
        once[0] = self._last_snapshot != (*ids[0], int(ordinals[0]))
        self._last_snapshot = (*ids[-1], int(ordinals[-1]))
        number = np.cumsum(begins) - 1
        return (
            np.array(is_stored, np.bool_)[number] & once,
            np.array(is_bridge, np.bool_)[number] & once,
        )

    def _is_void(self, offsets: Any) -> Any:
        at = np.searchsorted(self._void_first, offsets, "right") - 1
        return (at >= 0) & (offsets <= self._void_last[np.maximum(at, 0)])

    def _is_first_of_epoch(self, shown: Any, epochs: Any) -> Any:
        """A mask of the shown lines of the log that are the first of their epoch."""
        first = np.zeros(len(shown), np.bool_)
        at = np.flatnonzero(shown)
        if len(at):
            first[at[1:]] = np.diff(epochs[at]) != 0
            first[at[0]] = self._epoch != epochs[at[0]]
            self._epoch = int(epochs[at[-1]])
        return first

    def _lines(self, batch: pa.RecordBatch, at: Any, is_log: Any) -> Iterator[Line]:
        chosen = batch.take(pa.array(at))
        names = ("offset", "ordinal", "epoch", "time", "type", "payload")
        columns = [chosen.column(name).to_pylist() for name in names]
        for (offset, ordinal, epoch, time_us, kind, payload), of_log in zip(
            zip(*columns, strict=True), is_log[at].tolist(), strict=True
        ):
            yield from self._gaps(offset)
            fields = json.loads(payload)
            if of_log:
                yield Line(offset, 0, epoch, time_us, kind, fields, self._run)
                continue
            place = ordinal - self._evidence.bridges[offset].size
            shown_us = time_us if time_us is not None else self._evidence.runs[self._run].time_us
            yield Line(offset, place, epoch, shown_us, kind, fields, self._run, is_snapshot=True)

    def _gaps(self, offset: int) -> Iterator[Line]:
        """Advance to the run of this offset. Yields a line for each gap on the way."""
        runs = self._evidence.runs
        while self._run + 1 < len(runs) and runs[self._run + 1].first <= offset:
            self._run += 1
            run = runs[self._run]
            if run.after_gap:
                yield Line(run.first, GAP_ORDINAL, None, run.time_us, rows.GAP, {}, self._run)

    def finish(self) -> list[Line]:
        """Return the lines of the gaps after the last row."""
        return list(self._gaps(2**63 - 1))
