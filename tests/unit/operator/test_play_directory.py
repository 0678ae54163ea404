"""The directory of a played cluster: its lock, what it remembers, and what it refuses."""

import json
import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from quorate_operator.models.manifests import load_manifests
from quorate_operator.planning.cluster import Address, DesiredCluster, Formation, Publication
from quorate_operator.planning.desired import desired_cluster
from quorate_operator.runtime.local.directory import PlayDirectory
from quorate_operator.runtime.local.errors import AlreadyRunningError, PlayError
from quorate_operator.runtime.local.identity import (
    ClusterIdentity,
    read_identity,
    settle_identity,
    write_identity,
)
from quorate_operator.runtime.local.loopback import first_free, is_free
from quorate_protocol.uuids import random_uuid, uuid_to_text

pytestmark = pytest.mark.usefixtures("own_ports")

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def desired(spec: str = "", brokers: str = "replicas: 1") -> DesiredCluster:
    """Three controllers and a broker, with more in their specs."""
    return desired_cluster(
        load_manifests(
            "apiVersion: quorate.dev/v1alpha1\nkind: KafkaController\n"
            f"metadata: {{name: quorum}}\nspec: {{{spec}}}\n---\n"
            "apiVersion: quorate.dev/v1alpha1\nkind: KafkaBroker\n"
            f"metadata: {{name: brokers}}\nspec: {{controllers: quorum, {brokers}}}\n",
            "test",
        )
    )


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[PlayDirectory]:
    """A directory that is taken."""
    taken = PlayDirectory(tmp_path / "quorum")
    taken.lock()
    yield taken
    taken.release()


def settle(directory: PlayDirectory, wanted: DesiredCluster) -> ClusterIdentity:
    """Settle and keep an identity, as a play does."""
    identity = settle_identity(directory, wanted)
    write_identity(directory, identity)
    return identity


@pytest.fixture
def busy_port() -> Iterator[int]:
    """A port on which someone listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_disk_that_can_not_be_read_is_told_once(directory: PlayDirectory) -> None:
    file = directory.node_data("controller-3000") / "meta.properties"
    file.mkdir(parents=True)
    with pytest.raises(PlayError) as raised:
        directory.directory_id_of("controller-3000", CLUSTER_ID)
    assert str(raised.value) == f"{file} can't be read: Is a directory"
    file.rmdir()
    file.write_bytes(b"\xff")
    with pytest.raises(PlayError, match=r"can't be read: .*utf-8"):
        directory.directory_id_of("controller-3000", CLUSTER_ID)


def test_only_one_holds_a_directory(directory: PlayDirectory) -> None:
    second = PlayDirectory(directory.path)
    assert second.held
    with pytest.raises(AlreadyRunningError, match="runs already"):
        second.lock()
    directory.release()
    assert not second.held
    second.lock()
    second.release()


def test_a_directory_with_other_things_is_left_alone(tmp_path: Path) -> None:
    """Never write among a user's files."""
    (tmp_path / "thesis.tex").write_text("chapter 1")
    with pytest.raises(PlayError, match="is not empty and holds no played cluster"):
        PlayDirectory(tmp_path).lock()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_directory_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PlayError, match=r"can't be written .*choose another directory with --dir"):
        PlayDirectory(tmp_path / "file" / "quorum").lock()


def test_what_may_hold_passwords_is_the_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        directory = PlayDirectory(tmp_path / "clusters" / "quorum")
        directory.lock()
        directory.make(directory.node_data("broker-0"))
        config = directory.node("broker-0") / "server.properties"
        for left in (config, config.with_name("server.properties.tmp")):
            left.touch(0o644)
        directory.write(config, "ssl.key.password=secret\n")
        directory.write(directory.manifest, "kind: KafkaBroker\n")
        directory.write(directory.tools / "kafka-topics", "#!/bin/sh\n", mode=0o700)
        directory.release()
    finally:
        os.umask(before)
    modes = {
        str(path.relative_to(directory.path)): path.stat().st_mode & 0o777
        for path in directory.path.rglob("*")
    }
    assert directory.path.stat().st_mode & 0o777 == 0o700
    assert modes == {
        "lock": 0o600,
        "manifest.yaml": 0o600,
        "bin": 0o700,
        "bin/kafka-topics": 0o700,
        "broker-0": 0o700,
        "broker-0/data": 0o700,
        "broker-0/server.properties": 0o600,
    }


def test_a_path_with_a_comma_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlayError, match="comma"):
        PlayDirectory(tmp_path / "a,b").lock()


def test_an_identity_is_kept(directory: PlayDirectory) -> None:
    first = settle(directory, desired())
    assert settle(directory, desired()) == first
    assert read_identity(directory) == first
    assert {node.directory_id is None for node_id, node in first.nodes.items() if node_id < 3000} == {True}
    assert len({node.directory_id for node_id, node in first.nodes.items() if node_id >= 3000}) == 3


def test_a_directory_does_not_choose_what_is_run(directory: PlayDirectory) -> None:
    write_identity(directory, settle_identity(directory, desired(), ["4.3.1"]))
    content = json.loads(directory.identity_file.read_text())
    assert content["kafka_versions"] == ["4.3.1"]
    content["kafka"] = {"4.3.1": {"version": "4.3.1", "java": "./payload", "libs": "/libs", "tools": None}}
    directory.identity_file.write_text(json.dumps(content))
    write_identity(directory, read_identity(directory))
    assert "payload" not in directory.identity_file.read_text()


@pytest.mark.parametrize(
    ("fault", "change"),
    [
        ("kafka_version '../../x': not of the form", {"kafka_versions": ["../../x"]}),
        (
            "0.0.0.0:9092: only addresses in 127",
            {
                "publications": [
                    {"address": ["0.0.0.0", 9092], "node_id": 0, "listener": "PLAINTEXT", "since_ms": 1}
                ]
            },
        ),
        ("ports.CONTROLLER: 0: from 1 to 65535", {"port": 0}),
    ],
)
def test_an_identity_that_leads_elsewhere_is_refused(
    directory: PlayDirectory, fault: str, change: dict[str, Any]
) -> None:
    """No path and no address outside comes from a directory."""
    settle(directory, desired())
    content = json.loads(directory.identity_file.read_text())
    if "port" in change:
        content["nodes"]["3000"]["ports"]["CONTROLLER"] = change["port"]
    else:
        content |= change
    directory.identity_file.write_text(json.dumps(content))
    with pytest.raises(PlayError, match=r"play\.json can't be read") as refused:
        read_identity(directory)
    assert fault in str(refused.value)


def test_brokers_come_and_go_and_keep_their_ports(directory: PlayDirectory) -> None:
    two = settle(directory, desired(brokers="replicas: 2"))
    settle(directory, desired(brokers="replicas: 1"))
    assert settle(directory, desired(brokers="replicas: 2")).nodes[1] == two.nodes[1]


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ("nodeIds: {first: 0}, replicas: 1", "in which 0 is a broker; the manifest makes it a controller"),
        ("quorum: static", "created with spec.quorum: dynamic"),
        (f"clusterId: {CLUSTER_ID}", f"the manifest says spec.clusterId: {CLUSTER_ID}"),
    ],
)
def test_what_can_not_change_is_refused(directory: PlayDirectory, spec: str, fault: str) -> None:
    settle(directory, desired())
    before = directory.identity_file.read_text()
    with pytest.raises(PlayError) as refused:
        settle_identity(directory, desired(spec, "replicas: 1, nodeIds: {first: 7}"))
    assert fault in str(refused.value)
    assert "nothing was changed" in str(refused.value)
    assert directory.identity_file.read_text() == before


def test_a_node_of_another_cluster_is_refused(directory: PlayDirectory) -> None:
    identity = settle(directory, desired())
    data = directory.node_data("controller-3001")
    data.mkdir(parents=True)
    meta = data / "meta.properties"
    meta.write_text(f"#\n#now\ncluster.id={identity.cluster_id}\ndirectory.id=abc\nversion=1\n")
    assert directory.directory_id_of("controller-3001", identity.cluster_id) == "abc"
    meta.write_text(f"cluster.id={CLUSTER_ID}\n")
    with pytest.raises(
        PlayError, match=f"belongs to cluster {CLUSTER_ID}, not to {identity.cluster_id}; nothing"
    ):
        settle(directory, desired())


def test_a_broken_identity_is_told(directory: PlayDirectory) -> None:
    settle(directory, desired())
    content = json.loads(directory.identity_file.read_text())
    for text in (
        "{",
        "[]",
        "{}",
        json.dumps(content | {"format": 3}),
        json.dumps(content | {"nodes": 1}),
        "[" * 100_000,
    ):
        directory.identity_file.write_text(text)
        with pytest.raises(PlayError, match=r"play\.json can't be read"):
            read_identity(directory)


def test_a_busy_fixed_port_is_refused_with_its_owner(directory: PlayDirectory, busy_port: int) -> None:
    with pytest.raises(PlayError) as refused:
        settle(directory, desired(f"listeners: [{{name: CONTROLLER, port: {busy_port}}}]"))
    assert f"controller-3000: listener CONTROLLER: port {busy_port} is in use by pid" in str(refused.value)
    assert "change the port in the manifest" in str(refused.value)
    assert not directory.exists


def test_a_kept_port_that_became_busy_is_refused(directory: PlayDirectory) -> None:
    port = settle(directory, desired()).nodes[3002].ports["CONTROLLER"]
    with socket.create_server(("127.0.0.1", port)), pytest.raises(PlayError, match=f"port {port} is in use"):
        settle(directory, desired())


def test_a_brokers_port_that_became_busy_is_exchanged(directory: PlayDirectory) -> None:
    first = settle(directory, desired())
    port = first.nodes[0].ports["PLAINTEXT"]
    with socket.create_server(("127.0.0.1", port)):
        second = settle(directory, desired())
    assert second.nodes[0].ports["PLAINTEXT"] != port
    assert [second.nodes[node_id] for node_id in range(3000, 3003)] == [
        first.nodes[node_id] for node_id in range(3000, 3003)
    ]


def test_clusters_in_different_directories_search_in_different_places(tmp_path: Path) -> None:
    """Two that start at the same moment do not take one port."""
    firsts = set()
    for number in range(40):
        directory = PlayDirectory(tmp_path / str(number))
        firsts.add(settle_identity(directory, desired()).nodes[3000].ports["CONTROLLER"])
    assert len(firsts) > 20


def test_a_nodes_own_port_is_its_own_for_ever(directory: PlayDirectory) -> None:
    kept = settle(directory, desired()).nodes
    port = kept[3000].ports["CONTROLLER"] + 100
    spec = f"listeners: [{{name: CONTROLLER, port: {port}}}]"
    assert (
        settle(directory, desired(spec, f"listeners: [{{name: PLAINTEXT, port: {port + 50}}}]")).nodes[0]
        == kept[0]
    )
    assert settle(directory, desired(spec)).nodes[3000] == kept[3000]


def test_ports_of_running_nodes_are_theirs(directory: PlayDirectory) -> None:
    """An edited manifest can be settled while its cluster runs."""
    port = settle(directory, desired()).nodes[3001].ports["CONTROLLER"]
    with socket.create_server(("127.0.0.1", port)):
        settle_identity(directory, desired(), running={3001})
        with pytest.raises(PlayError, match=f"port {port} is in use"):
            settle_identity(directory, desired(), running={3000})


def test_formation_and_publications_are_kept(directory: PlayDirectory) -> None:
    first = settle(directory, desired())
    with_facts = replace(
        first,
        formation=Formation(cluster_id=first.cluster_id, initial_voters={3000: "a"}, is_formed=True),
        publications=(
            Publication(
                address=Address("127.0.0.9", 9092),
                node_id=0,
                listener="PLAINTEXT",
                since_ms=1,
                retired_at_ms=2,
            ),
        ),
    )
    write_identity(directory, with_facts)
    assert read_identity(directory) == with_facts
    assert settle(directory, desired()) == with_facts


def test_fixed_ports_that_overlap_are_refused(directory: PlayDirectory) -> None:
    start = first_free(23000, ())
    assert start is not None
    with pytest.raises(PlayError, match="controller-3001's already"):
        settle(
            directory,
            desired(
                f"listeners: [{{name: CONTROLLER, port: {start}}}]",
                f"replicas: 1, listeners: [{{name: PLAINTEXT, port: {start + 1}}}]",
            ),
        )


def test_automatic_ports_pass_over_those_that_the_manifest_fixes(directory: PlayDirectory) -> None:
    (taken, *_) = sorted(settle_identity(directory, desired()).nodes[3000].ports.values())
    fixed = f"replicas: 1, listeners: [{{name: PLAINTEXT, port: {taken}}}]"
    nodes = settle_identity(directory, desired(brokers=fixed)).nodes
    assert nodes[0].ports["PLAINTEXT"] == taken
    assert taken not in nodes[3000].ports.values()


def test_automatic_ports_pass_over_busy_ones(directory: PlayDirectory, busy_port: int) -> None:
    assert not is_free(busy_port)
    found = first_free(busy_port, {busy_port + 1})
    assert found is not None
    assert found > busy_port + 1
    ports = [port for node in settle(directory, desired()).nodes.values() for port in node.ports.values()]
    assert len(set(ports)) == len(ports) == 7


def test_ids_look_like_kafkas() -> None:
    """Kafka's tools take our ids, also as options' values."""
    ids = {uuid_to_text(random_uuid()) for _ in range(200)}
    assert len(ids) == 200
    assert {len(id_) for id_ in ids} == {22}
    assert not any(id_.startswith("-") for id_ in ids)
