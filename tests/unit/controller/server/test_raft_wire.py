"""Raft messages on the wire: lossless translation, and refusals of what is not about the metadata partition."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
import quorate_protocol.kafka.generated.describe_quorum_request as describe
import quorate_protocol.kafka.generated.fetch_request as fetch
import quorate_protocol.kafka.generated.fetch_snapshot_request as fetch_snapshot
import quorate_protocol.kafka.generated.vote_request as vote
from hypothesis import given
from hypothesis import strategies as st
from quorate_controller.raft import messages as m
from quorate_controller.raft.events import QuorumDescription, ReplicaDescription
from quorate_controller.raft.model import Endpoint, OffsetAndEpoch, ReplicaKey, VersionRange
from quorate_controller.server.raft_wire import (
    RefusedMessage,
    describe_quorum_to_wire,
    request_from_wire,
    request_to_wire,
    response_from_wire,
    response_to_wire,
)
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.apis import APIS, api_of
from quorate_protocol.kafka.generated import fetch_response, vote_response
from quorate_protocol.kafka.generated.api_versions_response import SupportedFeatureKey
from quorate_protocol.wire.codec import decode, encode
from quorate_protocol.wire.convert import convert

METADATA_ID = UUID(int=1)
DIRECTORY = UUID(int=0xD1)

int32 = st.integers(0, 2**31 - 1)
int64 = st.integers(0, 2**63 - 2)
text = st.text(st.characters(codec="utf-8"), max_size=12)
ports = st.integers(1, 65535)
directories = st.one_of(st.none(), st.uuids().filter(lambda value: value.int != 0))
keys = st.builds(ReplicaKey, node_id=int32, directory_id=directories)
cluster_ids = st.one_of(st.none(), text)
endpoints = st.lists(st.builds(Endpoint, listener=text, host=text, port=ports), max_size=3).map(tuple)
positions = st.builds(OffsetAndEpoch, epoch=int32, offset=int64)
ranges = st.builds(VersionRange, lowest=st.integers(0, 9), highest=st.integers(0, 9))
error_codes = st.sampled_from(
    [ErrorCode.none, ErrorCode.fenced_leader_epoch, ErrorCode.not_leader_or_follower]
)

REQUESTS: tuple[st.SearchStrategy[m.RaftRequest], ...] = (
    st.builds(
        m.VoteRequest,
        cluster_id=cluster_ids,
        voter=st.one_of(st.none(), keys),
        replica=keys,
        replica_epoch=int32,
        last_offset=int64,
        last_offset_epoch=int32,
        pre_vote=st.booleans(),
    ),
    st.builds(
        m.BeginQuorumEpochRequest,
        cluster_id=cluster_ids,
        voter=st.one_of(st.none(), keys),
        leader_id=int32,
        leader_epoch=int32,
        leader_endpoints=endpoints,
    ),
    st.builds(
        m.EndQuorumEpochRequest,
        cluster_id=cluster_ids,
        leader_id=int32,
        leader_epoch=int32,
        preferred_candidates=st.lists(keys, max_size=3).map(tuple),
        leader_endpoints=endpoints,
    ),
    st.builds(
        m.FetchRequest,
        cluster_id=cluster_ids,
        replica=keys,
        current_leader_epoch=int32,
        fetch_offset=int64,
        last_fetched_epoch=int32,
        max_wait_ms=int32,
        max_bytes=int32,
        high_watermark=st.one_of(st.none(), st.just(-1), int64),
    ),
    st.builds(
        m.FetchSnapshotRequest,
        cluster_id=cluster_ids,
        replica=keys,
        current_leader_epoch=int32,
        snapshot_id=positions,
        position=int64,
        max_bytes=int32,
    ),
    st.builds(
        m.AddRaftVoterRequest,
        cluster_id=cluster_ids,
        timeout_ms=int32,
        voter=keys,
        endpoints=endpoints,
        ack_when_committed=st.booleans(),
    ),
    st.builds(m.RemoveRaftVoterRequest, cluster_id=cluster_ids, voter=keys),
    st.builds(
        m.UpdateRaftVoterRequest,
        cluster_id=cluster_ids,
        current_leader_epoch=int32,
        voter=keys,
        endpoints=endpoints,
        kraft_versions=ranges,
    ),
)


@st.composite
def leaders(draw: st.DrawFn) -> dict[str, Any]:
    """A leader, with or without endpoint, as response fields."""
    leader_id = draw(int32)
    endpoint = st.builds(m.LeaderEndpoint, node_id=st.just(leader_id), host=text.filter(len), port=ports)
    return {
        "leader_id": leader_id,
        "leader_epoch": draw(int32),
        "leader_endpoint": draw(st.one_of(st.none(), endpoint)),
    }


RESPONSES: tuple[type, ...] = (
    m.VoteResponse,
    m.BeginQuorumEpochResponse,
    m.EndQuorumEpochResponse,
    m.FetchResponse,
    m.FetchSnapshotResponse,
    m.AddRaftVoterResponse,
    m.RemoveRaftVoterResponse,
    m.UpdateRaftVoterResponse,
)


@st.composite
def responses(draw: st.DrawFn, kind: type) -> m.RaftResponse:
    """A response that we send, with its bytes where it has some."""
    if kind in {m.AddRaftVoterResponse, m.RemoveRaftVoterResponse}:
        return kind(error_code=draw(error_codes), error_message=draw(st.one_of(st.none(), text)))
    if kind is not m.UpdateRaftVoterResponse and draw(st.booleans()):
        return kind(top_level_error_code=ErrorCode.inconsistent_cluster_id)
    fields = {"error_code": draw(error_codes), **draw(leaders())}
    if kind is m.VoteResponse:
        fields["vote_granted"] = draw(st.booleans())
    if kind is m.FetchResponse:
        fields |= {
            "high_watermark": draw(st.integers(-1, 2**40)),
            "log_start_offset": draw(st.integers(-1, 2**40)),
            "diverging_epoch": draw(st.one_of(st.none(), positions)),
            "snapshot_id": draw(st.one_of(st.none(), positions)),
            "records": draw(st.binary(max_size=40)),
        }
    if kind is m.FetchSnapshotResponse:
        fields |= {
            "snapshot_id": draw(positions.filter(lambda p: (p.epoch, p.offset) != (0, 0))),
            "size_bytes": draw(int64),
            "position": draw(int64),
            "records": draw(st.binary(max_size=40)),
        }
    return kind(**fields)


def over_the_wire(message: Any, kind: str, version: int | None = None) -> Any:
    """Encode and decode a canonical message, by way of one version's class."""
    api = api_of(message)
    version = api.version_max if version is None else version
    wire_class = api.request_class(version) if kind == "request" else api.response_class(version)
    canonical = api.canonical_request if kind == "request" else api.canonical_response
    return convert(decode(wire_class, encode(convert(message, wire_class))), canonical)


@pytest.mark.parametrize("strategy", REQUESTS)
@given(st.data())
def test_requests_survive_the_wire(strategy: st.SearchStrategy[m.RaftRequest], data: st.DataObject) -> None:
    request = data.draw(strategy)
    assert request_from_wire(over_the_wire(request_to_wire(request), "request")) == request


@pytest.mark.parametrize("kind", RESPONSES)
@given(st.data())
def test_responses_survive_the_wire(kind: type, data: st.DataObject) -> None:
    response = data.draw(responses(kind))
    records = getattr(response, "records", b"")
    assert response_from_wire(over_the_wire(response_to_wire(response, records), "response")) == response


FETCH = m.FetchRequest(
    cluster_id="c",
    replica=ReplicaKey(node_id=3, directory_id=DIRECTORY),
    current_leader_epoch=7,
    fetch_offset=100,
    last_fetched_epoch=6,
    max_wait_ms=500,
    max_bytes=1024,
    high_watermark=90,
)


@pytest.mark.parametrize("version", range(12, 19))
def test_fetch_of_every_version_keeps_what_that_version_has(version: int) -> None:
    seen = request_from_wire(over_the_wire(request_to_wire(FETCH), "request", version))
    assert isinstance(seen, m.FetchRequest)
    assert (seen.replica.node_id, seen.fetch_offset, seen.last_fetched_epoch) == (3, 100, 6)
    assert seen.replica.directory_id == (DIRECTORY if version >= 17 else None)
    assert seen.high_watermark == (90 if version >= 18 else None)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_vote_of_every_version(version: int) -> None:
    sent = m.VoteRequest(
        cluster_id="c",
        voter=ReplicaKey(node_id=2, directory_id=DIRECTORY),
        replica=ReplicaKey(node_id=1, directory_id=DIRECTORY),
        replica_epoch=5,
        last_offset=10,
        last_offset_epoch=4,
    )
    seen = request_from_wire(over_the_wire(request_to_wire(sent), "request", version))
    assert isinstance(seen, m.VoteRequest)
    assert seen.voter == (None if version == 0 else sent.voter)
    assert seen.replica == ReplicaKey(node_id=1, directory_id=None if version == 0 else DIRECTORY)
    assert (seen.replica_epoch, seen.pre_vote) == (5, False)


def test_end_quorum_epoch_0_has_successors_without_directories() -> None:
    sent = m.EndQuorumEpochRequest(
        cluster_id="c",
        leader_id=1,
        leader_epoch=5,
        preferred_candidates=(
            ReplicaKey(node_id=3, directory_id=DIRECTORY),
            ReplicaKey(node_id=2, directory_id=None),
        ),
    )
    seen = request_from_wire(over_the_wire(request_to_wire(sent), "request", 0))
    assert isinstance(seen, m.EndQuorumEpochRequest)
    assert seen.preferred_candidates == (ReplicaKey(node_id=3), ReplicaKey(node_id=2))


def test_responses_of_old_versions_lack_endpoints_only() -> None:
    sent = m.VoteResponse(
        error_code=ErrorCode.fenced_leader_epoch,
        leader_id=2,
        leader_epoch=9,
        leader_endpoint=m.LeaderEndpoint(node_id=2, host="h", port=9),
    )
    seen = response_from_wire(over_the_wire(response_to_wire(sent, version=0), "response", 0))
    assert seen == m.VoteResponse(error_code=ErrorCode.fenced_leader_epoch, leader_id=2, leader_epoch=9)


def test_the_leader_is_found_among_several_endpoints() -> None:
    wire = vote_response.VoteResponse(
        error_code=ErrorCode.none,
        topics=(
            vote_response.TopicData(
                topic_name="__cluster_metadata",
                partitions=(
                    vote_response.PartitionData(
                        partition_index=0,
                        error_code=ErrorCode.none,
                        leader_id=2,
                        leader_epoch=1,
                        vote_granted=False,
                    ),
                ),
            ),
        ),
        node_endpoints=(
            vote_response.NodeEndpoint(node_id=1, host="one", port=1),
            vote_response.NodeEndpoint(node_id=2, host="two", port=2),
        ),
    )
    seen = response_from_wire(wire)
    assert isinstance(seen, m.VoteResponse)
    assert seen.leader_endpoint == m.LeaderEndpoint(node_id=2, host="two", port=2)


def _fetch(topics: tuple[fetch.FetchTopic, ...]) -> fetch.FetchRequest:
    return fetch.FetchRequest(max_wait=timedelta(), min_bytes=0, topics=topics, forgotten_topics_data=())


def _fetch_topic(topic_id: UUID | None, *partitions: int) -> fetch.FetchTopic:
    return fetch.FetchTopic(
        topic_id=topic_id,
        partitions=tuple(
            fetch.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=0)
            for index in partitions
        ),
    )


@pytest.mark.parametrize(
    "request_",
    [
        _fetch(()),
        _fetch((_fetch_topic(METADATA_ID),)),
        _fetch((_fetch_topic(METADATA_ID, 1),)),
        _fetch((_fetch_topic(METADATA_ID, 0, 1),)),
        _fetch((_fetch_topic(UUID(int=2), 0),)),
        _fetch((_fetch_topic(None, 0),)),
        _fetch((_fetch_topic(METADATA_ID, 0), _fetch_topic(METADATA_ID, 0))),
        vote.VoteRequest(topics=()),
        vote.VoteRequest(topics=(vote.TopicData(topic_name="other", partitions=()),)),
    ],
)
def test_requests_about_other_partitions_are_invalid(request_: Any) -> None:
    with pytest.raises(RefusedMessage) as refused:
        request_from_wire(request_)
    assert refused.value.error_code is ErrorCode.invalid_request
    assert refused.value.response is None


def test_fetch_snapshot_of_an_unknown_partition_is_refused_on_that_partition() -> None:
    request = fetch_snapshot.FetchSnapshotRequest(
        topics=(
            fetch_snapshot.TopicSnapshot(
                name="other",
                partitions=(
                    fetch_snapshot.PartitionSnapshot(
                        partition=7,
                        current_leader_epoch=0,
                        snapshot_id=fetch_snapshot.SnapshotId(end_offset=1, epoch=1),
                        position=0,
                    ),
                ),
            ),
        ),
    )
    with pytest.raises(RefusedMessage) as refused:
        request_from_wire(request)
    response: Any = refused.value.response
    (topic,) = response.topics
    (partition,) = topic.partitions
    assert response.error_code is ErrorCode.none
    assert (topic.name, partition.index) == ("other", 7)
    assert partition.error_code is ErrorCode.unknown_topic_or_partition
    assert over_the_wire(response, "response") == response


def test_responses_about_other_partitions_are_refused() -> None:
    """A peer's nonsense never reaches raft."""
    wire = fetch_response.FetchResponse(
        throttle_time=timedelta(),
        error_code=ErrorCode.none,
        responses=(fetch_response.FetchableTopicResponse(topic_id=UUID(int=5), partitions=()),),
    )
    with pytest.raises(RefusedMessage):
        response_from_wire(wire)


def test_probe_finds_the_kraft_version_range() -> None:
    """AddRaftVoter knows what the new voter supports."""
    assert api_of(request_to_wire(m.ApiVersionsProbe())) is APIS[18]
    response_class = APIS[18].canonical_response
    with_range = response_class(
        error_code=ErrorCode.none,
        api_keys=(),
        supported_features=(SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1),),
    )
    assert response_from_wire(with_range) == m.ApiVersionsProbeResponse(
        kraft_versions=VersionRange(lowest=0, highest=1)
    )
    without = response_class(error_code=ErrorCode.none, api_keys=())
    assert response_from_wire(without) == m.ApiVersionsProbeResponse(kraft_versions=None)


METADATA_QUESTION = describe.DescribeQuorumRequest(
    topics=(
        describe.TopicData(
            topic_name="__cluster_metadata", partitions=(describe.PartitionData(partition_index=0),)
        ),
    )
)


def test_describe_quorum_tells_replicas_and_voter_endpoints() -> None:
    voter = ReplicaDescription(
        key=ReplicaKey(node_id=1, directory_id=DIRECTORY),
        log_end_offset=12,
        last_fetch_timestamp_ms=1000,
        last_caught_up_timestamp_ms=900,
        endpoints=(Endpoint(listener="CONTROLLER", host="h", port=9093),),
    )
    observer = ReplicaDescription(
        key=ReplicaKey(node_id=7, directory_id=None),
        log_end_offset=3,
        last_fetch_timestamp_ms=-1,
        last_caught_up_timestamp_ms=-1,
    )
    description = QuorumDescription(
        leader_id=1, leader_epoch=4, high_watermark=11, voters=(voter,), observers=(observer,)
    )
    for version in (0, 1, 2):
        canonical = describe_quorum_to_wire(METADATA_QUESTION, description, version=version)
        (topic,) = over_the_wire(canonical, "response", version).topics
        (partition,) = topic.partitions
        assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (1, 4, 11)
        assert [replica.log_end_offset for replica in partition.current_voters] == [12]
        assert [replica.replica_id for replica in partition.observers] == [7]
    assert partition.current_voters[0].replica_directory_id == DIRECTORY
    assert [(node.node_id, node.listeners[0].port) for node in canonical.nodes] == [(1, 9093)]


def test_describe_quorum_errors_stand_on_the_partition() -> None:
    follower = QuorumDescription(error_code=ErrorCode.not_leader_or_follower)
    response = describe_quorum_to_wire(METADATA_QUESTION, follower)
    assert response.error_code is ErrorCode.none
    assert response.topics[0].partitions[0].error_code is ErrorCode.not_leader_or_follower
    other = describe.DescribeQuorumRequest(
        topics=(describe.TopicData(topic_name="t", partitions=(describe.PartitionData(partition_index=3),)),)
    )
    (topic,) = describe_quorum_to_wire(other, follower).topics
    assert (topic.topic_name, topic.partitions[0].partition_index) == ("t", 3)
    assert topic.partitions[0].error_code is ErrorCode.unknown_topic_or_partition
