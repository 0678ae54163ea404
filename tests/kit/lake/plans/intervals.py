"""Converts events to intervals: the events of a key become the intervals of its states.

If offsets are missing, a change may be hidden in the gap. The interval then starts or ends at the first offset
that shows the change, and is marked as not exact; table `gaps` has the earliest possible time.

- A snapshot after a gap is complete. Keys that it lacks end there, and keys that are new or have another state
  start there: both not exact. Keys with the same state as before the gap continue: whether they had another
  state in between is unknown.
- After a gap without a snapshot, every state continues until the next event of the key. If that event has another
  state, the old one ended somewhere after the gap began (to_exact is false), and the new one may have started
  before that event (from_exact is false).
- An interval that contains such a gap is marked: `through_gap`.
- A history that starts with a snapshot, or with a truncated log, starts after a gap.

A snapshot is the state after the last record in it, and is placed at that record: its own offset is that of the
next record, which may already change the same key. So every interval spans at least one offset, and no two of a key
start at the same one.
"""

from collections.abc import Sequence
from typing import Final

from kit.lake.plans.timeline import PLACE
from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as f
from pyspark_quorate.tables.intervals import INTERVAL_COLUMNS

EVENT_COLUMNS: Final = (*PLACE, "removed")
"""The columns of events, in addition to key and state."""
_NO_END: Final = 2**63 - 1


def intervals(events: DataFrame, breaks: DataFrame, *, key: Sequence[str], state: Sequence[str]) -> DataFrame:
    """key, state, and `INTERVAL_COLUMNS`: one row per interval in which a key has the same state.

    `events` has the columns of `key` (cluster_id among them), `state` and `EVENT_COLUMNS`; `removed` means that the
    key is gone, whatever its state columns hold. `state` may be nulls; maps and variants can't be compared.
    `breaks` comes from :func:`pyspark_quorate.tables.timeline.breaks`.
    """
    order = of_key(*key)
    is_gap = f.col("is_break") & ~f.col("is_snapshot")
    # A snapshot's header comes before its lines: a key that has a line in it is not missing.
    is_restated = (
        f.col("is_break")
        & f.col("is_snapshot")
        & (f.lead("offset").over(order) == f.col("offset"))
        & f.lead("is_snapshot").over(order)
    )
    observed = (
        _observations(events, breaks, key, state)
        .withColumn("gaps", count_so_far(is_gap, order))
        .withColumn("is_idle", is_gap | f.coalesce(is_restated, f.lit(False)))
        .where("not is_idle")
    )
    behind_gap = f.col("gaps") > f.coalesce(f.lag("gaps").over(order), f.lit(0))
    changed = ~f.col("now").eqNullSafe(f.lag("now").over(order))
    completes = f.lag("from_offset").over(order) == f.col("from_offset")
    # The first row of each stretch is its start; the next stretch's first row is its end.
    begins = (
        observed.withColumn("exact", ~(f.col("is_snapshot") | behind_gap))
        .withColumn("changed", changed)
        .where("changed")
        .withColumn("from_offset", placed())
        .withColumns(
            {
                "valid_to": f.lead("time").over(order),
                "to_offset": f.lead("from_offset").over(order),
                "to_exact": f.lead("exact").over(order),
                # The snapshot right after a record is complete where the record is partial: from that record on.
                "valid_from": f.when(completes, f.lag("time").over(order)).otherwise(f.col("time")),
                "from_exact": f.when(completes, f.lag("exact").over(order)).otherwise(f.col("exact")),
            }
        )
        .where("now is not null and (to_offset is null or to_offset > from_offset)")
    )
    made = begins.select(
        *key,
        *(f.col(f"now.{name}").alias(name) for name in state),
        "valid_from",
        "valid_to",
        "from_offset",
        "to_offset",
        "from_exact",
        "to_exact",
    )
    return mark_gaps(made, breaks)


def placed() -> Column:
    """The offset of a line of the timeline; for a snapshot, that of the last record in it."""
    return f.col("offset") - f.col("is_snapshot").cast("int")


def of_key(*key: str) -> WindowSpec:
    """The events of a key, in order."""
    return Window.partitionBy(*key).orderBy("offset", "ordinal")


def carried(value: Column | str, order: WindowSpec) -> Column:
    """The last value up to this row that is not null."""
    return f.last(value, ignorenulls=True).over(order.rowsBetween(Window.unboundedPreceding, 0))


def count_so_far(condition: Column, order: WindowSpec) -> Column:
    """The number of rows up to this one that fulfil the condition."""
    return f.sum(condition.cast("int")).over(order.rowsBetween(Window.unboundedPreceding, 0))


def end_of(to_offset: str) -> Column:
    """A column of ends as a number; above all offsets if it still holds."""
    return f.coalesce(to_offset, f.lit(_NO_END))


def mark_gaps(made: DataFrame, breaks: DataFrame) -> DataFrame:
    """Recomputes `through_gap`. A gap that a snapshot bridges ends at the snapshot's place."""
    of_gaps, of_snapshots = (
        f.collect_set(f.when(f.col("is_snapshot") == kind, f.col("offset"))) for kind in (False, True)
    )
    gaps = (
        breaks.groupBy("cluster_id")
        .agg(of_gaps.alias("ends"), of_snapshots.alias("bridges"))
        .select(
            "cluster_id",
            f.transform("ends", lambda end: end - f.array_contains("bridges", end).cast("int")).alias(
                "gap_offsets"
            ),
        )
    )
    is_within = f.exists(
        "gap_offsets",
        lambda end: (
            (end > f.col("from_offset")) & (f.col("to_offset").isNull() | (end <= f.col("to_offset")))
        ),
    )
    return (
        made.drop("through_gap")
        .join(f.broadcast(gaps), "cluster_id", "left")
        .withColumn("through_gap", f.coalesce(is_within, f.lit(False)))
        .drop("gap_offsets")
    )


def statements(stated: DataFrame, sets: DataFrame, *, key: Sequence[str]) -> DataFrame:
    """Events of records that contain a complete set, such as all voters: members that one lacks are removed.

    `stated` has a row per member of each set, `sets` a row per set: both with `EVENT_COLUMNS` except `removed`.
    """
    place = ["cluster_id", "offset", "ordinal"]
    lacking = (
        sets.select(*place, "time", "is_snapshot")
        .join(stated.select(*key).distinct(), "cluster_id")
        .join(stated, [*key, "offset", "ordinal"], "left_anti")
        .withColumn("removed", f.lit(True))
    )
    return stated.withColumn("removed", f.lit(False)).unionByName(lacking, allowMissingColumns=True)


def following(key: Sequence[str]) -> WindowSpec:
    """The intervals of a key, in order."""
    return Window.partitionBy(*key).orderBy("from_offset")


def merge_adjacent(frame: DataFrame, *, key: Sequence[str]) -> DataFrame:
    """Merges adjacent intervals of the same key; other columns are left out.

    Use `mark_gaps` on it.
    """
    order = following(key)
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    latest = end_of("to_offset")
    begins = f.coalesce(f.col("from_offset") > f.max(latest).over(before), f.lit(True))
    numbered = frame.withColumn("begins", begins.cast("int")).withColumn(
        "stretch", f.sum("begins").over(order)
    )
    return (
        numbered.groupBy(*key, "stretch")
        .agg(
            f.min_by("valid_from", "from_offset").alias("valid_from"),
            f.max_by("valid_to", latest).alias("valid_to"),
            f.min("from_offset").alias("from_offset"),
            f.max_by("to_offset", latest).alias("to_offset"),
            f.min_by("from_exact", "from_offset").alias("from_exact"),
            f.max_by("to_exact", latest).alias("to_exact"),
        )
        .drop("stretch")
    )


def overlap(left: DataFrame, right: DataFrame, *, on: Sequence[str]) -> DataFrame:
    """The intersections of intervals of `left` and `right` with the same `on`.

    All columns of `left` and those of `right` that it lacks, with the interval of both; use `mark_gaps` on it.
    """
    names = [one.name for one in INTERVAL_COLUMNS[:-1]]
    lacking = (name for name in right.columns if name not in left.columns)
    other = right.select(*on, *(f.col(name).alias(f"right_{name}") for name in names), *lacking)
    left_end, right_end = end_of("to_offset"), end_of("right_to_offset")
    is_later = f.col("right_from_offset") > f.col("from_offset")
    is_earlier = right_end < left_end
    both = left.join(other, list(on)).where(
        (f.col("right_from_offset") < left_end) & (f.col("from_offset") < right_end)
    )
    bounds = {
        **{name: f.when(is_later, f.col(f"right_{name}")).otherwise(f.col(name)) for name in names[::2]},
        **{name: f.when(is_earlier, f.col(f"right_{name}")).otherwise(f.col(name)) for name in names[1::2]},
    }
    return both.withColumns(bounds).drop("through_gap", *(f"right_{name}" for name in names))


def _observations(
    events: DataFrame, breaks: DataFrame, key: Sequence[str], state: Sequence[str]
) -> DataFrame:
    """The events of each key and all breaks of its cluster, as rows of key and `now`, time, ..."""
    stated = events.withColumn("now", f.when(~f.col("removed"), f.struct(*state)))
    kind = stated.schema["now"].dataType
    event = f.struct("now", *PLACE, f.lit(False).alias("is_break"))
    marks = f.transform(
        f.coalesce("breaks", f.array()),
        lambda one: f.struct(
            f.lit(None).cast(kind).alias("now"),
            *(one[name].alias(name) for name in PLACE),
            f.lit(True).alias("is_break"),
        ),
    )
    all_breaks = breaks.groupBy("cluster_id").agg(f.collect_list(f.struct(*PLACE)).alias("breaks"))
    number = f.row_number().over(of_key(*key))
    return (
        stated.withColumn("number", number)
        .join(f.broadcast(all_breaks), "cluster_id", "left")
        .select(
            *key,
            f.inline(f.when(f.col("number") == 1, f.concat(f.array(event), marks)).otherwise(f.array(event))),
        )
    )


def boundaries(lives: DataFrame, *, key: Sequence[str], state: Sequence[str]) -> DataFrame:
    """Converts intervals to changes: key, time, offset, before, after (structs of `state`; null: absent), exact.

    `lives` comes from :func:`intervals`. Where one interval follows another
    directly, their boundary is one row.
    """
    order = following(key)
    now = f.struct(*state)
    follows = f.lag("to_offset").over(order) == f.col("from_offset")
    is_followed = f.lead("from_offset").over(order) == f.col("to_offset")
    begin = f.struct(
        f.col("valid_from").alias("time"),
        f.col("from_offset").alias("offset"),
        f.when(follows, f.lag(now).over(order)).alias("before"),
        now.alias("after"),
        f.col("from_exact").alias("exact"),
    )
    end = f.struct(
        f.col("valid_to").alias("time"),
        f.col("to_offset").alias("offset"),
        now.alias("before"),
        f.when(f.lit(False), now).alias("after"),
        f.col("to_exact").alias("exact"),
    )
    has_end = f.col("to_offset").isNotNull() & ~f.coalesce(is_followed, f.lit(False))
    lines = f.when(has_end, f.array(begin, end)).otherwise(f.array(begin))
    return lives.select(*key, lines.alias("lines")).select(*key, f.inline("lines"))
