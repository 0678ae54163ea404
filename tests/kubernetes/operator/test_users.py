"""A KafkaUser under a real operator, on our controllers and a stock broker: from apply to use and back."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer
from kit.asking import Asking
from kit.java.tls import Certificates
from kit.operators.operated import BROKER_PORT, BROKERS, SMALL_FILES, Operated
from kit.operators.resources import InClusters
from kit.waiting import eventually
from quorate_admin.types.acls import AccessControlEntry, AclBinding, ResourcePattern
from quorate_admin.types.quotas import USER, ClientQuotaEntity
from quorate_protocol.kafka.enums import AclOperation, ResourceType

CLIENTS_PORT = 9094
BROKERS_TIMEOUT_S = 240
ANSWER_TIMEOUT_S = 30
TOPIC, OTHER_TOPIC = "orders", "payments"
GIVEN, NEXT = "given-secret-1", "given-secret-2"
WRITE = {"resource": {"type": "Topic", "name": TOPIC}, "operations": ["Write", "Create"]}

DESCRIBE_CLUSTER = {"resource": {"type": "Cluster", "name": "kafka-cluster"}, "operations": ["Describe"]}
ALL_OF_TEAM = {
    "resource": {"type": "Topic", "name": "team-", "pattern": "Prefixed"},
    "operations": ["All"],
}


@pytest.mark.timeout(600)
def test_users_from_apply_to_use_and_back(brokered: Operated, tmp_path: Path) -> None:
    """Goal: whoever has the Secret may do what the spec says, and no more, until the resource is deleted.

    Method: a user with a Secret that is made, who produces through TLS and SCRAM to one topic and not to another;
    another password, an ACL of somebody else, a quota; one with a given Secret, whom the operator is for a topic; a
    reserved name; the deletion.
    """
    operated = brokered
    authority = secured(operated, tmp_path)
    users = InClusters(operated, "KafkaUser")
    users.create(
        "alice",
        authentication={"type": "scram-sha-512"},
        acls=[WRITE],
        quotas={"producerByteRate": 1_000_000},
    )
    users.create("node", authentication={"type": "scram-sha-512"})
    operator = operated.start_operator("--no-leader-election", "--drift-interval=2")
    operated.wait(lambda: operated.brokers_settled(0), "the broker to be ready", BROKERS_TIMEOUT_S)
    clients = f"{operated.agent.address_of(f'{BROKERS}-0')}:{CLIENTS_PORT}"
    ask = Asking(servers=f"{operated.agent.address_of(f'{BROKERS}-0')}:{BROKER_PORT}")

    def produced(user: str, password: str, topic: str = TOPIC) -> int:
        return outcome(clients, authority, user, password, topic)

    # Made, and used.
    users.wait_ready("alice")
    secret = read_secret(operated, "alice")
    passwords = [secret["password"], GIVEN, NEXT]
    assert secret["username"] == "alice"
    assert f'password="{secret["password"]}"' in secret["sasl.jaas.config"]
    may_produce(lambda: produced("alice", secret["password"]), KafkaError.NO_ERROR)
    assert produced("alice", secret["password"], OTHER_TOPIC) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert ask(lambda client: client.describe_client_quotas()) == {
        ClientQuotaEntity.of({USER: "alice"}): {"producer_byte_rate": 1_000_000.0}
    }
    operated.wait(lambda: users.condition("node", "Stalled").get("reason") == "ReservedUser", "the refusal")

    # ACLs of somebody else are removed, others come and go with the spec; a Secret made anew is another password.
    ask(lambda client: client.create_acls([acl_of("alice"), acl_of("bob")])).raise_any()
    operated.wait(
        lambda: names_of_acls(ask) == ["alice Create", "alice Write", "bob Read"], "the ACL to be removed"
    )
    users.patch(
        "alice",
        acls=[WRITE, {**WRITE, "permission": "Deny", "operations": ["Write"]}],
        quotas={"producerByteRate": None},
    )
    users.wait_ready("alice")
    assert ask(lambda client: client.describe_client_quotas()) == {}
    may_produce(lambda: produced("alice", secret["password"]), KafkaError.TOPIC_AUTHORIZATION_FAILED)
    users.patch("alice", acls=[WRITE])
    operated.core.delete_namespaced_secret("alice", operated.namespace)
    operated.wait(lambda: read_secret(operated, "alice").get("password"), "another Secret")
    passwords.append(read_secret(operated, "alice")["password"])
    may_produce(lambda: produced("alice", passwords[-1]), KafkaError.NO_ERROR)
    assert produced("alice", secret["password"]) == KafkaError._AUTHENTICATION

    # A given Secret, whose change is followed.
    put_secret(operated, "carols", {"password": GIVEN})
    users.create("carol", authentication={"type": "scram-sha-256", "secretName": "carols"}, acls=[WRITE])
    users.wait_ready("carol")
    put_secret(operated, "carols", {"password": NEXT})
    may_produce(lambda: outcome(clients, authority, "carol", NEXT, TOPIC, bits="256"), KafkaError.NO_ERROR)

    # A topic by bootstrap servers with TLS and SCRAM, where the operator is carol and may do what her ACLs allow.
    login = {"username": "carol", "password": NEXT, "ca.crt": authority.read_text()}
    put_secret(operated, "carols-login", login)
    topics = InClusters(operated, "KafkaTopic")
    security = {"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-256", "secretName": "carols-login"}
    servers = {"cluster": None, "bootstrapServers": [clients], "security": security}
    topics.create("team-invoices", **servers, partitions=2, config={"retention.ms": 600_000})
    operated.wait(lambda: topics.condition("team-invoices", "Stalled").get("status") == "True", "the refusal")
    assert topics.condition("team-invoices", "Stalled")["reason"].endswith("AuthorizationFailed")
    users.patch("carol", acls=[WRITE, DESCRIBE_CLUSTER, ALL_OF_TEAM])
    topics.wait_ready("team-invoices")
    made = ask(lambda client: client.describe_topics(["team-invoices"]))["team-invoices"]
    assert len(made.partitions) == 2
    users.patch("carol", acls=[WRITE])
    users.wait_ready("carol")

    # Back: nothing of her is left, and nobody else is concerned.
    users.delete("alice")
    operated.wait(lambda: users.read("alice") is None, "the resource to go")
    may_produce(lambda: produced("alice", passwords[-1]), KafkaError._AUTHENTICATION)
    assert set(names_of_acls(ask)) == {"bob Read", "carol Create", "carol Write"}
    described = ask(lambda client: client.describe_user_scram_credentials())
    assert set(described.values) == {"carol"}
    assert not operator.errors()
    listed = operated.core.list_namespaced_event(operated.namespace)
    told = json.dumps(operated.core.api_client.sanitize_for_serialization(listed))
    told += operator.log.read_text() + json.dumps(users.read("carol"))
    assert "SetCredentials" in told
    assert not [one for one in passwords if one in told]


def secured(operated: Operated, tmp_path: Path) -> Path:
    """A cluster with an authorizer, whose broker has a listener for clients with TLS and SCRAM; the authority."""
    made = Certificates.create(tmp_path / "certificates", f"IP:{operated.network}.110")
    key, mark, chain = made.server.read_text().partition("-----BEGIN CERTIFICATE-----")
    put_secret(
        operated, "cert", {"tls.crt": mark + chain, "tls.key": key, "ca.crt": made.authority.read_text()}
    )
    put_secret(operated, "login", {"node": "kept-secret-1"})
    operated.create(replicas=1, authorization={"superUsers": ["User:ANONYMOUS"]})
    clients = {
        **operated.internal_listener(),
        "name": "CLIENTS",
        "port": CLIENTS_PORT,
        "protocol": "SASL_SSL",
        "tls": {"secretName": "cert"},
        "sasl": {"username": "node", "secretName": "login", "mechanisms": ["SCRAM-SHA-512", "SCRAM-SHA-256"]},
    }
    operated.create_brokers(
        listeners=[operated.internal_listener(), clients],
        config={**SMALL_FILES, "auto.create.topics.enable": "true"},
    )
    return made.authority


def outcome(servers: str, authority: Path, user: str, password: str, topic: str, *, bits: str = "512") -> int:
    """The error code of one record, or of the login."""
    codes: list[int] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        codes.append(KafkaError.NO_ERROR if error is None else error.code())

    def failed(error: KafkaError) -> None:
        if error.code() == KafkaError._AUTHENTICATION:
            codes.append(error.code())

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": f"{authority}",
            "sasl.mechanism": f"SCRAM-SHA-{bits}",
            "sasl.username": user,
            "sasl.password": password,
            "error_cb": failed,
            "log_level": 0,
        }
    )
    producer.produce(topic, b"1", on_delivery=delivered)

    def answered() -> bool:
        producer.poll(0.1)
        return bool(codes)

    eventually(answered, ANSWER_TIMEOUT_S, f"an answer to {user}")
    producer.purge()
    return codes[0]


def may_produce(attempt: Any, expected: int) -> None:
    """Brokers learn of changes a moment after the controllers."""
    seen: list[int] = []

    def is_so() -> bool:
        seen.append(attempt())
        return seen[-1] == expected

    eventually(is_so, ANSWER_TIMEOUT_S, f"the outcome {expected}", lambda: f"{seen}")


def acl_of(user: str) -> AclBinding:
    """Somebody else's."""
    return AclBinding(
        pattern=ResourcePattern(resource_type=ResourceType.TOPIC, name=TOPIC),
        entry=AccessControlEntry(principal=f"User:{user}", operation=AclOperation.READ),
    )


def names_of_acls(ask: Asking) -> list[str]:
    """Who may do what."""
    bindings = [one.entry for one in ask(lambda client: client.describe_acls())]
    return sorted(
        f"{one.principal.removeprefix('User:')} {one.operation.name.capitalize()}" for one in bindings
    )


def put_secret(operated: Operated, name: str, texts: dict[str, str]) -> None:
    """Create or replace a Secret."""
    data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    body = {"metadata": {"name": name}, "data": data}
    if name in {one.metadata.name for one in operated.core.list_namespaced_secret(operated.namespace).items}:
        operated.core.replace_namespaced_secret(name, operated.namespace, body)
    else:
        operated.core.create_namespaced_secret(operated.namespace, body)


def read_secret(operated: Operated, name: str) -> dict[str, str]:
    """The texts of a Secret; empty while there is none."""
    return {key: value.decode() for key, value in (operated.agent.secret_of(name) or {}).items()}
