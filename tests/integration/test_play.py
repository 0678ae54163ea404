"""`quorate play` as a user runs it: real processes, stock Kafka, the printed lines."""

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from kit.cluster import free_ports
from kit.player import CONTROLLERS_ALONE, TIMEOUT_S, Player
from kit.waiting import eventually

pytestmark = pytest.mark.integration

BROKER = """\
---
apiVersion: quorate.dev/v1alpha1
kind: KafkaBroker
metadata: {name: brokers}
spec: {controllers: quorum, replicas: 1, listeners: [{name: PLAINTEXT, port: %d}]}
"""


def printed_lines(text: str) -> list[str]:
    """The lines to try next."""
    _, _, after = text.partition("Try next")
    return [line.partition("    #")[0].strip() for line in after.splitlines()[1:] if line.startswith("  ")]


def pids(status: dict[str, Any]) -> dict[int, int]:
    """The process ids of the nodes."""
    return {node["nodeId"]: node["pid"] for node in status["nodes"]}


def test_what_play_prints_works_and_survives_a_stop(player: Player) -> None:
    player.write(CONTROLLERS_ALONE % free_ports(3) + BROKER % free_ports(1))
    lines = printed_lines(player.play().stdout)

    def run(line: str) -> str:
        ran = subprocess.run(
            ["/bin/sh", "-c", line],
            **player.surroundings,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert ran.returncode == 0, f"{line}: {ran.stderr}"
        return ran.stdout

    said = [run(line) for line in lines]
    assert "Created topic greetings." in said[0]
    assert "hello, quorum" in said[2]
    assert "LeaderId:" in said[3]
    assert "sent SIGKILL" in said[4]
    before = player.until_ready()

    assert player.run("stop").returncode == 0
    assert player.processes() == []
    player.play()
    after = player.status()
    assert after["clusterId"] == before["clusterId"]
    assert [node["address"] for node in after["nodes"]] == [node["address"] for node in before["nodes"]]
    assert "hello, quorum" in run(lines[2])
    assert player.run("stop").returncode == 0


def test_the_status_tells_the_truth_about_processes(player: Player) -> None:
    printed = json.loads(player.play("-o", "json").stdout)
    status = player.status()
    assert printed.keys() == status.keys()
    for node in status["nodes"]:
        process = psutil.Process(node["pid"])
        assert node["dir"] in " ".join(process.cmdline())
        assert abs(process.memory_info().rss - node["rssBytes"]) < 50 * 2**20
        meta = (Path(node["dir"]) / "data" / "meta.properties").read_text()
        assert f"directory.id={node['directoryId']}\n" in meta
        assert f"cluster.id={status['clusterId']}\n" in meta
    assert status["quorum"]["kraftVersion"] == 1


def test_the_active_controller_is_replaced_and_comes_back(player: Player) -> None:
    player.play()
    before = player.status()
    active = before["quorum"]["leaderId"]
    killed = player.run("kill", f"controller-{active}")
    assert killed.stdout == f"sent SIGKILL to node {active} (pid {pids(before)[active]})\n"
    eventually(
        lambda: pids(player.snapshot())[active] not in (None, pids(before)[active]), 30, "a new process"
    )
    after = player.until_ready()
    assert after["quorum"]["leaderEpoch"] > before["quorum"]["leaderEpoch"]
    others = [node_id for node_id in pids(before) if node_id != active]
    assert [pids(after)[node_id] for node_id in others] == [pids(before)[node_id] for node_id in others]


def test_nothing_outlives_a_supervisor_that_is_killed(player: Player) -> None:
    player.play()
    (supervisor,) = [process for process in player.processes() if "supervise" in process.cmdline()]
    supervisor.kill()
    eventually(lambda: player.processes() == [], 10, "the end of every process", player.processes)
    assert {node["state"] for node in player.status()["nodes"]} == {"stopped"}
    player.play()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_play_in_the_foreground(player: Player, number: signal.Signals) -> None:
    """Ctrl-C stops the cluster in order."""
    command = player.command("-f", str(player.manifest))
    with subprocess.Popen(
        command, **player.surroundings, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as playing:
        assert playing.stdout is not None
        for line in playing.stdout:
            if line.startswith("Ctrl-C"):
                break
        assert "Already running; applying this manifest." in player.play().stderr
        playing.send_signal(number)
        _, events = playing.communicate(timeout=TIMEOUT_S)
    assert playing.returncode == (130 if number is signal.SIGINT else 0), events
    # Alone, it may have resigned before its turn: then the reason to stop it is another, the order the same.
    led = re.findall(r"controller-(\d+) leads the quorum", events)
    assert re.findall(r"controller-(\d+) stopped", events)[-1] == led[-1], events
    assert player.processes() == []


def test_without_java_the_controllers_are_played_alone_if_asked(player: Player) -> None:
    player.write(CONTROLLERS_ALONE % free_ports(3) + BROKER % free_ports(1))
    player.environment = {**player.environment, "JAVA_HOME": "/nowhere"}
    refusal = player.refusal()
    assert "install Java 17 or newer" in refusal
    assert "; --without-brokers runs the controllers alone" in refusal
    player.play("--without-brokers")
    assert [node["role"] for node in player.status()["nodes"]] == ["controller"] * 3
    assert player.status()["bootstrapServers"] is None


def test_a_node_that_keeps_dying_ends_the_play_with_its_log(player: Player) -> None:
    """A cluster that can't start is reported soon, and leaves nothing."""
    player.write(CONTROLLERS_ALONE % free_ports(3) + BROKER % free_ports(1))
    player.environment = {**player.environment, "KAFKA_HEAP_OPTS": "-Xmx1nonsense"}
    said = player.refusal()
    assert "broker-0 crashed 3 times in a row while starting" in said
    assert "Invalid maximum heap size: -Xmx1nonsense" in said
    assert player.processes() == []


def test_a_port_in_use_is_told_and_nothing_is_started(player: Player) -> None:
    start = free_ports(3)
    player.write(CONTROLLERS_ALONE % start)
    with socket.create_server(("127.0.0.1", start + 1)):
        said = player.refusal()
    assert f"controller-3001: listener CONTROLLER: port {start + 1} is in use by pid {os.getpid()}" in said
    assert player.processes() == []
    player.play()


def test_a_directory_of_another_cluster_is_refused_and_kept(player: Player) -> None:
    player.play()
    before = player.status()
    player.run("stop")
    files = sorted(path for path in player.directory.rglob("*") if path.is_file())
    text = player.manifest.read_text()
    player.write(text.replace("spec: {", "spec: {clusterId: AAAAAAAAAAAAAAAAAAAAAQ, "))
    assert f"holds the cluster 'quorum' ({before['clusterId']})" in player.refusal()
    assert sorted(path for path in player.directory.rglob("*") if path.is_file()) == files
    player.write(text)
    player.play()
    assert player.status()["clusterId"] == before["clusterId"]


@pytest.mark.parametrize("java", [(3000,), (3000, 3001)])
def test_java_and_python_controllers_play_together(player: Player, java: Sequence[int]) -> None:
    nodes = ", ".join(f"{{nodeId: {node_id}, implementation: java}}" for node_id in java)
    text = player.manifest.read_text().replace("spec: {", f"spec: {{nodes: [{nodes}], ")
    player.write(text)
    player.play()
    kinds = {node["nodeId"]: psutil.Process(node["pid"]).name() for node in player.status()["nodes"]}
    assert {node_id for node_id, name in kinds.items() if name == "java"} == set(java)
