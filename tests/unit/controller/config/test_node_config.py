"""A controller's configuration: stock files, values, and all that is refused."""

from pathlib import Path

import pytest
from quorate_controller.config import (
    ConfigError,
    ControllerConfig,
    QuorumTimeouts,
    load_config,
    load_format_target,
    parse_config,
    parse_format_target,
)
from quorate_controller.config.authorizer import AuthorizerConfig
from quorate_controller.config.connection_limits import ConnectionConfig
from quorate_controller.config.endpoints import ListenerAddress, StaticVoter
from quorate_controller.config.own_keys import ResponsePolicy, ResponsesWaitFor

MINIMAL = {
    "process.roles": "controller",
    "node.id": "3000",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://:9093",
    "controller.quorum.bootstrap.servers": "a:9093,[::1]:9094",
}

STANDARD_AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}

STOCK = """
# What config/controller.properties of the distribution sets.
process.roles=controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=CONTROLLER://:9093
advertised.listeners=CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,\\
    SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-controller-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def parse(changes: dict[str, str | None] | None = None) -> ControllerConfig:
    """MINIMAL with changes; None removes a key."""
    properties: dict[str, str | None] = {**MINIMAL, **(changes or {})}
    given = {key: value for key, value in properties.items() if value is not None}
    return parse_config(given, local_host=lambda: "this-host")


def problems(changes: dict[str, str | None]) -> tuple[str, ...]:
    """What is said about MINIMAL with changes."""
    with pytest.raises(ConfigError) as caught:
        parse(changes)
    return caught.value.problems


def test_stock_file_is_taken(tmp_path: Path):
    """The distribution's controller.properties parses; keys for brokers are noted, none is refused."""
    path = tmp_path / "controller.properties"
    path.write_text(STOCK)
    config = load_config(path)
    assert (config.node_id, config.process_roles) == (1, ("controller",))
    assert config.advertised_listeners == (ListenerAddress(name="CONTROLLER", host="localhost", port=9093),)
    assert config.storage.metadata_log_dir == Path("/tmp/kraft-controller-logs")
    assert "log.retention.hours is a broker config and has no effect on a controller" in config.notes
    assert not any("listeners" in note or "node.id" in note for note in config.notes)


def test_defaults_are_kafkas():
    """What the file does not say is as in Kafka 4.3.1."""
    config = parse()
    assert config.quorum == QuorumTimeouts()
    assert config.storage.log.segment_bytes == 1024**3
    assert config.storage.log.segment_ms == 7 * 24 * 3600 * 1000
    assert config.storage.retention_bytes == 100 * 1024 * 1024
    assert config.storage.retention_ms == 7 * 24 * 3600 * 1000
    assert config.storage.metadata_log_dir == Path("/tmp/kafka-logs")
    assert (config.snapshot_bytes_max, config.snapshot_interval_ms) == (20 * 1024 * 1024, 3_600_000)
    assert (config.max_idle_interval_ms, config.broker_session_timeout_ms) == (500, 9000)
    assert config.advertised_listeners == (ListenerAddress(name="CONTROLLER", host="this-host", port=9093),)
    assert config.bootstrap_servers == (("a", 9093), ("::1", 9094))
    assert (config.static_voters, config.auto_join, config.http_listener, config.notes) == (
        (),
        False,
        None,
        (),
    )
    assert config.values["num.partitions"] == 1
    assert config.values["sasl.enabled.mechanisms"] == ("GSSAPI",)
    assert config.explicit == MINIMAL


def test_values_are_typed():
    """Numbers, lists, directories, our own keys."""
    config = parse(
        {
            "controller.quorum.election.timeout.ms": " 250 ",
            "controller.quorum.fetch.timeout.ms": "500",
            "controller.quorum.auto.join.enable": "TRUE",
            "metadata.log.dir": "/m",
            "log.dirs": "/a, /b",
            "metadata.log.segment.bytes": "8388608",
            "metadata.max.retention.bytes": "-1",
            "quorate.http.listener": "127.0.0.1:8080",
            "quorate.responses.wait.for": "brokers",
            "quorate.responses.wait.max.ms": "100",
            "quorate.snapshot.handover.enable": "true",
        }
    )
    assert (config.quorum.election_timeout_ms, config.quorum.fetch_timeout_ms) == (250, 500)
    assert config.auto_join
    assert config.storage.log_dirs == (Path("/a"), Path("/b"))
    assert config.storage.metadata_log_dir == Path("/m")
    assert config.storage.log.segment_bytes == 8388608
    assert config.storage.retention_bytes == -1
    assert config.http_listener == ("127.0.0.1", 8080)
    assert config.response_policy == ResponsePolicy(wait_for=ResponsesWaitFor.BROKERS, max_ms=100)
    assert config.snapshot_handover


def test_static_voters_are_sorted():
    """controller.quorum.voters in any order; the node is among them."""
    config = parse(
        {
            "controller.quorum.bootstrap.servers": None,
            "controller.quorum.voters": "3001@b:9093,3000@[::1]:9093",
        }
    )
    assert config.static_voters == (
        StaticVoter(node_id=3000, host="::1", port=9093),
        StaticVoter(node_id=3001, host="b", port=9093),
    )
    assert config.storage.static_voter_ids == (3000, 3001)


def test_several_listeners_follow_the_names():
    """The first of controller.listener.names is the first listener, in whatever order they are bound."""
    config = parse(
        {
            "controller.listener.names": "controller,SECOND",
            "listeners": "SECOND://:1,CONTROLLER://h:2",
            "advertised.listeners": "SECOND://out:3",
        }
    )
    assert [listener.name for listener in config.listeners] == ["CONTROLLER", "SECOND"]
    assert [(reported.host, reported.port) for reported in config.advertised_listeners] == [
        ("h", 2),
        ("out", 3),
    ]


REFUSED: list[tuple[dict[str, str | None], str]] = [
    ({"node.id": None}, "node.id is missing"),
    (
        {"node.id": "-1"},
        "node.id=-1: Invalid value -1 for configuration node.id: Value must be at least 0",
    ),
    ({"node.id": "x"}, "node.id=x: Invalid value x for configuration node.id: Not a number of type INT"),
    ({"broker.id": "7"}, "broker.id=7: must equal node.id=3000"),
    ({"process.roles": None}, "process.roles is missing"),
    ({"process.roles": "controler"}, "String must be one of: broker, controller"),
    ({"process.roles": "broker,controller"}, "must be controller; brokers are stock Kafka"),
    ({"listeners": None}, "listeners is missing; for instance listeners=CONTROLLER://:9093"),
    ({"listeners": "CONTROLLER:9093"}, "'CONTROLLER:9093' is not of the form NAME://host:port"),
    ({"listeners": "CONTROLLER://:99999"}, "is not of the form NAME://host:port"),
    ({"listeners": "OTHER://:9093"}, "CONTROLLER does not appear in listeners"),
    (
        {"listeners": "CONTROLLER://:9093,PLAINTEXT://:9092"},
        "PLAINTEXT is not one of controller.listener.names",
    ),
    ({"listeners": "CONTROLLER://:1,CONTROLLER://:2"}, "the name CONTROLLER appears twice"),
    (
        {"advertised.listeners": "CONTROLLER://0.0.0.0:9093"},
        "advertised.listeners: CONTROLLER://0.0.0.0:9093 can't be advertised; set a host name or address",
    ),
    ({"advertised.listeners": "OTHER://a:1"}, "advertised.listeners: OTHER does not appear in listeners"),
    (
        {"listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT"},
        "sasl.enabled.mechanisms=GSSAPI: GSSAPI is not supported; allowed are PLAIN, SCRAM-SHA-256",
    ),
    ({"listener.security.protocol.map": "A:PLAINTEXT"}, "is missing; add CONTROLLER:PLAINTEXT"),
    (
        {"listener.security.protocol.map": "CONTROLLER:TLS"},
        "'CONTROLLER:TLS' is not of the form NAME:PROTOCOL",
    ),
    ({"controller.quorum.bootstrap.servers": None}, "controller.quorum.bootstrap.servers is missing"),
    ({"controller.quorum.bootstrap.servers": "a"}, "'a' is not of the form host:port"),
    ({"controller.quorum.voters": "1@h:1"}, "this controller, node.id=3000, is not among them"),
    ({"controller.quorum.voters": "3000@h"}, "'3000@h' is not of the form id@host:port"),
    ({"controller.quorum.voters": "3000@0.0.0.0:1"}, "has no host that other nodes can reach"),
    ({"controller.quorum.voters": "3000@h:1,3000@i:1"}, "node 3000 appears twice"),
    (
        {"controller.quorum.voters": "3000@h:1", "controller.quorum.auto.join.enable": "true"},
        "controller.quorum.auto.join.enable=true: needs a dynamic quorum",
    ),
    ({"controller.quorum.fetch.timeout.ms": "soon"}, "Not a number of type INT"),
    ({"metadata.log.segment.bytes": "100"}, "Value must be at least 8388608"),
    ({"broker.session.timeout.ms": "3000"}, "broker.heartbeat.interval.ms=2000: must be at most half of"),
    (
        {"queued.max.request.bytes": "5"},
        "queued.max.request.bytes=5: must be at least socket.request.max.bytes",
    ),
    ({"log.dirs": "/a,,/b"}, "log.dirs"),
    ({"controller.quorum.voter": "x"}, "did you mean controller.quorum.voters"),
    ({"zookeeper.connect": "x"}, "zookeeper.connect=x: there is no such key in Kafka 4.4.0"),
    ({"quorate.http.listner": "x"}, "did you mean quorate.http.listener?"),
    (
        {"quorate.responses.wait.for": "all"},
        "quorate.responses.wait.for=all: must be one of none, forwarder, brokers",
    ),
    (
        {"quorate.responses.wait.max.ms": "-1"},
        "quorate.responses.wait.max.ms=-1: must be a number from 0 to 60000",
    ),
    (
        {"quorate.snapshot.handover.enable": "yes"},
        "quorate.snapshot.handover.enable=yes: must be true or false",
    ),
    ({"quorate.http.listener": "8080"}, "quorate.http.listener=8080: not of the form host:port"),
    (
        {"authorizer.class.name": "a.B"},
        "authorizer.class.name=a.B: Java classes can't run here; use org.apache.kafka.metadata.authorizer.Stand",
    ),
    (
        {"super.users": "User:a;admin"},
        "super.users=User:a;admin: admin is no principal; write them as User:",
    ),
    (
        {"super.user": "User:a"},
        "super.user=User:a: there is no such key in Kafka 4.4.0; did you mean super.us",
    ),
    (
        {"allow.everyone.if.no.acl.found": "yes"},
        "allow.everyone.if.no.acl.found=yes: must be true or false",
    ),
    (
        {**STANDARD_AUTHORIZER, "early.start.listeners": "PLAINTEXT"},
        "early.start.listeners=PLAINTEXT: must name the controller listeners CONTROLLER, which start before",
    ),
    (
        {"create.topic.policy.class.name": "a.B"},
        "Java classes can't run here; name a Python class as module:",
    ),
    (
        {"alter.config.policy.class.name": "a.B:"},
        "Java classes can't run here; name a Python class as module:",
    ),
    (
        {"config.providers": "env", "config.providers.env.class": "a.EnvVarConfigProvider"},
        "config.providers.env.class must be org.apache.kafka.common.config.provider.DirectoryConfigProvider or ",
    ),
    ({"config.providers": "file"}, "config.providers=file: config.providers.file.class must be "),
    (
        {"config.providers.a.class": "b"},
        "config.providers.a.class: is for no provider in config.providers",
    ),
    ({"principal.builder.class": "a.B"}, "Java classes can't run here"),
]
"""What `quorate controller run` refuses: changes of MINIMAL, and a part of the message."""


@pytest.mark.parametrize(("changes", "expected"), REFUSED)
def test_wrong_configs_are_refused(changes: dict[str, str | None], expected: str):
    """Each problem names the key, the value and what is allowed."""
    assert any(expected in problem for problem in problems(changes)), problems(changes)


@pytest.mark.parametrize("changes", [changes for changes, _ in REFUSED])
def test_format_refuses_what_run_refuses(changes: dict[str, str | None]):
    """No directory is formatted for a controller that won't start."""
    given = {key: value for key, value in {**MINIMAL, **changes}.items() if value is not None}
    if "broker" in given.get("process.roles", ""):
        assert parse_format_target(given).process_roles == ("broker", "controller")
        return
    with pytest.raises(ConfigError) as refusal:
        parse_format_target(given)
    assert refusal.value.problems == problems(changes)


def test_format_refuses_secrets_that_run_cannot_read(tmp_path: Path):
    path = tmp_path / "controller.properties"
    provider = "config.providers=a\nconfig.providers.a.class=org.apache.kafka.common.config.provider."
    lines = [f"{key}={value}" for key, value in MINIMAL.items()]
    path.write_text("\n".join([*lines, f"{provider}FileConfigProvider", "log.dirs=${a:/nowhere:dirs}"]))
    for load in (load_config, load_format_target):
        with pytest.raises(ConfigError, match=r"log\.dirs=.* /nowhere: No such file"):
            load(path)
    # Java's providers are not ours.
    assert load_format_target(path, stock_kafka=True).node_id == 3000


def test_format_takes_what_only_stock_kafka_runs():
    properties = {
        **MINIMAL,
        "authorizer.class.name": "a.B",
        "some.plugin.key": "x",
        "listeners": "CONTROLLER://0.0.0.0:9093",
    }
    target = parse_format_target(properties, stock_kafka=True)
    assert target.controller_address == ListenerAddress(name="CONTROLLER", host="", port=9093)


@pytest.mark.parametrize(
    ("changes", "advertised"),
    [
        ({"listeners": "CONTROLLER://0.0.0.0:9093"}, [("this-host", 9093)]),
        ({"listeners": "CONTROLLER://:9093"}, [("this-host", 9093)]),
        ({"listeners": "CONTROLLER://[::]:9093"}, [("::", 9093)]),
        ({"listeners": "CONTROLLER://h:9093", "controller.quorum.voters": "3000@v:1"}, [("h", 9093)]),
        ({"listeners": "CONTROLLER://0.0.0.0:9093", "controller.quorum.voters": "3000@v:1"}, [("v", 1)]),
        ({"listeners": "CONTROLLER://:9093", "controller.quorum.voters": "3000@v:1"}, [("v", 1)]),
        (
            {
                "listeners": "SECOND://0.0.0.0:9094,CONTROLLER://0.0.0.0:9093",
                "controller.listener.names": "CONTROLLER,SECOND",
                "controller.quorum.voters": "3000@v:1,3001@w:2",
            },
            [("v", 1), ("this-host", 9094)],
        ),
        (
            {"listeners": "CONTROLLER://0.0.0.0:9093", "advertised.listeners": "CONTROLLER://:9099"},
            [("this-host", 9099)],
        ),
    ],
)
def test_what_binds_all_interfaces_is_advertised_as_by_kafka(
    changes: dict[str, str | None], advertised: list[tuple[str, int]]
):
    config = parse(changes)
    assert [
        (advertised_listener.host, advertised_listener.port)
        for advertised_listener in config.advertised_listeners
    ] == advertised


def test_the_standard_authorizer_is_configured_as_in_kafka():
    assert parse({"super.users": "User:admin"}).authorizer is None
    assert parse({"authorizer.class.name": ""}).authorizer is None
    assert parse({"early.start.listeners": "PLAINTEXT"}).authorizer is None
    assert parse(STANDARD_AUTHORIZER).authorizer == AuthorizerConfig()
    config = parse(
        {
            **STANDARD_AUTHORIZER,
            "super.users": "User:admin; User:CN=node,O=org ;",
            "allow.everyone.if.no.acl.found": "TRUE",
            "early.start.listeners": "controller",
        }
    )
    assert config.authorizer == AuthorizerConfig(
        super_users=frozenset({"User:admin", "User:CN=node,O=org"}), allow_everyone_if_no_acl_found=True
    )
    assert config.notes == ()


def test_all_problems_are_told_at_once():
    """A user need not start the node five times to find five mistakes."""
    found = problems({"node.id": "x", "listeners": "bad", "num.partitions": "0", "foo": "1", "log.dirs": ","})
    keys = {problem.split("=")[0].split(":")[0] for problem in found}
    assert keys >= {"node.id", "listeners", "num.partitions", "foo", "log.dirs"}


def test_secrets_are_not_told():
    """Values of passwords appear neither in problems nor in notes."""
    config = parse({"ssl.keystore.password": "geheim", "delegation.token.secret.key": "geheim"})
    assert not any("geheim" in note for note in config.notes)
    assert any("ssl.keystore.password" in note for note in config.notes)


@pytest.mark.parametrize(
    "key",
    [
        "listener.name.external.ssl.keystore.location",
        "listener.name.sasl.plain.sasl.jaas.config",
        "rsm.config.anything",
        "ssl.truststore.location",
        "log.cleaner.threads",
    ],
)
def test_legal_keys_without_meaning_here_are_noted(key: str):
    """Keys of listeners, plugins, TLS and brokers may stand in a shared file."""
    assert parse({key: "1"}).notes == (f"{key} is a broker config and has no effect on a controller",)


def test_files_that_cannot_be_read_are_told(tmp_path: Path):
    """Missing files, directories and malformed escapes are problems of the configuration."""
    with pytest.raises(ConfigError, match="cannot read the file: No such file"):
        load_config(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="cannot read the file: Is a directory"):
        load_format_target(tmp_path)
    (tmp_path / "bad").write_text("a=\\u1")
    with pytest.raises(ConfigError, match=r"bad: line 1: "):
        load_config(tmp_path / "bad")
    (tmp_path / "wrong").write_text("node.id=x\nprocess.roles=controller\n")
    with pytest.raises(ConfigError, match=r"wrong: node\.id=x"):
        load_config(tmp_path / "wrong")


def test_format_takes_brokers():
    """Formatting needs less: any role, unknown keys of plugins, no own listener of a broker."""
    target = parse_format_target(
        {
            "process.roles": "broker",
            "node.id": "1",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "h:1",
            "listeners": "PLAINTEXT://:9092",
            "log.dirs": "/b,/a",
            "some.plugin.key": "x",
        }
    )
    assert target.log_dirs == (Path("/a"), Path("/b"))
    assert target.metadata_log_dir == Path("/b")
    assert (target.controller_address, target.has_static_voters) == (None, False)
    with pytest.raises(ConfigError, match=r"none of them is in controller\.listener\.names"):
        parse_format_target({**MINIMAL, "listeners": "X://:1"}, stock_kafka=True)


def test_combined_node_is_formatted_for_its_controller_listener():
    """Of a combined node's listeners the controller's one counts, as advertised if it is."""
    properties = {
        **MINIMAL,
        "process.roles": "broker,controller",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "advertised.listeners": "PLAINTEXT://x:9092,CONTROLLER://out:9999",
    }
    target = parse_format_target(properties)
    assert target.controller_address == ListenerAddress(name="CONTROLLER", host="out", port=9999)


def test_limits_of_connections() -> None:
    """Kafka's keys, with the prefix of a listener where Kafka has it."""
    default = parse().connections
    assert (default.total_max, default.per_host_max, default.of_host) == (10_000, 2**31 - 1, {})
    assert (default.of_listener, default.rate_max, default.rate_of_listener) == ({}, 2**31 - 1, {})
    found = parse(
        {
            "max.connections": "50",
            "listener.name.controller.max.connections": "40",
            "max.connections.per.ip": "0",
            "max.connections.per.ip.overrides": "10.0.0.1:20, ::1:3,host.example:7",
            "max.connection.creation.rate": "9",
            "listener.name.controller.max.connection.creation.rate": "8",
        }
    )
    assert found.connections == ConnectionConfig(
        total_max=50,
        of_listener={"CONTROLLER": 40},
        per_host_max=0,
        of_host={"10.0.0.1": 20, "::1": 3, "host.example": 7},
        rate_max=9,
        rate_of_listener={"CONTROLLER": 8},
    )
    assert found.notes == ()


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("max.connections.per.ip", "0", "only together with max.connections.per.ip.overrides"),
        ("max.connections.per.ip.overrides", "10.0.0.1", "is not of the form host:number"),
        ("max.connections.per.ip.overrides", "a b:1", "is not of the form host:number"),
        ("max.connections.per.ip.overrides", "a:-1", "is not of the form host:number"),
        ("listener.name.controller.max.connections", "many", "must be a number from 0 to 2147483647"),
        (
            "listener.name.controller.max.connection.creation.rate",
            "-1",
            "must be a number from 0 to 2147483647",
        ),
    ],
)
def test_wrong_limits_of_connections(key: str, value: str, allowed: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse({key: value})
    (problem,) = refusal.value.problems
    assert problem.startswith(f"{key}={value}: ")
    assert allowed in problem
