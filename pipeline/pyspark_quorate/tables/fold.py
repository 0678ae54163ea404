"""Makes all tables of a cluster in one pass over its rows.

The rows come sorted (:data:`pyspark_quorate.tables.timeline.ORDER`), and the evidence decides which of them count
(:mod:`pyspark_quorate.tables.evidence`). The fold keeps in memory what open rows need, and the complete rows since
the last `drain`.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_quorate import rows
from pyspark_quorate.tables.contract import Cluster, Fold, GapEnds, Line, Row, Table
from pyspark_quorate.tables.evidence import Evidence
from pyspark_quorate.tables.gaps import Gaps, KnownGap
from pyspark_quorate.tables.summary import SNAPSHOT_FOOTER, SNAPSHOT_HEADER, codes
from pyspark_quorate.tables.timeline import Timeline


class ClusterFold:
    """The fold of one cluster. Batches have the columns of :data:`pyspark_quorate.rows.SCHEMA`, with `time` in
    microseconds since 1970.
    """

    def __init__(self, evidence: Evidence, tables: Iterable[Table]) -> None:
        self._cluster = Cluster(evidence, GapEnds())
        self._parts: dict[Any, Fold] = {}
        self._tables = {table.name: self._part(table.fold) for table in tables if table.fold is not None}
        self._of_type: dict[str, list[Fold]] = defaultdict(list)
        for part in self._parts.values():
            for kind in part.TYPES:
                self._of_type[kind].append(part)
        self._gaps = [part for part in self._parts.values() if isinstance(part, Gaps)]
        self._timeline = Timeline(evidence, self._of_type)
        self._epoch: int | None = None

    def fold(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Fold the next rows. Returns those that belong to table `records`."""
        kinds, names = codes(batch.column("kind"))
        is_gap = np.array([name == rows.GAP for name in names], np.bool_)[kinds]
        if is_gap.any():
            self._add_gaps(batch.filter(pa.array(is_gap)))
            batch = batch.filter(pa.array(~is_gap))
        if not len(batch):
            return batch
        chosen = self._timeline.choose(batch)
        for part in self._gaps:
            part.note_times(chosen.offsets, chosen.times)
        for line in chosen.lines:
            self.step(line)
        return chosen.records

    def step(self, line: Line) -> None:
        """Pass the next line of the timeline to the parts that fold its type."""
        if line.type == rows.GAP:
            self._cluster.gap_ends.gap(line.offset)
            for part in self._parts.values():
                part.gap(line.offset)
        elif line.type == SNAPSHOT_HEADER:
            self._cluster.gap_ends.bridge(line.offset)
            for part in self._parts.values():
                part.begin_snapshot(line)
        elif line.type == SNAPSHOT_FOOTER:
            for part in self._parts.values():
                part.end_snapshot()
        else:
            for part in self._of_type.get(line.type, ()):
                part.step(line)
            if not line.is_snapshot and line.epoch != self._epoch:
                self._epoch = line.epoch
                for part in self._parts.values():
                    part.step_epoch(line)

    def finish(self) -> None:
        """Complete all open rows, because there are no more rows of the source."""
        for line in self._timeline.finish():
            self.step(line)
        for part in self._parts.values():
            part.finish()

    def drain(self) -> Iterator[tuple[str, list[Row]]]:
        """Yield the name of each table and its rows that were completed since the last call."""
        for name, part in self._tables.items():
            if part.rows:
                yield name, part.rows.copy()
                part.rows.clear()

    def _part(self, kind: Any) -> Fold:
        """Return the part of this class. Creates it if needed, after the parts that it needs."""
        if kind not in self._parts:
            needs = [self._part(need) for need in kind.NEEDS]
            self._parts[kind] = kind(self._cluster, *needs)
        return self._parts[kind]

    def _add_gaps(self, batch: pa.RecordBatch) -> None:
        if not self._gaps:
            return
        for row in batch.select(["type", "source", "offset", "epoch", "payload"]).to_pylist():
            reported = json.loads(row["payload"])
            gap = KnownGap(
                *(row["type"], row["source"], row["offset"], reported.get("endOffset"), row["epoch"]),
                reported.get("detail"),
            )
            for part in self._gaps:
                part.add(gap)
