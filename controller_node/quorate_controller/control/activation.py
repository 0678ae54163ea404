"""What a new active controller writes first: bootstrap metadata, the end of an abandoned transaction
(KIP-868).
"""

from typing import TYPE_CHECKING, Final

from quorate_protocol import features
from quorate_protocol.records.generated import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)

from quorate_controller.control.api import BootstrapMetadata, ControlResult

if TYPE_CHECKING:
    from quorate_protocol.image import MetadataImage
    from quorate_protocol.records.framing import MetadataRecord

    from quorate_controller.control.config_changes import ConfigManager

TRANSACTION_NAME: Final = "Bootstrap records"
ABORT_REASON: Final = "Controller failover"


def default_bootstrap(
    metadata_version: int = features.METADATA_VERSION_OF_NEW_CLUSTERS,
) -> BootstrapMetadata:
    """What `kafka-storage format` writes for a release: metadata.version and the levels that go with it."""
    levels = {features.METADATA_VERSION: metadata_version, **features.default_levels(metadata_version)}
    return BootstrapMetadata(
        records=tuple(FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items())
    )


def activation(
    image: "MetadataImage", bootstrap: BootstrapMetadata, configs: "ConfigManager"
) -> ControlResult:
    """Returns the records to write before any decision; none if the log needs none.

    A transaction left open by the previous leader is aborted. A log without metadata.version gets the
    bootstrap metadata, in a transaction if its metadata.version has them, since then it need not be one
    batch.
    """
    aborts = image.transaction is not None
    # Replay has put the records of an open transaction into the image; the abort will take them back.
    metadata_version = image.committed_copy().metadata_version if aborts else image.metadata_version
    records: list[MetadataRecord] = [AbortTransactionRecord(reason=ABORT_REASON)] if aborts else []
    if metadata_version:
        return ControlResult(records=tuple(records))
    bootstrap = bootstrap if bootstrap.records else default_bootstrap()
    levels = {
        record.name: record.feature_level
        for record in bootstrap.records
        if isinstance(record, FeatureLevelRecord)
    }
    has_transactions = levels[features.METADATA_VERSION] >= features.TRANSACTIONS_SINCE
    if has_transactions:
        records.append(BeginTransactionRecord(name=TRANSACTION_NAME))
    records += bootstrap.records
    if levels.get(features.ELIGIBLE_LEADER_REPLICAS, 0) > 0:
        records += configs.eligible_leader_replicas_records()
    if has_transactions:
        records.append(EndTransactionRecord())
    return ControlResult(records=tuple(records), atomic=not has_transactions)
