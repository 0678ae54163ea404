"""Replicas of the metadata log as a leader describes them, for tests of what is made of them."""

import uuid

from quorate_admin.types.cluster import ReplicaDescription

NOW_MS = 1_700_000_000_000
"""The clock of the leader."""
DIRECTORY_ID = uuid.UUID(int=1 << 100)


def replica(
    node_id: int,
    fetched_ms: int | None = NOW_MS,
    caught_up_ms: int | None = NOW_MS,
    *,
    end: int = 100,
    directory_id: uuid.UUID | None = DIRECTORY_ID,
) -> ReplicaDescription:
    """A replica that has everything now, unless the test says otherwise."""
    return ReplicaDescription(
        node_id=node_id,
        directory_id=directory_id,
        log_end_offset=end,
        last_fetch_ms=fetched_ms,
        last_caught_up_ms=caught_up_ms,
    )
