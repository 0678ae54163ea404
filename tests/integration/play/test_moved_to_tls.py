"""A cluster in plaintext moves to TLS while clients work: no full stop, and nothing acknowledged is lost."""

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from kit.cluster import free_ports
from kit.ledger import SteadyProducer, consume_numbers, create_replicated_topic
from kit.player import Player
from kit.rotation import lets_in
from quorate_protocol.properties import parse_properties

# Each node restarts up to three times: minutes, where others use the machine.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]

COUNT = 3
CONTROLLERS, BROKERS = range(3000, 3000 + COUNT), range(COUNT)
PAUSE_S_MAX = 60
MANIFEST = """\
apiVersion: quorate.dev/v1alpha1
kind: KafkaController
metadata: {name: quorum}
spec:
  listeners: [%(controllers)s]
  nodes: [%(java)s]
---
apiVersion: quorate.dev/v1alpha1
kind: KafkaBroker
metadata: {name: brokers}
spec:
  controllers: quorum
  replicas: 3
  listeners: [%(brokers)s]
  config: {default.replication.factor: "3", min.insync.replicas: "2"}
"""


class Ports:
    """Free ports of each listener, and the manifests with these."""

    def __init__(self, java: str) -> None:
        first = free_ports(4 * COUNT)
        self.plain_controllers, self.controllers, self.plain, self.tls = range(
            first, first + 4 * COUNT, COUNT
        )
        self._java = java

    def text(self, *listeners: str) -> str:
        """The manifest with `tls`, `plaintext` or both, in this order."""
        entries = {
            "plaintext": (
                f"{{name: CONTROLLER, port: {self.plain_controllers}}}",
                f"{{name: PLAINTEXT, port: {self.plain}}}",
            ),
            "tls": (
                f"{{name: SECURED, port: {self.controllers}, protocol: SSL, tls: {{clientAuth: required}}}}",
                f"{{name: TLS, port: {self.tls}, protocol: SSL}}",
            ),
        }
        controllers, brokers = zip(*(entries[name] for name in listeners), strict=True)
        return MANIFEST % {
            "controllers": ", ".join(controllers),
            "brokers": ", ".join(brokers),
            "java": self._java,
        }


def properties(player: Player, label: str) -> dict[str, str]:
    return dict(parse_properties((player.directory / label / "server.properties").read_text()))


def servers(first: int) -> str:
    return ",".join(f"127.0.0.1:{port}" for port in range(first, first + COUNT))


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("java", ["", "{nodeId: 3001, implementation: java}"], ids=["python", "mixed"])
def test_a_running_cluster_moves_from_plaintext_to_tls(player: Player, java: str) -> None:
    ports = Ports(java)
    player.write(ports.text("plaintext"))
    player.play()
    admin = AdminClient({"bootstrap.servers": servers(ports.plain)})
    for topic in ("plain", "secured"):
        create_replicated_topic(admin, topic, COUNT)
    authority = player.directory / "secrets" / "brokers-tls-tls" / "ca.crt"
    secured = {"security.protocol": "ssl", "ssl.ca.location": str(authority)}
    with ExitStack() as moved:
        with SteadyProducer(servers(ports.plain), "plain") as plain:
            reported = player.edit(ports.text("tls", "plaintext"))
            for node_id in CONTROLLERS:
                found = properties(player, f"controller-{node_id}")
                assert found["controller.listener.names"] == "SECURED,CONTROLLER"
            for node_id in BROKERS:
                found = properties(player, f"broker-{node_id}")
                assert found["inter.broker.listener.name"] == "TLS"
                assert found["controller.listener.names"] == "SECURED"
            producer = moved.enter_context(SteadyProducer(servers(ports.tls), "secured", secured))
        # Clients have moved, too.
        reported += player.edit(ports.text("tls"))
    for each, topic in ((plain, "plain"), (producer, "secured")):
        assert not each.failures
        assert each.acknowledged
        assert each.pauses.longest_s < PAUSE_S_MAX
        kept = set(consume_numbers(servers(ports.tls), topic, range(COUNT), secured))
        assert set(each.acknowledged) <= kept, f"records of {topic} are lost"
    assert "died" not in reported
    for first in (ports.plain_controllers, ports.plain):
        assert not any(is_open(port) for port in range(first, first + COUNT))
    assert lets_in(f"127.0.0.1:{ports.tls}", authority)
    assert (
        Path(authority).read_text()
        == (player.directory / "secrets" / "quorum-secured-tls" / "ca.crt").read_text()
    )


def test_one_edit_is_enough_and_another_protocol_under_the_same_name_is_refused(player: Player) -> None:
    first = free_ports(2)
    text = (
        "apiVersion: quorate.dev/v1alpha1\nkind: KafkaController\nmetadata: {name: quorum}\n"
        "spec: {replicas: 1, listeners: [{%s}]}\n"
    )
    player.write(text % f"name: CONTROLLER, port: {first}")
    player.play()
    player.write(text % f"name: CONTROLLER, port: {first}, protocol: SSL")
    refused = player.refusal()
    assert "spec.listeners[CONTROLLER].protocol: 'SSL': nodes run with PLAINTEXT" in refused
    assert "add a listener of another name before this one" in refused
    assert is_open(first)
    player.edit(text % f"name: SECURED, port: {first + 1}, protocol: SSL")
    assert not is_open(first)
    assert lets_in(f"127.0.0.1:{first + 1}", player.directory / "secrets" / "quorum-secured-tls" / "ca.crt")
