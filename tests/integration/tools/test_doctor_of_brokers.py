"""`quorate doctor` on real clusters: partitions without a leader, nodes without a registration, what it can't see."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.cluster import CONTROLLERS_FIRST, Cluster, manifests
from kit.doctor import codes, diagnosed, finding
from kit.membership import Membership, quorate, succeeded
from kit.waiting import eventually

pytestmark = pytest.mark.integration

TIMEOUT_S = 30
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(params=["python", "java"])
def java(request: pytest.FixtureRequest) -> list[int]:
    """The controllers that stock Kafka runs: none, or the only one."""
    return [CONTROLLERS_FIRST] if request.param == "java" else []


@pytest.fixture
def cluster(tmp_path: Path, kafka_jars: Path, java: list[int]) -> Iterator[Cluster]:
    """A controller and two stock brokers; a topic with a replica on broker 0 alone, and one on both."""
    manifest = manifests(controllers=1, java=java, brokers=2)
    cluster = Cluster.create(tmp_path / "cluster", kafka_jars, manifest)
    try:
        cluster.start_all()
        create = ("topics", "--bootstrap-server", cluster.bootstrap_servers, "--create")
        succeeded(quorate(*create, "--topic", "single", "--replica-assignment", ",".join(["0"] * 8)))
        two_in_sync = ("--config", "min.insync.replicas=2")
        succeeded(quorate(*create, "--topic", "pair", "--replica-assignment", "0:1,0:1", *two_in_sync))
        yield cluster
    finally:
        cluster.close()


def test_a_broker_that_runs_without_a_registration_is_found_and_its_way_out_works(cluster: Cluster) -> None:
    """No tool reports that all is well while partitions have no leader."""
    every = [
        ("--bootstrap-controller", cluster.bootstrap_controllers),
        ("--bootstrap-server", cluster.bootstrap_servers),
        ("--bootstrap-server", cluster.address(0)),  # it does not list itself
    ]
    for bootstrap in every:
        _await_health(*bootstrap)
    succeeded(quorate("cluster", "unregister", *every[0], "--id", "0"))
    expected = [
        ("broker-not-registered", 0),
        ("partitions-offline", None),
        ("partitions-under-min-isr", None),
    ]
    for bootstrap in every:
        reported = eventually(
            lambda at=bootstrap: _with_codes(expected, *at),
            TIMEOUT_S,
            f"the findings through {bootstrap}",
            lambda at=bootstrap: diagnosed(*at),
        )
        assert reported["partitions"] == {"topics": 2, "partitions": 10, "offline": 8, "underMinIsr": 2}
        broker = finding(reported, "broker-not-registered")
        assert (broker["id"], broker["count"]) == ("broker-not-registered/broker-0", 10)
        assert broker["advice"].startswith("Restart broker 0: ")
        offline = finding(reported, "partitions-offline")
        assert (offline["count"], offline["examples"]) == (8, [f"single-{number}" for number in range(5)])
        assert "broker 0 (running, not registered)" in offline["evidence"]
        under = finding(reported, "partitions-under-min-isr")
        assert (under["count"], under["examples"]) == (2, ["pair-0", "pair-1"])
        printed = quorate("doctor", *bootstrap)
        assert printed.returncode == 1
        assert "DANGER   Broker 0 runs and is not registered" in printed.stdout
        assert "Nothing is wrong" not in printed.stdout
    cluster.kill(0)
    cluster.start(0)
    cluster.await_unfenced(0)
    for bootstrap in every:
        _await_health(*bootstrap)


def test_the_only_broker_without_a_registration_is_found_at_its_own_address(
    tmp_path: Path, kafka_jars: Path
) -> None:
    cluster = Cluster.create(tmp_path / "cluster", kafka_jars, manifests(controllers=1))
    try:
        cluster.start_all()
        at = ("--bootstrap-server", cluster.bootstrap_servers)
        succeeded(quorate("topics", *at, "--create", "--topic", "t", "--partitions", "3"))
        succeeded(quorate("cluster", "unregister", *at, "--id", "0"))
        reported = eventually(
            lambda: _with_codes([("broker-not-registered", 0), ("partitions-offline", None)], *at),
            TIMEOUT_S,
            "the findings",
        )
        assert reported["partitions"]["offline"] == 3
    finally:
        cluster.close()


def test_what_the_doctor_may_not_see_is_no_health(tmp_path: Path, kafka_jars: Path, java: list[int]) -> None:
    manifest = manifests(controllers=1, java=java, brokers=0, config=AUTHORIZER)
    cluster = Cluster.create(tmp_path / "cluster", kafka_jars, manifest)
    try:
        cluster.start_all()
        at = ("--bootstrap-controller", cluster.bootstrap_controllers)
        _await_health(*at)  # the controller has registered itself
        allow = (
            "acls",
            *at,
            "--add",
            "--allow-principal",
            "User:ANONYMOUS",
            "--operation",
            "Alter",
            "--cluster",
        )
        succeeded(quorate(*allow))
        expected = [("registrations-not-examined", None), ("partitions-not-examined", None)]
        reported = eventually(
            lambda: _with_codes(expected, *at), TIMEOUT_S, "the findings", lambda: diagnosed(*at)
        )
        assert (reported["partitions"], reported["registrationsFromLog"]) == (None, False)
        for code in ("registrations-not-examined", "partitions-not-examined"):
            found = finding(reported, code)
            assert "CLUSTER_AUTHORIZATION_FAILED" in found["evidence"]
            assert "CLUSTER_ACTION" in found["advice"]
        printed = quorate("doctor", *at)
        assert printed.returncode == 1
        assert "Nothing is wrong" not in printed.stdout
    finally:
        cluster.close()


def test_a_controller_that_could_vote_differs_from_one_that_is_cut_off(
    tmp_path: Path, kafka_jars: Path, java: list[int]
) -> None:
    """An observer gets the command that makes it a voter; a registered controller that runs and does not
    follow is no ghost.
    """
    manifest = manifests(controllers=2, java=java and [*java, CONTROLLERS_FIRST + 1], brokers=0)
    cluster = Membership.found(tmp_path / "cluster", kafka_jars, manifest, founders=1)
    try:
        founder, other = cluster.controllers
        cluster.start(founder)
        cluster.await_quorum(founder)
        cluster.observe(other)
        at = ("--bootstrap-controller", cluster.address(founder))
        reported = eventually(lambda: _reported("controller-could-vote", *at), TIMEOUT_S, "the observer")
        note = finding(reported, "controller-could-vote")
        assert (note["severity"], note["nodeId"]) == ("note", other)
        assert note["commands"][0].endswith("--command-config controller.properties add-controller")
        _await_health(*at)
        cluster.kill(other)
        ghost = eventually(lambda: _reported("ghost-controller", *at), TIMEOUT_S, "the ghost")
        assert "no such node runs" in finding(ghost, "ghost-controller")["message"]
        # It lost its disk, and no server listens at the address that it has for the quorum.
        shutil.rmtree(cluster.data(other))
        cluster.format(other)
        cluster.configure(other, {"controller.quorum.bootstrap.servers": "127.0.0.1:1"})
        cluster.start(other)
        cut_off = eventually(lambda: _reported("controller-not-following", *at), TIMEOUT_S, "the finding")
        assert codes(cut_off) == [("controller-not-following", other)]
        assert cluster.address(other) in finding(cut_off, "controller-not-following")["evidence"]
    finally:
        cluster.close()


def _await_health(*bootstrap: str) -> None:
    eventually(
        lambda: _with_codes([], *bootstrap),
        TIMEOUT_S,
        f"health through {bootstrap}",
        lambda: diagnosed(*bootstrap),
    )


def _with_codes(expected: list[tuple[str, int | None]], *bootstrap: str) -> dict[str, Any] | None:
    reported = diagnosed(*bootstrap)
    return reported if sorted(codes(reported), key=str) == sorted(expected, key=str) else None


def _reported(code: str, *bootstrap: str) -> dict[str, Any] | None:
    reported = diagnosed(*bootstrap)
    return reported if any(found["code"] == code for found in reported["findings"]) else None
