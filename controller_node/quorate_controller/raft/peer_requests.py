"""The requests that a replica sends, each when its receiver is ready for one.

A function that may have to wait returns when its next call is due (Unix milliseconds).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from quorate_controller.raft.events import Destination
from quorate_controller.raft.messages import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    RaftRequest,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
)
from quorate_controller.raft.model import Download, Endpoint, ReplicaKey, Voter, find_endpoint
from quorate_controller.raft.peers import NEVER_MS

if TYPE_CHECKING:
    from quorate_controller.raft.replica import Replica
    from quorate_controller.raft.voters import VoteTally


def send_votes(replica: "Replica", tally: "VoteTally", *, is_pre_vote: bool) -> int:
    """Send Vote to every voter that has not responded."""
    for voter in _missing_voters(replica, tally):
        _send_to_voter(replica, voter.node_id, _vote_request(replica, voter, is_pre_vote=is_pre_vote))
    return replica.peers.wake_ms(replica.now_ms)


def look_up_voters(replica: "Replica", tally: "VoteTally") -> int:
    """Look up each voter that has not responded at the bootstrap servers, one after the other, by a pre-vote.

    Only a pre-vote: it needs Vote v2, which has the voter's key. Version 0 has none, and another node could grant it.
    """
    missing = [voter for voter in _missing_voters(replica, tally) if voter.key.directory_id is not None]
    servers = _bootstrap_servers(replica)
    if missing and servers and replica.lookup.begins():
        replica.effects.warn(
            "voters_unreachable",
            voters=[str(voter.key) for voter in missing],
            asking=[f"{server.host}:{server.port}" for server in servers],
        )
    for server in servers:
        if not missing or not replica.peers.is_ready(server.node_id, replica.now_ms):
            continue
        voter = replica.lookup.next_voter(server.node_id, missing)
        if voter is None:
            replica.peers.back_off(server.node_id, replica.now_ms)
        else:
            request = _vote_request(replica, voter, is_pre_vote=True)
            replica.peers.send(replica.effects, server, request, replica.now_ms)
    return replica.peers.wake_ms(replica.now_ms)


def _missing_voters(replica: "Replica", tally: "VoteTally") -> list[Voter]:
    voters = (replica.voters.get(voter_id) for voter_id in tally.unrecorded)
    return [voter for voter in voters if voter is not None]


def _vote_request(replica: "Replica", voter: Voter, *, is_pre_vote: bool) -> VoteRequest:
    return VoteRequest(
        cluster_id=replica.config.cluster_id,
        voter=voter.key,
        replica=replica.key,
        replica_epoch=replica.epoch,
        last_offset=replica.log.end_offset,
        last_offset_epoch=replica.log.last_epoch,
        pre_vote=is_pre_vote,
    )


def send_begin_epoch(replica: "Replica", voters: Iterable[ReplicaKey]) -> None:
    """Send BeginQuorumEpoch to these voters, and to the bootstrap servers for those that can't be reached.

    A voter of Java that stands for election looks for no leader. It learns the leader and the leader's address from
    this request, whichever voter the request names, and then has its own new address recorded.
    """
    silent = replica.lookup.silent
    missing = []
    for key in voters:
        voter = replica.voters.get(key.node_id)
        if voter is not None and key.node_id in silent and key.directory_id is not None:
            missing.append(voter)
        _send_to_voter(replica, key.node_id, _begin_epoch_request(replica, key))
    for server in _bootstrap_servers(replica) if missing else ():
        if replica.peers.is_ready(server.node_id, replica.now_ms):
            voter = replica.lookup.next_voter(server.node_id, missing)
            if voter is not None:
                request = _begin_epoch_request(replica, voter.key)
                replica.peers.send(replica.effects, server, request, replica.now_ms)


def _begin_epoch_request(replica: "Replica", voter: ReplicaKey) -> BeginQuorumEpochRequest:
    return BeginQuorumEpochRequest(
        cluster_id=replica.config.cluster_id,
        voter=voter,
        leader_id=replica.key.node_id,
        leader_epoch=replica.epoch,
        leader_endpoints=replica.config.endpoints,
    )


def send_end_epoch(
    replica: "Replica", unacknowledged: Iterable[int], successors: tuple[ReplicaKey, ...]
) -> int:
    """Send EndQuorumEpoch to every voter that has not acknowledged it, the preferred successors in it."""
    request = EndQuorumEpochRequest(
        cluster_id=replica.config.cluster_id,
        leader_id=replica.key.node_id,
        leader_epoch=replica.epoch,
        preferred_candidates=successors,
    )
    for voter_id in sorted(unacknowledged):
        _send_to_voter(replica, voter_id, request)
    return replica.peers.wake_ms(replica.now_ms)


def send_update_voter(replica: "Replica") -> bool:
    """Send UpdateRaftVoter to the leader. Returns False while another request to it is in flight."""
    request = UpdateRaftVoterRequest(
        cluster_id=replica.config.cluster_id,
        current_leader_epoch=replica.epoch,
        voter=replica.key,
        endpoints=replica.config.endpoints,
        kraft_versions=replica.config.kraft_versions,
    )
    return _send_to_leader(replica, request)


def send_join(replica: "Replica") -> bool:
    """Send AddRaftVoter for this replica; first RemoveRaftVoter for a voter of our id with another directory."""
    request: RaftRequest
    predecessor = replica.voters.get(replica.key.node_id)
    if predecessor is not None:
        request = RemoveRaftVoterRequest(cluster_id=replica.config.cluster_id, voter=predecessor.key)
    else:
        request = AddRaftVoterRequest(
            cluster_id=replica.config.cluster_id,
            timeout_ms=replica.config.request_timeout_ms,
            voter=replica.key,
            endpoints=replica.config.endpoints,
            ack_when_committed=False,
        )
    return _send_to_leader(replica, request)


def fetch(replica: "Replica", download: Download | None) -> int:
    """Fetch records or the next chunk of the snapshot from the leader; while it does not respond, look for another.

    A Fetch is sent only when the whole log is durable: to the leader, it acknowledges all records before its offset.
    """
    if not replica.can_fetch:
        return NEVER_MS
    leader_id, now_ms = replica.state.leader_id, replica.now_ms
    if replica.peers.has_timed_out(leader_id, now_ms):
        replica.peers.forget(leader_id)
        return discover(replica)
    if replica.peers.is_backing_off(leader_id, now_ms):
        return discover(replica)
    if not replica.peers.has_any_in_flight(now_ms):
        _send_to_leader(replica, _fetch_request(replica, download))
    return replica.peers.wake_ms(now_ms)


def discover(replica: "Replica") -> int:
    """Fetch from any voter or bootstrap server, to learn the leader from the response."""
    now_ms = replica.now_ms
    wake_ms = replica.peers.wake_ms(now_ms)
    if not replica.can_fetch or replica.peers.has_any_in_flight(now_ms):
        return wake_ms
    if now_ms < replica.next_discovery_ms:
        return min(wake_ms, replica.next_discovery_ms)
    ready = [peer for peer in _known_peers(replica) if replica.peers.is_ready(peer.node_id, now_ms)]
    if not ready:
        return wake_ms
    destination = ready[replica.rng.randrange(len(ready))]
    # A node that knows no leader responds at once: ask again after a pause, not in a loop.
    replica.next_discovery_ms = now_ms + replica.config.retry_backoff_ms
    replica.peers.send(replica.effects, destination, _fetch_request(replica, None), now_ms)
    return replica.peers.wake_ms(now_ms)


def _fetch_request(replica: "Replica", download: Download | None) -> RaftRequest:
    config = replica.config
    if download is not None:
        return FetchSnapshotRequest(
            cluster_id=config.cluster_id,
            replica=replica.key,
            current_leader_epoch=replica.epoch,
            snapshot_id=download.snapshot_id,
            position=download.position,
            max_bytes=config.snapshot_fetch_size_bytes_max,
        )
    return FetchRequest(
        cluster_id=config.cluster_id,
        replica=replica.key,
        current_leader_epoch=replica.epoch,
        fetch_offset=replica.log.end_offset,
        last_fetched_epoch=replica.log.last_epoch,
        # A leader that holds our Fetch for too long would look dead.
        max_wait_ms=min(config.fetch_wait_ms_max, config.fetch_timeout_ms // 2),
        max_bytes=config.fetch_size_bytes_max,
        high_watermark=replica.high_watermark,
    )


def _known_peers(replica: "Replica") -> list[Destination]:
    """The other voters and the bootstrap servers, each address once."""
    peers = {}
    for voter in replica.voters:
        endpoint = find_endpoint(voter.endpoints, replica.config.listener)
        if endpoint is not None and voter.node_id != replica.key.node_id:
            destination = Destination(node_id=voter.node_id, host=endpoint.host, port=endpoint.port)
            peers[endpoint.host, endpoint.port] = destination
    for server in _bootstrap_servers(replica):
        peers.setdefault((server.host, server.port), server)
    return list(peers.values())


def _bootstrap_servers(replica: "Replica") -> list[Destination]:
    """The bootstrap servers, without our own address."""
    own = {(endpoint.host, endpoint.port) for endpoint in replica.config.endpoints}
    return [
        Destination(node_id=-2 - index, host=server.host, port=server.port)
        for index, server in enumerate(replica.config.bootstrap_servers)
        if (server.host, server.port) not in own
    ]


def _send_to_voter(replica: "Replica", voter_id: int, request: RaftRequest) -> None:
    _send(replica, voter_id, replica.voter_endpoints(voter_id), request)


def _send_to_leader(replica: "Replica", request: RaftRequest) -> bool:
    return _send(replica, replica.state.leader_id, replica.state.leader_endpoints, request)


def _send(replica: "Replica", node_id: int, endpoints: tuple[Endpoint, ...], request: RaftRequest) -> bool:
    """Return False if another request to that node is in flight, or it has no endpoint on our listener."""
    endpoint = find_endpoint(endpoints, replica.config.listener)
    if endpoint is None or not replica.peers.is_ready(node_id, replica.now_ms):
        return False
    destination = Destination(node_id=node_id, host=endpoint.host, port=endpoint.port)
    replica.peers.send(replica.effects, destination, request, replica.now_ms)
    return True
