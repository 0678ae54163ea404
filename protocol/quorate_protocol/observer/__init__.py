"""Follows a metadata log from outside the quorum: the requests to send, the meaning of responses. Sans-IO.

Start at :class:`~quorate_protocol.observer.observer.Observer`. It fetches without a replica id: a leader keeps no
state about it, never waits for it, and does not list it (KafkaRaftClient.handleFetchRequest,
LeaderState.updateReplicaState). It returns committed batches only.

    state        next request                     transitions
    seeking      Fetch to a bootstrap address     the response names a leader: following
    following    Fetch to the leader              records: following; the leader offers a snapshot: downloading;
                                                  the leader changed: following the new one, or seeking
    downloading  FetchSnapshot to the leader      complete, or deleted by the leader: following;
                                                  the leader changed: following the new one, or seeking
"""

from quorate_protocol.observer.events import (
    BEGINNING,
    Committed,
    Endpoint,
    Event,
    Gap,
    HistoryLostError,
    LeaderChanged,
    Position,
    RefusedError,
    SnapshotAbandoned,
    SnapshotBegun,
    SnapshotChunk,
    SnapshotLoaded,
    Truncated,
)
from quorate_protocol.observer.observer import Ask, Observer, ObserverConfig

__all__ = (
    "BEGINNING",
    "Ask",
    "Committed",
    "Endpoint",
    "Event",
    "Gap",
    "HistoryLostError",
    "LeaderChanged",
    "Observer",
    "ObserverConfig",
    "Position",
    "RefusedError",
    "SnapshotAbandoned",
    "SnapshotBegun",
    "SnapshotChunk",
    "SnapshotLoaded",
    "Truncated",
)
