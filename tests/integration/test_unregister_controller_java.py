"""UnregisterController (KIP-1312) with stock Kafka 4.4: Java controllers, and brokers that forward to either kind.

Java controllers of 4.4.0 accept a voter that runs, and it registers again; ours refuse every voter.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from kit.cluster import Cluster, manifests
from kit.kafka import jars_of
from kit.membership import quorate, refused, succeeded
from kit.waiting import eventually
from quorate_admin.client import AdminClient
from quorate_admin.errors import ServerError
from quorate_admin.types.cluster import FeatureUpdate
from quorate_protocol.errors import ErrorCode
from quorate_protocol.uuids import uuid_to_text

pytestmark = pytest.mark.integration

RELEASE = "4.4.0"
UNREGISTRATION = 33
NOBODY = 99
TIMEOUT_S = 30
UNREGISTER = ("cluster", "unregister-controller")
REFUSES_ITSELF = "Controller cannot unregister itself while it is active."


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three Java controllers of Kafka 4.4 at metadata.version 4.3-IV0, and a broker."""
    manifest = manifests(java=(3000, 3001, 3002), metadata_version="4.3")
    cluster = Cluster.create(tmp_path_factory.mktemp("stock") / "cluster", jars_of(RELEASE), manifest)
    try:
        cluster.start_all()
        eventually(lambda: registered(cluster) == set(cluster.controllers), TIMEOUT_S, "registrations")
        yield cluster
    finally:
        cluster.close()


def registered(cluster: Cluster) -> set[int]:
    """The controllers that DescribeCluster of the active controller names."""

    async def describe(client: AdminClient) -> set[int]:
        return {node.node_id for node in (await client.describe_cluster()).nodes}

    return cluster.ask(describe, controllers=[cluster.await_leader()]) or set()


def finalize(cluster: Cluster, level: int) -> None:
    """Raise metadata.version; a level that is there already is fine."""

    async def update(client: AdminClient) -> bool:
        await client.update_features({"metadata.version": FeatureUpdate(max_level=level)})
        return True

    assert cluster.ask(update, controllers=[cluster.await_leader()])


def ways(cluster: Cluster) -> Iterator[Callable[[int], ServerError | None]]:
    """Ways to ask for the unregistration of a controller: at the active controller, and through a broker."""

    def ask(controller_id: int, **nodes: object) -> ServerError | None:
        refusals: list[ServerError] = []

        async def unregister(client: AdminClient) -> bool:
            try:
                await client.unregister_controller(controller_id)
            except ServerError as error:
                refusals.append(error)
            return True

        assert cluster.ask(unregister, **nodes), cluster.describe(f"no answer from {nodes}")
        return refusals[0] if refusals else None

    yield partial(ask, controllers=[cluster.await_leader()])
    yield partial(ask, brokers=cluster.brokers)


def code_of(refusal: ServerError | None) -> ErrorCode | None:
    """The error code, None for success."""
    return refusal.error_code if refusal is not None else None


def test_a_stock_broker_forwards_to_our_controllers(tmp_path: Path) -> None:
    """Brokers of Kafka 4.4 know the request, and pass on what our controller says."""
    manifest = manifests(controllers=1, metadata_version="4.4")
    cluster = Cluster.create(tmp_path / "cluster", jars_of(RELEASE), manifest)
    try:
        cluster.start_all()
        at_broker = ("--bootstrap-server", cluster.bootstrap_servers)
        voter = refused(quorate(*UNREGISTER, *at_broker, "--controller-id", str(cluster.controllers[0])))
        assert "part of the voter set" in voter
        nobody = refused(quorate(*UNREGISTER, *at_broker, "--controller-id", str(NOBODY)))
        assert "CONTROLLER_ID_NOT_REGISTERED" in nobody
    finally:
        cluster.close()


def test_the_order_of_java_s_checks_below_the_level(stock: Cluster) -> None:
    leader = stock.await_leader()
    follower = next(controller for controller in stock.controllers if controller != leader)
    for unregister in ways(stock):
        refusal = unregister(leader)
        assert refusal is not None
        assert (refusal.error_code, refusal.message) == (ErrorCode.invalid_request, REFUSES_ITSELF)
        assert code_of(unregister(follower)) is ErrorCode.unsupported_version
        assert code_of(unregister(NOBODY)) is ErrorCode.unsupported_version


def test_java_accepts_a_voter_that_runs_and_it_registers_again(stock: Cluster) -> None:
    finalize(stock, UNREGISTRATION)
    leader = stock.await_leader()
    follower = next(controller for controller in stock.controllers if controller != leader)
    for unregister in ways(stock):
        assert unregister(follower) is None
        eventually(lambda: registered(stock) == set(stock.controllers), TIMEOUT_S, "it to register again")
        assert code_of(unregister(leader)) is ErrorCode.invalid_request
        assert code_of(unregister(NOBODY)) is ErrorCode.controller_id_not_registered


def test_the_doctor_names_a_voter_that_java_unregistered(stock: Cluster) -> None:
    """What Java allows here, ours refuse for a reason: no node knows what a voter without registration
    supports.
    """
    finalize(stock, UNREGISTRATION)
    leader = stock.await_leader()
    stopped = next(controller for controller in stock.controllers if controller != leader)
    left = ",".join(stock.address(controller) for controller in stock.controllers if controller != stopped)

    def findings() -> list[str]:
        ran = quorate("doctor", "--bootstrap-controller", left, "-o", "json")
        return [
            finding["code"] for finding in json.loads(ran.stdout)["findings"] if finding["nodeId"] == stopped
        ]

    stock.terminate(stopped)
    assert next(ways(stock))(stopped) is None
    quorum = stock.quorum()
    assert quorum is not None
    assert stopped in [voter.node_id for voter in quorum.voters]
    assert "voter-not-registered" in findings()
    stock.start(stopped)
    eventually(lambda: registered(stock) == set(stock.controllers), TIMEOUT_S, "it to register again")
    eventually(lambda: findings() == [], TIMEOUT_S, "nothing to be found")


def is_forgotten(node_id: int, bootstrap: tuple[str, str]) -> bool:
    """Whether the doctor finds nothing about a node. For some seconds after its last Fetch it counts as running."""
    reported = json.loads(quorate("doctor", *bootstrap, "-o", "json").stdout)
    return all(finding["nodeId"] != node_id for finding in reported["findings"])


def test_our_tools_remove_and_unregister_at_java_controllers(stock: Cluster) -> None:
    """Our tools work at a stock quorum, and through its brokers."""
    finalize(stock, UNREGISTRATION)
    quorum = stock.await_quorum()
    gone = next(voter for voter in quorum.voters if voter.node_id != quorum.leader_id)
    left = [controller for controller in stock.controllers if controller != gone.node_id]
    at_controllers = ("--bootstrap-controller", ",".join(map(stock.address, left)))
    at_broker = ("--bootstrap-server", stock.bootstrap_servers)
    listing = ("metadata-shell", *at_controllers, "ls", "/image/cluster/controllers")
    stock.terminate(gone.node_id)
    assert succeeded(quorate(*listing)).split() == [str(controller) for controller in stock.controllers]

    removal = (
        "--controller-id",
        str(gone.node_id),
        "--controller-directory-id",
        uuid_to_text(gone.directory_id),
    )
    removed = succeeded(
        quorate("metadata-quorum", *at_controllers, "remove-controller", *removal, "--unregister")
    )
    assert f"Unregistered KRaft controller {gone.node_id}" in removed
    eventually(lambda: registered(stock) == set(left), TIMEOUT_S, "it to be gone")
    assert succeeded(quorate(*listing)).split() == [str(node_id) for node_id in left]
    for bootstrap in (at_controllers, at_broker):
        eventually(partial(is_forgotten, gone.node_id, bootstrap), TIMEOUT_S, "the doctor to find nothing")
        who = ("--controller-id", str(gone.node_id))
        assert "CONTROLLER_ID_NOT_REGISTERED" in refused(quorate(*UNREGISTER, *bootstrap, *who))
