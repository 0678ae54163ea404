"""examples/secure.yaml as a user plays it: who gets in, who may do what, and where its secrets are found."""

import asyncio
import re
import stat
import subprocess
import urllib.request
from pathlib import Path

import pytest
from kit.player import TIMEOUT_S, Player
from kit.watched_processes import watching_processes
from quorate_admin.client import AdminClient
from quorate_admin.config import AdminConfig
from quorate_admin.errors import AdminError, AuthenticationError, ServerError
from quorate_admin.types.acls import AccessControlEntry, AclBinding, ResourcePattern
from quorate_admin.types.configs import ConfigResource
from quorate_admin.types.topics import NewTopic
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import AclOperation, ConfigResourceType, ResourceType
from quorate_protocol.properties import parse_properties

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[3] / "examples"
USERS = ("admin", "alice", "bob", "broker", "node")
HISTORY = "  replicas: 3\n  nodeIds: {first: 3000}\n"
REFUSED_TIMEOUT_MS = 2_000
"""A client takes a closed connection for a failure that may pass, and tries again for so long."""


@pytest.fixture
def secrets(player: Player) -> dict[str, str]:
    """A text of each secret by its name: passwords, and a line of each private key. The script makes them."""
    made = player.path / "made"
    subprocess.run([str(EXAMPLES / "secure" / "secrets.sh"), str(made)], check=True, timeout=TIMEOUT_S)
    assert {stat.S_IMODE(file.stat().st_mode) for file in made.iterdir()} == {0o600}
    found = {user: (made / f"{user}.password").read_text().strip() for user in USERS}
    for name in ("controllers-tls", "brokers-tls"):
        found[name] = (made / f"{name}.key").read_text().splitlines()[1]
    return found


def client(player: Player, servers: str, user: str, password: str | None = None) -> AdminClient:
    """A client of the brokers with the file that was written for a user, or with another password."""
    properties = parse_properties((player.directory / "clients" / f"{user}.properties").read_text())
    if password is not None:
        jaas = properties["sasl.jaas.config"]
        properties["sasl.jaas.config"] = re.sub('password="[^"]*"', f'password="{password}"', jaas)
    return AdminClient(AdminConfig.from_properties(properties, bootstrap_servers=servers))


def allow(name: str, kind: ResourceType, operation: AclOperation) -> AclBinding:
    entry = AccessControlEntry(principal="User:alice", operation=operation)
    return AclBinding(pattern=ResourcePattern(resource_type=kind, name=name), entry=entry)


async def use_as_users(player: Player, servers: str) -> None:
    """What each user may do, as alice is allowed to do more by and by."""
    topic = NewTopic(name="orders", partitions=1)
    async with client(player, servers, "alice") as alice, client(player, servers, "admin") as admin:
        denied = await alice.create_topics([topic])
        error = denied.errors["orders"]
        assert isinstance(error, ServerError)
        assert error.error_code is ErrorCode.topic_authorization_failed
        bindings = [
            allow("orders", ResourceType.TOPIC, AclOperation.ALL),
            allow("shop", ResourceType.GROUP, AclOperation.READ),
        ]
        assert not (await admin.create_acls(bindings)).errors
        assert not (await alice.create_topics([topic])).errors
    with pytest.raises(AuthenticationError):
        async with client(player, servers, "alice", "wrong") as wrong:
            await wrong.describe_cluster()


async def described_configs(player: Player, servers: str, controllers: str) -> str:
    """All that nodes tell of their configurations."""
    async with client(player, servers, "admin") as admin:
        resources = [ConfigResource(ConfigResourceType.BROKER, str(node_id)) for node_id in range(3)]
        told = [await admin.describe_configs([one]) for one in resources]
    properties = parse_properties((player.directory / "controllers.properties").read_text())
    config = AdminConfig.from_properties(properties, bootstrap_controllers=controllers)
    async with AdminClient(config) as admin:
        resources = [ConfigResource(ConfigResourceType.BROKER, "3000")]
        told.append(await admin.describe_configs(resources))
    assert "sasl.jaas.config" in f"{told}"
    return f"{told}"


def page_of(player: Player, node: str, path: str) -> str:
    """A page of a controller's own HTTP listener."""
    properties = parse_properties((player.directory / node / "server.properties").read_text())
    address = properties["quorate.http.listener"]
    with urllib.request.urlopen(f"http://{address}{path}", timeout=TIMEOUT_S) as answer:
        return str(answer.read().decode())


def files_with(player: Player, text: str) -> dict[str, int]:
    """The files of the cluster that have a text, each with its mode."""
    found = {}
    for file in player.directory.rglob("*"):
        mode = file.stat(follow_symlinks=False).st_mode
        if stat.S_ISREG(mode) and text.encode() in file.read_bytes():
            found[str(file.relative_to(player.directory))] = stat.S_IMODE(mode)
    return found


def homes_of(secret: str) -> set[str]:
    """Where a secret has to be."""
    match secret:
        case "node":
            return {"controllers.properties", "secrets/controllers-login/node"}
        case "controllers-tls" | "brokers-tls":
            return {f"secrets/{secret}/tls.key"}
    return {f"clients/{secret}.properties", f"secrets/users/{secret}"}


def run(player: Player, line: str) -> subprocess.CompletedProcess[str]:
    """A line of a shell, in the directory in which the cluster was played."""
    return subprocess.run(
        ["/bin/sh", "-c", line], **player.surroundings, capture_output=True, timeout=TIMEOUT_S, check=False
    )


def test_the_secured_example_lets_in_whom_it_should_and_tells_nobody_its_secrets(
    player: Player, secrets: dict[str, str]
) -> None:
    """Goal: TLS, SCRAM and ACLs of a whole cluster work, and no secret leaves the files that need it.

    Method: play the example, with a history; produce and consume as alice, who needs ACLs; a wrong password; a
    client in plain text. Then look for each secret in everything that was written, told or run.
    """
    text = (EXAMPLES / "secure.yaml").read_text()
    assert HISTORY in text
    player.write(text.replace(HISTORY, f"{HISTORY}  history: {{claimName: history}}\n"))
    told = []
    with watching_processes() as arguments:
        played = player.play("-f", str(player.path / "made" / "secrets.yaml"))
        told += [played.stdout, played.stderr]
        assert (
            "with --bootstrap-server use --command-config cluster/clients/admin.properties" in played.stdout
        )
        found = player.look()
        servers, controllers = found["bootstrapServers"], found["bootstrapControllers"]
        asyncio.run(use_as_users(player, servers))
        login = "--topic orders --command-config cluster/clients/alice.properties"
        produced = run(player, f"echo 'hello, alice' | cluster/bin/kafka-console-producer {login}")
        assert (produced.returncode, "ERROR" in produced.stderr) == (0, False), produced.stderr
        reading = f"cluster/bin/kafka-console-consumer {login} --group shop --from-beginning --max-messages 1"
        consumed = run(player, reading)
        assert "hello, alice" in consumed.stdout, consumed.stderr
        listed = run(player, "cluster/bin/kafka-topics --list")
        assert "orders" in listed.stdout.split(), listed.stderr
        led = run(
            player,
            f"cluster/bin/kafka-metadata-quorum --bootstrap-controller {controllers} describe --status",
        )
        assert "LeaderId:" in led.stdout, led.stderr
        told += [one for ran in (produced, consumed, listed, led) for one in (ran.stdout, ran.stderr)]
        told += [page_of(player, f"controller-{node_id}", "/metrics") for node_id in (3000, 3001, 3002)]
        told.append(asyncio.run(described_configs(player, servers, controllers)))
        status = player.run("status", "-o", "json")
        told += [status.stdout, player.run("status").stdout, player.run("logs", "-n", "100000").stdout]
    assert player.run("stop").returncode == 0
    assert list((player.directory / "history").rglob("*.log"))
    for name, secret in secrets.items():
        assert not any(secret in one for one in told), name
        assert not any(secret in one for one in arguments), name
        files = files_with(player, secret)
        assert set(files) == {"manifest.yaml", *homes_of(name)}, name
        assert set(files.values()) == {0o600}, files
    assert any("kafka.Kafka" in one for one in arguments), "the processes were not seen"
    configs = [*player.directory.glob("*/server.properties")]
    assert {stat.S_IMODE(file.stat().st_mode) for file in configs} == {0o600}
    assert len(configs) == 6
    # What is in the log are keys that were made of the passwords, and it is for its owner alone.
    assert stat.S_IMODE(player.directory.stat().st_mode) == 0o700


def test_a_secured_cluster_refuses_strangers_and_starts_again(
    player: Player, secrets: dict[str, str]
) -> None:
    """Goal: nothing is started without its Secrets, nobody gets in without a login, and what is kept starts again.

    Method: play without the Secrets; the controllers alone with them; a client in plain text; stop; play again.
    """
    controllers, _, _ = (EXAMPLES / "secure.yaml").read_text().partition("---")
    player.write(controllers)
    refused = player.refusal()
    assert (
        "KafkaController quorum: spec.listeners[0].tls.secretName: 'controllers-tls': no such Secret in"
        in refused
    )
    assert not player.directory.exists()
    made = str(player.path / "made" / "secrets.yaml")
    player.play("-f", made)
    assert player.status()["clientConfig"] is None
    plain = player.look()["bootstrapControllers"].split(",")

    async def describe() -> None:
        async with AdminClient(bootstrap_controllers=plain) as admin:
            await admin.describe_metadata_quorum(timeout_ms=REFUSED_TIMEOUT_MS)

    with pytest.raises(AdminError):
        asyncio.run(describe())
    assert player.run("stop").returncode == 0
    player.play("-f", made)
    assert player.until_ready()["quorum"]["kraftVersion"] == 1
    assert secrets["node"] not in player.run("logs").stdout
