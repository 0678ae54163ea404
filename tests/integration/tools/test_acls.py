"""`quorate acls` beside kafka-acls: what either adds, the other lists and removes."""

import json

import pytest
from kit.java.cluster import JavaCluster
from kit.java.tools import JavaTools
from kit.membership import quorate, succeeded
from kit.waiting import eventually
from quorate.main import app
from typer.testing import CliRunner

pytestmark = pytest.mark.integration

KAFKA_ACLS = "org.apache.kafka.tools.AclCommand"
TIMEOUT_S = 15


@pytest.mark.parametrize("side", ["server", "controller"])
def test_a_producer_and_consumer_is_allowed_and_removed(
    java_cluster: JavaCluster, java_tool: JavaTools, side: str
) -> None:
    address = java_cluster.bootstrap_servers if side == "server" else java_cluster.bootstrap_controllers
    at = (f"--bootstrap-{side}", address)
    name = f"tools-acls-{side}"
    resources = ("--topic", name, "--group", name)
    who = ("--producer", "--consumer", "--allow-principal", "User:alice", "--allow-host", "10.0.0.1")

    def listed() -> list[list[str]]:
        """The lines of both tools, sorted: Java's are in the order of a hash set."""
        lines = [java_tool(KAFKA_ACLS, *at, "--list", *resources).stdout]
        lines.append(quorate("acls", *at, "--list", *resources).stdout)
        return [sorted(text.splitlines()) for text in lines]

    added = succeeded(quorate("acls", *at, "--add", *resources, *who))
    assert added.count("Adding ACLs for resource") == 2
    theirs, ours = eventually(lambda: (found := listed()) and any(found[1]) and found, TIMEOUT_S, "the ACLs")
    assert ours == theirs
    assert sum("User:alice, host=10.0.0.1" in line for line in ours) == 5
    assert succeeded(quorate("acls", *at, "--add", *resources, *who)).count(" already exists.\n") == 5
    ran = CliRunner().invoke(app, ["acls", *at, "--remove", "--topic", name], input="y\n")
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.startswith("Are you sure you want to delete all ACLs for resource filter")
    removed = json.loads(succeeded(quorate("acls", *at, "--remove", *resources, "--force", "-o", "json")))
    assert [(binding["resourceType"], binding["operation"]) for binding in removed["removed"]] == [
        ("GROUP", "READ")
    ]
    eventually(lambda: listed() == [[], []], TIMEOUT_S, "no ACL")
