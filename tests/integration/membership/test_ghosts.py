"""Ghosts: registrations of controllers that are gone. They block feature levels, and how they are got rid of."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from kit.cluster import manifests
from kit.membership import RANGE_OF_4_1, Membership, quorate, refused, succeeded
from kit.metadata import assert_same_images, snapshots_in
from kit.releases import LEVEL, NEWEST_LEVEL
from kit.waiting import eventually

pytestmark = pytest.mark.integration

GHOST = 3099
KINDS = {"java": (3000, 3001), "python": ()}
ALIVE_TIMEOUT_S = 30
SNAPSHOT_TIMEOUT_S = 30


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def cluster(request: pytest.FixtureRequest, tmp_path: Path, kafka_jars: Path) -> Iterator[Membership]:
    """A controller and a broker of stock Kafka at the level of 4.1, and a place for an observer."""
    manifest = manifests(controllers=2, java=request.param, metadata_version="4.1")
    cluster = Membership.found(tmp_path / "cluster", kafka_jars, manifest, founders=1)
    try:
        yield cluster.start_founders()
    finally:
        cluster.close()


def registered(cluster: Membership) -> set[int]:
    """The controllers that the cluster lists (DescribeCluster)."""
    ran = quorate("cluster", "list-endpoints", "--bootstrap-controller", cluster.asks())
    lines = succeeded(ran).splitlines()[1:]
    return {int(line.split()[0]) for line in lines}


def upgrade(cluster: Membership, *to: str) -> CompletedProcess[str]:
    """Try to raise feature levels."""
    return quorate("features", "--bootstrap-controller", cluster.asks(), "upgrade", *to)


def doctor(cluster: Membership) -> tuple[str, list[dict[str, Any]]]:
    """What `quorate doctor` prints for people, and the findings that it has for programs."""
    at = ("doctor", "--bootstrap-controller", cluster.asks())
    for_people, for_programs = quorate(*at), quorate(*at, "-o", "json")
    assert for_people.stderr == for_programs.stderr == ""
    return for_people.stdout, json.loads(for_programs.stdout)["findings"]


def test_a_ghost_that_blocks_an_upgrade_is_found_and_refreshed(cluster: Membership) -> None:
    """On any cluster since metadata.version 15 there is a way out, and the tools print it."""
    alive = cluster.controllers[1]
    cluster.observe(alive)
    eventually(lambda: alive in registered(cluster), ALIVE_TIMEOUT_S, f"{alive} to be registered")
    cluster.leave_ghost(GHOST)
    low, high = RANGE_OF_4_1
    why_not = refused(upgrade(cluster, "--feature", f"metadata.version={NEWEST_LEVEL}"))
    assert f"Controller {GHOST} only supports versions {low}-{high}" in why_not
    at = ("--bootstrap-controller", cluster.asks())
    not_that = refused(quorate("cluster", "refresh-controller", *at, "--controller-id", str(alive)))
    assert str(alive) in not_that
    printed, findings = doctor(cluster)
    (blocker,) = [finding for finding in findings if finding["code"] == "feature-blocked"]
    assert blocker["nodeId"] == GHOST
    assert f"Ghost controller {GHOST}" in printed
    assert blocker["commands"], "no way out is told"
    for command in blocker["commands"]:
        assert f"$ {command}\n" in printed
        succeeded(quorate(*shlex.split(command)[1:]))
    succeeded(upgrade(cluster, "--release-version", LEVEL))
    _, findings = doctor(cluster)
    assert [finding for finding in findings if finding["severity"] == "blocked"] == []
    cluster.await_voters(cluster.founders[0])
    cluster.await_unfenced(*cluster.brokers)


@pytest.fixture
def newest(tmp_path: Path) -> Iterator[Membership]:
    """Three controllers of ours at the level of 4.4."""
    config = {"metadata.log.max.record.bytes.between.snapshots": 1_000}
    manifest = manifests(brokers=0, metadata_version="4.4", config=config)
    cluster = Membership.found(tmp_path / "cluster", None, manifest, founders=3)
    try:
        yield cluster.start_founders()
    finally:
        cluster.close()


def test_a_removed_controller_is_unregistered_in_one_step(newest: Membership) -> None:
    """`remove-controller --unregister` (KIP-1312) leaves no trace of a controller that is gone."""
    *left, gone = newest.controllers
    eventually(lambda: registered(newest) == set(newest.controllers), ALIVE_TIMEOUT_S, "all to be registered")
    directory_id = newest.directory_id(gone)
    newest.kill(gone)
    newest.await_quorum(*left)
    printed = succeeded(newest.try_to_remove(gone, directory_id, "--unregister"))
    assert str(gone) in printed
    end = newest.await_voters(*left).high_watermark
    # The node that responds may not have replicated the record yet.
    eventually(lambda: registered(newest) == set(left), ALIVE_TIMEOUT_S, "it to be unregistered")

    def snapshot() -> bool:
        return all(
            any(snapshot.end_offset >= end for snapshot in snapshots_in(newest.metadata(node)))
            for node in left
        )

    eventually(snapshot, SNAPSHOT_TIMEOUT_S, "snapshots")
    with newest.frozen():
        image = assert_same_images([newest.metadata(node) for node in left])
        taken = [snapshots_in(newest.metadata(node))[-1].image() for node in left]
    for held in (image, *taken):
        assert sorted(held.cluster.controllers) == left
