"""Describing and changing the cluster, its quorum, features and registrations, at a fake cluster."""

import itertools
import uuid
from typing import Any

import pytest
from kit.fake_cluster import (
    CLUSTER_ID,
    HANG_UP,
    SILENCE,
    FakeCluster,
    FakeNode,
    nested,
    quorum_response,
    replica_state,
    response_to,
)
from quorate_admin.client import AdminClient
from quorate_admin.config import Address
from quorate_admin.diagnosis import judgement
from quorate_admin.errors import (
    RefreshRefusedError,
    ServerError,
    UnsupportedByServerError,
    UnsupportedEndpointError,
)
from quorate_admin.types.cluster import (
    ControllerListener,
    ControllerRegistration,
    FeatureUpdate,
    RaftVoterEndpoint,
)
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import UpgradeType
from quorate_protocol.wire.server import Request

DIRECTORY_ID = uuid.UUID(int=7)
NOW_MS = 1_000_000_000_000


def replica(node_id: int, *, fetched_ms: int = -1, caught_up_ms: int = -1) -> Any:
    """A voter or observer of a response."""
    return replica_state(
        node_id,
        replica_directory_id=DIRECTORY_ID,
        log_end_offset=12,
        last_fetch_timestamp=fetched_ms,
        last_caught_up_timestamp=caught_up_ms,
    )


def quorum(
    *others: Any,
    leader_id: int = 1,
    leader_epoch: int = 4,
    error: ErrorCode = ErrorCode.none,
    observers: Any = (),
) -> Any:
    """A response of the leader, who is caught up now."""
    return quorum_response(
        replica(leader_id, caught_up_ms=NOW_MS),
        *others,
        observers=observers,
        endpoints={leader_id: "h:9093"},
        error_code=error,
        leader_id=leader_id,
        leader_epoch=leader_epoch,
        high_watermark=11,
    )


async def test_the_quorum_is_reported_as_the_leader_knows_it() -> None:
    reported = quorum(replica(2), observers=[replica(5, fetched_ms=NOW_MS - 3)])
    async with (
        FakeCluster(is_controllers=True, handlers={"DescribeQuorum": lambda _: reported}) as cluster,
        AdminClient(bootstrap_controllers=cluster.bootstrap) as admin,
    ):
        found = await admin.describe_metadata_quorum()
    assert (found.leader_id, found.leader_epoch, found.high_watermark) == (1, 4, 11)
    leader, voter = found.voters
    assert (leader.last_fetch_ms, leader.last_caught_up_ms) == (None, NOW_MS)
    assert (voter.directory_id, voter.log_end_offset, voter.last_caught_up_ms) == (DIRECTORY_ID, 12, None)
    assert [(observer.node_id, observer.last_fetch_ms) for observer in found.observers] == [(5, NOW_MS - 3)]
    assert found.nodes == {1: (RaftVoterEndpoint(name="CONTROLLER", host="h", port=9093),)}


async def test_a_quorum_without_a_leader_is_asked_again_and_then_reported() -> None:
    responses = iter([quorum(error=ErrorCode.not_leader_or_follower)] * 2 + [quorum()])
    async with (
        FakeCluster(handlers={"DescribeQuorum": lambda _: next(responses)}) as cluster,
        AdminClient(bootstrap_servers=cluster.bootstrap, retry_backoff_ms=1) as admin,
    ):
        assert (await admin.describe_metadata_quorum()).leader_id == 1
        cluster.handle("DescribeQuorum", lambda _: quorum(error=ErrorCode.leader_not_available))
        seldom = {"retry_backoff_ms": 120_000, "retry_backoff_max_ms": 120_000}
        async with AdminClient(bootstrap_servers=cluster.bootstrap, **seldom) as patient:
            with pytest.raises(ServerError, match="LEADER_NOT_AVAILABLE"):
                await patient.describe_metadata_quorum()


async def test_voters_are_added_and_removed_by_the_leader() -> None:
    handlers = {name: lambda _, name=name: response_to(name) for name in ("AddRaftVoter", "RemoveRaftVoter")}
    async with FakeCluster((1, 2), is_controllers=True, handlers=handlers) as cluster:
        cluster.controller_id = 2
        async with AdminClient(bootstrap_controllers=cluster.bootstrap) as admin:
            endpoints = [RaftVoterEndpoint(name="CONTROLLER", host="h", port=9093)]
            await admin.add_raft_voter(3, DIRECTORY_ID, endpoints, cluster_id="c", ack_when_committed=False)
            await admin.remove_raft_voter(3, DIRECTORY_ID)
        assert cluster.nodes[1].received("AddRaftVoter") == []
        added, removed = (cluster.nodes[2].received(name)[0].body for name in handlers)
    assert (added.cluster_id, added.voter_id, added.voter_directory_id) == ("c", 3, DIRECTORY_ID)
    assert [(listener.name, listener.host, listener.port) for listener in added.listeners] == [
        ("CONTROLLER", "h", 9093)
    ]
    assert added.ack_when_committed is False
    assert added.timeout.total_seconds() == 30
    assert (removed.cluster_id, removed.voter_id, removed.voter_directory_id) == (None, 3, DIRECTORY_ID)


@pytest.mark.parametrize(("kind", "endpoint_type"), [("bootstrap_servers", 1), ("bootstrap_controllers", 2)])
async def test_the_cluster_is_reported_by_nodes_of_the_kind_that_is_asked(
    kind: str, endpoint_type: int
) -> None:
    async with FakeCluster((1, 2), is_controllers=endpoint_type == 2) as cluster:
        async with AdminClient(**{kind: cluster.bootstrap}) as admin:  # type: ignore[arg-type]
            found = await admin.describe_cluster(
                include_fenced_brokers=True, include_authorized_operations=True
            )
        asked = cluster.received("DescribeCluster")[-1].body
    assert (asked.endpoint_type, asked.include_cluster_authorized_operations) == (endpoint_type, True)
    assert asked.include_fenced_brokers == (endpoint_type == 1)
    assert (found.cluster_id, found.controller_id) == (CLUSTER_ID, 1)
    assert [(node.node_id, f"{node.host}:{node.port}") for node in found.nodes] == list(
        zip((1, 2), cluster.bootstrap, strict=True)
    )


async def test_authorized_operations_are_reported_if_asked_for() -> None:
    for bits, expected in ((-(2**31), None), (0, frozenset()), (1 << 3 | 1 << 8, frozenset({3, 8}))):
        described = response_to("DescribeCluster", cluster_id="c", cluster_authorized_operations=bits)
        async with (
            FakeCluster(handlers={"DescribeCluster": lambda _, described=described: described}) as cluster,
            AdminClient(bootstrap_servers=cluster.bootstrap, follow_advertised=False) as admin,
        ):
            assert (await admin.describe_cluster()).authorized_operations == expected


async def test_features_come_fresh_from_the_node_that_is_meant() -> None:
    async with FakeCluster((1, 2)) as cluster, AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
        assert (await admin.describe_features()).finalized["metadata.version"] == 30
        cluster.finalized_features = {"metadata.version": 29}
        cluster.nodes[1].handlers["ApiVersions"] = lambda _: SILENCE
        found = await admin.describe_features(node_id=2)
        assert (found.finalized, found.finalized_epoch) == ({"metadata.version": 29}, 17)
        assert found.supported["kraft.version"] == (0, 1)


async def test_feature_levels_are_changed_together() -> None:
    refusal = response_to("UpdateFeatures", error_code=ErrorCode.invalid_update_version, error_message="No.")
    async with FakeCluster(handlers={"UpdateFeatures": lambda _: refusal}) as cluster:
        async with AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
            updates = {
                "metadata.version": FeatureUpdate(max_level=27, upgrade_type=UpgradeType.SAFE_DOWNGRADE),
                "kraft.version": FeatureUpdate(max_level=1),
            }
            with pytest.raises(ServerError, match=r"^INVALID_UPDATE_VERSION: No\.$"):
                await admin.update_features(updates, validate_only=True)
        (request,) = cluster.received("UpdateFeatures")
    assert request.body.validate_only
    assert [
        (feature_update.feature, feature_update.max_version_level, feature_update.upgrade_type)
        for feature_update in request.body.feature_updates
    ] == [
        ("metadata.version", 27, 2),
        ("kraft.version", 1, 1),
    ]


async def test_nodes_are_asked_for_their_versions_by_id_and_by_address() -> None:
    async with FakeCluster((1, 2)) as cluster, AdminClient(bootstrap_servers=cluster.bootstrap[:1]) as admin:
        cluster.nodes[2].apis[19] = (2, 3)
        by_id = await admin.node_api_versions(2)
        by_address = await admin.node_api_versions(Address.parse(cluster.bootstrap[1]))
    assert by_id == by_address
    assert by_id.api_versions[19] == (2, 3)
    assert by_id.finalized_features["metadata.version"] == 30


async def test_a_registration_is_sent_as_it_is() -> None:
    registration = ControllerRegistration(
        controller_id=9,
        incarnation_id=DIRECTORY_ID,
        listeners=(ControllerListener(name="CONTROLLER", host="h", port=9093, security_protocol=1),),
        features={"metadata.version": (7, 30)},
    )
    handlers = {"ControllerRegistration": lambda _: response_to("ControllerRegistration")}
    async with FakeCluster(is_controllers=True, handlers=handlers) as cluster:
        async with AdminClient(bootstrap_controllers=cluster.bootstrap) as admin:
            await admin.register_controller(registration)
        (request,) = cluster.received("ControllerRegistration")
    body = request.body
    assert (body.controller_id, body.incarnation_id, body.zk_migration_ready) == (9, DIRECTORY_ID, False)
    (listener,) = body.listeners
    assert (listener.name, listener.host, listener.port, listener.security_protocol) == (
        "CONTROLLER",
        "h",
        9093,
        1,
    )
    (feature,) = body.features
    assert (feature.name, feature.min_supported_version, feature.max_supported_version) == (
        "metadata.version",
        7,
        30,
    )
    async with AdminClient(bootstrap_servers=["127.0.0.1:1"]) as admin:
        with pytest.raises(UnsupportedEndpointError, match=r"give bootstrap\.controllers instead"):
            await admin.register_controller(registration)


async def test_unregistering_a_controller_needs_a_new_cluster() -> None:
    """KIP-1312's request, and a word about its age."""
    handlers = {"UnregisterController": lambda _: response_to("UnregisterController")}
    async with (
        FakeCluster(is_controllers=True, handlers=handlers) as cluster,
        AdminClient(bootstrap_controllers=cluster.bootstrap) as admin,
    ):
        await admin.unregister_controller(9)
        assert cluster.received("UnregisterController")[0].body.controller_id == 9
        del cluster.nodes[1].apis[94]
        cluster.nodes[1].hang_up()
        with pytest.raises(UnsupportedByServerError, match="UnregisterController"):
            await admin.unregister_controller(9)


# Refreshing registrations


@pytest.fixture
def short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader is new, and a replica follows, for 20 ms."""
    monkeypatch.setattr(judgement, "FETCH_SILENCE_MS_MAX", 20)


class Ghost:
    """A cluster of controllers 1 and 2, of which 2 may be a ghost."""

    def __init__(self, described: Any, **options: Any) -> None:
        self.cluster = FakeCluster((1, 2), is_controllers=True, **options)
        self.cluster.handle("DescribeQuorum", lambda _: described)
        self.cluster.handle("ControllerRegistration", lambda _: response_to("ControllerRegistration"))

    async def refresh(self, **options: Any) -> list[Request]:
        """Ask controller 1; the registrations that arrived."""
        async with AdminClient(bootstrap_controllers=self.cluster.bootstrap[:1]) as admin:
            await admin.refresh_controller(2, **options)
        return self.cluster.received("ControllerRegistration")


async def test_a_dead_controller_is_registered_with_what_the_active_one_runs() -> None:
    ghost = Ghost(quorum(observers=[replica(2, fetched_ms=NOW_MS - 60_000)]))
    async with ghost.cluster as cluster:
        await cluster.nodes[2].stop()
        cluster.supported_features = {"metadata.version": (7, 33), "kraft.version": (0, 1)}
        (request,) = await ghost.refresh()
    body = request.body
    assert (body.controller_id, body.listeners) == (2, ())
    assert body.incarnation_id not in {None, uuid.UUID(int=0)}
    assert {
        feature.name: (feature.min_supported_version, feature.max_supported_version)
        for feature in body.features
    } == cluster.supported_features


@pytest.mark.parametrize(
    ("described", "said"),
    [
        (quorum(leader_id=2), "it leads the quorum"),
        (quorum(replica(2, fetched_ms=NOW_MS - 5_000)), "it fetched in the last 5000 ms"),
        (quorum(observers=[replica(2, fetched_ms=NOW_MS - 5_000)]), "it fetched in the last 5000 ms"),
        (quorum(replica(2, fetched_ms=NOW_MS - 60_000)), "it answers at"),
        (quorum(replica(2)), "it answers at"),
    ],
)
async def test_a_living_controller_is_left_alone(
    described: Any, said: str, request: pytest.FixtureRequest
) -> None:
    if said == "it answers at":
        request.getfixturevalue("short_silence")
    ghost = Ghost(described)
    async with ghost.cluster:
        with pytest.raises(RefreshRefusedError, match=said):
            await ghost.refresh()
        assert ghost.cluster.received("ControllerRegistration") == []


@pytest.mark.parametrize(
    ("tells", "said"),
    [
        (ErrorCode.none, "it answers at"),
        (ErrorCode.cluster_authorization_failed, "it is unknown whether it is this controller"),
        (ErrorCode.invalid_request, None),
    ],
)
@pytest.mark.usefixtures("short_silence")
async def test_an_old_node_is_recognized_by_its_configuration(tells: ErrorCode, said: str | None) -> None:
    ghost = Ghost(quorum(), api_versions_max=4)
    result = nested("DescribeConfigs", "DescribeConfigsResult", error_code=tells, resource_name="2")
    ghost.cluster.handle("DescribeConfigs", lambda _: response_to("DescribeConfigs", results=(result,)))
    async with ghost.cluster:
        if said is None:
            assert len(await ghost.refresh()) == 1
        else:
            with pytest.raises(RefreshRefusedError, match=said):
                await ghost.refresh()
        (asked,) = ghost.cluster.nodes[2].received("DescribeConfigs")
    (resource,) = asked.body.resources
    assert (resource.resource_type, resource.resource_name) == (4, "2")


OLD_OR_NEW = pytest.mark.parametrize(
    "options",
    [{}, {"checks_identity": False}, {"api_versions_max": 4}],
    ids=["ours", "Kafka 4.4", "Kafka 4.3"],
)


@OLD_OR_NEW
@pytest.mark.usefixtures("short_silence")
async def test_another_node_at_a_ghosts_address_is_no_sign_of_life(options: dict[str, Any]) -> None:
    ghost = Ghost(quorum(), **options)
    async with ghost.cluster as cluster:
        await cluster.nodes[2].stop()
        cluster.nodes[2].advertised = cluster.nodes[1].address
        assert len(await ghost.refresh()) == 1


@OLD_OR_NEW
async def test_who_is_at_an_address_is_known_of_any_release(options: dict[str, Any]) -> None:
    async with (
        FakeCluster((1, 2), is_controllers=True, **options) as cluster,
        FakeCluster((1,), is_controllers=True, cluster_id="other", **options) as other,
        AdminClient(bootstrap_controllers=cluster.bootstrap) as admin,
    ):

        async def is_one_at(node: FakeNode) -> bool | None:
            return await admin.is_node_at(Address.parse(node.address), 1, CLUSTER_ID)

        assert await is_one_at(cluster.nodes[1]) is True
        assert await is_one_at(cluster.nodes[2]) is False
        assert await is_one_at(other.nodes[1]) is False
        cluster.nodes[1].handlers["DescribeConfigs"] = lambda _: HANG_UP
        assert await is_one_at(cluster.nodes[1]) is None
        await cluster.nodes[2].stop()
        assert await is_one_at(cluster.nodes[2]) is None


@pytest.mark.usefixtures("short_silence")
async def test_a_controller_without_endpoints_is_refreshed_if_that_is_meant() -> None:
    """No new ghost by a wrong number, but a second refresh."""
    ghost = Ghost(quorum())
    async with ghost.cluster as cluster:
        await cluster.nodes[2].stop()
        cluster.listed = {1}
        with pytest.raises(
            RefreshRefusedError, match="has no registration with endpoints; controllers with endpoints are 1"
        ):
            await ghost.refresh()
        assert len(await ghost.refresh(allow_unlisted=True)) == 1


@pytest.mark.parametrize("is_voter", [True, False])
@pytest.mark.usefixtures("short_silence")
async def test_a_controller_that_a_new_leader_has_not_heard_gets_time_to_fetch(*, is_voter: bool) -> None:
    """An election just before does not make the living look dead."""
    before = quorum(replica(2)) if is_voter else quorum()
    fetching = replica(2, fetched_ms=NOW_MS - 1)
    responses = iter([before, quorum(fetching) if is_voter else quorum(observers=[fetching])])
    ghost = Ghost(None)
    ghost.cluster.handle("DescribeQuorum", lambda _: next(responses))
    async with ghost.cluster as cluster:
        await cluster.nodes[2].stop()
        with pytest.raises(RefreshRefusedError, match="it fetched in the last"):
            await ghost.refresh()


@pytest.mark.usefixtures("short_silence")
async def test_elections_without_end_end_a_refresh() -> None:
    epochs = itertools.count(1)
    ghost = Ghost(None)
    ghost.cluster.handle("DescribeQuorum", lambda _: quorum(leader_epoch=next(epochs)))
    async with ghost.cluster as cluster:
        await cluster.nodes[2].stop()
        with pytest.raises(RefreshRefusedError, match="elected 3 leaders meanwhile"):
            await ghost.refresh()
