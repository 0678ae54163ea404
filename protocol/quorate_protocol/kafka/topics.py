"""Topics that have a meaning of their own."""

from typing import Final

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""The topics that brokers use themselves (org.apache.kafka.common.internals.Topic.isInternal)."""
