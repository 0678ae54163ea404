"""A KafkaUser under a real operator, on our controllers and a stock broker: from apply to use and back."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from kit.asking import Asking
from kit.java.tls import Certificates
from kit.operators.operated import BROKER_PORT, BROKERS, SMALL_FILES, Operated
from kit.operators.resources import InClusters
from kit.waiting import eventually
from quorate_admin.types.acls import AccessControlEntry, AclBinding, ResourcePattern
from quorate_admin.types.quotas import ClientQuotaEntity
from quorate_protocol.kafka.enums import USER, AclOperation, ResourceType

CLIENTS_PORT = 9094
BROKERS_TIMEOUT_S = 240
RESPONSE_TIMEOUT_S = 30
OVERLAP, OVERLAP_TIMEOUT_S = "1m", 120
TOPIC, OTHER_TOPIC = "orders", "payments"
GIVEN, NEXT = "given-secret-1", "given-secret-2"
WRITE = {"resource": {"type": "Topic", "name": TOPIC}, "operations": ["Write", "Create"]}

DESCRIBE_CLUSTER = {"resource": {"type": "Cluster", "name": "kafka-cluster"}, "operations": ["Describe"]}
ALL_OF_TEAM = {
    "resource": {"type": "Topic", "name": "team-", "pattern": "Prefixed"},
    "operations": ["All"],
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Clients:
    """Clients of the listener with TLS and SCRAM."""

    servers: str
    authority: Path

    def produce(self, user: str, password: str, topic: str = TOPIC, *, bits: str = "512") -> int:
        """The error code of one record, or of the login."""
        codes: list[int] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            codes.append(KafkaError.NO_ERROR if error is None else error.code())

        def failed(error: KafkaError) -> None:
            if error.code() == KafkaError._AUTHENTICATION:
                codes.append(error.code())

        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": f"{self.authority}",
                "sasl.mechanism": f"SCRAM-SHA-{bits}",
                "sasl.username": user,
                "sasl.password": password,
                "error_cb": failed,
                "log_level": 0,
            }
        )
        producer.produce(topic, b"1", on_delivery=delivered)

        def is_delivered() -> bool:
            producer.poll(0.1)
            return bool(codes)

        eventually(is_delivered, RESPONSE_TIMEOUT_S, f"a response to {user}")
        producer.purge()
        return codes[0]

    def await_error_code(
        self,
        expected: int,
        user: str,
        password: str,
        *,
        bits: str = "512",
        timeout_s: float = RESPONSE_TIMEOUT_S,
    ) -> None:
        """Brokers learn of changes a moment after the controllers."""
        seen: list[int] = []

        def is_so() -> bool:
            seen.append(self.produce(user, password, bits=bits))
            return seen[-1] == expected

        eventually(is_so, timeout_s, f"the error code {expected}", lambda: f"{seen}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """A cluster with users under an operator, and its clients; `passwords` must appear nowhere else."""

    operated: Operated
    users: InClusters
    clients: Clients
    ask: Asking
    passwords: list[str] = field(default_factory=lambda: [GIVEN, NEXT])

    def acls(self) -> list[str]:
        """The ACLs of the cluster as text."""
        bindings = [acl.entry for acl in self.ask(lambda client: client.describe_acls())]
        return sorted(
            f"{binding.principal.removeprefix('User:')} {binding.operation.name.capitalize()}"
            for binding in bindings
        )


@pytest.mark.timeout(600)
def test_users_from_apply_to_use_and_back(brokered: Operated, tmp_path: Path) -> None:
    """A client with the Secret may do what the spec permits, and no more, until the resource is deleted."""
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
    address = operated.agent.address_of(f"{BROKERS}-0")
    bench = Bench(
        operated=operated,
        users=users,
        clients=Clients(servers=f"{address}:{CLIENTS_PORT}", authority=authority),
        ask=Asking(servers=f"{address}:{BROKER_PORT}"),
    )

    a_made_secret_is_used(bench)
    acls_and_passwords_follow(bench)
    a_given_secret_is_followed(bench)
    the_operator_is_a_user(bench)
    a_deleted_user_is_gone(bench)
    two_passwords_overlap(bench)

    assert not operator.errors()
    listed = operated.core.list_namespaced_event(operated.namespace)
    reported = json.dumps(operated.core.api_client.sanitize_for_serialization(listed))
    reported += operator.log.read_text() + json.dumps(users.read("carol"))
    assert "SetCredentials" in reported
    assert not [password for password in bench.passwords if password in reported]


def a_made_secret_is_used(bench: Bench) -> None:
    """Alice's Secret has what a client needs; her quota is set; the name of a node's login is refused."""
    operated, users, clients = bench.operated, bench.users, bench.clients
    users.wait_ready("alice")
    secret = read_secret(operated, "alice")
    bench.passwords.append(secret["password"])
    assert secret["username"] == "alice"
    assert f'password="{secret["password"]}"' in secret["sasl.jaas.config"]
    clients.await_error_code(KafkaError.NO_ERROR, "alice", secret["password"])
    assert clients.produce("alice", secret["password"], OTHER_TOPIC) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert bench.ask(lambda client: client.describe_client_quotas()) == {
        ClientQuotaEntity.of({USER: "alice"}): {"producer_byte_rate": 1_000_000.0}
    }
    operated.wait(lambda: users.condition("node", "Stalled").get("reason") == "ReservedUser", "the refusal")


def acls_and_passwords_follow(bench: Bench) -> None:
    """Foreign ACLs are removed, others follow the spec; a recreated Secret has another password."""
    operated, users, clients, ask = bench.operated, bench.users, bench.clients, bench.ask
    first = bench.passwords[-1]
    ask(lambda client: client.create_acls([acl_of("alice"), acl_of("bob")])).raise_any()
    operated.wait(
        lambda: bench.acls() == ["alice Create", "alice Write", "bob Read"], "the ACL to be removed"
    )
    users.patch(
        "alice",
        acls=[WRITE, {**WRITE, "permission": "Deny", "operations": ["Write"]}],
        quotas={"producerByteRate": None},
    )
    users.wait_ready("alice")
    assert ask(lambda client: client.describe_client_quotas()) == {}
    clients.await_error_code(KafkaError.TOPIC_AUTHORIZATION_FAILED, "alice", first)
    users.patch("alice", acls=[WRITE])
    operated.core.delete_namespaced_secret("alice", operated.namespace)
    operated.wait(lambda: read_secret(operated, "alice").get("password"), "another Secret")
    bench.passwords.append(read_secret(operated, "alice")["password"])
    clients.await_error_code(KafkaError.NO_ERROR, "alice", bench.passwords[-1])
    assert clients.produce("alice", first) == KafkaError._AUTHENTICATION


def a_given_secret_is_followed(bench: Bench) -> None:
    """The password of a Secret that the operator did not make is Carol's, the next one too."""
    bench.operated.put_secret("carols", {"password": GIVEN})
    bench.users.create(
        "carol", authentication={"type": "scram-sha-256", "secretName": "carols"}, acls=[WRITE]
    )
    bench.users.wait_ready("carol")
    bench.operated.put_secret("carols", {"password": NEXT})
    bench.clients.await_error_code(KafkaError.NO_ERROR, "carol", NEXT, bits="256")


def the_operator_is_a_user(bench: Bench) -> None:
    """A topic by bootstrap servers with TLS and SCRAM: the operator is Carol and may do what her ACLs allow."""
    operated, users = bench.operated, bench.users
    authority = bench.clients.authority.read_text()
    operated.put_secret("carols-login", {"username": "carol", "password": NEXT, "ca.crt": authority})
    topics = InClusters(operated, "KafkaTopic")
    security = {"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-256", "secretName": "carols-login"}
    servers = {"cluster": None, "bootstrapServers": [bench.clients.servers], "security": security}
    topics.create("team-invoices", **servers, partitions=2, config={"retention.ms": 600_000})
    operated.wait(lambda: topics.condition("team-invoices", "Stalled").get("status") == "True", "the refusal")
    assert topics.condition("team-invoices", "Stalled")["reason"].endswith("AuthorizationFailed")
    users.patch("carol", acls=[WRITE, DESCRIBE_CLUSTER, ALL_OF_TEAM])
    topics.wait_ready("team-invoices")
    made = bench.ask(lambda client: client.describe_topics(["team-invoices"]))["team-invoices"]
    assert len(made.partitions) == 2
    # The controllers have allowed the topic. The operator removes the ACLs that the broker lists, which may be late.
    operated.wait(lambda: "carol All" in bench.acls(), "the broker to have Carol's ACLs")
    users.patch("carol", acls=[WRITE])
    users.wait_ready("carol")


def a_deleted_user_is_gone(bench: Bench) -> None:
    """Nothing of Alice is left; other users are not affected."""
    operated, users = bench.operated, bench.users
    users.delete("alice")
    operated.wait(lambda: users.read("alice") is None, "the resource to go")
    bench.clients.await_error_code(KafkaError._AUTHENTICATION, "alice", bench.passwords[-1])
    operated.wait(
        lambda: set(bench.acls()) == {"bob Read", "carol Create", "carol Write"},
        "the ACLs of the others alone",
    )
    described = bench.ask(lambda client: client.describe_user_scram_credentials())
    assert set(described.values) == {"carol"}


def two_passwords_overlap(bench: Bench) -> None:
    """Dave's clients log in with the former password until its end, and with the next one from its beginning."""
    operated, users, clients = bench.operated, bench.users, bench.clients
    users.create("dave", authentication={"type": "scram-sha-512", "overlap": "1h"}, acls=[WRITE])
    users.wait_ready("dave")
    former = read_secret(operated, "dave")
    clients.await_error_code(KafkaError.NO_ERROR, "dave", former["password"])
    rotated = {"type": "scram-sha-256", "createdSecretName": "dave-2", "overlap": "1h"}
    users.patch("dave", authentication=rotated)
    operated.wait(lambda: read_secret(operated, "dave-2").get("password"), "another Secret")
    current = read_secret(operated, "dave-2")
    bench.passwords.extend((former["password"], current["password"]))
    assert (former["sasl.mechanism"], current["sasl.mechanism"]) == ("SCRAM-SHA-512", "SCRAM-SHA-256")
    clients.await_error_code(KafkaError.NO_ERROR, "dave", current["password"], bits="256")
    users.wait_ready("dave")
    assert clients.produce("dave", former["password"]) == KafkaError.NO_ERROR
    status = users.read("dave")["status"]
    assert (status["mechanism"], status["secretName"]) == ("SCRAM-SHA-256", "dave-2")
    assert status["formerPassword"]["mechanism"] == "SCRAM-SHA-512"
    assert status["formerPassword"]["validUntil"] > status["formerPassword"]["replacedAt"]

    users.patch("dave", authentication=rotated | {"overlap": OVERLAP})
    clients.await_error_code(
        KafkaError._AUTHENTICATION, "dave", former["password"], timeout_s=OVERLAP_TIMEOUT_S
    )
    assert clients.produce("dave", current["password"], bits="256") == KafkaError.NO_ERROR
    users.wait_ready("dave")
    assert "formerPassword" not in users.read("dave")["status"]


def secured(operated: Operated, tmp_path: Path) -> Path:
    """A cluster with an authorizer, whose broker has a listener for clients with TLS and SCRAM; the authority."""
    made = Certificates.create(tmp_path / "certificates", f"IP:{operated.network}.110")
    key, mark, chain = made.server.read_text().partition("-----BEGIN CERTIFICATE-----")
    operated.put_secret(
        "cert", {"tls.crt": mark + chain, "tls.key": key, "ca.crt": made.authority.read_text()}
    )
    operated.put_secret("login", {"node": "kept-secret-1"})
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


def acl_of(user: str) -> AclBinding:
    """An ACL that a client creates, not the operator."""
    return AclBinding(
        pattern=ResourcePattern(resource_type=ResourceType.TOPIC, name=TOPIC),
        entry=AccessControlEntry(principal=f"User:{user}", operation=AclOperation.READ),
    )


def read_secret(operated: Operated, name: str) -> dict[str, str]:
    """The texts of a Secret; empty while it does not exist."""
    return {key: value.decode() for key, value in (operated.agent.secret_of(name) or {}).items()}
