"""UnregisterController (KIP-1312) on real controllers: who may be unregistered, what is left, who comes back."""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kit.cluster import Cluster, manifests
from kit.metadata import assert_same_images, assert_snapshots_hold, snapshots_in
from kit.waiting import eventually
from quorate_admin.client import AdminClient
from quorate_admin.errors import ServerError
from quorate_admin.types.cluster import FeatureUpdate
from quorate_protocol.errors import ErrorCode
from quorate_protocol.image import ControllerRegistration

pytestmark = pytest.mark.integration

OBSERVER = 3003
UNREGISTRATION = 33
TIMEOUT_S = 30
SNAPSHOT_EVERY_BYTES = 3_000
FAST_NOOPS_MS = 20
"""The log grows by itself, so that snapshots are taken within seconds."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Iterator[Cluster]:
    """Four Python controllers at metadata.version 4.3-IV0, one of which is no voter any more."""
    manifest = manifests(
        controllers=4,
        brokers=0,
        metadata_version="4.3",
        config={
            "metadata.log.max.record.bytes.between.snapshots": SNAPSHOT_EVERY_BYTES,
            "metadata.max.idle.interval.ms": FAST_NOOPS_MS,
        },
    )
    built = Cluster.create(tmp_path_factory.mktemp("unregister") / "cluster", kafka_jars, manifest)
    try:
        built.start_all()
        quorum = built.await_quorum()
        (key,) = [voter.directory_id for voter in quorum.voters if voter.node_id == OBSERVER]
        eventually(lambda: OBSERVER in registered(built), TIMEOUT_S, "registrations")
        ask(built, lambda client: client.remove_raft_voter(OBSERVER, key))
        yield built
    finally:
        built.close()


def ask(cluster: Cluster, question: Callable[[AdminClient], Awaitable[Any]]) -> ServerError | None:
    """Ask the controllers that run; the error with which they refuse, None when they do not."""
    refusals: list[ServerError] = []

    async def catch(client: AdminClient) -> bool:
        try:
            await question(client)
        except ServerError as error:
            refusals.append(error)
        return True

    running = [controller for controller in cluster.controllers if cluster.runs(controller)]
    assert cluster.ask(catch, controllers=running), cluster.describe("no controller answered")
    return refusals[0] if refusals else None


def stop_observer(cluster: Cluster) -> None:
    """Stop it, as an administrator who decommissions it does first."""
    if cluster.runs(OBSERVER):
        cluster.terminate(OBSERVER)


def start_observer(cluster: Cluster) -> None:
    """Start it, and wait until it is registered, by the active controller and then in every log.

    Its own log begins where it was stopped, when it may have been registered still.
    """
    cluster.start(OBSERVER)
    eventually(lambda: OBSERVER in registered(cluster), TIMEOUT_S, "the observer to register")
    eventually(lambda: OBSERVER in registrations(cluster), TIMEOUT_S, "its registration in every log")


def stop_registered_observer(cluster: Cluster) -> None:
    """It is registered, also when an earlier try unregistered it, and stopped."""
    if OBSERVER not in registered(cluster):
        start_observer(cluster)
    stop_observer(cluster)


def unregister(cluster: Cluster, controller_id: int) -> ServerError | None:
    """Ask for it; the error with which it is refused, None on success."""
    return ask(cluster, lambda client: client.unregister_controller(controller_id))


def registered(cluster: Cluster) -> set[int]:
    """The controllers that DescribeCluster of the active controller names: the others may lag behind."""

    async def describe(client: AdminClient) -> set[int]:
        return {node.node_id for node in (await client.describe_cluster()).nodes}

    return cluster.ask(describe, controllers=[cluster.await_leader()]) or set()


def registrations(cluster: Cluster) -> dict[int, ControllerRegistration]:
    """What all running controllers have in their logs, which have to agree."""
    running = [cluster.metadata(controller) for controller in cluster.controllers if cluster.runs(controller)]
    with cluster.frozen():
        image = assert_same_images(running)
    return dict(image.cluster.controllers)


def finalize(cluster: Cluster, level: int) -> None:
    """Raise metadata.version; a level that is there already is fine."""
    updates = {"metadata.version": FeatureUpdate(max_level=level)}
    refusal = ask(cluster, lambda client: client.update_features(updates))
    assert refusal is None, refusal


def has_snapshot_without(cluster: Cluster, node_id: int) -> bool:
    """Whether every running controller's latest snapshot is newer than what it unregistered."""
    return all(
        snapshots and node_id not in snapshots[-1].image().cluster.controllers
        for snapshots in (
            snapshots_in(cluster.metadata(controller))
            for controller in cluster.controllers
            if cluster.runs(controller)
        )
    )


def test_a_level_below_33_refuses_and_says_which_is_needed(cluster: Cluster) -> None:
    stop_observer(cluster)
    refusal = unregister(cluster, OBSERVER)
    assert refusal is not None
    assert refusal.error_code is ErrorCode.unsupported_version
    assert "metadata.version is 30 (4.3-IV0), it must be at least 33 (4.4-IV2)" in (refusal.message or "")
    refusal = unregister(cluster, 3000)
    assert refusal is not None
    assert refusal.error_code is ErrorCode.invalid_request
    assert OBSERVER in registrations(cluster)


def test_a_stopped_observer_is_gone_for_good(cluster: Cluster) -> None:
    """Nothing is left of a decommissioned controller: not in images, not in later snapshots, not after all
    controllers have started again from what they have on disk.
    """
    finalize(cluster, UNREGISTRATION)
    stop_registered_observer(cluster)
    assert unregister(cluster, OBSERVER) is None
    voters = [controller for controller in cluster.controllers if controller != OBSERVER]
    # The node that responds may not have replicated the record yet.
    eventually(lambda: registered(cluster) == set(voters), TIMEOUT_S, "nobody to know it any more")
    eventually(lambda: set(registrations(cluster)) == set(voters), TIMEOUT_S, "no log to have it any more")
    eventually(partial(has_snapshot_without, cluster, OBSERVER), TIMEOUT_S, "snapshots without it")
    refusal = unregister(cluster, OBSERVER)
    assert refusal is not None
    assert refusal.error_code is ErrorCode.controller_id_not_registered

    cluster.terminate(*voters)
    cluster.start(*voters)
    cluster.await_quorum(*voters)
    eventually(lambda: registered(cluster) == set(voters), TIMEOUT_S, "the same controllers")
    with cluster.frozen():
        assert_snapshots_hold([cluster.metadata(voter) for voter in voters])


def test_a_living_controller_registers_again_by_itself(cluster: Cluster) -> None:
    finalize(cluster, UNREGISTRATION)
    start_observer(cluster)
    before = registrations(cluster)[OBSERVER]
    assert unregister(cluster, OBSERVER) is None

    def attempts() -> list[str]:
        return [line for line in cluster.log_of(OBSERVER).splitlines() if " registering " in line]

    # Other nodes may not have applied the unregistration yet, so the observer's own log is read.
    eventually(lambda: 'reason="not registered"' in attempts()[-1], TIMEOUT_S, "it to register again")
    eventually(lambda: registrations(cluster).get(OBSERVER) == before, TIMEOUT_S, "the same registration")
    eventually(lambda: OBSERVER in registered(cluster), TIMEOUT_S, "others to know it again")


def test_voters_are_refused_at_level_33(cluster: Cluster) -> None:
    finalize(cluster, UNREGISTRATION)
    leader_id = cluster.await_leader()
    others = [controller for controller in cluster.controllers if controller not in (leader_id, OBSERVER)]
    for controller_id in (leader_id, others[0]):
        refusal = unregister(cluster, controller_id)
        assert refusal is not None
        assert refusal.error_code is ErrorCode.invalid_request
        assert "part of the voter set" in (refusal.message or "")
    assert {leader_id, *others} <= set(registrations(cluster))
