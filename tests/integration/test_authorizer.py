"""Authorization by our controllers of what clients do through stock brokers, and ACLs from both tools."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.cluster import Cluster, free_ports, manifests
from kit.java.cluster import PASSWORDS, PLAIN
from kit.java.tools import JavaTools, Ran
from kit.membership import quorate, succeeded
from kit.releases import RELEASE
from kit.waiting import eventually
from quorate_operator.properties import render_properties
from quorate_operator.runtime.local.loopback import LOOPBACK
from quorate_protocol.kafka.releases import version_key

pytestmark = pytest.mark.integration

KAFKA_ACLS = "org.apache.kafka.tools.AclCommand"
KAFKA_TOPICS = "org.apache.kafka.tools.TopicCommand"
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
}
CLIENTS = "CLIENTS"
TIMEOUT_S = 30


class AuthorizedCluster:
    """Three Python controllers and a stock broker with authorizers; clients log in at a listener of their own."""

    def __init__(self, directory: Path, jars: Path, tools: JavaTools) -> None:
        self._directory = directory
        self.cluster = Cluster.create(directory / "cluster", jars, manifests(metadata_version="4.4"))
        self.tools = tools
        (broker,) = self.cluster.brokers
        port = free_ports(1)
        self.clients = f"{LOOPBACK}:{port}"
        listeners = f"PLAINTEXT://{self.cluster.address(broker)},{CLIENTS}://{self.clients}"
        users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
        for controller in self.cluster.controllers:
            self.cluster.configure(controller, AUTHORIZER)
        self.cluster.configure(
            broker,
            {
                **AUTHORIZER,
                "listeners": listeners,
                "advertised.listeners": listeners,
                "listener.security.protocol.map": (
                    f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{CLIENTS}:SASL_PLAINTEXT"
                ),
                "sasl.enabled.mechanisms": "PLAIN",
                f"listener.name.{CLIENTS.lower()}.plain.sasl.jaas.config": f"{PLAIN} required {users};",
            },
        )

    def at_broker(self, user: str) -> tuple[str, ...]:
        """Options of a tool that logs in as a user."""
        file = self._directory / f"{user}.properties"
        login = f'{PLAIN} required username="{user}" password="{PASSWORDS[user]}";'
        properties = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": login,
        }
        file.write_text(render_properties(properties, "The test's."))
        return "--bootstrap-server", self.clients, "--command-config", str(file)

    def at_controller(self, controller: int) -> tuple[str, ...]:
        """Options of a tool that asks one controller."""
        return "--bootstrap-controller", self.cluster.address(controller)

    def create(self, user: str, topic: str) -> Ran:
        """What kafka-topics says to a user who creates a topic."""
        return self.tools(KAFKA_TOPICS, *self.at_broker(user), "--create", "--topic", topic)

    def deletes(self, user: str, topic: str) -> Ran:
        """What kafka-topics says to a user who deletes a topic."""
        return self.tools(KAFKA_TOPICS, *self.at_broker(user), "--delete", "--topic", topic)


@pytest.fixture(scope="module")
def authorized(
    tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path, java_tool: JavaTools
) -> Iterator[AuthorizedCluster]:
    """A cluster with authorizers, running."""
    if version_key(RELEASE) < version_key("4.4"):
        pytest.skip(f"blocks of addresses in ACLs (KIP-1276) need brokers of Kafka 4.4, these are {RELEASE}")
    built = AuthorizedCluster(tmp_path_factory.mktemp("authorized"), kafka_jars, java_tool)
    try:
        built.cluster.start_all()
        built.cluster.await_unfenced(*built.cluster.brokers)
        yield built
    finally:
        built.cluster.close()


def test_clients_may_do_what_acls_of_either_tool_allow(authorized: AuthorizedCluster) -> None:
    """Forwarded requests are authorized by the client's principal and host."""
    tools, cluster = authorized.tools, authorized.cluster
    refused = authorized.create("alice", "alices-orders")
    assert refused.exit_code == 1
    assert "Authorization failed." in refused.stdout
    logs = "".join(cluster.log_of(controller) for controller in cluster.controllers)
    assert "authorization_denied principal=User:alice operation=CREATE host=127.0.0.1" in logs

    admin = authorized.at_broker("admin")
    prefixed = ("--topic", "alices-", "--resource-pattern-type", "prefixed")
    tools(
        KAFKA_ACLS,
        *admin,
        "--add",
        "--allow-principal",
        "User:alice",
        "--operation",
        "Create",
        "--operation",
        "Describe",
        *prefixed,
    ).succeeded()
    eventually(
        lambda: authorized.create("alice", "alices-orders").exit_code == 0, TIMEOUT_S, "alice may create"
    )
    assert authorized.create("alice", "orders").exit_code == 1
    assert authorized.create("bob", "alices-payments").exit_code == 1

    listed = [
        tools(KAFKA_ACLS, *authorized.at_controller(controller), "--list").succeeded().stdout
        for controller in cluster.controllers
    ]
    assert all("principal=User:alice, host=*, operation=CREATE" in text for text in listed), listed
    ours = succeeded(quorate("acls", *authorized.at_controller(cluster.controllers[0]), "--list"))
    assert sorted(ours.splitlines()) == sorted(listed[0].splitlines())

    assert authorized.deletes("alice", "alices-orders").exit_code == 1
    succeeded(
        quorate(
            "acls",
            "--bootstrap-controller",
            cluster.bootstrap_controllers,
            "--add",
            "--allow-principal",
            "User:alice",
            "--operation",
            "Delete",
            *prefixed,
        )
    )
    tools(
        KAFKA_ACLS,
        *authorized.at_controller(cluster.controllers[0]),
        "--add",
        "--deny-principal",
        "User:alice",
        "--deny-host",
        "127.0.0.0/8",
        "--operation",
        "Delete",
        "--topic",
        "alices-orders",
    ).succeeded()
    assert authorized.deletes("alice", "alices-orders").exit_code == 1
    succeeded(
        quorate(
            "acls",
            *admin,
            "--remove",
            "--deny-principal",
            "User:alice",
            "--deny-host",
            "127.0.0.0/8",
            "--operation",
            "Delete",
            "--topic",
            "alices-orders",
            "--force",
        )
    )
    eventually(
        lambda: authorized.deletes("alice", "alices-orders").exit_code == 0, TIMEOUT_S, "alice may delete"
    )
    tools(KAFKA_ACLS, *admin, "--remove", *prefixed, "--force").succeeded()
    eventually(lambda: authorized.create("alice", "alices-orders").exit_code == 1, TIMEOUT_S, "no ACL")


def test_acls_survive_the_active_controller_and_all_of_them(authorized: AuthorizedCluster) -> None:
    cluster, admin = authorized.cluster, authorized.at_broker("admin")
    authorized.tools(
        KAFKA_ACLS, *admin, "--add", "--allow-principal", "User:bob", "--operation", "Create", "--cluster"
    ).succeeded()
    eventually(lambda: authorized.create("bob", "bobs-0").exit_code == 0, TIMEOUT_S, "bob may create")
    active = cluster.await_quorum().leader_id
    cluster.kill(active)
    eventually(lambda: authorized.create("bob", "bobs-1").exit_code == 0, TIMEOUT_S, "another controller")
    assert authorized.create("alice", "bobs-2").exit_code == 1
    others = [controller for controller in cluster.controllers if controller != active]
    cluster.kill(*others)
    cluster.start(*cluster.controllers)
    eventually(
        lambda: authorized.create("bob", "bobs-3").exit_code == 0, TIMEOUT_S, "the controllers are back"
    )
    assert authorized.create("alice", "bobs-4").exit_code == 1
