"""`quorate doctor` on real clusters: what it finds, and that the commands it proposes are the way out."""

import json
import shlex
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.cluster import CONTROLLERS_FIRST, Cluster, manifests
from kit.doctor import codes, diagnosed
from kit.membership import FEATURES_OF_4_1, quorate, refused, succeeded
from kit.releases import NEWEST_LEVEL
from kit.waiting import eventually
from quorate_admin.client import AdminClient
from quorate_admin.types.cluster import ControllerListener, ControllerRegistration

pytestmark = pytest.mark.integration

GHOST = 99
METADATA_VERSION_OF_4_0 = 25
TIMEOUT_S = 30


@pytest.fixture
def stock(tmp_path: Path, kafka_jars: Path) -> Iterator[Cluster]:
    """Stock Kafka alone: a Java controller and a Java broker, at the metadata.version of 4.0."""
    manifest = manifests(controllers=1, java=[CONTROLLERS_FIRST], metadata_version="4.0")
    cluster = Cluster.create(tmp_path / "cluster", kafka_jars, manifest)
    try:
        yield cluster.start_all()
    finally:
        cluster.close()


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[Cluster]:
    """Three Python controllers, running."""
    cluster = Cluster.settle(tmp_path / "cluster", None, manifests(brokers=0))
    cluster.format(*cluster.controllers)
    try:
        yield cluster.start_all()
    finally:
        cluster.close()


def register(cluster: Cluster, controller_id: int, port: int = 1) -> None:
    """Leave the registration of a Kafka 4.1 controller that is not there."""
    registration = ControllerRegistration(
        controller_id=controller_id,
        incarnation_id=uuid.uuid4(),
        listeners=(ControllerListener(name="CONTROLLER", host="127.0.0.1", port=port, security_protocol=0),),
        features=FEATURES_OF_4_1,
    )

    async def send(client: AdminClient) -> bool:
        await client.register_controller(registration)
        return True

    assert cluster.ask(send, controllers=cluster.controllers)


def level(diagnosis: dict[str, Any], feature: str = "metadata.version") -> tuple[int, int]:
    """The finalized and the reachable level."""
    outlook = next(outlook for outlook in diagnosis["features"] if outlook["feature"] == feature)
    return outlook["finalizedLevel"], outlook["reachableLevel"]


def listed(*bootstrap: str) -> list[int]:
    """The controllers that have endpoints."""
    return [
        load["id"]
        for load in json.loads(succeeded(quorate("cluster", "list-endpoints", *bootstrap, "-o", "json")))
    ]


def test_a_ghost_on_stock_kafka_is_found_and_its_way_out_works(stock: Cluster) -> None:
    register(stock, GHOST)
    by_server = ("--bootstrap-server", stock.bootstrap_servers)
    by_controller = ("--bootstrap-controller", stock.bootstrap_controllers)
    for bootstrap in (by_server, by_controller):
        reported = diagnosed(*bootstrap)
        assert codes(reported) == [("feature-blocked", GHOST)], reported
        assert reported["registrationsFromLog"] is (bootstrap is by_controller)
        assert level(reported) == (METADATA_VERSION_OF_4_0, FEATURES_OF_4_1["metadata.version"][1])
        assert reported["findings"][0]["blocks"]["metadata.version"] == [28, NEWEST_LEVEL]
    for command in reported["findings"][0]["commands"]:
        program, *arguments = shlex.split(command)
        assert program == "quorate"
        succeeded(quorate(*arguments))
    for bootstrap in (by_server, by_controller):
        # The broker may not have the new level yet.
        eventually(
            lambda at=bootstrap: level(diagnosed(*at)) == (NEWEST_LEVEL, NEWEST_LEVEL),
            TIMEOUT_S,
            "the level",
            lambda at=bootstrap: diagnosed(*at),
        )
        assert codes(diagnosed(*bootstrap)) == []


def test_a_doctor_changes_nothing(stock: Cluster) -> None:
    arguments = ("features", "--bootstrap-controller", stock.bootstrap_controllers, "describe", "-o", "json")
    before = json.loads(succeeded(quorate(*arguments)))["features"]
    reported = diagnosed("--bootstrap-server", stock.bootstrap_servers)
    assert level(reported) == (METADATA_VERSION_OF_4_0, NEWEST_LEVEL)
    notes = ["single-voter", "metadata-version-behind", "registrations-not-examined"]
    assert [note["code"] for note in reported["findings"]] == notes
    assert json.loads(succeeded(quorate(*arguments)))["features"] == before


def test_voters_that_die_are_found_one_by_one(quorum: Cluster) -> None:
    bootstrap = ("--bootstrap-controller", quorum.bootstrap_controllers)
    leader = quorum.await_quorum().leader_id
    first, second = (controller for controller in quorum.controllers if controller != leader)
    assert codes(diagnosed(*bootstrap)) == []
    quorum.kill(first)

    def silent() -> list[tuple[str, int | None]] | None:
        found = codes(diagnosed(*bootstrap))
        return found or None

    found = eventually(silent, TIMEOUT_S, "the dead voter to be found")
    assert found == [("one-failure-from-loss", None), ("voter-silent", first)]
    quorum.kill(second)
    eventually(lambda: quorum.quorum(leader) is None, TIMEOUT_S, "the leader to resign")
    reported = diagnosed(*bootstrap)
    assert codes(reported) == [("no-leader", None)]
    finding = reported["findings"][0]
    assert finding["message"] == f"The quorum has no leader; voters {first}, {second} do not answer"
    assert finding["advice"].startswith(f"Start controllers {first} or {second}:")


def test_a_living_controller_is_not_refreshed(quorum: Cluster) -> None:
    bootstrap = ("--bootstrap-controller", quorum.bootstrap_controllers)
    quorum.await_quorum()
    voter = quorum.controllers[-1]
    reported = refused(quorate("cluster", "refresh-controller", *bootstrap, "--controller-id", str(voter)))
    assert f"controller {voter} is not refreshed: " in reported
    register(quorum, GHOST)
    ghost = ("cluster", "refresh-controller", *bootstrap, "--controller-id", str(GHOST))
    assert succeeded(quorate(*ghost, "--dry-run")).startswith("DRY RUN of refreshing the registration")
    # Any controller is asked, which may lag behind the active one.
    with_ghost, without = [GHOST, *quorum.controllers], [*quorum.controllers]
    eventually(lambda: listed(*bootstrap) == with_ghost, TIMEOUT_S, "the ghost", lambda: listed(*bootstrap))
    assert succeeded(quorate(*ghost)).startswith("Refreshed the registration of controller 99:\n")
    eventually(lambda: listed(*bootstrap) == without, TIMEOUT_S, "no ghost", lambda: listed(*bootstrap))
