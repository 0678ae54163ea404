"""All tables of the lake."""

from typing import Final

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

TABLES: Final[tuple[Table, ...]] = tuple(
    module.TABLE
    for module in (
        records,
        gaps,
        membership,
        controller_registrations,
        leadership,
        feature_levels,
        upgrade_blockers,
        advertised_addresses,
        broker_sessions,
        topics,
        partition_leadership,
        isr_changes,
        under_replicated,
        config_changes,
        acl_changes,
        quotas,
        producer_id_blocks,
    )
)
