"""Controllers that run and are in no voter set, by a mistake in their files: the log says what to set."""

from pathlib import Path

import pytest
from kit.cluster import Cluster, manifests
from kit.waiting import eventually

pytestmark = pytest.mark.integration

WARNED_TIMEOUT_S = 40


def await_warning(cluster: Cluster, node_id: int) -> str:
    """Wait for the warning of a controller that is no voter. Returns the line."""

    def line() -> str | None:
        lines = cluster.log_of(node_id).splitlines()
        return next((line for line in lines if "not_a_voter" in line), None)

    return eventually(line, WARNED_TIMEOUT_S, "a warning of a controller that is no voter")


def test_a_static_voter_without_controller_quorum_voters_is_warned(tmp_path: Path) -> None:
    cluster = Cluster.create(
        tmp_path / "static" / "cluster", None, manifests(brokers=0, quorum="static", metadata_version=None)
    )
    try:
        cluster.start_all()
        victim = cluster.controllers[-1]
        cluster.terminate(victim)
        servers = {"controller.quorum.bootstrap.servers": cluster.bootstrap_controllers}
        cluster.configure(victim, servers, removed=["controller.quorum.voters"])
        cluster.start(victim)
        assert "set controller.quorum.voters as on the other controllers" in await_warning(cluster, victim)
    finally:
        cluster.close()


def test_a_voter_whose_directory_lost_its_id_is_warned(tmp_path: Path) -> None:
    cluster = Cluster.create(tmp_path / "dynamic" / "cluster", None, manifests(brokers=0))
    try:
        cluster.start_all()
        victim = cluster.controllers[-1]
        lost = cluster.directory_id(victim)
        cluster.terminate(victim)
        file = cluster.data(victim) / "meta.properties"
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(line for line in lines if not line.startswith("directory.id=")))
        cluster.start(victim)
        warning = await_warning(cluster, victim)
        assert f"set directory.id={lost} in meta.properties" in warning
        assert cluster.directory_id(victim) in warning
        cluster.terminate(victim)
        present = cluster.directory_id(victim)
        file.write_text(file.read_text().replace(present, lost))
        cluster.start(victim)
        cluster.await_quorum()
    finally:
        cluster.close()
