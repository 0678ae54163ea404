"""The requests that a replica sends, each when its receiver is ready for one.

A function that may have to wait returns when to call it again (Unix milliseconds).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from quorate_controller.raft.messages import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    Destination,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    RaftRequest,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
)
from quorate_controller.raft.model import ReplicaKey, find_endpoint
from quorate_controller.raft.peers import NEVER_MS

if TYPE_CHECKING:
    from quorate_controller.raft.quorum import Quorum
    from quorate_controller.raft.roles.follower import Follower
    from quorate_controller.raft.roles.resigned import Resigned
    from quorate_controller.raft.voters import VoteTally


def send_votes(quorum: "Quorum", tally: "VoteTally", *, is_pre_vote: bool) -> int:
    """Ask every voter that has not said yet."""
    for voter_id in tally.unrecorded:
        voter = quorum.voters.get(voter_id)
        if voter is None:
            continue
        request = VoteRequest(
            cluster_id=quorum.config.cluster_id,
            voter=voter.key,
            replica=quorum.key,
            replica_epoch=quorum.epoch,
            last_offset=quorum.log.end_offset,
            last_offset_epoch=quorum.log.last_epoch,
            pre_vote=is_pre_vote,
        )
        _send_to_voter(quorum, voter_id, request)
    return quorum.peers.wake_ms(quorum.now_ms)


def send_begin_epoch(quorum: "Quorum", voters: Iterable[ReplicaKey]) -> None:
    """Tell these voters that we lead."""
    for voter in voters:
        request = BeginQuorumEpochRequest(
            cluster_id=quorum.config.cluster_id,
            voter=voter,
            leader_id=quorum.key.node_id,
            leader_epoch=quorum.epoch,
            leader_endpoints=quorum.config.endpoints,
        )
        _send_to_voter(quorum, voter.node_id, request)


def send_end_epoch(quorum: "Quorum", resigned: "Resigned") -> int:
    """Tell every voter that does not know yet that we no longer lead."""
    request = EndQuorumEpochRequest(
        cluster_id=quorum.config.cluster_id,
        leader_id=quorum.key.node_id,
        leader_epoch=quorum.epoch,
        preferred_candidates=resigned.successors,
    )
    for voter_id in sorted(resigned.unacknowledged):
        _send_to_voter(quorum, voter_id, request)
    return quorum.peers.wake_ms(quorum.now_ms)


def send_update_voter(quorum: "Quorum") -> bool:
    """Tell the leader who we are now; False when it is busy."""
    request = UpdateRaftVoterRequest(
        cluster_id=quorum.config.cluster_id,
        current_leader_epoch=quorum.epoch,
        voter=quorum.key,
        endpoints=quorum.config.endpoints,
        kraft_versions=quorum.config.kraft_versions,
    )
    return _send_to_leader(quorum, request)


def send_join(quorum: "Quorum") -> bool:
    """Ask to become a voter; first have a voter of our id with another directory removed."""
    request: RaftRequest
    predecessor = quorum.voters.get(quorum.key.node_id)
    if predecessor is not None:
        request = RemoveRaftVoterRequest(cluster_id=quorum.config.cluster_id, voter=predecessor.key)
    else:
        request = AddRaftVoterRequest(
            cluster_id=quorum.config.cluster_id,
            timeout_ms=quorum.config.request_timeout_ms,
            voter=quorum.key,
            endpoints=quorum.config.endpoints,
            ack_when_committed=False,
        )
    return _send_to_leader(quorum, request)


def fetch(quorum: "Quorum", follower: "Follower") -> int:
    """Fetch from the leader, or look for another one while it does not answer.

    Only what is durable is fetched behind: a leader takes a Fetch for the promise that all before it is.
    """
    if not quorum.can_fetch:
        return NEVER_MS
    leader_id, now_ms = follower.leader_id, quorum.now_ms
    if quorum.peers.has_timed_out(leader_id, now_ms):
        quorum.peers.forget(leader_id)
        return discover(quorum)
    if quorum.peers.is_backing_off(leader_id, now_ms):
        return discover(quorum)
    if not quorum.peers.has_any_in_flight(now_ms):
        _send_to_leader(quorum, _fetch_request(quorum, follower))
    return quorum.peers.wake_ms(now_ms)


def discover(quorum: "Quorum") -> int:
    """Fetch from any voter or bootstrap server, in order to be told who leads."""
    now_ms = quorum.now_ms
    wake_ms = quorum.peers.wake_ms(now_ms)
    if not quorum.can_fetch or quorum.peers.has_any_in_flight(now_ms):
        return wake_ms
    if now_ms < quorum.next_discovery_ms:
        return min(wake_ms, quorum.next_discovery_ms)
    ready = [peer for peer in _known_peers(quorum) if quorum.peers.is_ready(peer.node_id, now_ms)]
    if not ready:
        return wake_ms
    destination = ready[quorum.rng.randrange(len(ready))]
    # Whoever does not know a leader answers at once: ask again after a pause, not in a loop.
    quorum.next_discovery_ms = now_ms + quorum.config.retry_backoff_ms
    quorum.peers.send(quorum.effects, destination, _fetch_request(quorum, None), now_ms)
    return quorum.peers.wake_ms(now_ms)


def _fetch_request(quorum: "Quorum", follower: "Follower | None") -> RaftRequest:
    config = quorum.config
    if follower is not None and follower.download is not None:
        return FetchSnapshotRequest(
            cluster_id=config.cluster_id,
            replica=quorum.key,
            current_leader_epoch=quorum.epoch,
            snapshot_id=follower.download.snapshot_id,
            position=follower.download.position,
            max_bytes=config.snapshot_fetch_size_bytes_max,
        )
    return FetchRequest(
        cluster_id=config.cluster_id,
        replica=quorum.key,
        current_leader_epoch=quorum.epoch,
        fetch_offset=quorum.log.end_offset,
        last_fetched_epoch=quorum.log.last_epoch,
        # A leader that holds our Fetch for too long would look dead.
        max_wait_ms=min(config.fetch_wait_ms_max, config.fetch_timeout_ms // 2),
        max_bytes=config.fetch_size_bytes_max,
        high_watermark=quorum.high_watermark,
    )


def _known_peers(quorum: "Quorum") -> list[Destination]:
    """The other voters, and the bootstrap servers that are none of them, each address once."""
    own = {(endpoint.host, endpoint.port) for endpoint in quorum.config.endpoints}
    peers = {}
    for voter in quorum.voters:
        endpoint = find_endpoint(voter.endpoints, quorum.config.listener)
        if endpoint is not None and voter.node_id != quorum.key.node_id:
            destination = Destination(node_id=voter.node_id, host=endpoint.host, port=endpoint.port)
            peers[endpoint.host, endpoint.port] = destination
    for index, server in enumerate(quorum.config.bootstrap_servers):
        address = (server.host, server.port)
        if address not in own and address not in peers:
            peers[address] = Destination(node_id=-2 - index, host=server.host, port=server.port)
    return list(peers.values())


def _send_to_voter(quorum: "Quorum", voter_id: int, request: RaftRequest) -> None:
    voter = quorum.voters.get(voter_id)
    endpoint = None if voter is None else find_endpoint(voter.endpoints, quorum.config.listener)
    if endpoint is None or not quorum.peers.is_ready(voter_id, quorum.now_ms):
        return
    destination = Destination(node_id=voter_id, host=endpoint.host, port=endpoint.port)
    quorum.peers.send(quorum.effects, destination, request, quorum.now_ms)


def _send_to_leader(quorum: "Quorum", request: RaftRequest) -> bool:
    leader_id = quorum.state.leader_id
    endpoint = find_endpoint(quorum.state.leader_endpoints, quorum.config.listener)
    assert endpoint is not None, "nobody follows a leader without an endpoint"
    if not quorum.peers.is_ready(leader_id, quorum.now_ms):
        return False
    destination = Destination(node_id=leader_id, host=endpoint.host, port=endpoint.port)
    quorum.peers.send(quorum.effects, destination, request, quorum.now_ms)
    return True
