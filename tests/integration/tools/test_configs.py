"""`quorate configs` beside kafka-configs: every kind of entity, through brokers and at controllers."""

import pytest
from kit.java.cluster import JavaCluster
from kit.java.tools import JavaTools
from kit.membership import quorate, refused, succeeded
from kit.waiting import eventually

pytestmark = pytest.mark.integration

KAFKA_CONFIGS = "kafka.admin.ConfigCommand"
TIMEOUT_S = 15
ENTITIES = {
    "broker": (("--broker", "0"), "log.cleaner.threads=2"),
    "broker default": (("--broker-defaults",), "log.cleaner.backoff.ms=14000"),
    "broker logger": (("--broker-logger", "0"), "kafka.server.KafkaApis=DEBUG"),
    "user": (("--user", "tools-user"), "producer_byte_rate=2048"),
    "user and client": (("--user", "tools-user", "--client", "app"), "consumer_byte_rate=10000000"),
    "client default": (("--client-defaults",), "request_percentage=12.5"),
    "ip": (("--ip", "10.1.2.3"), "connection_creation_rate=3"),
    "group": (("--group", "tools-group"), "consumer.session.timeout.ms=46000"),
    "client metrics": (("--client-metrics", "tools-metrics"), "interval.ms=60000"),
}


@pytest.mark.parametrize("entity", ENTITIES)
def test_an_entity_is_configured(java_cluster: JavaCluster, java_tool: JavaTools, entity: str) -> None:
    whose, config = ENTITIES[entity]
    key, _, value = config.partition("=")
    at = ("--bootstrap-server", java_cluster.bootstrap_servers)
    text = f"{key}={value}"
    if "rate" in key or "percentage" in key:
        text = f"{key}={float(value)}" if float(value) < 1e7 else f"{key}=1.0E7"

    def same() -> str:
        theirs = java_tool(KAFKA_CONFIGS, *at, "--describe", *whose).stdout
        ours = quorate("configs", *at, "--describe", *whose).stdout
        return ours if ours == theirs else ""

    assert "Completed updating" in succeeded(
        quorate("configs", *at, "--alter", *whose, "--add-config", config)
    )
    eventually(lambda: text in same(), TIMEOUT_S, f"{text} from both tools")
    succeeded(quorate("configs", *at, "--alter", *whose, "--delete-config", key))
    eventually(
        lambda: text not in quorate("configs", *at, "--describe", *whose).stdout, TIMEOUT_S, "the value to go"
    )


def test_controllers_are_configured_without_brokers(java_cluster: JavaCluster, java_tool: JavaTools) -> None:
    """KIP-919: what controllers serve needs no broker."""
    at = ("--bootstrap-controller", java_cluster.bootstrap_controllers)
    controller_id = str(java_cluster.controllers[0])
    logger = ("--broker-logger", controller_id)
    succeeded(
        quorate("configs", *at, "--alter", *logger, "--add-config", "kafka.server.ControllerApis=DEBUG")
    )
    described = succeeded(quorate("configs", *at, "--describe", *logger))
    assert "  kafka.server.ControllerApis=DEBUG sensitive=false" in described
    assert described == java_tool(KAFKA_CONFIGS, *at, "--describe", *logger).stdout
    whose = ("--user", "tools-at-controllers")
    succeeded(quorate("configs", *at, "--alter", *whose, "--add-config", "producer_byte_rate=7"))
    brokers = ("--bootstrap-server", java_cluster.bootstrap_servers)
    line = "Quota configs for user-principal 'tools-at-controllers' are producer_byte_rate=7.0\n"
    eventually(
        lambda: quorate("configs", *brokers, "--describe", *whose).stdout == line, TIMEOUT_S, "the quota"
    )
    assert "--bootstrap-server" in refused(quorate("configs", *at, "--describe", *whose))


def test_a_user_logs_in_with_the_credential_that_was_set(java_cluster: JavaCluster) -> None:
    at = ("--bootstrap-server", java_cluster.bootstrap_servers)
    whose = ("--user", "tools-scram")
    credential = "SCRAM-SHA-512=[iterations=8192,password=a,b=c]"
    succeeded(quorate("configs", *at, "--alter", *whose, "--add-config", credential))
    described = (
        "SCRAM credential configs for user-principal 'tools-scram' are SCRAM-SHA-512=iterations=8192\n"
    )
    assert (
        eventually(lambda: quorate("configs", *at, "--describe", *whose).stdout, TIMEOUT_S, "the credential")
        == described
    )
    properties = java_cluster.sasl_properties("tools-scram", "a,b=c", "SCRAM-SHA-512")
    file = java_cluster.client_config("tools-scram", properties)
    list_topics = (
        "topics",
        *("--bootstrap-server", java_cluster.sasl_servers, "--command-config", str(file), "--list"),
    )
    eventually(
        lambda: quorate(*list_topics).returncode == 0,
        TIMEOUT_S,
        "the user to log in",
        lambda: quorate(*list_topics),
    )
    succeeded(quorate("configs", *at, "--alter", *whose, "--delete-config", "SCRAM-SHA-512"))
    ran = eventually(
        lambda: (ran := quorate(*list_topics)).returncode and ran, TIMEOUT_S, "the user to be refused"
    )
    assert "uthentication failed" in refused(ran)
