"""All plans, and the frames between the rows and the tables."""

from typing import Final

from kit.lake.plans import (
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
from kit.lake.plans.contract import Plan, conform
from kit.lake.plans.timeline import Share, as_is, evidence, timeline_of
from pyspark.sql import DataFrame
from pyspark_quorate.tables.registry import TABLES

PLANS: Final[tuple[Plan, ...]] = tuple(
    module.PLAN
    for module in (
        *(records, gaps, membership, controller_registrations, leadership, feature_levels, upgrade_blockers),
        *(advertised_addresses, broker_sessions, topics, partition_leadership, isr_changes, under_replicated),
        *(config_changes, acl_changes, quotas, producer_id_blocks),
    )
)
"""Inputs come before the tables that read them."""


def make_all(rows: DataFrame, share: Share = as_is) -> dict[str, DataFrame]:
    """All tables by name. `share` prepares a frame that several plans read, such as `frame.localCheckpoint()`."""
    known = evidence(rows, share)
    made = {
        "rows": rows,
        "epochs": known.epochs,
        "stretches": known.stretches,
        "bridges": known.bridges,
        "timeline": share(timeline_of(rows, known, share)),
    }
    schemas = {table.name: table.schema for table in TABLES}
    for plan in PLANS:
        frame = plan.build(*(made[name] for name in plan.inputs))
        made[plan.name] = share(conform(frame, schemas[plan.name]))
    return {name: made[name] for name in schemas}
