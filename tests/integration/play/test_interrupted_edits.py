"""A supervisor that is killed between any two steps: the next play continues, and ends the same."""

import random
import re
import shutil
from pathlib import Path
from typing import Any

import psutil
import pytest
from kit.cluster import free_ports
from kit.forwarder import network
from kit.player import Player
from kit.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

OVERLAP_S = 1
STEPS_MAX = 24
"""About as many events as the edit below takes without the readiness of nodes."""
KILLS = 3


def manifest(port: int, spec: str = "") -> str:
    """Controllers at a port, with more in their spec."""
    return (
        "apiVersion: quorate.dev/v1alpha1\nkind: KafkaController\n"
        "metadata: {name: quorum}\n"
        f"spec: {{listeners: [{{name: CONTROLLER, port: {port}}}], rollout: {{overlap: {OVERLAP_S}s}}{spec}}}\n"
    )


def node(status: dict[str, Any], node_id: int) -> dict[str, Any]:
    """One node of a status."""
    found: dict[str, Any] = next(node for node in status["nodes"] if node["nodeId"] == node_id)
    return found


def events(player: Player) -> int:
    """The length of the supervisor's log so far."""
    return len((player.directory / "supervisor.log").read_text().splitlines())


def settled(player: Player) -> dict[str, Any]:
    """The status when nothing is left to do."""
    return player.until(lambda status: status["settled"], 300, "all that was asked for")


def test_a_plan_is_reported_and_not_done(player: Player) -> None:
    port = free_ports(5)
    player.edit(manifest(port))
    before = player.status()
    steps = player.plan(manifest(port, ", replicas: 5"))["steps"]
    created = [step["nodeId"] for step in steps if step["step"] == "CreateNode"]
    assert created == [3003, 3004]
    assert [node["pid"] for node in player.status()["nodes"]] == [node["pid"] for node in before["nodes"]]


@pytest.mark.parametrize("seed", [1])
def test_a_killed_supervisor_is_no_setback(player: Player, seed: int) -> None:
    port = free_ports(5)
    player.edit(manifest(port, ', advertisedHost: "127.4.0.1{offset}"'))
    before = player.status()
    chance = random.Random(seed)
    edited = manifest(port, ', replicas: 4, decommission: [3001], advertisedHost: "127.5.0.1{offset}"')
    player.write(edited)
    player.run("-f", str(player.manifest), "--detach", "--wait", "1ms")
    for _ in range(KILLS):
        wanted = events(player) + chance.randrange(1, STEPS_MAX)
        eventually(
            lambda wanted=wanted: events(player) >= wanted or player.snapshot()["settled"], 120, "some steps"
        )
        supervisor = player.supervisor()
        supervisor.kill()
        psutil.wait_procs([supervisor], timeout=10)
        eventually(lambda: player.processes() == [], 10, "the end of every process", player.processes)
        player.play("--wait", "5m")
    after = settled(player)
    assert after["clusterId"] == before["clusterId"]
    assert after["quorum"]["voters"] == [3000, 3002, 3003, 3004]
    hosts = {node["nodeId"]: node["address"].split(":")[0] for node in after["nodes"]}
    assert hosts == {3000: "127.5.0.10", 3002: "127.5.0.12", 3003: "127.5.0.13", 3004: "127.5.0.14"}
    for node_id in (3000, 3002):
        assert node(after, node_id)["directoryId"] == node(before, node_id)["directoryId"]


def test_a_controller_that_lost_its_disk_is_replaced(player: Player) -> None:
    player.play()
    before = player.status()
    follower = next(node for node in before["nodes"] if node["nodeId"] != before["quorum"]["leaderId"])
    data = Path(follower["dir"]) / "data"
    data.rename(data.with_name("taken"))
    player.run("kill", str(follower["nodeId"]))
    player.until(
        lambda status: node(status, follower["nodeId"])["directoryId"] not in (None, follower["directoryId"]),
        60,
        "another directory id",
    )
    after = settled(player)
    assert after["ready"]
    assert after["quorum"]["voters"] == [3000, 3001, 3002]


def test_a_lost_quorum_is_rebuilt_from_the_survivor_that_is_named(player: Player) -> None:
    port = free_ports(3)
    player.edit(manifest(port))
    before = player.status()
    player.run("stop")
    for node_id in (3000, 3001):
        shutil.rmtree(Path(node(before, node_id)["dir"]) / "data")
    player.write(manifest(port))
    said = player.run("-f", str(player.manifest), "--detach", "--wait", "3s")
    assert said.returncode == 1
    asked = re.search(r"spec\.(recovery: \{survivor: 3002, clusterId: \S+, leaderEpoch: \d+\})", said.stderr)
    assert asked is not None, said.stderr
    player.write(manifest(port, f", {asked[1]}"))
    player.play("--wait", "5m")
    after = settled(player)
    assert after["clusterId"] == before["clusterId"]
    assert after["quorum"]["voters"] == [3000, 3001, 3002]
    assert node(after, 3002)["directoryId"] == node(before, 3002)["directoryId"]
    assert node(after, 3000)["directoryId"] != node(before, 3000)["directoryId"]


def test_a_name_of_somebody_else_is_waited_for(player: Player) -> None:
    port = free_ports(3)
    player.edit(manifest(port))
    with network() as outside:
        (name,) = outside.addresses([port])  # the port of controller-3000, though 3001 is to have the name
        own_name = "nodes: [{nodeId: 3001, advertisedHosts: {CONTROLLER: localhost}}]"
        player.write(manifest(name.port, f', advertisedHost: "127.6.0.1{{offset}}", {own_name}'))
        player.run("-f", str(player.manifest), "--detach", "--wait", "1ms")

        def waits(status: dict[str, Any]) -> list[str]:
            texts = [step["text"] for step in status["plan"]["steps"]]
            return [text for text in texts if f"localhost:{name.port}" in text and "3000" in text]

        player.until(waits, 60, "a wait that says what the name reaches")
        assert node(player.status(), 3001)["address"] == f"127.0.0.1:{port + 1}"
        outside.lead([(name, port + 1)])
        after = settled(player)
        assert node(after, 3001)["address"] == f"localhost:{name.port}"
        assert node(after, 3000)["address"] == f"127.6.0.10:{name.port}"
        assert player.run("stop").returncode == 0
