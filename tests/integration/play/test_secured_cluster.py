"""examples/secure.yaml as a user plays it: who gets in, who may do what, and where its secrets are found."""

import asyncio
import re
import stat
import subprocess
import urllib.request
from pathlib import Path

import pytest
from kit.lake.lakes import store_rows
from kit.metadata import scram_keys
from kit.player import TIMEOUT_S, Player
from kit.secret_search import Secret, files_below, homes_of
from kit.watched_processes import watching_processes
from quorate_admin.client import AdminClient
from quorate_admin.config import AdminConfig
from quorate_admin.errors import AdminError, AuthenticationError, ServerError
from quorate_admin.types.acls import AccessControlEntry, AclBinding, ResourcePattern
from quorate_admin.types.configs import AlterConfigOp, ConfigResource
from quorate_admin.types.topics import NewTopic
from quorate_protocol.errors import ErrorCode
from quorate_protocol.kafka.enums import AclOperation, ConfigResourceType, ResourceType
from quorate_protocol.properties import parse_properties

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[3] / "examples"
USERS = ("admin", "alice", "bob", "broker", "node")
TOPIC = "planted-name"
"""Also the name of the quorum."""
LISTENER = "PLANTED_NAME"
NODES = (
    *(f"controller-{number}" for number in (3000, 3001, 3002)),
    *(f"broker-{number}" for number in range(3)),
)
TOKEN_KEY = "kept-secret-of-all-tokens"
PLUGIN_PASSWORD = "kept-secret-of-a-plug-in"
CHANGES = {
    "  nodeIds: {first: 3000}\n": "  nodeIds: {first: 3000}\n"
    f"  history: {{claimName: history}}\n  config: {{delegation.token.secret.key: {TOKEN_KEY}}}\n",
    "    - name: CONTROLLER\n": f"    - name: {LISTENER}\n",
    "  name: quorum\n": f"  name: {TOPIC}\n",
    "  controllers: quorum\n": f"  controllers: {TOPIC}\n",
    "    min.insync.replicas: 2\n": f"    min.insync.replicas: 2\n    delegation.token.secret.key: {TOKEN_KEY}\n",
}
"""Of the example: a history, tokens, and names that are planted."""
REFUSED_TIMEOUT_MS = 2_000
"""A client takes a closed connection for a failure that may pass, and retries for this time."""


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


async def use_as_users(player: Player, servers: str) -> bytes:
    """What each user may do, as alice is allowed to do more by and by. Returns the key of a token of alice's."""
    topic = NewTopic(name=TOPIC, partitions=1)
    async with client(player, servers, "alice") as alice, client(player, servers, "admin") as admin:
        denied = await alice.create_topics([topic])
        error = denied.errors[TOPIC]
        assert isinstance(error, ServerError)
        assert error.error_code is ErrorCode.topic_authorization_failed
        bindings = [
            allow(TOPIC, ResourceType.TOPIC, AclOperation.ALL),
            allow("shop", ResourceType.GROUP, AclOperation.READ),
        ]
        assert not (await admin.create_acls(bindings)).errors
        assert not (await alice.create_topics([topic])).errors
        broker = ConfigResource(ConfigResourceType.BROKER, "0")
        password = AlterConfigOp(name="plugin.password", value=PLUGIN_PASSWORD)
        assert not (await admin.incremental_alter_configs({broker: [password]})).errors
        token = await alice.create_delegation_token()
    with pytest.raises(AuthenticationError):
        async with client(player, servers, "alice", "wrong") as wrong:
            await wrong.describe_cluster()
    return token.hmac


async def described_configs(player: Player, servers: str, controllers: str) -> str:
    """All configs that nodes return."""
    async with client(player, servers, "admin") as admin:
        resources = [ConfigResource(ConfigResourceType.BROKER, str(node_id)) for node_id in range(3)]
        resources.append(ConfigResource(ConfigResourceType.TOPIC, TOPIC))
        reported = [await admin.describe_configs([resource]) for resource in resources]
    properties = parse_properties((player.directory / "controllers.properties").read_text())
    config = AdminConfig.from_properties(properties, bootstrap_controllers=controllers)
    async with AdminClient(config) as admin:
        resources = [ConfigResource(ConfigResourceType.BROKER, "3000")]
        reported.append(await admin.describe_configs(resources))
    assert "sasl.jaas.config" in f"{reported}"
    return f"{reported}"


def page_of(player: Player, node: str, path: str) -> str:
    """A page of a controller's own HTTP listener."""
    properties = parse_properties((player.directory / node / "server.properties").read_text())
    address = properties["quorate.http.listener"]
    with urllib.request.urlopen(f"http://{address}{path}", timeout=TIMEOUT_S) as response:
        return str(response.read().decode())


def files_of(secret: str) -> set[str]:
    """The files that have to have a secret."""
    match secret:
        case "node":
            return {"controllers.properties", "secrets/controllers-login/node"}
        case "controllers-tls" | "brokers-tls":
            return {f"secrets/{secret}/tls.key"}
        case "key of tokens":
            return {f"{node}/server.properties" for node in NODES}
    return {f"clients/{secret}.properties", f"secrets/users/{secret}"}


def is_of_metadata(file: str) -> bool:
    """Whether a file is a log or a checkpoint of metadata, or a copy of one in the history."""
    return Path(file).suffix in (".log", ".checkpoint") and (
        "__cluster_metadata-0" in file or file.startswith("history/") or "bootstrap" in file
    )


def run(player: Player, line: str) -> subprocess.CompletedProcess[str]:
    """A line of a shell, in the directory in which the cluster was played."""
    return subprocess.run(
        ["/bin/sh", "-c", line], **player.surroundings, capture_output=True, timeout=TIMEOUT_S, check=False
    )


def test_the_secured_example_lets_in_whom_it_should_and_tells_nobody_its_secrets(
    player: Player, secrets: dict[str, str]
) -> None:
    """TLS, SCRAM and ACLs of a whole cluster work, and no secret leaves the files that need it."""
    text = (EXAMPLES / "secure.yaml").read_text()
    for old, new in CHANGES.items():
        assert old in text
        text = text.replace(old, new)
    player.write(text)
    with watching_processes() as shown:
        played = player.play("-f", str(player.path / "made" / "secrets.yaml"))
        assert (
            "with --bootstrap-server use --command-config cluster/clients/admin.properties" in played.stdout
        )
        found = player.snapshot()
        servers, controllers = found["bootstrapServers"], found["bootstrapControllers"]
        token = asyncio.run(use_as_users(player, servers))
        login = f"--topic {TOPIC} --command-config cluster/clients/alice.properties"
        produced = run(player, f"echo 'hello, alice' | cluster/bin/kafka-console-producer {login}")
        assert (produced.returncode, "ERROR" in produced.stderr) == (0, False), produced.stderr
        reading = f"cluster/bin/kafka-console-consumer {login} --group shop --from-beginning --max-messages 1"
        consumed = run(player, reading)
        assert "hello, alice" in consumed.stdout, consumed.stderr
        listed = run(player, f"PLANTED={TOPIC} cluster/bin/kafka-topics --list")
        assert TOPIC in listed.stdout.split(), listed.stderr
        led = run(
            player,
            f"cluster/bin/kafka-metadata-quorum --bootstrap-controller {controllers} describe --status",
        )
        assert "LeaderId:" in led.stdout, led.stderr
        reported = [
            text for ran in (played, produced, consumed, listed, led) for text in (ran.stdout, ran.stderr)
        ]
        places = {
            "commands": reported,
            "metrics": [
                page_of(player, f"controller-{node_id}", "/metrics") for node_id in (3000, 3001, 3002)
            ],
            "configs": [asyncio.run(described_configs(player, servers, controllers))],
            "status": [player.run("status").stdout],
            "status in JSON": [player.run("status", "-o", "json").stdout],
            "logs": [player.run("logs", "-n", "100000").stdout],
        }
    assert player.run("stop").returncode == 0
    history = player.directory / "history"
    store_rows(player.path / "lake", history, found["clusterId"])
    places |= {
        "arguments": shown.arguments,
        "environments": shown.environments,
        "lake": [content for contents in files_below(player.path / "lake").values() for content in contents],
    }
    in_metadata: dict[str, Secret] = {"password of a plug-in": PLUGIN_PASSWORD}
    for log in history.rglob("*.log"):
        in_metadata |= scram_keys(log.parent)
    assert len(in_metadata) == 1 + 3 * 4
    in_files: dict[str, Secret] = {**secrets, "key of tokens": TOKEN_KEY}
    planted = {"name": TOPIC, "listener": LISTENER}
    homes = homes_of(
        {**planted, **in_files, **in_metadata, "token": token}, places | files_below(player.directory)
    )
    assert homes["name"] | homes["listener"] >= set(places), "a leak there would not have been found"
    for name in in_files:
        assert homes[name] == {"manifest.yaml", *files_of(name)}, name
        assert {stat.S_IMODE((player.directory / file).stat().st_mode) for file in homes[name]} == {0o600}
    for name in in_metadata:
        assert homes[name], name
        assert all(map(is_of_metadata, homes[name])), (name, homes[name])
    assert homes["token"] == set()
    configs = [*player.directory.glob("*/server.properties")]
    assert {stat.S_IMODE(file.stat().st_mode) for file in configs} == {0o600}
    assert len(configs) == 6
    # The keys in the log were made of the passwords, and it is for its owner alone.
    assert stat.S_IMODE(player.directory.stat().st_mode) == 0o700


def test_a_secured_cluster_refuses_strangers_and_starts_again(
    player: Player, secrets: dict[str, str]
) -> None:
    """Nothing is started without its Secrets, no client gets in without a login, and what is kept starts again."""
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
    plain = player.snapshot()["bootstrapControllers"].split(",")

    async def describe() -> None:
        async with AdminClient(bootstrap_controllers=plain) as admin:
            await admin.describe_metadata_quorum(timeout_ms=REFUSED_TIMEOUT_MS)

    with pytest.raises(AdminError):
        asyncio.run(describe())
    assert player.run("stop").returncode == 0
    player.play("-f", made)
    assert player.until_ready()["quorum"]["kraftVersion"] == 1
    assert secrets["node"] not in player.run("logs").stdout
