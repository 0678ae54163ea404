"""`make transcript`: the tools of KIP-919 at controllers of ours while no broker runs.

A cluster of three controllers and a stock broker gets a topic, a user and quotas. Then its broker is stopped, and
each tool is run with --bootstrap-controller. What differs in each run is masked. `--write` puts the transcript into
docs/tools.md, and a test compares it with that page.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import tempfile
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kit.cluster import Cluster, free_ports, manifests
from kit.kafka import jars_of
from kit.membership import quorate, succeeded
from kit.releases import RELEASE
from kit.waiting import eventually
from quorate_operator.planning.cluster import Role
from quorate_operator.properties import render_properties
from quorate_operator.runtime.local.loopback import LOOPBACK

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Mapping

PAGE: Final = Path(__file__).parents[2] / "docs" / "tools.md"
BEGIN: Final = "<!-- begin of the transcript: `make transcript` writes it -->"
END: Final = "<!-- end of the transcript -->"
SECURED: Final = "SECURED"
TIMEOUT_S: Final = 20
PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
COMMON: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
    "delegation.token.secret.key": "the secret of this cluster's delegation tokens",
}
ID_LENGTH: Final = 22
"""The length of an id as Kafka prints it."""
HOST: Final = "controllers.example"
"""What the transcript has in place of the address of this machine."""

TOOLS: Final = (
    "acls",
    "cluster",
    "configs",
    "delegation-tokens",
    "features",
    "metadata-quorum",
    "metadata-shell",
    "reassign-partitions",
)
"""The eight tools that get --bootstrap-controller from KIP-919."""

COMMANDS: Final = (
    "cluster cluster-id $at",
    "cluster list-endpoints $at",
    "metadata-quorum $at describe --status",
    "features $at describe",
    "topics $at --list",
    "topics $at --describe --topic orders",
    "configs $at --describe --topic orders",
    "configs $at --alter --user alice --add-config consumer_byte_rate=2048",
    "configs $at --describe --user alice",
    "configs $at --describe --entity-type clients",
    "configs $at --describe --entity-type ips",
    "acls $at --add --allow-principal User:alice --operation Read --topic orders",
    "acls $at --list --topic orders",
    "delegation-tokens $at --create --max-life-time-period -1 --renewer-principal User:alice",
    "delegation-tokens $at --describe",
    "delegation-tokens $at --renew --hmac $hmac --renew-time-period 60000",
    "delegation-tokens $at --expire --hmac $hmac --expiry-time-period -1",
    "reassign-partitions $at --list",
    "metadata-shell $at ls /image/topics/byName",
    "topics $at --create --topic payments",
)
"""In order; `$at` stands for the options that lead to the controllers, `$hmac` for that of the token."""
REFUSED: Final = COMMANDS[-1:]
"""Commands that need brokers, and say so."""


class SecuredCluster(Cluster):
    """Its nodes have a listener for users of SASL, too, because delegation tokens are for those alone."""

    secured_ports: Mapping[int, int]

    def write_config(self, node_id: int) -> None:
        """Of a key that appears twice, the last one is taken."""
        super().write_config(node_id)
        own = "PLAINTEXT" if node_id in self.brokers else "CONTROLLER"
        listeners = f"{own}://{self.address(node_id)},{SECURED}://{self.secured_at(node_id)}"
        properties = {
            **COMMON,
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{SECURED}:SASL_PLAINTEXT",
            "controller.listener.names": "CONTROLLER" if node_id in self.brokers else f"CONTROLLER,{SECURED}",
            "sasl.enabled.mechanisms": "PLAIN",
            f"listener.name.{SECURED.lower()}.plain.sasl.jaas.config": f'{PLAIN} required user_admin="a-secret";',
        }
        file = self.config_file(node_id)
        file.write_text(file.read_text() + render_properties(properties, "Of the transcript."))

    def secured_at(self, node_id: int) -> str:
        """The address of a node's listener for users."""
        return f"{LOOPBACK}:{self.secured_ports[node_id]}"

    @property
    def login(self) -> Path:
        """A file for `--command-config` with which the administrator logs in."""
        properties = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{PLAIN} required username="admin" password="a-secret";',
        }
        file = self.layout.directory.path / "admin.properties"
        file.write_text(render_properties(properties, "Of the transcript."))
        return file


@contextmanager
def without_brokers(directory: Path, jars: Path) -> Iterator[SecuredCluster]:
    """Controllers of a cluster whose broker is stopped, after it has got a topic, a user and quotas."""
    cluster = SecuredCluster.settle(directory, jars, manifests(controllers=3))
    nodes = (*cluster.controllers, *cluster.brokers)
    cluster.secured_ports = dict(zip(nodes, count(free_ports(len(nodes))), strict=False))
    try:
        cluster.format(*cluster.nodes(Role.CONTROLLER), *cluster.nodes(Role.BROKER))
        cluster.start_all()
        at = ("--bootstrap-server", cluster.bootstrap_servers)
        succeeded(
            quorate(
                "topics",
                *at,
                *("--create", "--topic", "orders", "--partitions", "2"),
                *("--config", "retention.ms=3600000"),
            )
        )
        for whose, config in (
            (("--user", "alice"), "SCRAM-SHA-256=[iterations=8192,password=hers]"),
            (("--user", "alice"), "producer_byte_rate=1024"),
            (("--client", "billing"), "request_percentage=50"),
            (("--ip", "127.0.0.9"), "connection_creation_rate=10"),
        ):
            succeeded(quorate("configs", *at, "--alter", *whose, "--add-config", config))
        cluster.terminate(*cluster.brokers)
        yield cluster
    finally:
        cluster.close()


def connection_options(cluster: SecuredCluster) -> tuple[str, ...]:
    """The options that lead the administrator to the controllers."""
    return (
        *("--bootstrap-controller", ",".join(map(cluster.secured_at, cluster.controllers))),
        *("--command-config", str(cluster.login)),
    )


def transcript(cluster: SecuredCluster) -> str:
    """Run all commands and return what they print, masked. Each has to succeed, but those that are REFUSED."""
    assert not any(map(cluster.runs, cluster.brokers))
    options = connection_options(cluster)
    masks = _Masks(cluster)
    shown = []
    for command in COMMANDS:
        words = [
            word
            for part in shlex.split(command)
            for word in (options if part == "$at" else (masks.hmac if part == "$hmac" else part,))
        ]
        ran = _until_described(words) if "--describe" in words or "--renew" in words else quorate(*words)
        assert (ran.returncode != 0) is (command in REFUSED), (words, ran.stdout, ran.stderr)
        masks.learn(ran)
        shown.append(f"$ quorate {command}\n{masks.hide(ran.stdout + ran.stderr)}")
    return "\n".join(shown)


def _until_described(words: list[str]) -> subprocess.CompletedProcess[str]:
    """A controller that is not active may have the change of the command before a moment later."""
    return eventually(
        lambda: ran if (ran := quorate(*words)).returncode == 0 else None,
        TIMEOUT_S,
        f"quorate {words} to succeed",
        lambda: quorate(*words),
    )


class _Masks:
    """Replaces what differs in each run."""

    def __init__(self, cluster: SecuredCluster) -> None:
        self.hmac = ""
        self._texts = {str(cluster.login): "admin.properties"}
        for node_id in (*cluster.controllers, *cluster.brokers):
            self._texts[cluster.directory_id(node_id)] = f"directory-of-{node_id}-".ljust(ID_LENGTH, "A")
        for node_id in cluster.controllers:
            self._texts[cluster.address(node_id)] = f"{node_id}.{HOST}:9093"
            self._texts[cluster.secured_at(node_id)] = f"{node_id}.{HOST}:9094"
        self._port_of = {
            cluster.secured_ports[controller]: f"{controller}" for controller in cluster.controllers
        }

    def learn(self, ran: subprocess.CompletedProcess[str]) -> None:
        """Remember the ids in an output that later ones repeat."""
        found = re.search(r"tokenId : (\S+)\n.*?\n\n\1 +(\S+)", ran.stdout, re.DOTALL)
        if found is not None:
            self.hmac = found[2]
            self._texts |= {found[1]: _id_of("token"), found[2]: "HMAC-OF-THE-TOKEN"}

    def hide(self, text: str) -> str:
        """The output without what differs; numbers that do are N."""
        for port, node_id in self._port_of.items():
            text = re.sub(
                rf"^(\S+) +{LOOPBACK} +{port}\b", rf"\1 {node_id}.{HOST} 9094", text, flags=re.MULTILINE
            )
        for found, shown in sorted(self._texts.items(), key=lambda pair: -len(pair[0])):
            text = text.replace(found, shown)
        text = re.sub(r"(Cluster ID: |ClusterId: +)\S+", rf"\g<1>{_id_of('cluster')}", text)
        text = re.sub(r"(TopicId: )\S+", rf"\g<1>{_id_of('topic')}", text)
        text = re.sub(r"((?:LeaderId|LeaderEpoch|HighWatermark|MaxFollower\w+): +)-?\d+", r"\1N", text)
        text = re.sub(r"(Epoch: )\d+", r"\1N", text)
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d", "YYYY-MM-DDThh:mm", text)
        return "".join(f"{line.rstrip()}\n" for line in text.rstrip("\n").splitlines())


def _id_of(thing: str) -> str:
    return f"id-of-the-{thing}-".ljust(ID_LENGTH, "A")


def written(page: str, text: str) -> str:
    """A page with this transcript."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n```\n{text.rstrip()}\n```\n{END}{after}"


def main() -> int:
    """Print the transcript, or write it."""
    parser = argparse.ArgumentParser(prog="kit.without_brokers", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write it into docs/tools.md")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as scratch,
        without_brokers(Path(scratch) / "cluster", jars_of(RELEASE)) as cluster,
    ):
        text = transcript(cluster)
    if options.write:
        PAGE.write_text(written(PAGE.read_text(), text))
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
