"""Passwords that nodes log in with change under a producer with acks=all: no node is shut out, nothing is lost."""

import asyncio
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient as ConfluentAdmin
from kit.ledger import SteadyProducer, consume_numbers, create_replicated_topic
from kit.player import TIMEOUT_S, Player
from kit.waiting import eventually
from quorate_admin.client import AdminClient
from quorate_admin.config import AdminConfig
from quorate_admin.errors import AuthenticationError
from quorate_admin.types.credentials import UserScramCredentialUpsertion
from quorate_protocol.kafka.enums import ScramMechanism
from quorate_protocol.security.jaas import format_jaas

# Three rolls of three brokers and three controllers: minutes, where others use the machine.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

EXAMPLES = Path(__file__).parents[3] / "examples"
SCRAM = "SCRAM-SHA-512"
NODE_LOGIN, BROKER_LOGIN = "controllers-login", "brokers-login"
TOPIC, COPIES = "numbers", 3
PRODUCED_TIMEOUT_S = REFUSED_TIMEOUT_S = 60
PAUSE_S_MAX = 60
"""A client waits for a new leader, where others use the machine."""


@dataclass
class Rotation:
    """The secured example, whose brokers have a Secret of their own, and its passwords as they are edited."""

    player: Player
    mechanism: str
    made: Path
    logins: dict[str, dict[str, str]] = field(default_factory=dict)
    users: dict[str, str] = field(default_factory=lambda: {NODE_LOGIN: "node", BROKER_LOGIN: "broker"})

    def manifest(self) -> str:
        """The example with the users that nodes log in as now."""
        controllers, pool = yaml.safe_load_all((EXAMPLES / "secure.yaml").read_text())
        principals = ("admin", "node", "next-node", "broker", "next-broker")
        controllers["spec"]["authorization"]["superUsers"] = [f"User:{name}" for name in principals]
        controllers["spec"]["listeners"][0]["sasl"]["username"] = self.users[NODE_LOGIN]
        mechanisms = [self.mechanism, *({SCRAM} - {self.mechanism})]
        pool["spec"]["listeners"][0]["sasl"] = {
            "mechanisms": mechanisms,
            "username": self.users[BROKER_LOGIN],
            "secretName": BROKER_LOGIN,
        }
        return yaml.safe_dump_all([controllers, pool])

    def secrets(self) -> str:
        """The file with the Secrets of the example, and the logins of now."""
        documents: list[dict[str, Any]] = list(yaml.safe_load_all((self.made / "secrets.yaml").read_text()))
        kept = [secret for secret in documents if secret["metadata"]["name"] not in self.logins]
        for name, passwords in self.logins.items():
            metadata = {"name": name, "labels": {"quorate.dev/for-listeners": "true"}}
            kept.append({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": passwords})
        file = self.made / "edited.yaml"
        file.write_text(yaml.safe_dump_all(kept))
        return str(file)

    def edit(self) -> None:
        """Play what is edited, until it is applied."""
        self.player.edit(self.manifest(), "-f", self.secrets())

    def refused(self) -> str:
        """Play what is edited, which is refused, and return how."""
        self.player.write(self.manifest())
        self.player.run("-f", str(self.player.manifest), "-f", self.secrets(), "--detach", "--wait", "1s")
        status = self.player.until(lambda found: found["plan"]["refusals"], REFUSED_TIMEOUT_S, "the refusal")
        ((code, message),) = ((item["code"], item["message"]) for item in status["plan"]["refusals"])
        assert code == "UnsafeLogin"
        return str(message)

    def processes(self) -> set[int]:
        return {process.pid for process in self.player.processes()}

    def client(self, user: str, password: str) -> AdminClient:
        """A client of the brokers."""
        properties = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": self.mechanism,
            "sasl.jaas.config": format_jaas(self.mechanism, {"username": user, "password": password}),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.made / "ca.crt"),
        }
        servers = self.player.status()["bootstrapServers"]
        return AdminClient(AdminConfig.from_properties(properties, bootstrap_servers=servers))

    def prepare_user(self, user: str, password: str) -> None:
        """With SCRAM, create the credentials that brokers are about to log in with."""
        if self.mechanism != SCRAM:
            return

        async def create() -> None:
            upsertion = UserScramCredentialUpsertion(
                user=user, mechanism=ScramMechanism.SCRAM_SHA_512, password=password
            )
            async with self.client("admin", self.password_of("admin")) as admin:
                assert not (await admin.alter_user_scram_credentials([upsertion])).errors

        asyncio.run(create())

    def password_of(self, user: str) -> str:
        return (self.made / f"{user}.password").read_text().strip()

    def librdkafka(self) -> Mapping[str, str]:
        """The security of the producer, whose password does not change."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": SCRAM,
            "sasl.username": "admin",
            "sasl.password": self.password_of("admin"),
            "ssl.ca.location": str(self.made / "ca.crt"),
        }


@pytest.fixture
def rotation(player: Player, request: pytest.FixtureRequest) -> Rotation:
    made = player.path / "made"
    subprocess.run([str(EXAMPLES / "secure" / "secrets.sh"), str(made)], check=True, timeout=TIMEOUT_S)
    rotation = Rotation(player, str(request.param), made)
    rotation.logins = {
        NODE_LOGIN: {"node": rotation.password_of("node")},
        BROKER_LOGIN: {"broker": rotation.password_of("broker")},
    }
    return rotation


@pytest.mark.parametrize("rotation", ["PLAIN", SCRAM], indirect=True)
def test_nodes_change_their_passwords_one_by_one(rotation: Rotation) -> None:
    player = rotation.player
    player.write(rotation.manifest())
    player.play("-f", rotation.secrets())
    servers, security = player.snapshot()["bootstrapServers"], rotation.librdkafka()
    create_replicated_topic(ConfluentAdmin({"bootstrap.servers": servers, **security}), TOPIC, COPIES)
    first = {name: dict(passwords) for name, passwords in rotation.logins.items()}
    with SteadyProducer(servers, TOPIC, security) as producer:
        pids = rotation.processes()
        rotation.logins[BROKER_LOGIN] = {"broker": "another-secret"}
        refused = rotation.refused()
        assert "KafkaBroker brokers: spec.listeners[0].sasl.secretName: the password of 'broker'" in refused
        await_records(producer)
        assert rotation.processes() >= pids, "no node was restarted"
        rotation.logins = {name: dict(passwords) for name, passwords in first.items()}
        rotation.edit()
        assert rotation.processes() >= pids, "nothing is left of the refused change"

        following = {NODE_LOGIN: "next-node", BROKER_LOGIN: "next-broker"}
        for name, user in following.items():
            rotation.logins[name][user] = f"secret-of-{user}"
        rotation.prepare_user(following[BROKER_LOGIN], rotation.logins[BROKER_LOGIN]["next-broker"])
        rotation.edit()
        rotation.users = following
        rotation.edit()
        await_records(producer)
        for name, passwords in first.items():
            for user in passwords:
                del rotation.logins[name][user]
        rotation.edit()
        await_records(producer)

    assert not producer.failures
    assert producer.pauses.longest_s < PAUSE_S_MAX
    read = consume_numbers(servers, TOPIC, range(COPIES), security)
    assert set(producer.acknowledged) <= set(read)
    assert player.status()["settled"]
    asyncio.run(assert_logins(rotation, first[BROKER_LOGIN]["broker"]))


def await_records(producer: SteadyProducer) -> None:
    """Wait until more records are acknowledged."""
    known = len(producer.acknowledged)
    eventually(lambda: len(producer.acknowledged) > known + 100, PRODUCED_TIMEOUT_S, "acknowledged records")


async def assert_logins(rotation: Rotation, former: str) -> None:
    """The next user is let in; the former one is not, where brokers knew it from the Secret alone."""
    async with rotation.client("next-broker", rotation.logins[BROKER_LOGIN]["next-broker"]) as client:
        assert len((await client.describe_cluster()).nodes) == COPIES
    if rotation.mechanism == SCRAM:
        return  # the credentials of the former user are deleted with kafka-configs
    with pytest.raises(AuthenticationError):
        async with rotation.client("broker", former) as client:
            await client.describe_cluster()
