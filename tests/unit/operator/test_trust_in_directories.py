"""Directories of played clusters that another user could have changed are not trusted."""

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from quorate_operator.planning.steps import StepError
from quorate_operator.runtime.local import play_session
from quorate_operator.runtime.local.control_socket import call, serve
from quorate_operator.runtime.local.directory import PlayDirectory, UntrustedError, check_peer
from quorate_operator.runtime.local.errors import PlayError
from quorate_operator.runtime.local.identity import read_identity
from quorate_operator.runtime.local.layout import Layout

pytestmark = pytest.mark.usefixtures("own_ports")

CONTROLLERS = """
apiVersion: quorate.dev/v1alpha1
kind: KafkaController
metadata: {name: quorum}
spec: {replicas: 1, nodeIds: {first: 3000}}
"""
BROKERS = """
---
apiVersion: quorate.dev/v1alpha1
kind: KafkaBroker
metadata: {name: brokers}
spec: {controllers: quorum, replicas: 1}
"""
JAVA = """#!/bin/sh
touch "$(dirname "$0")/was-run"
echo 'openjdk version "21"' >&2
"""
NO_JAVA = {"JAVA_HOME": "/nowhere", "PATH": "/nowhere"}


def played(tmp_path: Path, manifest: str, environment: dict[str, str]) -> Layout:
    """The layout that is played in a directory, whose lock is released."""
    found = play_session.prepare(manifest, "test", tmp_path / "quorum", environment, lambda _: None).layout
    found.directory.release()
    return found


def java(tmp_path: Path) -> dict[str, str]:
    """An environment with a Java and a Kafka that only leave a trace."""
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(JAVA)
    (home / "bin" / "java").chmod(0o755)
    (home / "libs").mkdir()
    for jar in ("kafka_2.13-4.4.0.jar", "kafka-shell-4.4.0.jar"):
        (home / "libs" / jar).touch()
    return {"JAVA_HOME": str(home), "KAFKA_HOME": str(home), "PATH": "/nowhere"}


@pytest.fixture
def cluster(tmp_path: Path) -> PlayDirectory:
    """A directory in which a cluster was played."""
    return played(tmp_path, CONTROLLERS, NO_JAVA).directory


def test_a_cloned_directory_runs_no_java_of_its_own(tmp_path: Path) -> None:
    environment = java(tmp_path)
    directory = played(tmp_path, CONTROLLERS + BROKERS, environment).directory
    payload = tmp_path / "payload"
    payload.write_text(JAVA)
    payload.chmod(0o755)
    content = json.loads(directory.identity_file.read_text())
    content["kafka"] = {"4.4.0": {"version": "4.4.0", "java": str(payload), "libs": "/", "tools": None}}
    directory.identity_file.write_text(json.dumps(content))
    for manifest in (CONTROLLERS + BROKERS, CONTROLLERS):
        layout = played(tmp_path, manifest, environment)
        assert {kafka.java for kafka in layout.kafka.values()} == {f"{tmp_path}/home/bin/java"}
        layout = play_session.recall_to_run(directory, environment)
        assert {kafka.java for kafka in layout.kafka.values()} == {f"{tmp_path}/home/bin/java"}
    assert not (tmp_path / "was-run").exists()
    assert (tmp_path / "home" / "bin" / "was-run").exists()


def test_a_node_that_must_leave_is_not_started_without_its_kafka(tmp_path: Path) -> None:
    played(tmp_path, CONTROLLERS + BROKERS, java(tmp_path))
    layout = played(tmp_path, CONTROLLERS, NO_JAVA)
    config = layout.directory.node("broker-0") / "server.properties"
    layout.directory.write(config, "log.dirs=x\n")
    node = layout.identity.nodes[0]
    with pytest.raises(StepError, match=r"Kafka .* was not found on this machine"):
        layout.kept_run_command("broker-0", node.implementation, node.kafka_version, environment={})


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("log.dirs=DIR/data,DIR/../../x", "is not in"),
        ("metadata.log.dir=/etc", "metadata.log.dir: /etc: is not in"),
        ("listeners=PLAINTEXT://127.0.0.1:9092,OTHER://0.0.0.0:9093", "is not in 127.0.0.0/8"),
        ("listeners=PLAINTEXT://:9092", "is not in 127.0.0.0/8"),
        ("log.dirs=DIR/data\nlisteners=PLAINTEXT://127.0.0.1:9092", None),
    ],
)
def test_a_kept_configuration_stays_in_its_directory(
    cluster: PlayDirectory, line: str, fault: str | None
) -> None:
    """A node that leaves writes nowhere else, and listens nowhere else."""
    layout = play_session.recall(cluster)
    node = cluster.node("broker-0")
    cluster.write(node / "server.properties", line.replace("DIR", str(node)))
    cluster.write(node / "log4j2.properties", "appender.x.fileName=/etc/passwd")
    if fault is None:
        assert layout.kept_config("broker-0") == line.replace("DIR", str(node))
        assert "passwd" not in (node / "log4j2.properties").read_text()
        return
    with pytest.raises(StepError) as refused:
        layout.kept_config("broker-0")
    assert fault in str(refused.value)


def writable(path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    del monkeypatch
    path.chmod(0o775)
    return rf"{path} belongs to uid \d+, mode 775: other users may write it.*chmod -R go-w {path}"


def foreign(path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    uid = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    return rf"{path} belongs to uid {uid}, mode 700, and this process runs as uid {uid + 1}.*chown -R"


@pytest.mark.parametrize("change", [writable, foreign])
@pytest.mark.parametrize(
    "use",
    [
        PlayDirectory.lock,
        read_identity,
        play_session.recall,
        lambda directory: played(directory.path.parent, CONTROLLERS, NO_JAVA),
    ],
)
def test_a_directory_that_others_may_change_is_refused(
    cluster: PlayDirectory,
    use: Callable[[PlayDirectory], object],
    change: Callable[[Path, pytest.MonkeyPatch], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    message = change(cluster.path, monkeypatch)
    with pytest.raises(UntrustedError, match=message):
        use(cluster)


async def test_a_manifest_does_not_go_to_a_directory_of_others(cluster: PlayDirectory) -> None:
    async def handle(*_: object) -> object:
        return None

    async with serve(cluster, handle):
        cluster.path.chmod(0o777)
        with pytest.raises(UntrustedError, match="mode 777"):
            await call(cluster, "play", manifest="secret")
        cluster.path.chmod(0o700)
        assert await call(cluster, "play", manifest="secret") is None


class Connected:
    """A connection of a process that runs as a user."""

    def __init__(self, uid: int) -> None:
        self.uid = uid

    def getsockopt(self, *_: int) -> bytes:
        """SO_PEERCRED: pid, uid, gid."""
        return struct.pack("3i", 1, self.uid, 1)


def test_a_process_of_another_user_is_refused(tmp_path: Path) -> None:
    """The other end of the control socket is the same user's, or root's."""
    for uid in (os.geteuid(), 0):
        check_peer(cast("Any", Connected(uid)), tmp_path)
    with pytest.raises(
        UntrustedError, match=f"the other end runs as uid 12345, and this process as uid {os.geteuid()}"
    ):
        check_peer(cast("Any", Connected(12345)), tmp_path)


@pytest.mark.parametrize("name", ["lock", "supervisor.log", "controller-3000", "controller-3000/data/log"])
def test_links_are_refused(cluster: PlayDirectory, tmp_path: Path, name: str) -> None:
    """No file elsewhere is written, cut or deleted."""
    target = tmp_path / "precious"
    target.write_text("thesis")
    link = cluster.path / name
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_dir():
        shutil.rmtree(link)
    else:
        link.unlink(missing_ok=True)
    link.symlink_to(target)
    assert not cluster.held
    with pytest.raises(PlayError, match=f"{link} is a symbolic link"):
        cluster.lock()
    assert target.read_text() == "thesis"


def test_files_that_others_may_write_are_refused_in_an_open_directory(cluster: PlayDirectory) -> None:
    cluster.manifest.chmod(0o664)
    cluster.lock()
    cluster.release()
    cluster.path.chmod(0o755)
    with pytest.raises(UntrustedError, match=f"{cluster.manifest} belongs to uid .*, mode 664"):
        cluster.lock()
