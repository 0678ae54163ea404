"""The controller quorum as text and as JSON."""

from collections.abc import Iterator
from typing import Any

from quorate_admin.types.cluster import QuorumDescription, RaftVoterEndpoint, ReplicaDescription
from quorate_protocol.uuids import uuid_to_text

from quorate.console import CommandError, table_text

REPLICATION_HEADERS = (
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
)
UNKNOWN_TIME = -1


def status_text(cluster_id: str, quorum: QuorumDescription) -> str:
    """What `describe --status` of kafka-metadata-quorum prints. Raises CommandError as `leader_of` does."""
    lag, lag_time_ms = _largest_lag(quorum)
    return (
        f"ClusterId:              {cluster_id}\n"
        f"LeaderId:               {quorum.leader_id}\n"
        f"LeaderEpoch:            {quorum.leader_epoch}\n"
        f"HighWatermark:          {quorum.high_watermark}\n"
        f"MaxFollowerLag:         {lag}\n"
        f"MaxFollowerLagTimeMs:   {lag_time_ms}\n"
        f"CurrentVoters:          [{', '.join(_replica_text(voter, quorum) for voter in quorum.voters)}]\n"
        f"CurrentObservers:       [{', '.join(_replica_text(observer, quorum) for observer in quorum.observers)}]\n"
    )


def status_json(cluster_id: str, quorum: QuorumDescription) -> dict[str, Any]:
    """The same as JSON."""
    lag, lag_time_ms = _largest_lag(quorum)
    return {
        "clusterId": cluster_id,
        "leaderId": quorum.leader_id,
        "leaderEpoch": quorum.leader_epoch,
        "highWatermark": quorum.high_watermark,
        "maxFollowerLag": lag,
        "maxFollowerLagTimeMs": lag_time_ms,
        "currentVoters": [_replica_json(voter, quorum) for voter in quorum.voters],
        "currentObservers": [_replica_json(observer, quorum) for observer in quorum.observers],
    }


def replication_text(quorum: QuorumDescription, now_ms: int | None) -> str:
    """What `describe --replication` prints: times in Unix milliseconds or, given `now_ms`, how long ago."""
    rows = [
        (
            replica.node_id,
            uuid_to_text(replica.directory_id),
            replica.log_end_offset,
            lag,
            _time_text(replica.last_fetch_ms, now_ms, "last fetch"),
            _time_text(replica.last_caught_up_ms, now_ms, "last caught up"),
            status,
        )
        for replica, lag, status in _with_lag_and_status(quorum)
    ]
    return table_text(REPLICATION_HEADERS, rows)


def replication_json(quorum: QuorumDescription) -> list[dict[str, Any]]:
    """The same as JSON; unknown times are null."""
    return [
        {
            "nodeId": replica.node_id,
            "directoryId": uuid_to_text(replica.directory_id),
            "logEndOffset": replica.log_end_offset,
            "lag": lag,
            "lastFetchTimestamp": replica.last_fetch_ms,
            "lastCaughtUpTimestamp": replica.last_caught_up_ms,
            "status": status,
        }
        for replica, lag, status in _with_lag_and_status(quorum)
    ]


def endpoint_text(endpoint: RaftVoterEndpoint) -> str:
    """`CONTROLLER://host:port`; an IPv6 address is in brackets."""
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.name}://{host}:{endpoint.port}"


def leader_of(quorum: QuorumDescription) -> ReplicaDescription:
    """The leader's own replica. Raises CommandError if it is not a voter, as during its removal."""
    for voter in quorum.voters:
        if voter.node_id == quorum.leader_id:
            return voter
    voters = ", ".join(str(voter.node_id) for voter in quorum.voters)
    raise CommandError(f"the leader {quorum.leader_id} is not among the voters ({voters}); try again")


def _largest_lag(quorum: QuorumDescription) -> tuple[int, int]:
    """The largest lag of a voter in offsets and in milliseconds, which are -1 if unknown."""
    leader = leader_of(quorum)
    last = min(quorum.voters, key=lambda voter: voter.log_end_offset)
    if last is leader:
        lag_time_ms = 0
    elif leader.last_caught_up_ms is None or last.last_caught_up_ms is None:
        lag_time_ms = UNKNOWN_TIME
    else:
        lag_time_ms = leader.last_caught_up_ms - last.last_caught_up_ms
    return leader.log_end_offset - last.log_end_offset, lag_time_ms


def _with_lag_and_status(quorum: QuorumDescription) -> Iterator[tuple[ReplicaDescription, int, str]]:
    leader = leader_of(quorum)
    followers = (voter for voter in quorum.voters if voter is not leader)
    for status, replicas in (("Leader", (leader,)), ("Follower", followers), ("Observer", quorum.observers)):
        for replica in replicas:
            yield replica, leader.log_end_offset - replica.log_end_offset, status


def _time_text(time_ms: int | None, now_ms: int | None, what: str) -> str:
    if time_ms is None:
        return str(UNKNOWN_TIME)
    if now_ms is None:
        return str(time_ms)
    if not 0 < time_ms <= now_ms:
        raise CommandError(
            f"the {what} time is {time_ms}, now it is {now_ms}: the clocks here and at the leader differ; "
            "leave out --human-readable"
        )
    return f"{now_ms - time_ms} ms ago"


def _replica_json(replica: ReplicaDescription, quorum: QuorumDescription) -> dict[str, Any]:
    return {
        "id": replica.node_id,
        "directoryId": None if replica.directory_id is None else uuid_to_text(replica.directory_id),
        "endpoints": [endpoint_text(endpoint) for endpoint in quorum.nodes.get(replica.node_id, ())],
    }


def _replica_text(replica: ReplicaDescription, quorum: QuorumDescription) -> str:
    fields = [f'"id": {replica.node_id}']
    if replica.directory_id is not None:
        fields.append(f'"directoryId": "{uuid_to_text(replica.directory_id)}"')
    endpoints = quorum.nodes.get(replica.node_id, ())
    if endpoints:
        listed = ", ".join(f'"{endpoint_text(endpoint)}"' for endpoint in endpoints)
        fields.append(f'"endpoints": [{listed}]')
    return f"{{{', '.join(fields)}}}"
