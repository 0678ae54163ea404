"""`quorate export`: what a cluster has, as manifests."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.scripted_admin import ScriptedAdmin
from quorate.export_command import app
from quorate_admin.results import Results
from quorate_admin.types.acls import AccessControlEntry, AclBinding, ResourcePattern
from quorate_admin.types.configs import ConfigEntry, ConfigResource
from quorate_admin.types.credentials import ScramCredentialInfo, UserScramCredentialsDescription
from quorate_admin.types.quotas import ClientQuotaEntity
from quorate_admin.types.topics import PartitionDescription, TopicDescription, TopicListing
from quorate_protocol.kafka.enums import (
    USER,
    AclOperation,
    ConfigResourceType,
    ConfigSource,
    ResourceType,
    ScramMechanism,
)
from typer.testing import CliRunner

SERVERS = ("--bootstrap-server", "kafka:9092")
TOPIC = "Orders"


def entry(name: str, source: ConfigSource) -> ConfigEntry:
    """A config."""
    return ConfigEntry(name=name, value="1000", source=source, is_sensitive=False, is_read_only=False)


@pytest.fixture
def cluster(admin: ScriptedAdmin) -> ScriptedAdmin:
    """One topic with a config, one user with everything."""
    partition = PartitionDescription(
        partition=0,
        leader=0,
        leader_epoch=0,
        replicas=(0, 1),
        isr=(0, 1),
        offline_replicas=(),
        eligible_leader_replicas=None,
        last_known_elr=None,
    )
    described = TopicDescription(
        name=TOPIC, topic_id=None, is_internal=False, partitions=(partition,), authorized_operations=None
    )
    configs = (
        entry("retention.ms", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        entry("a", ConfigSource.DEFAULT_CONFIG),
    )
    credential = ScramCredentialInfo(mechanism=ScramMechanism.SCRAM_SHA_512, iterations=4096)
    acls = [
        AclBinding(
            pattern=ResourcePattern(resource_type=ResourceType.TOPIC, name=TOPIC),
            entry=AccessControlEntry(principal=principal, operation=AclOperation.READ),
        )
        for principal in ("User:alice", "Group:people;")
    ]
    admin.responses = {
        "list_topics": {TOPIC: TopicListing(name=TOPIC, topic_id=None, is_internal=False)},
        "describe_topics": Results({TOPIC: described}),
        "describe_configs": Results({ConfigResource(ConfigResourceType.TOPIC, TOPIC): configs}),
        "list_partition_reassignments": {},
        "describe_user_scram_credentials": Results(
            {"alice": UserScramCredentialsDescription(user="alice", credentials=(credential,))}
        ),
        "describe_acls": tuple(acls),
        "describe_client_quotas": {ClientQuotaEntity.of({USER: "alice"}): {"producer_byte_rate": 5.0}},
    }
    return admin


def test_topics_and_users_become_manifests(cluster: ScriptedAdmin) -> None:  # noqa: ARG001
    ran = CliRunner().invoke(app, [*SERVERS, "--cluster", "quorum"])
    assert ran.exit_code == 0, ran.output
    topic, user = yaml.safe_load_all(ran.stdout)
    assert topic["metadata"]["name"].startswith("orders-")
    assert topic["spec"] == {
        "cluster": "quorum",
        "topicName": TOPIC,
        "partitions": 1,
        "replicationFactor": 2,
        "config": {"retention.ms": "1000"},
    }
    assert user["metadata"]["name"] == "alice"
    assert user["spec"] == {
        "cluster": "quorum",
        "acls": [{"resource": {"type": "Topic", "name": TOPIC}, "operations": ["Read"]}],
        "quotas": {"producerByteRate": 5},
    }
    assert "User:alice has credentials for SCRAM-SHA-512" in ran.stderr
    assert "left out: KafkaUser people" in ran.stderr


def test_json_and_parts(cluster: ScriptedAdmin) -> None:
    ran = CliRunner().invoke(app, [*SERVERS, "--no-users", "--output", "json"])
    (topic,) = json.loads(ran.stdout)
    assert topic["spec"]["bootstrapServers"] == ["kafka:9092"]
    assert "security" not in topic["spec"]
    assert not cluster.calls_of("describe_acls")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cluster", "quorum", "--secret", "s"], "--secret is for bootstrapServers"),
        (["--secret", "s"], "--command-config has neither"),
    ],
)
def test_a_secret_that_means_nothing_is_refused(
    cluster: ScriptedAdmin,  # noqa: ARG001
    options: list[str],
    message: str,
) -> None:
    ran = CliRunner().invoke(app, [*SERVERS, *options])
    assert ran.exit_code == 2
    assert message in ran.stderr


def test_the_security_of_the_client_becomes_that_of_the_manifest(
    cluster: ScriptedAdmin,  # noqa: ARG001
    tmp_path: Path,
) -> None:
    file = tmp_path / "client.properties"
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="kept-secret";'
    file.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n")
    options = [*SERVERS, "--command-config", f"{file}", "--no-users"]
    ran = CliRunner().invoke(app, [*options, "--secret", "login"])
    assert ran.exit_code == 0, ran.output
    topic: dict[str, Any] = yaml.safe_load(ran.stdout)
    assert topic["spec"]["security"] == {
        "protocol": "SASL_PLAINTEXT",
        "mechanism": "PLAIN",
        "secretName": "login",
    }
    assert "kept-secret" not in ran.output
    refused = CliRunner().invoke(app, options)
    assert refused.exit_code == 2
    assert "--secret is needed" in refused.stderr
