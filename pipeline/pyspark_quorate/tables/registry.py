"""All tables of the lake."""

from collections.abc import Iterable
from typing import Final

from pyspark.sql import DataFrame

from pyspark_quorate.tables import (
    acl_changes,
    advertised_addresses,
    broker_sessions,
    config_changes,
    controller_registrations,
    feature_levels,
    gaps,
    isr_changes,
    leadership,
    membership,
    partition_leadership,
    producer_id_blocks,
    quotas,
    records,
    topics,
    under_replicated,
    upgrade_blockers,
)
from pyspark_quorate.tables.contract import Table
from pyspark_quorate.tables.timeline import Share, as_is, evidence, timeline_of

ROWS: Final = "rows"
TIMELINE: Final = "timeline"
"""The result of :func:`pyspark_quorate.tables.timeline.timeline_of`. It is not stored."""
EPOCHS: Final = "epochs"
STRETCHES: Final = "stretches"
BRIDGES: Final = "bridges"
"""The parts of :class:`pyspark_quorate.tables.timeline.Evidence`. They are not stored."""

TABLES: Final[tuple[Table, ...]] = tuple(
    module.TABLE
    for module in (
        *(records, gaps, membership, controller_registrations, leadership, feature_levels, upgrade_blockers),
        *(advertised_addresses, broker_sessions, topics, partition_leadership, isr_changes, under_replicated),
        *(config_changes, acl_changes, quotas, producer_id_blocks),
    )
)
"""Inputs come before the tables that read them."""


def make_all(
    rows: DataFrame,
    tables: Iterable[Table] = TABLES,
    share: Share = as_is,
) -> dict[str, DataFrame]:
    """The wanted tables by name, and the timeline if one of them reads it.

    With the default `share`, nothing is computed yet. Most tables read the same few frames, whose plans are long: a
    `share` that computes them at once, such as `lambda frame: frame.localCheckpoint()`, saves planning and computing
    them for each table.
    """
    wanted = tuple(tables)
    read = {name for table in wanted for name in table.inputs}
    made = {ROWS: rows}
    if read & {TIMELINE, EPOCHS, STRETCHES, BRIDGES}:
        known = evidence(rows, share)
        made |= {EPOCHS: known.epochs, STRETCHES: known.stretches, BRIDGES: known.bridges}
        if TIMELINE in read:
            made[TIMELINE] = share(timeline_of(rows, known, share))
    for table in wanted:
        frame = table.make(made)
        made[table.name] = share(frame) if table.name in read else frame
    return {name: made[name] for name in (TIMELINE, *(table.name for table in wanted)) if name in made}
