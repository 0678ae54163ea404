"""examples/own-certificates.yaml as a user plays it: no certificate is given, and every connection has TLS."""

import subprocess
from pathlib import Path

import pytest
from kit.player import TIMEOUT_S, Player
from kit.rotation import lets_in
from quorate_protocol.properties import parse_properties

pytestmark = pytest.mark.integration

EXAMPLE = Path(__file__).parents[3] / "examples" / "own-certificates.yaml"
SMALL = {
    "    default.replication.factor: 3\n    min.insync.replicas: 2\n": "    default.replication.factor: 1\n",
    "  controllers: quorum\n  replicas: 3\n": "  controllers: quorum\n  replicas: 1\n  rollout: {overlap: 1s}\n",
    "      port: 9091\n": "",
    "      port: 9092\n": "",
}
"""Of the example: one broker, and ports that are free."""
ADVERTISED = "127.0.0.77"


def topics(player: Player, *arguments: str) -> str:
    """What kafka-topics prints, which shows a certificate of the brokers to their first listener."""
    ran = subprocess.run(
        ["cluster/bin/kafka-topics", *arguments, "--command-config", "cluster/clients/client.properties"],
        **player.surroundings,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return str(ran.stdout)


def test_a_cluster_gets_its_certificates_from_an_authority_of_its_own(player: Player) -> None:
    text = EXAMPLE.read_text()
    for old, new in SMALL.items():
        assert old in text
        text = text.replace(old, new)
    player.write(text)
    player.play()
    authority = player.directory / "secrets" / "brokers-clients-tls" / "ca.crt"
    issued_by = authority.read_text()
    topics(player, "--create", "--topic", "greetings")
    assert topics(player, "--list").split() == ["greetings"]
    for address in player.status()["bootstrapControllers"].split(","):
        assert not lets_in(address, authority)

    player.edit(text.replace("- name: CLIENTS\n", f"- name: CLIENTS\n      advertisedHost: {ADVERTISED}\n"))
    properties = parse_properties((player.directory / "broker-0" / "server.properties").read_text())
    (advertised,) = (
        listener.removeprefix("CLIENTS://")
        for listener in properties["advertised.listeners"].split(",")
        if listener.startswith("CLIENTS://")
    )
    assert advertised.startswith(f"{ADVERTISED}:")
    assert lets_in(advertised, authority)
    assert player.run("stop").returncode == 0
    player.play()
    assert authority.read_text() == issued_by
    assert topics(player, "--list").split() == ["greetings"]
