"""A live image through a fake quorum: finding the leader, snapshots, records, and what can't be mended."""

import asyncio
import threading
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from kit.fake_cluster import FakeCluster, nested, response_to
from quorate_admin.config import Address, AdminConfig, addresses_of
from quorate_admin.errors import (
    MismatchedEndpointError,
    RequestTimeoutError,
    ServerError,
    UnreachableError,
    UnsupportedEndpointError,
)
from quorate_admin.metadata_log import ImageFollower, LiveImage, ObservingError, load_live_image
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image import MetadataImage, Provenance
from quorate_protocol.image.snapshot import write_checkpoint
from quorate_protocol.kafka.apis import ApiKey
from quorate_protocol.kafka.metadata_log import METADATA_TOPIC, METADATA_TOPIC_ID
from quorate_protocol.observer import Event, SnapshotLoaded
from quorate_protocol.records.batch import build_batch
from quorate_protocol.records.framing import encode_record
from quorate_protocol.records.generated import (
    BeginTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    TopicRecord,
)
from quorate_protocol.wire.server import Request

LEADER, EPOCH = 2, 5
SNAPSHOT_END = 1000


def checkpoint() -> bytes:
    """A snapshot with 200 topics, longer than one answer."""
    image = MetadataImage()
    records = [
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        *(TopicRecord(name=f"topic-{number}", topic_id=UUID(int=1000 + number)) for number in range(200)),
    ]
    image.restore(records, Provenance(end_offset=SNAPSHOT_END, epoch=EPOCH - 1, timestamp_ms=1))
    return b"".join(write_checkpoint(image.committed_copy(), now_ms=2))


class Leader:
    """Answers of a leader whose log begins with a snapshot; `batches` come after it."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.snapshot = checkpoint()
        self.log = [self.batch(SNAPSHOT_END, TopicRecord(name="late", topic_id=UUID(int=9)))]
        self.high_watermark = SNAPSHOT_END + 1
        self.error = ErrorCode.none
        self.advertised: tuple[str, int] | None = None
        """Another address than the one where it listens."""

    def batch(self, base: int, *records: Any) -> tuple[int, bytes]:
        """A batch and its base offset."""
        return base, build_batch([encode_record(record, 0) for record in records], base, EPOCH, 3)

    def endpoints(self, api: str) -> tuple[Any, ...]:
        host, _, port = self.cluster.nodes[LEADER].address.rpartition(":")
        host, port = self.advertised or (host, int(port))
        return (nested(api, "NodeEndpoint", node_id=LEADER, host=host, port=port),)

    def fetch(self, request: Request) -> Any:
        if self.error is not ErrorCode.none:
            return response_to("Fetch", error_code=self.error)
        asked = request.body.topics[0].partitions[0]
        assert request.body.replica_state.replica_id == -1
        needs_snapshot = asked.fetch_offset < SNAPSHOT_END
        error = ErrorCode.none if asked.current_leader_epoch == EPOCH else ErrorCode.fenced_leader_epoch
        return self._fetched(
            error,
            nested("Fetch", "SnapshotId", end_offset=SNAPSHOT_END, epoch=EPOCH - 1)
            if needs_snapshot
            else None,
            b""
            if needs_snapshot
            else b"".join(data for base, data in self.log if base >= asked.fetch_offset),
        )

    def elsewhere(self, request: Request) -> Any:
        """The answer of a controller that follows."""
        assert request.body.topics[0].topic_id == METADATA_TOPIC_ID
        return self._fetched(ErrorCode.fenced_leader_epoch, None, b"")

    def _fetched(self, error: ErrorCode, snapshot: Any, records: bytes) -> Any:
        none = nested("Fetch", "EpochEndOffset", epoch=-1, end_offset=-1)
        partition = nested(
            "Fetch",
            "PartitionData",
            error_code=error,
            high_watermark=self.high_watermark,
            current_leader=nested("Fetch", "LeaderIdAndEpoch", leader_id=LEADER, leader_epoch=EPOCH),
            diverging_epoch=none,
            snapshot_id=snapshot or nested("Fetch", "SnapshotId", end_offset=-1, epoch=-1),
            records=records,
        )
        topic = nested("Fetch", "FetchableTopicResponse", topic_id=METADATA_TOPIC_ID, partitions=(partition,))
        return response_to("Fetch", responses=(topic,), node_endpoints=self.endpoints("Fetch"))

    def fetch_snapshot(self, request: Request) -> Any:
        position = request.body.topics[0].partitions[0].position
        partition = nested(
            "FetchSnapshot",
            "PartitionSnapshot",
            snapshot_id=nested("FetchSnapshot", "SnapshotId", end_offset=SNAPSHOT_END, epoch=EPOCH - 1),
            current_leader=nested("FetchSnapshot", "LeaderIdAndEpoch", leader_id=LEADER, leader_epoch=EPOCH),
            size=len(self.snapshot),
            position=position,
            unaligned_records=self.snapshot[position : position + 1000],
        )
        topic = nested("FetchSnapshot", "TopicSnapshot", name=METADATA_TOPIC, partitions=(partition,))
        return response_to("FetchSnapshot", topics=(topic,), node_endpoints=self.endpoints("FetchSnapshot"))


def quorum() -> tuple[FakeCluster, Leader]:
    """Three controllers; the second leads."""
    cluster = FakeCluster((1, LEADER, 3), is_controllers=True)
    leader = Leader(cluster)
    cluster.handle("Fetch", leader.elsewhere)
    cluster.nodes[LEADER].handlers["Fetch"] = leader.fetch
    cluster.nodes[LEADER].handlers["FetchSnapshot"] = leader.fetch_snapshot
    return cluster, leader


def config(cluster: FakeCluster, **fields: Any) -> AdminConfig:
    """Name the controllers that follow."""
    addresses = [cluster.nodes[node_id].address for node_id in (1, 3)]
    return AdminConfig(bootstrap_controllers=addresses_of("bootstrap.controllers", addresses), **fields)


async def test_an_image_is_a_snapshot_and_the_records_after_it() -> None:
    cluster, leader = quorum()
    async with cluster:
        image = await load_live_image(config(cluster))
        chunks = len(cluster.received("FetchSnapshot"))
    assert len(image.topics.by_name) == 201
    assert image.committed_end_offset == leader.high_watermark
    assert image.provenance == Provenance(end_offset=SNAPSHOT_END + 1, epoch=EPOCH, timestamp_ms=3)
    assert chunks == -(-len(leader.snapshot) // 1000)


async def test_a_broker_is_not_asked_for_the_log() -> None:
    async with FakeCluster() as brokers:
        (at, *_) = brokers.nodes.values()
        broker = AdminConfig(bootstrap_controllers=addresses_of("bootstrap.controllers", [at.address]))
        with pytest.raises(
            MismatchedEndpointError, match=f"{at.address} is a broker, and only controllers serve"
        ):
            await load_live_image(broker)
        cluster, _ = quorum()
        async with cluster, LiveImage(config(cluster)) as live:
            await live.refresh()
            moved = cluster.nodes[LEADER]
            versions, connections = moved.apis.pop(ApiKey.FETCH_SNAPSHOT), moved.connections
            moved.hang_up()
            refreshing = asyncio.create_task(live.refresh())
            while moved.connections < connections + 2:  # after the first one, the broker was recognized
                assert not refreshing.done()
                await asyncio.sleep(0.01)
            moved.apis[ApiKey.FETCH_SNAPSHOT] = versions
            await refreshing


async def test_an_image_knows_since_when_its_leader_leads() -> None:
    cluster, leader = quorum()
    log, leader.log, leader.high_watermark = leader.log, [], SNAPSHOT_END
    async with cluster, LiveImage(config(cluster)) as live:
        await live.refresh()
        assert [live.leader_since_ms(epoch) for epoch in (EPOCH - 1, EPOCH)] == [1, None]
        later = build_batch([encode_record(NoOpRecord(), 0)], SNAPSHOT_END + 1, EPOCH, 4_000)
        leader.log, leader.high_watermark = [*log, (SNAPSHOT_END + 1, later)], SNAPSHOT_END + 2
        await live.refresh()
        assert [live.leader_since_ms(epoch) for epoch in (EPOCH - 1, EPOCH)] == [None, 3]


async def test_a_refresh_sees_what_came_after_the_last_one() -> None:
    cluster, leader = quorum()
    async with cluster, LiveImage(config(cluster)) as live:
        await live.refresh()
        leader.log += [
            leader.batch(SNAPSHOT_END + 1, TopicRecord(name="later", topic_id=UUID(int=10))),
            leader.batch(SNAPSHOT_END + 2, TopicRecord(name="uncommitted", topic_id=UUID(int=11))),
        ]
        leader.high_watermark += 1
        await live.refresh()
        assert {"late", "later"} <= live.image.topics.by_name.keys()
        assert "uncommitted" not in live.image.topics.by_name
        leader.high_watermark += 1
        cluster.nodes[LEADER].hang_up()
        await live.refresh()
        assert "uncommitted" in live.image.topics.by_name


async def test_a_snapshot_that_takes_long_is_loaded_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop continues, and giving up leaves no half image."""
    cluster, _ = quorum()
    begun, proceed = threading.Event(), threading.Event()
    load = ImageFollower.apply

    def load_slowly(follower: ImageFollower, event: Event) -> None:
        if isinstance(event, SnapshotLoaded):
            begun.set()
            assert proceed.wait(10)
        load(follower, event)

    monkeypatch.setattr(ImageFollower, "apply", load_slowly)
    async with cluster, LiveImage(config(cluster)) as live:
        refreshing = asyncio.create_task(live.refresh())
        assert await asyncio.to_thread(begun.wait, 10)
        refreshing.cancel()
        await asyncio.sleep(0)
        assert not refreshing.done(), "nobody may touch the image yet"
        proceed.set()
        with pytest.raises(asyncio.CancelledError):
            await refreshing
        assert len(live.image.topics.by_name) == 200
        await live.refresh()
        assert len(live.image.topics.by_name) == 201


async def test_a_leader_is_followed_where_it_is_reached() -> None:
    cluster, leader = quorum()
    async with cluster, LiveImage(config(cluster)) as live:
        await live.refresh()
        fetched = len(cluster.received("FetchSnapshot"))
        host, _, port = cluster.nodes[LEADER].address.rpartition(":")
        leader.advertised = ("unreachable.invalid", 1)
        await live.redirect(config(cluster), {LEADER: Address(host, int(port))})
        leader.log.append(leader.batch(SNAPSHOT_END + 1, TopicRecord(name="later", topic_id=UUID(int=10))))
        leader.high_watermark += 1
        await live.refresh()
        assert "later" in live.image.topics.by_name
        assert live.epoch == EPOCH
        assert len(cluster.received("FetchSnapshot")) == fetched, "what it had was kept"


async def test_a_transaction_that_is_open_does_not_show() -> None:
    from quorate.tools.metadata_shell.sources import visible  # noqa: PLC0415 - of the shell, not of observing

    cluster, leader = quorum()
    async with cluster, LiveImage(config(cluster)) as live:
        leader.log.append(
            leader.batch(
                SNAPSHOT_END + 1,
                BeginTransactionRecord(name="t"),
                TopicRecord(name="half", topic_id=UUID(int=10)),
                NoOpRecord(),
            )
        )
        leader.high_watermark = SNAPSHOT_END + 4
        await live.refresh()
        state, where = visible(live.image)
    assert "half" not in state.topics.by_name
    assert "late" in state.topics.by_name
    assert where.end_offset == SNAPSHOT_END + 1


async def test_records_that_make_no_sense_are_reported_and_read_again() -> None:
    cluster, leader = quorum()
    async with cluster, LiveImage(config(cluster)) as live:
        leader.log.append(leader.batch(SNAPSHOT_END + 1, TopicRecord(name="late", topic_id=UUID(int=10))))
        leader.high_watermark += 1
        with pytest.raises(ObservingError, match="late"):
            await live.refresh()
        leader.log.pop()
        leader.high_watermark -= 1
        await live.refresh()
        assert "late" in live.image.topics.by_name


async def test_without_the_right_it_says_which_right() -> None:
    cluster, leader = quorum()
    leader.error = ErrorCode.cluster_authorization_failed
    async with cluster:
        with pytest.raises(ServerError, match="requires CLUSTER_ACTION on the cluster"):
            await load_live_image(config(cluster))


async def test_a_quorum_without_a_leader_is_waited_for_until_the_time_is_up() -> None:
    cluster, leader = quorum()
    cluster.nodes[LEADER].handlers.clear()
    leader.endpoints = lambda _: ()  # type: ignore[method-assign]
    async with cluster, LiveImage(config(cluster)) as live:

        async def refresh_until_somebody_was_asked() -> None:
            while True:
                with suppress(RequestTimeoutError):  # no node was asked in that time
                    await live.refresh(timeout_ms=100)

        with pytest.raises(UnreachableError, match="FENCED_LEADER_EPOCH, no leader known"):
            await refresh_until_somebody_was_asked()


async def test_brokers_have_no_metadata_log_for_us() -> None:
    with pytest.raises(UnsupportedEndpointError, match=r"bootstrap\.controllers"):
        await load_live_image(
            AdminConfig(bootstrap_servers=addresses_of("bootstrap.servers", ["localhost:1"]))
        )
