"""Quotas, SCRAM users, delegation tokens and log levels of a cluster with Python controllers and a stock broker.

All nodes have a listener for users of SCRAM; the tools of both work through that of the broker, and at controllers.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.cluster import manifests
from kit.java.tools import JavaTools
from kit.membership import quorate, refused, succeeded
from kit.secured_cluster import SCRAM, SecuredCluster
from kit.waiting import eventually
from quorate_operator.planning.cluster import Role

pytestmark = pytest.mark.integration

TIMEOUT_S = 20
HOUR_MS = 3_600_000
KAFKA_CONFIGS = "kafka.admin.ConfigCommand"
KAFKA_METADATA_QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
KAFKA_TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
TOKEN_SECRET = {"delegation.token.secret.key": "the secret of this test's delegation tokens"}


class ScramCluster(SecuredCluster):
    """Its users log in with SCRAM."""

    @property
    def secured(self) -> str:
        """The address of the broker's listener for users."""
        return self.secured_at(*self.brokers)

    def login(self, user: str, password: str, mechanism: str = "SCRAM-SHA-256", options: str = "") -> str:
        """A file for `--command-config` with which this user logs in."""
        jaas = f'{SCRAM} required username="{user}" password="{password}" {options};'
        return str(self.login_file(str(abs(hash((user, password)))), mechanism, jaas))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Iterator[ScramCluster]:
    """Two Python controllers and a stock broker, running, with the same secret for tokens."""
    directory = tmp_path_factory.mktemp("secured") / "cluster"
    cluster = ScramCluster.settle(directory, kafka_jars, manifests(controllers=2))
    cluster.open_ports(dict.fromkeys(("SCRAM-SHA-256", "SCRAM-SHA-512"), f"{SCRAM} required;"))
    for node_id in (*cluster.controllers, *cluster.brokers):
        cluster.configure(node_id, TOKEN_SECRET)
    try:
        cluster.format(*cluster.nodes(Role.CONTROLLER), *cluster.nodes(Role.BROKER))
        yield cluster.start_all()
    finally:
        cluster.close()


def lists_topics(cluster: ScramCluster, login: str) -> bool:
    """Whether someone can log in."""
    return (
        quorate(
            "topics", "--bootstrap-server", cluster.secured, "--command-config", login, "--list"
        ).returncode
        == 0
    )


@pytest.mark.parametrize("is_ours", [False, True], ids=["kafka-configs", "quorate configs"])
def test_quotas_reach_the_broker(cluster: ScramCluster, java_tool: JavaTools, *, is_ours: bool) -> None:
    at = ("--bootstrap-server", cluster.bootstrap_servers)

    def run(*arguments: str) -> str:
        if is_ours:
            return succeeded(quorate("configs", *at, *arguments))
        return java_tool(KAFKA_CONFIGS, *at, *arguments).succeeded().stdout

    for whose, entity, key in (
        (("--user", "alice"), "user-principal 'alice'", "producer_byte_rate"),
        (
            ("--user", "alice", "--client-defaults"),
            "user-principal 'alice', the default client-id",
            "consumer_byte_rate",
        ),
        (("--ip", "127.0.0.9"), "ip '127.0.0.9'", "connection_creation_rate"),
        (("--ip", "localhost"), "ip 'localhost'", "connection_creation_rate"),
    ):
        for value in ("7", "8"):
            run("--alter", *whose, "--add-config", f"{key}={value}")
            line = f"Quota configs for {entity} are {key}={value}.0\n"
            eventually(
                lambda whose=whose, line=line: line in run("--describe", *whose),
                TIMEOUT_S,
                line,
                lambda whose=whose: run("--describe", *whose),
            )
        run("--alter", *whose, "--delete-config", key)
        eventually(
            lambda whose=whose, entity=entity: entity not in run("--describe", *whose), TIMEOUT_S, "no quota"
        )
    bad = ("--alter", "--user", "alice", "--add-config", "producer_byte_rate=-1")
    ran = java_tool(KAFKA_CONFIGS, *at, *bad)
    assert "Quota producer_byte_rate must be greater than 0" in ran.stdout + ran.stderr
    assert "Quota producer_byte_rate must be greater than 0" in refused(quorate("configs", *at, *bad))


def test_quotas_are_set_at_the_controllers(cluster: ScramCluster) -> None:
    whose = ("--user", "direct")
    at = ("--bootstrap-controller", cluster.bootstrap_controllers)
    succeeded(quorate("configs", *at, "--alter", *whose, "--add-config", "producer_byte_rate=7"))
    line = "Quota configs for user-principal 'direct' are producer_byte_rate=7.0\n"
    broker = ("--bootstrap-server", cluster.bootstrap_servers)
    eventually(
        lambda: quorate("configs", *broker, "--describe", *whose).stdout == line, TIMEOUT_S, "the quota"
    )


def test_controllers_describe_what_brokers_describe(cluster: ScramCluster) -> None:
    broker = ("--bootstrap-server", cluster.bootstrap_servers)
    controllers = ("--bootstrap-controller", cluster.bootstrap_controllers)
    succeeded(quorate("topics", *broker, "--create", "--topic", "described", "--partitions", "3"))
    for whose, config in (
        (("--user", "described"), "SCRAM-SHA-512=[iterations=8192,password=a-secret]"),
        (("--user", "described", "--client", "c"), "producer_byte_rate=7"),
        (("--user-defaults",), "consumer_byte_rate=8"),
        (("--client-defaults",), "request_percentage=9"),
        (("--ip", "127.0.0.7"), "connection_creation_rate=5"),
    ):
        succeeded(quorate("configs", *broker, "--alter", *whose, "--add-config", config))
    for words in (
        ("topics", "--list"),
        ("topics", "--describe"),
        ("topics", "--describe", "--topic", "described", "--partition-size-limit-per-response", "2"),
        ("topics", "--describe", "--unavailable-partitions"),
        ("configs", "--describe", "--entity-type", "users"),
        ("configs", "--describe", "--entity-type", "users", "--entity-type", "clients"),
        ("configs", "--describe", "--user", "described"),
        ("configs", "--describe", "--user", "nobody"),
        ("configs", "--describe", "--user-defaults"),
        ("configs", "--describe", "--client-defaults"),
        ("configs", "--describe", "--entity-type", "ips"),
    ):
        tool, *rest = words
        reported = [
            json.loads(succeeded(quorate(tool, *at, *rest, "-o", "json"))) for at in (controllers, broker)
        ]
        topics = (topic for shown in reported for topic in shown.get("topics", ()))
        for topic in filter(lambda topic: isinstance(topic, dict), topics):
            del topic["configs"]  # each node adds those of its own file
        assert reported[0] == reported[1], words
    credential = ("--add-config", "SCRAM-SHA-256=[password=a-secret]")
    succeeded(quorate("configs", *broker, "--alter", "--user", "maker", *credential))
    login = cluster.login("maker", "a-secret")
    eventually(lambda: lists_topics(cluster, login), TIMEOUT_S, "the user to log in")
    addresses = ",".join(map(cluster.secured_at, cluster.controllers))
    at = ("delegation-tokens", "--bootstrap-controller", addresses, "--command-config", login)
    create = ("--create", "--max-life-time-period", str(HOUR_MS))
    made = json.loads(succeeded(quorate(*at, *create, "-o", "json")))

    def described(*options: str) -> list[dict[str, object]]:
        tokens = json.loads(succeeded(quorate("delegation-tokens", *options, "--describe", "-o", "json")))
        return [token for token in tokens["tokens"] if token["tokenId"] == made["tokenId"]]

    as_maker = ("--bootstrap-server", cluster.secured, "--command-config", login)
    eventually(lambda: described(*as_maker), TIMEOUT_S, "the token")
    assert described(*at[1:]) == described(*as_maker) == [made]
    nothing = cluster.layout.directory.path / "nothing.properties"
    nothing.write_text("")
    plain = (*controllers, "--command-config", str(nothing))
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in refused(quorate("delegation-tokens", *plain, *create))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_scram_user_logs_in_until_deleted(
    cluster: ScramCluster, java_tool: JavaTools, mechanism: str
) -> None:
    """What our controllers store lets a user log in at a stock broker."""
    at, user = ("--bootstrap-server", cluster.bootstrap_servers), f"user-of-{mechanism.lower()}"
    whose = ("--entity-type", "users", "--entity-name", user)
    credential = f"{mechanism}=[iterations=8192,password=a-secret]"
    java_tool(KAFKA_CONFIGS, *at, "--alter", *whose, "--add-config", credential).succeeded()
    login = cluster.login(user, "a-secret", mechanism)
    eventually(lambda: lists_topics(cluster, login), TIMEOUT_S, "the user to log in")
    secured = ("--bootstrap-server", cluster.secured, "--command-config", login)
    java_tool("org.apache.kafka.tools.TopicCommand", *secured, "--list").succeeded()
    assert not lists_topics(cluster, cluster.login(user, "another", mechanism))
    described = java_tool(KAFKA_CONFIGS, *at, "--describe", *whose).succeeded().stdout
    assert (
        f"SCRAM credential configs for user-principal '{user}' are {mechanism}=iterations=8192" in described
    )
    delete = ("--alter", *whose, "--delete-config", mechanism)
    succeeded(quorate("configs", *at, *delete))
    eventually(lambda: not lists_topics(cluster, login), TIMEOUT_S, "the user to be refused")
    # Kafka's tool looks first whether there is one.
    assert "RESOURCE_NOT_FOUND" in refused(quorate("configs", *at, *delete))


def test_a_broker_that_starts_knows_the_users_that_were_not_deleted(cluster: ScramCluster) -> None:
    """No deletion shuts others out where brokers start (ScramDelta.apply of 4.3.1 and 4.4.0)."""
    at, mechanism = ("--bootstrap-server", cluster.bootstrap_servers), "SCRAM-SHA-512"
    gone, kept = [f"gone-{number}" for number in range(7)], "kept"
    for user in (*gone, kept):
        credential = f"{mechanism}=[password=a-secret]"
        succeeded(quorate("configs", *at, "--alter", "--user", user, "--add-config", credential))
    for user in gone:
        succeeded(quorate("configs", *at, "--alter", "--user", user, "--delete-config", mechanism))
    (broker,) = cluster.brokers
    cluster.kill(broker)
    cluster.start(broker)
    login = cluster.login(kept, "a-secret", mechanism)
    eventually(lambda: lists_topics(cluster, login), TIMEOUT_S, "the user to log in")
    assert not lists_topics(cluster, cluster.login(gone[0], "a-secret", mechanism))


def test_a_token_lives(cluster: ScramCluster, java_tool: JavaTools) -> None:
    at = ("--bootstrap-server", cluster.bootstrap_servers)
    credential = ("--add-config", "SCRAM-SHA-256=[password=a-secret]")
    for user in ("owner", "stranger"):
        succeeded(quorate("configs", *at, "--alter", "--user", user, *credential))
    owner, stranger = (cluster.login(user, "a-secret") for user in ("owner", "stranger"))
    eventually(lambda: lists_topics(cluster, owner), TIMEOUT_S, "the owner to log in")
    eventually(lambda: lists_topics(cluster, stranger), TIMEOUT_S, "the stranger to log in")
    as_owner = ("--bootstrap-server", cluster.secured, "--command-config", owner)
    as_stranger = ("--bootstrap-server", cluster.secured, "--command-config", stranger)
    create = ("--create", "--max-life-time-period", str(HOUR_MS))
    made = java_tool(KAFKA_TOKENS, *as_owner, *create, "--renewer-principal", "User:carol").succeeded()
    assert "User:owner" in made.stdout
    assert "[User:carol]" in made.stdout

    token = json.loads(succeeded(quorate("delegation-tokens", *as_owner, *create, "-o", "json")))
    assert token["maxTimestampMs"] - token["issueTimestampMs"] == HOUR_MS
    login = cluster.login(token["tokenId"], token["hmac"], options='tokenauth="true"')
    eventually(lambda: lists_topics(cluster, login), TIMEOUT_S, "a log-in with the token")
    quorums = [
        (
            "--bootstrap-controller",
            cluster.secured_at(controller),
            "--command-config",
            login,
            "describe",
            "--status",
        )
        for controller in cluster.controllers
    ]
    for quorum in quorums:
        eventually(
            lambda quorum=quorum: quorate("metadata-quorum", *quorum).returncode == 0,
            TIMEOUT_S,
            "a log-in with the token at a controller",
            lambda quorum=quorum: quorate("metadata-quorum", *quorum),
        )
        assert "LeaderId:" in java_tool(KAFKA_METADATA_QUORUM, *quorum).succeeded().stdout
    with_token = ("--bootstrap-server", cluster.secured, "--command-config", login)
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in refused(
        quorate("delegation-tokens", *with_token, *create)
    )
    renew = ("--renew", "--hmac", token["hmac"], "--renew-time-period", "60000")
    assert "DELEGATION_TOKEN_OWNER_MISMATCH" in refused(quorate("delegation-tokens", *as_stranger, *renew))
    assert "Completed renew operation" in succeeded(quorate("delegation-tokens", *as_owner, *renew))
    expire = ("--expire", "--hmac", token["hmac"], "--expiry-time-period", "-1")
    assert "Completed expire operation" in java_tool(KAFKA_TOKENS, *as_owner, *expire).succeeded().stdout
    eventually(lambda: not lists_topics(cluster, login), TIMEOUT_S, "a log-in to be refused")
    for quorum in quorums:
        eventually(
            lambda quorum=quorum: "invalid credentials" in quorate("metadata-quorum", *quorum).stderr,
            TIMEOUT_S,
            "a log-in to be refused at a controller",
            lambda quorum=quorum: quorate("metadata-quorum", *quorum),
        )
        ran = java_tool(KAFKA_METADATA_QUORUM, *quorum)
        assert "invalid credentials with SASL mechanism SCRAM-SHA-256" in ran.stdout + ran.stderr
    assert "DELEGATION_TOKEN_NOT_FOUND" in refused(quorate("delegation-tokens", *as_owner, *renew))
    secret = next(iter(TOKEN_SECRET.values()))
    assert not any(secret in cluster.log_of(controller) for controller in cluster.controllers)


def test_log_levels_belong_to_one_controller(cluster: ScramCluster, java_tool: JavaTools) -> None:
    """The levels of each controller are read and changed while it runs, active or not (KIP-919)."""
    at = ("--bootstrap-controller", cluster.bootstrap_controllers)
    logger = "quorate_controller.server"
    first, second = cluster.controllers
    for node_id, other in ((first, second), (second, first)):
        whose = ("--entity-type", "broker-loggers", "--entity-name", str(node_id))
        java_tool(KAFKA_CONFIGS, *at, "--alter", *whose, "--add-config", f"{logger}=DEBUG").succeeded()
        described = java_tool(KAFKA_CONFIGS, *at, "--describe", *whose).succeeded().stdout
        assert f"  {logger}=DEBUG sensitive=false synonyms={{}}" in described
        assert sorted(succeeded(quorate("configs", *at, "--describe", *whose)).splitlines()) == sorted(
            described.splitlines()
        )
        of_other = (*whose[:-1], str(other))
        assert f"  {logger}=INFO " in succeeded(quorate("configs", *at, "--describe", *of_other))
        succeeded(quorate("configs", *at, "--alter", *whose, "--delete-config", logger))
        assert f"  {logger}=INFO " in succeeded(quorate("configs", *at, "--describe", *whose))
        assert cluster.log_of(node_id).count("log_level_changed") == 2
        loud = java_tool(KAFKA_CONFIGS, *at, "--alter", *whose, "--add-config", f"{logger}=LOUD")
        assert "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN" in loud.stdout + loud.stderr
