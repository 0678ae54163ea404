"""Following a metadata log from outside the quorum: what to ask, and what an answer means. Sans-IO.

Begin at :class:`~quorate_protocol.observer.observer.Observer`. It fetches as a client that is no replica: a
leader keeps no state about it, waits for nothing of it, and lists it nowhere (KafkaRaftClient.handleFetchRequest,
LeaderState.updateReplicaState). It hands out what is committed and nothing else.

    state      next request                        what an answer leads to
    seeking    Fetch at any bootstrap address      a leader is named: following
    following  Fetch at the leader                 records; a snapshot is offered: downloading; the leader has
                                                   gone: following another one, or seeking
    downloading  FetchSnapshot at the leader       whole: following; not to be had: following; the leader has
                                                   gone: following another one, or seeking
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
