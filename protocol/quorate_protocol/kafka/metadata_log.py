"""Kafka's internal topics: the metadata log with its one partition (KIP-595, KIP-631), and the topics of brokers."""

from typing import Final
from uuid import UUID

__all__ = (
    "INTERNAL_TOPICS",
    "METADATA_DIRECTORY",
    "METADATA_PARTITION",
    "METADATA_TOPIC",
    "METADATA_TOPIC_ID",
    "META_PROPERTIES",
)

METADATA_TOPIC: Final = "__cluster_metadata"
"""Topic.CLUSTER_METADATA_TOPIC_NAME."""
METADATA_TOPIC_ID: Final = UUID(int=1)
"""Uuid.METADATA_TOPIC_ID."""
METADATA_PARTITION: Final = 0
METADATA_DIRECTORY: Final = f"{METADATA_TOPIC}-{METADATA_PARTITION}"
"""Its directory in ``metadata.log.dir``."""
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""The topics of brokers (org.apache.kafka.common.internals.Topic.isInternal)."""
META_PROPERTIES: Final = "meta.properties"
"""The file of a formatted log directory (MetaPropertiesEnsemble.META_PROPERTIES_NAME)."""
